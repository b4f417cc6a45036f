//! The repos that the reference PDS exported, each with the PDS's own listing (see `fixtures/README.md`).

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One exported repo and what is known of it from elsewhere.
pub(crate) struct Fixture {
    /// The name of its files.
    pub(crate) name: String,
    /// The CAR file, as it lies on the disk.
    pub(crate) car: PathBuf,
    /// The account's DID document.
    pub(crate) document: Value,
    /// What the PDS lists, in byte order of the path.
    pub(crate) listing: Vec<Listed>,
}

/// One record as the PDS lists it.
pub(crate) struct Listed {
    pub(crate) path: String,
    pub(crate) cid: String,
    pub(crate) value: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn listing(name: &str) -> Vec<Listed> {
    let plain = folder().join(format!("expected/{name}.jsonl"));
    let packed = folder().join(format!("expected/{name}.jsonl.gz"));
    let mut text = String::new();
    match packed.exists() {
        true => flate2::read::GzDecoder::new(&read(&packed)[..]).read_to_string(&mut text).map(drop).expect("gzip of UTF-8"),
        false => text = String::from_utf8(read(&plain)).expect("UTF-8"),
    }
    text.lines().map(listed).collect()
}

fn listed(line: &str) -> Listed {
    let mut line: Value = serde_json::from_str(line).expect("a line of JSON");
    let text = |name: &str| line[name].as_str().expect("text").to_owned();
    let (path, cid) = (text("path"), text("cid"));
    Listed { path, cid, value: line["value"].take() }
}

/// Every fixture there is, by name.
pub(crate) fn all() -> Vec<Fixture> {
    let entries = std::fs::read_dir(folder().join("cars")).expect("fixtures/cars");
    let mut cars: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    cars.sort();
    assert!(cars.len() >= 10, "only {} fixtures", cars.len());
    cars.into_iter()
        .map(|car| {
            let name = car.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
            let document = serde_json::from_slice(&read(&folder().join(format!("expected/{name}.did.json")))).expect("JSON");
            Fixture { listing: listing(&name), name, car, document }
        })
        .collect()
}
