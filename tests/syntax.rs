//! Every line of the interop vectors for the identifiers of this crate.

use atproto_backfill::syntax::{Datetime, Did, Nsid, RecordKey, RecordPath, RecordPathRef, Rev, SyntaxError};

/// The lines of a vector file. Blank lines and `#` comments are not cases; spaces within a line are.
fn cases(file: &str) -> Vec<String> {
    let path = format!("{}/fixtures/interop/syntax/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.split('\n')
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(String::from)
        .collect()
}

fn check<T: std::fmt::Debug>(name: &str, (valid, invalid): (usize, usize), parse: impl Fn(&str) -> Result<T, SyntaxError>) {
    let (good, bad) = (cases(&format!("{name}_syntax_valid.txt")), cases(&format!("{name}_syntax_invalid.txt")));
    assert_eq!((good.len(), bad.len()), (valid, invalid), "the vector file of {name} has lost or gained cases");
    for case in good {
        assert!(parse(&case).is_ok(), "{name}: {case:?} is valid, but: {:?}", parse(&case));
    }
    for case in bad {
        assert!(parse(&case).is_err(), "{name}: {case:?} is invalid, but parsed");
    }
}

#[test]
fn did_vectors() {
    check("did", (24, 18), Did::new);
}
#[test]
fn nsid_vectors() {
    check("nsid", (25, 27), Nsid::new);
}
#[test]
fn record_key_vectors() {
    check("recordkey", (16, 11), RecordKey::new);
}
#[test]
fn rev_vectors() {
    check("tid", (4, 9), Rev::new);
}

#[test]
fn datetime_vectors() {
    check("datetime", (35, 45), Datetime::new);
    let impossible = cases("datetime_parse_invalid.txt");
    assert_eq!(impossible.len(), 7);
    for case in impossible {
        assert!(Datetime::new(&case).is_err(), "{case:?} is no moment, but parsed");
    }
}

#[test]
fn a_datetime_is_its_moment() {
    let millis = |text: &str| Datetime::new(text).unwrap().millis();
    assert_eq!(millis("1970-01-01T00:00:00Z"), 0);
    assert_eq!(millis("1985-04-12T23:20:50.1235678912345Z"), 482_196_050_123);
    assert_eq!(millis("1985-04-12T23:20:50.5+01:45"), 482_196_050_500 - 105 * 60_000);
    assert_eq!(millis("2000-02-29T12:00:00.05-07:00"), 951_850_800_050);
    assert_eq!(millis("1969-12-31T23:59:59.999Z"), -1);
    for bad in ["1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00+24:00", "", "Z"] {
        assert!(Datetime::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_path_is_one_collection_and_one_key() {
    let path = RecordPath::new("app.bsky.feed.post/3jui7kd54zh2y").unwrap();
    assert_eq!((path.collection(), path.record_key()), ("app.bsky.feed.post", "3jui7kd54zh2y"));
    let longest = format!("{}.{}/{}", ["a".repeat(63).as_str(); 3].join(".") + "." + &"b".repeat(61), "c".repeat(63), "k".repeat(512));
    assert_eq!(longest.len(), RecordPath::MAX_LEN);
    assert!(RecordPath::new(&longest).is_ok());
    for bad in ["", "/", "a.b.c", "a.b.c/", "/a.b.c/k", "a.b.c/k/l", "a.b.c/..", "a.b.c/.", "a.b/k", "a.b.c/k l", &(longest + "k")] {
        assert!(RecordPath::new(bad).is_err(), "{bad:?}");
    }
    assert!(RecordPathRef::new(b"a.b.c/\xff").is_err());
}

#[test]
fn a_rev_is_its_number() {
    assert_eq!(Rev::from_parts(0, 0), Rev::ZERO);
    let (early, late) = (Rev::from_parts(1_700_000_000_000_000, 1023), Rev::from_parts(1_700_000_000_000_001, 0));
    assert!(early < late && early.as_str() < late.as_str());
    assert_eq!((early.micros(), late.micros()), (1_700_000_000_000_000, 1_700_000_000_000_001));
    // 2023-01-01 of the interop list's own example, spelled by another implementation.
    assert_eq!(Rev::new("3jzfcijpj2z2a").unwrap().micros(), 1_688_137_381_887_007);
}
