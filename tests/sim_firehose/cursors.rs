//! Where connections begin, and how long they last.
use std::sync::Arc;

use atproto_backfill::sim::{Change, FirehoseOptions, Network, NetworkOptions, RandomWrites, World};

use crate::sim_support::tap::{Event, Heard, Tap};
use crate::sim_support::{network, world};
use crate::{path, write_some};

async fn with_firehose(world: &Arc<World>, relay: FirehoseOptions) -> Network {
    Network::start(world, NetworkOptions { relay, ..Default::default() }).await.expect("ports are to be had")
}

#[tokio::test]
async fn cursors_begin_where_they_should() {
    let world = world(65, 1, 3, 60);
    let network = with_firehose(&world, FirehoseOptions { window: 10, first_seq: 500, ..Default::default() }).await;
    let url = network.relay_firehose_url();
    let mut writes = RandomWrites::new(65);
    let mut early = Tap::open(&url, Some(499)).await;
    write_some(&world, &mut writes, 5);
    assert_eq!(early.event().await.seq(), 500, "a cursor at the head waits for the next");
    assert_eq!(Tap::open(&url, Some(0)).await.event().await.seq(), 500, "0 is the oldest, which is no loss while all is retained");
    assert_eq!(Tap::open(&url, Some(502)).await.event().await.seq(), 503, "exclusive");
    let mut live = Tap::open(&url, None).await;
    write_some(&world, &mut writes, 10);
    assert_eq!(live.event().await.seq(), 505);
    for cursor in [0, 1, 503] {
        let mut outdated = Tap::open(&url, Some(cursor)).await;
        let info = outdated.event().await;
        assert_eq!((info.kind.as_str(), info.text("name").as_str(), info.body.get("seq")), ("#info", "OutdatedCursor", None));
        let events = outdated.events(10).await;
        assert_eq!(events.iter().map(Event::seq).collect::<Vec<_>>(), (505..515).collect::<Vec<_>>());
    }
    assert_eq!(Tap::open(&url, Some(504)).await.event().await.seq(), 505, "nothing is lost after 504");
    let mut future = Tap::open(&url, Some(515)).await;
    assert_eq!((future.next().await, future.next().await), (Heard::Error("FutureCursor".to_owned()), Heard::Closed(Some(1008))));
    let asked = [Some(499), Some(0), Some(502), None, Some(0), Some(1), Some(503), Some(504), Some(515)];
    assert_eq!(network.relay().cursors(), asked);
}

#[tokio::test]
async fn a_silent_upstream_says_nothing_of_cursors_and_an_inclusive_one_repeats_an_event() {
    let world = world(66, 1, 3, 60);
    let network = with_firehose(&world, FirehoseOptions { window: 10, silent: true, inclusive: true, ..Default::default() }).await;
    let url = network.relay_firehose_url();
    let mut writes = RandomWrites::new(66);
    write_some(&world, &mut writes, 15);
    assert_eq!(Tap::open(&url, Some(2)).await.event().await.seq(), 6);
    assert_eq!(Tap::open(&url, Some(9)).await.event().await.seq(), 9);
    let mut future = Tap::open(&url, Some(1_000_000)).await;
    write_some(&world, &mut writes, 1);
    assert_eq!(future.event().await.seq(), 16);
}

#[tokio::test]
async fn pings_are_answered_while_nothing_happens_and_while_much_does() {
    let world = world(67, 1, 3, 60);
    let network = network(&world).await;
    let mut tap = Tap::open(&network.relay_firehose_url(), None).await;
    assert!(tap.ping().await);
    let mut writes = RandomWrites::new(67);
    write_some(&world, &mut writes, 500);
    assert!(tap.ping().await);
    assert_eq!(network.relay().subscribers(), 1);
}

#[tokio::test]
async fn a_client_that_does_not_keep_up_is_told_so_and_closed() {
    let world = world(68, 1, 3, 60);
    let network = with_firehose(&world, FirehoseOptions { queue: 20, ..Default::default() }).await;
    let mut tap = Tap::open(&network.relay_firehose_url(), None).await;
    let record: bytes::Bytes = [&[0x5a, 0, 0x0f, 0, 0][..], &vec![7; 0xf_0000]].concat().into();
    let did = &world.dids()[0];
    // More than any socket buffers hold.
    for number in 0..100 {
        world.write(did, vec![Change::Create(path(&format!("a.b.c/{number}")), record.clone())]).expect("it fits");
        tokio::task::yield_now().await;
    }
    let mut events = 0;
    let last = loop {
        match tap.next().await {
            Heard::Event(_) => events += 1,
            other => break other,
        }
    };
    assert_eq!((last, tap.next().await), (Heard::Error("ConsumerTooSlow".to_owned()), Heard::Closed(Some(1008))));
    assert!(events < 100, "{events}");
}
