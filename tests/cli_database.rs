//! `--db` takes a file or a URL, and says nothing secret of the URL.
#![cfg(feature = "cli")]

use std::path::Path;
use std::process::Command;

/// What `backfill run` says, and its exit code, with a database that it cannot have.
fn run(database: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_backfill"))
        .args(["run", "--pds", "http://127.0.0.1:9", "--development", "--jsonl"])
        .arg(folder.path().join("lines"))
        .env("BACKFILL_DB", database)
        .current_dir(folder.path())
        .output()
        .expect("the program runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

#[cfg(feature = "postgres")]
#[test]
fn a_server_that_does_not_answer_is_told_without_the_password() {
    let (code, said) = run("postgres://me:geheim@/store?host=/nowhere");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("/nowhere") && !said.contains("geheim"), "{said}");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn a_url_is_wrong_usage_of_a_program_without_postgres() {
    let (code, said) = run("postgres://me:geheim@db.test/store");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("\"postgres\"") && !said.contains("geheim"), "{said}");
}

#[test]
fn the_help_does_not_show_the_url_that_the_environment_has() {
    let output = Command::new(env!("CARGO_BIN_EXE_backfill"))
        .args(["run", "--help"])
        .env("BACKFILL_DB", "postgres://me:geheim@db.test/store")
        .output()
        .expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("BACKFILL_DB") && !said.contains("geheim"), "{said}");
}

#[test]
fn durability_is_full_or_normal_and_the_help_says_what_it_can_cost() {
    let output = Command::new(env!("CARGO_BIN_EXE_backfill")).args(["run", "--help"]).output().expect("the program runs");
    // As if it were on one line.
    let help = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("--durability <full | normal>") && help.contains("loss of power"), "{help}");
    let folder = tempfile::tempdir().expect("a folder");
    for (durability, code) in [("full", 1), ("normal", 1), ("most", 2)] {
        let database = folder.path().join("not there").join("store.db");
        let output = Command::new(env!("CARGO_BIN_EXE_backfill"))
            .args(["run", "--pds", "http://127.0.0.1:9", "--development", "--durability", durability, "--db"])
            .arg(&database)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        // One that is known gets as far as the database, which cannot be had.
        assert_eq!(output.status.code(), Some(code), "{durability}: {said}");
        assert_eq!(said.contains("neither full nor normal"), code == 2, "{said}");
    }
}

#[test]
fn a_database_that_cannot_be_opened_is_named_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (nowhere, text, empty) =
        (folder.path().join("nowhere").join("a.db"), folder.path().join("text.db"), folder.path().join("empty.db"));
    std::fs::write(&text, "this is a letter and no database\n".repeat(400)).expect("it is written");
    std::fs::write(&empty, "").expect("it is written");
    for (command, database, why) in [
        ("run", &nowhere, "No such file or directory"),
        ("run", &text, "not a database"),
        ("check", &nowhere, "No such file or directory"),
        ("check", &text, "not a database"),
        ("check", &empty, "no store was made in this database"),
        ("stats", &empty, "no store was made in this database"),
    ] {
        let (code, said) = match command {
            "run" => run(database.to_str().expect("a path of ours")),
            _ => store(command, database),
        };
        assert_eq!(code, Some(1), "{command}: {said}");
        assert!(said.contains(database.to_str().expect("a path of ours")) && said.contains(why), "{command}: {said}");
    }
}

fn store(command: &str, database: &Path) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_backfill")).args(["store", command, "--db"]).arg(database).output().expect("the program runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
