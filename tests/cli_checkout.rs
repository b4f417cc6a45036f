//! `backfill checkout` of files: every fixture prints exactly what its PDS listed, a damaged one nothing but the cause.
#![cfg(feature = "cli")]

#[path = "common/fixtures.rs"]
mod fixtures;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use atproto_backfill::repo::PublicKey;
use fixtures::Fixture;
use serde_json::{Value, json};

fn checkout(arguments: &[&OsStr]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_backfill"));
    program.arg("checkout").args(arguments).env_remove("RUST_LOG").output().expect("the program runs")
}

fn key(fixture: &Fixture) -> String {
    let method = &fixture.document["verificationMethod"][0];
    let text = |name: &str| method[name].as_str().expect("text");
    PublicKey::from_verification_method(text("type"), text("publicKeyMultibase")).expect("a key").to_did_key()
}

fn with_key(fixture: &Fixture, car: &Path) -> Output {
    checkout(&["--key".as_ref(), key(fixture).as_ref(), car.as_ref()])
}

fn lines(output: &Output) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn named(name: &str) -> Fixture {
    fixtures::all().into_iter().find(|fixture| fixture.name == name).expect("the fixture")
}

#[test]
fn every_fixture_prints_exactly_what_its_pds_listed() {
    for fixture in fixtures::all() {
        let output = with_key(&fixture, &fixture.car);
        assert_eq!(output.status.code(), Some(0), "{}: {}", fixture.name, said(&output));
        let lines = lines(&output);
        let rev = lines.first().map_or(Value::Null, |line| line["rev"].clone());
        let did = &fixture.document["id"];
        let listed = fixture.listing.iter();
        let expected: Vec<Value> =
            listed.map(|r| json!({"did": did, "rev": rev, "path": r.path, "cid": r.cid, "record": r.value})).collect();
        assert_eq!(lines, expected, "{}", fixture.name);
    }
}

#[test]
fn a_collection_is_a_true_filter() {
    let fixture = named("collections");
    for (pattern, takes) in [("com.example.a", "com.example.a/"), ("com.example.a.*", "com.example.a.")] {
        let arguments = ["--no-verify-signature", "--collection", pattern].map(OsStr::new);
        let output = checkout(&[&arguments[..], &[fixture.car.as_ref()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let printed: Vec<String> = lines(&output).iter().map(|line| line["path"].as_str().expect("a path").to_owned()).collect();
        let listed = fixture.listing.iter().map(|record| &record.path);
        let expected: Vec<String> = listed.filter(|path| path.starts_with(takes)).cloned().collect();
        assert!(!expected.is_empty());
        assert_eq!(printed, expected, "{pattern}");
    }
}

#[test]
fn a_damaged_fixture_prints_nothing_and_exits_with_1_and_the_cause() {
    let fixture = named("hundred");
    let whole = std::fs::read(&fixture.car).expect("the fixture");
    let folder = tempfile::tempdir().expect("a folder");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let damaged = [
        ("empty", Vec::new()),
        ("html", b"<!doctype html><title>502</title>".to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("one byte less", whole[..whole.len() - 1].to_vec()),
        ("a bit in the header", flipped(20)),
        ("a bit in a block", flipped(whole.len() / 2)),
        ("a bit in the last byte", flipped(whole.len() - 1)),
    ];
    for (what, bytes) in damaged {
        let car = folder.path().join("damaged.car");
        std::fs::write(&car, bytes).expect("a file");
        let output = with_key(&fixture, &car);
        assert_eq!(output.status.code(), Some(1), "{what}: {}", said(&output));
        assert_eq!(lines(&output), Vec::<Value>::new(), "{what}");
        let said = said(&output);
        let cause = said.strip_prefix(&format!("{}: ", car.display())).unwrap_or_default();
        assert!(cause.trim().len() > 10, "{what}: {said:?}");
    }
}

#[test]
fn a_repo_signed_with_another_key_prints_nothing_and_exits_with_1() {
    let (fixture, other) = (named("one"), named("hundred"));
    let output = with_key(&other, &fixture.car);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(lines(&output), Vec::<Value>::new());
    assert!(said(&output).contains("signature"), "{}", said(&output));
}

#[test]
fn a_bad_file_does_not_keep_the_good_ones_from_being_printed() {
    let fixture = named("one");
    let missing = Path::new("no-such-file.car");
    let output = checkout(&["--no-verify-signature".as_ref(), missing.as_ref(), fixture.car.as_ref()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lines(&output).len(), 1);
    assert!(said(&output).contains("no-such-file.car"), "{}", said(&output));
}

#[test]
fn wrong_usage_exits_with_2() {
    let cases: [&[&str]; 5] =
        [&[], &["did:nonsense"], &["--collection", "*", "a.car"], &["--key", "zzz", "a.car"], &["--nonsense", "a.car"]];
    for arguments in cases {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let output = checkout(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn the_output_file_is_replaced_only_when_a_repo_was_printed() {
    let fixture = named("one");
    let folder = tempfile::tempdir().unwrap();
    let (out, own) = (folder.path().join("out.jsonl"), folder.path().join("own.car"));
    std::fs::write(&out, "as it was").unwrap();
    std::fs::copy(&fixture.car, &own).unwrap();
    let run = |car: &Path, out: &Path| checkout(&["--no-verify-signature".as_ref(), "--out".as_ref(), out.as_ref(), car.as_ref()]);
    assert_eq!(run(&folder.path().join("none.car"), &out).status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "as it was");
    assert_eq!(run(&fixture.car, &out).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 1);
    // Even the file that is read may be the one that is written.
    assert_eq!(run(&own, &own).status.code(), Some(0));
    assert_eq!(std::fs::read(&own).unwrap(), std::fs::read(&out).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file is left");
}

#[test]
fn options_of_files_are_refused_for_dids() {
    let did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    let key = key(&named("one"));
    for options in [vec!["--no-verify-signature"], vec!["--key", &key]] {
        let arguments: Vec<&OsStr> = options.iter().copied().chain([did]).map(OsStr::new).collect();
        assert_eq!(checkout(&arguments).status.code(), Some(2), "{options:?}");
    }
}

#[test]
fn arguments_that_cannot_be_meant_are_wrong_usage() {
    for arguments in [["--host", "file:///etc"], ["--plc-url", "ftp://plc.example"], ["--contact", "a\nb"], ["--collection", "app.bsky.*"]]
    {
        let meant = arguments[0] == "--collection";
        let all: Vec<&OsStr> = arguments.iter().copied().chain(["--no-verify-signature", "/no/such.car"]).map(OsStr::new).collect();
        assert_eq!(checkout(&all).status.code(), Some(if meant { 1 } else { 2 }), "{arguments:?}");
    }
    assert_eq!(checkout(&["at://did:plc:abc/a.b.c/1".as_ref()]).status.code(), Some(2));
    assert_eq!(checkout(&["".as_ref()]).status.code(), Some(2));
}
