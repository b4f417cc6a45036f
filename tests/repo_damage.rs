//! Every way in which an export can be bad ends as it must, and what is only odd is read.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::sync::Arc;

use atproto_backfill::fetch::{Spool, SpoolBudget, SpoolOptions};
use atproto_backfill::repo::damage::{Damage, RecordDamage, Source, Verdict, records, sound, unrelated};
use atproto_backfill::repo::{CheckoutError, Curve, Leaves, Records, SigningKey, record};
use atproto_backfill::syntax::{Did, Rev};

fn source(curve: Curve) -> Source {
    let did = Did::new("did:web:damaged.example.com").unwrap();
    Source { did, rev: Rev::from_parts(1_760_000_000_000_000, 1), key: SigningKey::from_seed(curve, &[42; 32]) }
}

/// What a checkout of a body delivers: the records by path, and how many were dropped.
fn read(source: &Source, body: &[u8], piece: usize) -> Result<(BTreeMap<String, Vec<u8>>, usize), CheckoutError> {
    let mut spool = Spool::new(SpoolOptions::default(), &SpoolBudget::new(1 << 30));
    body.chunks(piece).try_for_each(|piece| spool.push(piece))?;
    read_spooled(source, spool)
}

fn read_spooled(source: &Source, spool: Spool) -> Result<(BTreeMap<String, Vec<u8>>, usize), CheckoutError> {
    let checkout = Arc::new(spool.finish()?);
    checkout.verify(&source.did, source.key.public())?;
    let (mut walk, mut leaves, mut bytes) = (checkout.walk(), Leaves::new(), Records::new());
    let (mut found, mut dropped) = (BTreeMap::new(), 0);
    while walk.next(&mut leaves, 7)? {
        dropped += leaves.dropped().len();
        let all: Vec<u32> = (0..leaves.len() as u32).collect();
        walk.read(&leaves, &all, &mut bytes)?;
        for (leaf, record) in leaves.iter().zip(bytes.iter()) {
            match record::check(record) {
                Ok(()) => drop(found.insert(leaf.path.to_string(), record.to_vec())),
                Err(_) => dropped += 1,
            }
        }
    }
    Ok((found, dropped))
}

#[test]
fn every_damage_ends_with_its_verdict() {
    for curve in [Curve::K256, Curve::P256] {
        let source = source(curve);
        assert_eq!(read(&source, &sound(&source), usize::MAX).unwrap(), (records(), 0));
        for damage in Damage::all() {
            let body = damage.car(&source);
            assert_ne!(body, sound(&source), "{damage:?} changes nothing");
            for piece in [usize::MAX, 1000] {
                match (read(&source, &body, piece), damage.verdict()) {
                    (Ok((found, dropped)), Verdict::Reads) => {
                        assert_eq!(found, records(), "{damage:?}");
                        assert_eq!(dropped, usize::from(matches!(damage, Damage::Record(_))), "{damage:?}");
                    }
                    (Err(error), Verdict::Fails(kind)) => assert_eq!(error.kind(), kind, "{damage:?}: {error}"),
                    (result, verdict) => panic!("{damage:?}: expected {verdict:?}, got {result:?}"),
                }
            }
        }
    }
}

#[test]
fn a_repo_cut_at_any_byte_does_not_complete() {
    let source = source(Curve::K256);
    let whole = sound(&source);
    for len in 0..whole.len() {
        assert!(read(&source, &whole[..len], usize::MAX).is_err(), "cut at byte {len} of {}", whole.len());
    }
}

#[test]
fn a_repo_with_any_byte_changed_does_not_complete() {
    let source = source(Curve::K256);
    let mut car = sound(&source);
    for at in 0..car.len() {
        car[at] ^= 0x10;
        assert!(read(&source, &car, usize::MAX).is_err(), "changed at byte {at} of {}", car.len());
        car[at] ^= 0x10;
    }
}

#[test]
fn every_damage_is_another_one() {
    let source = source(Curve::K256);
    let mut seen = BTreeMap::new();
    for damage in Damage::all() {
        if let Some(other) = seen.insert(damage.car(&source), damage) {
            panic!("{other:?} and {damage:?} are the same");
        }
    }
    assert!(seen.len() > 60 && seen.values().any(|damage| *damage == Damage::Record(RecordDamage::TooLarge)));
}

#[test]
fn a_gigabyte_that_does_not_belong_to_the_repo_fails_it_and_a_little_does_not() {
    let source = source(Curve::K256);
    for (bytes, too_many) in [(1 << 20, false), (1 << 30, true)] {
        let mut spool = Spool::new(SpoolOptions::default(), &SpoolBudget::new(16 << 20));
        spool.push(&sound(&source)).unwrap();
        unrelated(bytes).try_for_each(|piece| spool.push(&piece)).unwrap();
        assert_eq!(spool.is_on_disk(), too_many);
        match read_spooled(&source, spool) {
            Ok((found, 0)) if !too_many => assert_eq!(found, records()),
            Err(CheckoutError::Unrelated { bytes: found, .. }) if too_many => assert!(found > bytes),
            outcome => panic!("{bytes} bytes: {outcome:?}"),
        }
    }
}
