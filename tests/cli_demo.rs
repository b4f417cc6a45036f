//! `backfill demo`: ends, with a word on what is wrong, when it cannot do what it shows.
#![cfg(all(feature = "cli", unix))]

use std::process::Command;

#[test]
fn a_store_that_takes_nothing_more_ends_the_demo() {
    let folder = tempfile::tempdir().expect("a folder");
    // No file may grow beyond 1 MiB (in blocks of 512 bytes), and that is an error of the write and no signal.
    let limited = r#"trap '' XFSZ; ulimit -f 2048; exec "$0" demo --db "$1""#;
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_backfill")])
        .arg(folder.path().join("demo.db"))
        .env("RUST_LOG", "off")
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the store does not take what is recorded"), "{said}");
}
