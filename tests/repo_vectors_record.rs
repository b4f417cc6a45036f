//! Records and their JSON, against the interop vectors and against a general DAG-CBOR library.

use std::collections::BTreeMap;

use atproto_backfill::repo::json::{self, JsonError, JsonRule};
use atproto_backfill::repo::record::{self, CborRule, RecordFault};
use atproto_backfill::repo::{Link, record::check};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use cid::Cid;
use ipld_core::ipld::Ipld;
use proptest::prelude::*;
use serde_json::{Value, json};

fn cases(file: &str, count: usize) -> Vec<Value> {
    let path = format!("{}/fixtures/interop/data-model/{file}", env!("CARGO_MANIFEST_DIR"));
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(cases.len(), count, "{file} has lost or gained cases");
    cases
}

fn written(bytes: &[u8]) -> Value {
    let mut text = Vec::new();
    json::write(bytes, &mut text).unwrap();
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&text)))
}

#[test]
fn data_model_fixtures_have_the_stated_bytes_and_cid_both_ways() {
    for case in cases("data-model-fixtures.json", 3) {
        let bytes = STANDARD_NO_PAD.decode(case["cbor_base64"].as_str().unwrap()).unwrap();
        assert_eq!(json::from_value(&case["json"]).as_ref(), Ok(&bytes));
        assert_eq!(Link::of(&bytes).to_string(), case["cid"].as_str().unwrap());
        assert_eq!(check(&bytes), Ok(()));
        assert_eq!(json::to_value(&bytes).as_ref(), Ok(&case["json"]));
        assert_eq!(written(&bytes), case["json"]);
    }
}

#[test]
fn data_model_vectors_are_accepted_and_refused_for_the_stated_reason() {
    for case in cases("data-model-valid.json", 5) {
        let bytes = json::from_value(&case["json"]).unwrap_or_else(|e| panic!("{}: {e}", case["note"]));
        assert_eq!(check(&bytes), Ok(()));
    }
    for case in cases("data-model-invalid.json", 12) {
        let note = case["note"].as_str().unwrap();
        let expected = match note {
            "top-level not an object" => JsonRule::NotAnObject,
            "float" => JsonRule::Number,
            note if note.contains("$type") => JsonRule::Type,
            note if note.contains("blob") => JsonRule::Blob,
            note if note.contains("bytes") => JsonRule::Bytes,
            note if note.contains("link") => JsonRule::Link,
            other => panic!("a note this test does not know: {other}"),
        };
        match json::from_value(&case["json"]) {
            Err(JsonError::Value { rule, .. }) => assert_eq!(rule, expected, "{note}"),
            other => panic!("{note}: {other:?}"),
        }
    }
}

#[test]
fn json_errors_say_where() {
    let error = json::from_value(&json!({"a": [{"b": 1}, {"b": 1.5}]})).unwrap_err();
    assert_eq!(error.to_string(), r#"a number is not an integer of 64 bits with a sign at "a/1/b""#);
    let deep = (0..40).fold(json!(1), |value, _| json!([value]));
    assert!(matches!(json::from_value(&json!({"a": deep})), Err(JsonError::Value { rule: JsonRule::Nesting, .. })));
    assert_eq!(json::from_value(&json!({"": 1})), Err(JsonError::Record(RecordFault::Encoding { offset: 1, rule: CborRule::KeyLength })));
    for integer in [json!(i64::MIN), json!(i64::MAX), json!(-1), json!(24), json!(-25), json!(u32::MAX)] {
        let bytes = json::from_value(&json!({"a": integer})).unwrap();
        assert_eq!(json::to_value(&bytes), Ok(json!({"a": integer})));
    }
    assert!(json::from_value(&json!({"a": u64::MAX})).is_err());
    assert!(json::from_value(&json!({"a": 1e300})).is_err());
}

fn map_of_one(value: &[u8]) -> Vec<u8> {
    [b"\xa1\x61a", value].concat()
}

#[test]
fn every_rule_has_a_record_that_breaks_it() {
    let nested = |depth: usize| map_of_one(&[&vec![0x81; depth - 1][..], &[0xf6]].concat());
    let link = Link::of(b"block").to_bytes();
    let tagged = |head: &[u8], cid: &[u8]| map_of_one(&[head, cid].concat());
    let long_key = [&b"\xa1\x79\x20\x01"[..], &[b'k'; 8193], b"\x00"].concat();
    let many = |count: u32| [&b"\xa1\x61a\x9a"[..], &count.to_be_bytes(), &vec![0xf6; count as usize]].concat();
    use CborRule::*;
    let bad: Vec<(&str, Vec<u8>, usize, CborRule)> = vec![
        ("no bytes", vec![], 0, Truncated),
        ("a map without its pair", b"\xa1".to_vec(), 1, Truncated),
        ("a pair without its value", b"\xa1\x61a".to_vec(), 3, Truncated),
        ("a text that is cut", map_of_one(b"\x63ab"), 4, Truncated),
        ("a number that is cut", map_of_one(b"\x19\x01"), 3, Truncated),
        ("a length of 2^40", map_of_one(b"\x5b\x00\x00\x01\x00\x00\x00\x00\x00"), 12, Truncated),
        ("a byte too many", b"\xa0\x00".to_vec(), 1, Trailing),
        ("a map without length", b"\xbf\xff".to_vec(), 0, Indefinite),
        ("bytes without length", map_of_one(b"\x5f\xff"), 3, Indefinite),
        ("reserved length", map_of_one(b"\x1c"), 3, Reserved),
        ("23 in two bytes", map_of_one(b"\x18\x17"), 3, NotMinimal),
        ("255 in three bytes", map_of_one(b"\x19\x00\xff"), 3, NotMinimal),
        ("65535 in five bytes", map_of_one(b"\x1a\x00\x00\xff\xff"), 3, NotMinimal),
        ("2^32-1 in nine bytes", map_of_one(b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff"), 3, NotMinimal),
        ("a text's length in two bytes", map_of_one(b"\x78\x01a"), 3, NotMinimal),
        ("2^63", map_of_one(b"\x1b\x80\x00\x00\x00\x00\x00\x00\x00"), 3, Integer),
        ("-2^63-1", map_of_one(b"\x3b\x80\x00\x00\x00\x00\x00\x00\x00"), 3, Integer),
        ("a half", map_of_one(b"\xf9\x3c\x00"), 3, Float),
        ("a single", map_of_one(b"\xfa\x3f\x80\x00\x00"), 3, Float),
        ("a double", map_of_one(b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x00"), 3, Float),
        ("undefined", map_of_one(b"\xf7"), 3, Simple),
        ("a break", map_of_one(b"\xff"), 3, Simple),
        ("false in two bytes", map_of_one(b"\xf8\x14"), 3, Simple),
        ("a date", map_of_one(b"\xc0\x61a"), 3, Tag),
        ("tag 42 of a text", map_of_one(b"\xd8\x2a\x61a"), 3, Cid),
        ("tag 42 of nothing", map_of_one(b"\xd8\x2a\x40"), 3, Cid),
        ("a link without the zero", tagged(b"\xd8\x2a\x58\x25\x01", &link), 3, Cid),
        ("a link with a byte too many", tagged(b"\xd8\x2a\x58\x26\x00", &[&link[..], &[0]].concat()), 3, Cid),
        ("a link with a byte too few", tagged(b"\xd8\x2a\x58\x24\x00", &link[..35]), 3, Cid),
        ("a link of 101 bytes", tagged(b"\xd8\x2a\x58\x66\x00", &[1; 101]), 3, Cid),
        ("a wrong text", map_of_one(b"\x62\xc3\x28"), 3, Utf8),
        ("a surrogate", map_of_one(b"\x63\xed\xa0\x80"), 3, Utf8),
        ("a wrong key", b"\xa1\x61\xff\x00".to_vec(), 1, Utf8),
        ("a key that is a number", b"\xa1\x01\x01".to_vec(), 1, KeyType),
        ("a key that is bytes", b"\xa1\x41a\x01".to_vec(), 1, KeyType),
        ("the empty key", b"\xa1\x60\x01".to_vec(), 1, KeyLength),
        ("a key of 8193 bytes", long_key, 1, KeyLength),
        ("a key twice", b"\xa2\x61a\x01\x61a\x02".to_vec(), 4, KeyOrder),
        ("keys out of order", b"\xa2\x61b\x01\x61a\x02".to_vec(), 4, KeyOrder),
        ("a longer key first", b"\xa2\x62aa\x01\x61b\x02".to_vec(), 5, KeyOrder),
        ("an element too many", many(131_073), 3, Elements),
        ("a level too many", nested(33), 34, Nesting),
        ("a million levels", nested(1_000_000), 34, Nesting),
    ];
    for (name, bytes, offset, rule) in bad {
        assert_eq!(check(&bytes), Err(RecordFault::Encoding { offset, rule }), "{name}");
        assert_eq!(json::write(&bytes, &mut Vec::new()), check(&bytes), "{name}");
    }
    let not_a_map: [&[u8]; 5] = [b"\x80", b"\x01", b"\xf6", b"\x61a", b"\xff"];
    for bytes in not_a_map {
        assert_eq!(check(bytes), Err(RecordFault::NotAMap), "{bytes:x?}");
    }
    let text = |len: u32| map_of_one(&[&[0x7a][..], &len.to_be_bytes(), &vec![b'x'; len as usize]].concat());
    assert_eq!(check(&text(1_048_576 - 8)), Ok(()));
    assert_eq!(check(&text(1_048_576 - 7)), Err(RecordFault::TooLarge { bytes: 1_048_577 }));
    for good in [many(131_072), nested(32), b"\xa0".to_vec(), b"\xa2\x61b\x01\x62aa\x02".to_vec()] {
        assert_eq!(check(&good), Ok(()));
    }
}

#[test]
fn links_of_every_kind_keep_their_text() {
    for text in [
        "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm",
        "bafkreiccldh766hwcnuxnf2wh6jgzepf2nlu2lvcllt63eww5p6chi4ity",
        "QmbWqxBEKC3P8tqsKc98xmWNzrzDtRLMiMPL8wBuTGsMnR",
        "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
        "bafkrgqhhyivzstcz3hhswshfjgy6ertgmnqeleynhwt4dlfsthi4hn7zgh4uvlsb5xncykzapi3ocd4lzogukir6ksdy6wzrnz6ohnv4aglcs",
    ] {
        let value = json!({"link": {"$link": text}});
        let bytes = json::from_value(&value).unwrap();
        assert_eq!(json::to_value(&bytes), Ok(value.clone()));
        assert_eq!(written(&bytes), value);
    }
}

/// The JSON of a value of the general library, by its own means.
fn foreign_json(ipld: &Ipld) -> Value {
    match ipld {
        Ipld::Null => Value::Null,
        Ipld::Bool(value) => json!(value),
        Ipld::Integer(value) => json!(i64::try_from(*value).unwrap()),
        Ipld::Float(_) => unreachable!("the data model has none"),
        Ipld::String(text) => json!(text),
        Ipld::Bytes(bytes) => json!({"$bytes": STANDARD_NO_PAD.encode(bytes)}),
        Ipld::Link(cid) => json!({"$link": cid.to_string()}),
        Ipld::List(elements) => elements.iter().map(foreign_json).collect(),
        Ipld::Map(pairs) => Value::Object(pairs.iter().map(|(key, value)| (key.clone(), foreign_json(value))).collect()),
    }
}

/// Whether the data model has a value, given that the general library does.
fn in_model(ipld: &Ipld, levels: usize) -> bool {
    match ipld {
        Ipld::Null | Ipld::Bool(_) | Ipld::String(_) | Ipld::Bytes(_) => true,
        Ipld::Integer(value) => i64::try_from(*value).is_ok(),
        Ipld::Float(_) => false,
        Ipld::Link(cid) => cid.to_bytes().len() <= 100,
        Ipld::List(elements) => levels > 0 && elements.iter().all(|element| in_model(element, levels - 1)),
        Ipld::Map(pairs) => levels > 0 && pairs.iter().all(|(key, value)| !key.is_empty() && in_model(value, levels - 1)),
    }
}

/// What the general library thinks of bytes: it reads leniently, so they are canonical when it writes the same again.
fn foreign_check(bytes: &[u8]) -> Option<Ipld> {
    let ipld: Ipld = serde_ipld_dagcbor::from_slice(bytes).ok()?;
    let canonical = serde_ipld_dagcbor::to_vec(&ipld).ok()? == bytes;
    (canonical && matches!(ipld, Ipld::Map(_)) && in_model(&ipld, 32)).then_some(ipld)
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (check(bytes), foreign_check(bytes)) {
        (Ok(()), Some(ipld)) => {
            prop_assert_eq!(record::decode::<Ipld>(bytes).unwrap(), ipld.clone());
            let expected = foreign_json(&ipld);
            prop_assert_eq!(json::to_value(bytes).unwrap(), expected.clone());
            prop_assert_eq!(written(bytes), expected);
        }
        (Err(fault), None) => {
            prop_assert_eq!(json::to_value(bytes), Err(fault));
            prop_assert_eq!(json::write(bytes, &mut Vec::new()), Err(fault));
        }
        (ours, theirs) => prop_assert!(false, "{:x?}: we say {:?}, the general library {:?}", bytes, ours, theirs),
    }
    Ok(())
}

fn ipld() -> impl Strategy<Value = Ipld> {
    let integer = prop_oneof![any::<i64>(), -300i64..300, prop::sample::select(vec![i64::MIN, i64::MAX, -1 << 32, 1 << 32, 65535, 65536])];
    let cid = prop_oneof![
        any::<[u8; 32]>().prop_map(|digest| Link::from_digest(digest).to_cid()),
        any::<[u8; 32]>().prop_map(|digest| Cid::new_v1(0x55, multihash::Multihash::wrap(0x12, &digest).unwrap())),
        prop::collection::vec(any::<u8>(), 0..=64)
            .prop_map(|digest| Cid::new_v1(0x0129, multihash::Multihash::wrap(0x1e, &digest).unwrap())),
    ];
    let leaf = prop_oneof![
        Just(Ipld::Null),
        any::<bool>().prop_map(Ipld::Bool),
        integer.prop_map(|value| Ipld::Integer(value.into())),
        any::<String>().prop_map(Ipld::String),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Ipld::Bytes),
        cid.prop_map(Ipld::Link),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..8).prop_map(Ipld::List), pairs(inner).prop_map(Ipld::Map)]
    })
}

fn pairs(value: impl Strategy<Value = Ipld>) -> impl Strategy<Value = BTreeMap<String, Ipld>> {
    // Keys that mean something in JSON are another matter: they do not come back.
    prop::collection::btree_map("[^$\"]{1,3}|[a-z]{1,30}|\"\\PC{1,40}", value, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_record_goes_to_json_and_back(record in pairs(ipld())) {
        let bytes = serde_ipld_dagcbor::to_vec(&record).unwrap();
        agree(&bytes)?;
        prop_assert_eq!(check(&bytes), Ok(()));
        prop_assert_eq!(json::from_value(&json::to_value(&bytes).unwrap()).unwrap(), bytes);
    }

    #[test]
    fn damaged_records_are_judged_as_a_general_library_judges_them(
        record in pairs(ipld()), at in any::<prop::sample::Index>(), byte in any::<u8>(), kind in 0..4u8,
    ) {
        let mut bytes = serde_ipld_dagcbor::to_vec(&record).unwrap();
        let at = at.index(bytes.len());
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, byte),
            _ => { bytes.remove(at); }
        }
        agree(&bytes)?;
    }

    #[test]
    fn noise_is_judged_as_a_general_library_judges_it(noise in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"\xa1\xa2\x61a\x62\x80\x81\xd8\x2a\x58\x25\x00\x01\x18\x20\xf6\xf4"[..])], 0..60), map in any::<bool>()) {
        let bytes = if map { map_of_one(&noise) } else { noise };
        agree(&bytes)?;
    }
}
