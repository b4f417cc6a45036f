//! What a reader of the JSON lines of `backfill run` holds, and whether the lines come in an order that they may come in.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde_json::Value;

/// Path → CID and JSON value of every record of one repo.
pub(crate) type Records = BTreeMap<String, (String, Value)>;

/// The file read so far: creates and updates apply, deletes remove, a deleted account's records are dropped, those of a purged repo too, repeats change nothing.
pub(crate) struct Fold {
    path: PathBuf,
    /// Where the last whole line ends that was read.
    read: u64,
    lines: usize,
    repos: BTreeMap<String, Records>,
    accounts: BTreeMap<String, String>,
    order: Order,
    pub(crate) counts: Counts,
}

/// What has come. Nothing here is required by itself; a test that saw none of something has not tested it.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) live: u64,
    pub(crate) checkout: u64,
    pub(crate) deletes: u64,
    pub(crate) accounts: u64,
    /// Live commits that had come before a process was killed, but were not recorded, and came again.
    pub(crate) repeated: u64,
    /// Lines that said what was known.
    pub(crate) again: u64,
}

/// The order within one process, and against what was recorded when the one before it was killed.
#[derive(Default)]
struct Order {
    recorded: HashMap<String, String>,
    last: HashMap<String, String>,
    highest: HashMap<String, String>,
    violations: Vec<String>,
}

impl Fold {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            read: 0,
            lines: 0,
            repos: BTreeMap::new(),
            accounts: BTreeMap::new(),
            order: Order::default(),
            counts: Counts::default(),
        }
    }

    /// Reads what has been added, as far as lines are whole. Returns how many lines.
    pub(crate) fn read(&mut self) -> usize {
        // It is made by the first start.
        let Ok(mut file) = std::fs::File::open(&self.path) else { return 0 };
        let length = file.metadata().expect("a length").len();
        assert!(length >= self.read, "whole lines were cut off: {length} bytes, {} were read", self.read);
        let mut added = Vec::new();
        file.seek(SeekFrom::Start(self.read)).and_then(|_| file.read_to_end(&mut added)).expect("the file is read");
        let whole = added.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        let lines = added[..whole].split_inclusive(|&byte| byte == b'\n');
        let count = lines.map(|line| self.take(&serde_json::from_slice(line).expect("a line of JSON"))).count();
        self.lines += count;
        count
    }

    /// How many lines were read so far.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// The process that wrote up to here is dead, and has left these revs in its database. Each repo's later lines must come after its rev.
    pub(crate) fn restarted(&mut self, recorded: HashMap<String, String>) {
        self.order.recorded = recorded;
        self.order.last.clear();
    }

    /// What is held of a repo.
    pub(crate) fn records(&self, did: &str) -> Records {
        self.repos.get(did).cloned().unwrap_or_default()
    }

    /// What was told last of an account.
    pub(crate) fn account(&self, did: &str) -> Option<&str> {
        self.accounts.get(did).map(String::as_str)
    }

    /// What came that should not have.
    pub(crate) fn violations(&self) -> &[String] {
        &self.order.violations
    }

    fn take(&mut self, line: &Value) {
        let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
        match text("type").as_str() {
            "record" => self.record(line, &text),
            "account" => self.tell(text("did"), text("status"), &line["active"]),
            "purged" => self.purge(&text("did")),
            "purging" => {}
            other => panic!("a line of type {other}"),
        }
    }

    fn record(&mut self, line: &Value, text: &dyn Fn(&str) -> String) {
        let (did, rev, path, live) = (text("did"), text("rev"), text("path"), line["live"].as_bool().expect("live or not"));
        let repeated = self.order.take(&did, rev, live);
        self.counts.repeated += u64::from(repeated && live);
        *(if live { &mut self.counts.live } else { &mut self.counts.checkout }) += 1;
        let records = self.repos.entry(did).or_default();
        let is_known = match text("action").as_str() {
            "create" | "update" => {
                let cid = text("cid");
                records.insert(path, (cid.clone(), line["record"].clone())).is_some_and(|(known, _)| known == cid)
            }
            "delete" => {
                self.counts.deletes += 1;
                records.remove(&path).is_none()
            }
            other => panic!("unknown action {other}"),
        };
        self.counts.again += u64::from(is_known);
    }

    fn tell(&mut self, did: String, status: String, active: &Value) {
        assert_eq!(active.as_bool(), Some(status == "active"), "{did}: {status}");
        self.counts.accounts += 1;
        if status == "deleted" {
            self.repos.remove(&did);
        }
        self.accounts.insert(did, status);
    }

    /// The consumer has had the repo purged, and forgot it: what comes next begins anew.
    fn purge(&mut self, did: &str) {
        self.repos.remove(did);
        self.accounts.remove(did);
        self.order.recorded.remove(did);
        self.order.last.remove(did);
        self.order.highest.remove(did);
    }
}

impl Order {
    /// Revs are compared as text, which is their order (atproto.com/specs/tid). Returns whether the repo was at this rev, or further, before the restart.
    fn take(&mut self, did: &str, rev: String, live: bool) -> bool {
        if let Some(last) = self.last.get(did).filter(|last| **last > rev) {
            self.violations.push(format!("{did}: rev {rev} after {last} by one process, live: {live}"));
        }
        // A checkout may find the repo where it was left.
        if let Some(recorded) = self.recorded.get(did).filter(|recorded| **recorded > rev || live && **recorded == rev) {
            self.violations.push(format!("{did}: rev {rev} again although {recorded} was recorded, live: {live}"));
        }
        let is_new_here = self.last.get(did) != Some(&rev);
        let highest = self.highest.entry(did.to_owned()).or_default();
        let repeated = is_new_here && *highest >= rev;
        if *highest < rev {
            highest.clone_from(&rev);
        }
        self.last.insert(did.to_owned(), rev);
        repeated
    }
}

#[test]
fn the_fold_notices_revs_that_move_back_and_what_was_recorded_and_comes_again() {
    let violations = |recorded: &[(&str, &str)], lines: &[(&str, &str, bool)]| {
        let recorded = recorded.iter().map(|&(did, rev)| (did.to_owned(), rev.to_owned())).collect();
        let mut order = Order { recorded, ..Order::default() };
        lines.iter().for_each(|&(did, rev, live)| _ = order.take(did, rev.to_owned(), live));
        order.violations.len()
    };
    assert_eq!(violations(&[("a", "3")], &[("a", "4", true), ("b", "2", true), ("a", "4", true), ("a", "5", true)]), 0);
    assert_eq!(violations(&[("a", "3")], &[("a", "3", false), ("a", "4", true)]), 0);
    assert_eq!(violations(&[], &[("a", "5", false), ("a", "4", true)]), 1);
    assert_eq!(violations(&[("a", "3")], &[("a", "3", true)]), 1);
    assert_eq!(violations(&[("a", "3")], &[("a", "2", false)]), 1);
}
