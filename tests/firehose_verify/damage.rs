//! Damage of every kind: what comes of an event is true, or nothing comes of it.

use atproto_backfill::firehose::Prepared;
use atproto_backfill::firehose::frame::{Frame, read};
use atproto_backfill::job::{OpAction, OpSet};
use atproto_backfill::repo::Link;
use bytes::Bytes;
use ipld_core::ipld::Ipld;
use proptest::prelude::*;

use crate::event::{EVENTS, Event, KEY, NOW, TRUTH};

/// Ways of damaging an event that leave it a frame.
fn damage(mut event: Event, kind: u8, at: usize, other: &Event) -> Event {
    let (ops, blocks) = (event.ops().len().max(1), event.blocks.len());
    let donor = other.clone().ops().first().cloned();
    match kind % 16 {
        0 => drop(event.blocks.remove(at % blocks)),
        1 => event.blocks.swap(at % blocks, at / 7 % blocks),
        2 => event.blocks.push(event.blocks[at % blocks].clone()),
        3 => event.blocks.extend(other.blocks.iter().cloned()),
        4 => event.blocks = other.blocks.clone(),
        5 => event.blocks[at % blocks].1.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        6 if !event.ops().is_empty() => drop(event.ops().remove(at % ops)),
        7 if !event.ops().is_empty() => event.ops().swap(at % ops, at / 7 % ops),
        8 => event.ops().extend(donor),
        9 => event.body.extend([("ops".to_owned(), other.body["ops"].clone())]),
        10 => event.body.extend([("prevData".to_owned(), other.body["prevData"].clone())]),
        11 => event.body.extend([("rev".to_owned(), other.body["rev"].clone())]),
        12 => event.body.extend([("since".to_owned(), other.body["since"].clone())]),
        13 => event.root = other.root,
        14 => {
            for field in ["cid", "prev", "action", "path"] {
                if let (Some(Ipld::Map(donor)), true, true) = (&donor, !event.ops().is_empty(), at.is_multiple_of(field.len())) {
                    event.op(at % ops).extend(donor.get(field).cloned().map(|value| (field.to_owned(), value)));
                }
            }
        }
        _ => {
            let (link, block) = other.blocks[at % other.blocks.len()].clone();
            let place = at % blocks;
            event.blocks[place] = (link, block);
        }
    }
    event
}

/// The op sets that the firehose may tell, without what is unsigned and unproven: the order of the ops and `since`.
fn comparable(op_set: &OpSet) -> OpSet {
    let mut op_set = OpSet { since: None, ..op_set.clone() };
    op_set.ops.sort_by(|one, other| one.path.cmp(&other.path));
    op_set
}

/// Whatever comes of a frame is true, or nothing comes of it.
fn assert_true(frame: &Bytes) {
    let Ok(Frame::Commit(event)) = read(frame) else { return };
    let Ok(prepared) = Prepared::commit(frame, &event, NOW) else { return };
    if prepared.signed_by(&KEY).is_err() {
        return;
    }
    let truth = TRUTH.iter().find(|truth| truth.rev == prepared.rev()).expect("a signed commit is one of the generated");
    if let Ok(op_set) = prepared.prove()
        && prepared.names_prev_data()
    {
        assert_eq!(comparable(&op_set), comparable(truth));
    }
    if let Ok(op_set) = prepared.unproven() {
        assert_eq!((&op_set.did, op_set.data, op_set.prev_data), (&truth.did, truth.data, None));
        for op in op_set.ops {
            match op.action {
                OpAction::Create { cid, record } | OpAction::Update { cid, record } => assert_eq!(Link::of(&record), cid),
                OpAction::Delete => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_damaged_event_is_true_or_nothing(number in 0usize..120, other in 0usize..120, damages in prop::collection::vec((any::<u8>(), any::<usize>()), 1..3)) {
        let mut event = EVENTS[number].clone();
        for (kind, at) in damages {
            if !event.blocks.is_empty() {
                event = damage(event, kind, at, &EVENTS[other]);
            }
        }
        assert_true(&event.frame());
    }

    #[test]
    fn a_frame_with_a_flipped_byte_is_true_or_nothing(number in 0usize..120, at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut frame = EVENTS[number].frame().to_vec();
        let at = at.index(frame.len());
        frame[at] ^= 1 << bit;
        assert_true(&frame.into());
    }

    #[test]
    fn blocks_of_any_bytes_are_refused(number in 0usize..120, mut car in prop::collection::vec(any::<u8>(), 0..400), from_truth in any::<prop::sample::Index>()) {
        let event = &EVENTS[number];
        // Behind a part of a true CAR, so that reading gets that far.
        let truth = event.car();
        let mut blocks = truth[..from_truth.index(truth.len())].to_vec();
        blocks.append(&mut car);
        assert_true(&event.clone().set("blocks", Ipld::Bytes(blocks)).bare_frame());
    }
}
