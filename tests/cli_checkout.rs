//! `backfill checkout` of files: every fixture prints exactly what its PDS listed, a damaged one nothing but the cause. What becomes of the output,
//! of signals and of refusals.
#![cfg(feature = "cli")]

#[path = "common/fixtures.rs"]
mod fixtures;
#[path = "common/responder.rs"]
mod responder;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use atproto_backfill::repo::export::{car_block, car_header, signed_commit};
use atproto_backfill::repo::mst::{Tree, Visit};
use atproto_backfill::repo::{Curve, Link, PublicKey, SigningKey, json as data};
use atproto_backfill::syntax::{Did, Rev};
use fixtures::Fixture;
use responder::{Responder, answer};
use serde_json::{Value, json};

fn program(command: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_backfill"));
    program.arg(command).env_remove("RUST_LOG");
    program
}

fn checkout(arguments: &[&OsStr]) -> Output {
    program("checkout").args(arguments).output().expect("the program runs")
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

fn checkout_to(out: &Path, stdout: Stdio) -> Output {
    let mut program = program("checkout");
    let program = program.arg("--no-verify-signature").arg(named("one").car).arg("--out").arg(out).stdout(stdout).stderr(Stdio::piped());
    let output = program.spawn().and_then(Child::wait_with_output).expect("the program runs");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    output
}

#[cfg(unix)]
#[test]
fn an_output_behind_links_is_replaced_and_the_links_stay() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("elsewhere")).unwrap();
    std::fs::write(at("elsewhere/there"), "as it was").unwrap();
    symlink("elsewhere/there", at("near")).unwrap();
    symlink(at("near"), at("far")).unwrap();
    symlink("elsewhere/not-yet", at("dangling")).unwrap();
    for (link, target) in [("far", "elsewhere/there"), ("dangling", "elsewhere/not-yet")] {
        checkout_to(&at(link), Stdio::null());
        assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link} is a link no more");
        assert_eq!(std::fs::read_to_string(at(target)).unwrap().lines().count(), 1, "{target}");
    }
    assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 2, "a temporary file is left");
}

#[cfg(unix)]
#[test]
fn an_output_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.jsonl");
    for mode in [0o600, 0o640, 0o666, 0o755] {
        std::fs::write(&out, "as it was").unwrap();
        std::fs::set_permissions(&out, PermissionsExt::from_mode(mode)).unwrap();
        checkout_to(&out, Stdio::null());
        assert_eq!(out.metadata().unwrap().permissions().mode() & 0o7777, mode, "{mode:o}");
    }
}

#[cfg(unix)]
#[test]
fn standard_output_by_name_is_written_in_place() {
    // As /dev/stdout is, but not where a program that replaces it would do harm.
    let (folder, links) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (log, link) = (folder.path().join("log"), links.path().join("stdout"));
    std::os::unix::fs::symlink("/dev/fd/1", &link).unwrap();
    assert_eq!(lines(&checkout_to(&link, Stdio::piped())).len(), 1, "a pipe");
    for name in [link.as_path(), Path::new("/dev/fd/1")] {
        std::fs::write(&log, "before\n").unwrap();
        let file = std::fs::File::options().append(true).open(&log).unwrap();
        checkout_to(name, file.into());
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("before\n{"), "{}: {text:?}", name.display());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{}: a temporary file is left", name.display());
    }
    assert!(link.symlink_metadata().unwrap().is_symlink(), "a link no more");
}

/// A repo that takes long to print and little to make: very many paths that share one record of many numbers.
fn long_repo() -> Vec<u8> {
    let record = data::from_value(&json!({"$type": "com.example.a", "numbers": (0..20_000).collect::<Vec<u32>>()})).expect("a record");
    let (link, mut tree) = (Link::of(&record), Tree::new());
    for number in 0..20_000 {
        tree.insert(format!("com.example.a/{number:08}").as_bytes(), link).expect("no stubs");
    }
    let (did, root) = (Did::new("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").expect("a DID"), tree.seal().root);
    let (commit, block) =
        signed_commit(&did, Rev::from_parts(1_760_000_000_000_000, 1), root, &SigningKey::from_seed(Curve::K256, &[7; 32]));
    let mut car = Vec::new();
    car_header(&mut car, &commit);
    car_block(&mut car, &commit, &block);
    tree.visit(|visit| {
        if let Visit::Node(link, block) = visit {
            car_block(&mut car, &link, block);
        }
    });
    car_block(&mut car, &link, &record);
    car
}

/// Waits until something is so; the test fails after a minute.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not in a minute");
        std::thread::yield_now();
    }
}

/// Those signals that this process was not started to ignore, as `nohup` and background jobs are: the program inherits that.
fn heeded<const N: usize>(signals: [(&'static str, u32); N]) -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map_or("0", str::trim);
    let ignored = u64::from_str_radix(mask, 16).expect("a mask");
    signals.into_iter().filter(|(_, number)| ignored >> (number - 1) & 1 == 0).map(|(name, _)| name).collect()
}

/// Sends a signal to a program, and answers its exit code and how long it took to end.
fn signalled(program: &mut Child, signal: &str) -> (Option<i32>, Duration) {
    let sent = Command::new("kill").arg(format!("-{signal}")).arg(program.id().to_string()).status();
    assert!(sent.expect("kill").success());
    let began = Instant::now();
    let status = program.wait().expect("it ends");
    (status.code(), began.elapsed())
}

#[cfg(unix)]
#[test]
fn a_signal_while_a_repo_is_printed_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (car, outs) = (folder.path().join("long.car"), folder.path().join("outs"));
    std::fs::write(&car, long_repo()).unwrap();
    std::fs::create_dir(&outs).unwrap();
    for signal in heeded([("INT", 2), ("TERM", 15), ("HUP", 1)]) {
        let mut program = program("checkout");
        let program = program.arg("--no-verify-signature").arg(&car).arg("--out").arg(outs.join("out.jsonl")).stderr(Stdio::null());
        let mut running = program.spawn().unwrap();
        let entries = || std::fs::read_dir(&outs).unwrap().map(|entry| entry.unwrap());
        until("something is printed", || entries().any(|entry| entry.metadata().is_ok_and(|found| found.len() > 0)));
        let (code, took) = signalled(&mut running, signal);
        assert_eq!(code, Some(130), "{signal}");
        // A second when the machine is free.
        assert!(took < Duration::from_secs(3), "{signal}: {took:?}");
        assert_eq!(entries().count(), 0, "{signal}: a temporary file is left");
    }
}

#[cfg(unix)]
#[test]
fn a_demo_that_is_ended_as_it_begins_leaves_no_store_behind() {
    for signal in heeded([("TERM", 15), ("HUP", 1)]) {
        let folder = tempfile::tempdir().unwrap();
        let mut program = program("demo");
        let mut running = program.env("TMPDIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let entries = || std::fs::read_dir(folder.path()).unwrap().count();
        until("the store is made", || entries() > 0);
        assert_eq!(signalled(&mut running, signal).0, Some(130), "{signal}");
        assert_eq!(entries(), 0, "{signal}: the store is left");
    }
}

#[test]
fn a_demo_wants_a_store_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("there.db");
    std::fs::write(&db, "mine").unwrap();
    let output = program("demo").arg("--db").arg(&db).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(&db).unwrap(), "mine");
}

#[test]
fn files_whose_keys_are_known_need_no_certificates() {
    let (fixture, folder) = (named("one"), tempfile::tempdir().unwrap());
    for options in [vec!["--no-verify-signature".to_owned()], vec!["--key".to_owned(), key(&fixture)]] {
        let mut program = program("checkout");
        let program = program.env("SSL_CERT_FILE", folder.path().join("none")).env("SSL_CERT_DIR", folder.path());
        let output = program.args(&options).arg(&fixture.car).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", said(&output));
        assert_eq!(lines(&output).len(), 1);
    }
}

#[test]
fn environment_variables_that_are_set_to_nothing_count_as_not_set() {
    let fixture = named("one");
    for name in ["BACKFILL_HOST", "BACKFILL_PLC_URL", "BACKFILL_CONTACT"] {
        let output = program("checkout").env(name, "").arg("--no-verify-signature").arg(&fixture.car).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", said(&output));
    }
    let output = program("checkout").env("BACKFILL_HOST", "nonsense").arg("--no-verify-signature").arg(&fixture.car).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "what is set to something counts");
}

/// Runs the program with a directory, while that goes on answering.
async fn with_directory(directory: &Responder, repo: &OsStr) -> Output {
    let mut program = program("checkout");
    program.arg("--development").arg("--plc-url").arg(directory.origin()).arg(repo);
    tokio::task::spawn_blocking(move || program.output().expect("the program runs")).await.expect("no panic")
}

#[tokio::test]
async fn the_key_of_a_file_is_waited_for_and_its_account_needs_no_host() {
    let fixture = named("one");
    let mut document = fixture.document.clone();
    document["service"] = json!([]);
    let (document, asked) = (document.to_string().into_bytes(), std::sync::atomic::AtomicU32::new(0));
    let directory = Responder::start(move |_| match asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => answer(429, &[("retry-after", "2")], b"{}"),
        _ => answer(200, &[], &document),
    })
    .await;
    let output = with_directory(&directory, fixture.car.as_ref()).await;
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(lines(&output).len(), 1);
    assert_eq!(directory.seen().len(), 2);
    let did = fixture.document["id"].as_str().expect("a DID");
    let refused = format!("{did}: {} refused for load, asked again in 2 s", directory.name());
    assert!(said(&output).contains(&refused), "{}", said(&output));
}

#[tokio::test]
async fn a_failure_names_its_account_once() {
    let directory = Responder::start(|_| answer(404, &[], b"{}")).await;
    let did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    let output = with_directory(&directory, did.as_ref()).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said(&output).matches(did).count(), 1, "{}", said(&output));
}
