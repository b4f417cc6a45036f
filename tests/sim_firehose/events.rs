//! What an upstream tells of what happens, against the truth.
use std::collections::{BTreeMap, HashMap};

use atproto_backfill::repo::Link;
use atproto_backfill::repo::mst::Tree;
use atproto_backfill::sim::{
    AccountStatus, Change, FirehoseOptions, HostOptions, Network, NetworkOptions, RandomWrites, Recorder, Sizes, World, Writer,
    WriterOptions,
};
use atproto_backfill::syntax::{Did, Rev};
use ipld_core::ipld::Ipld;

use crate::sim_support::tap::{Event, Heard, Tap, read};
use crate::sim_support::{self, network, world};
use crate::{invert, kinds, path, verify, write_some};

/// What a consumer of the firehose holds of one repo.
#[derive(Debug, Default)]
struct Copy {
    rev: Option<String>,
    data: Option<String>,
    records: BTreeMap<String, String>,
}

impl Copy {
    fn of(world: &World, did: &Did) -> Self {
        let truth = world.truth(did).expect("exists");
        let records = truth.records.iter().map(|(path, (link, _))| (path.to_string(), link.to_string())).collect();
        Self { rev: Some(truth.rev.to_string()), data: Some(truth.data.to_string()), records }
    }

    /// Applies a `#commit`, which must continue what is here.
    fn apply(&mut self, event: &Event, data: Link) {
        let since = event.body.get("since").filter(|since| **since != Ipld::Null).map(|_| event.text("since"));
        assert_eq!((since, event.link("prevData")), (self.rev.clone(), self.data.clone()), "commits come in order, none is missing");
        for (_, path, cid, prev) in event.ops() {
            let before = match cid {
                Some(cid) => self.records.insert(path, cid),
                None => self.records.remove(&path),
            };
            assert_eq!(before, prev);
        }
        (self.rev, self.data) = (Some(event.text("rev")), Some(data.to_string()));
    }

    fn assert_is_truth(&self, world: &World, did: &Did) {
        let truth = Self::of(world, did);
        assert_eq!((&self.rev, &self.data, &self.records), (&truth.rev, &truth.data, &truth.records), "{did}");
    }
}

#[tokio::test]
async fn commits_chain_verify_invert_and_add_up_to_the_truth_on_every_upstream() {
    let world = world(61, 2, 12, 4_000);
    let network = network(&world).await;
    let mut copies: HashMap<String, Copy> = world.dids().iter().map(|did| (did.to_string(), Copy::of(&world, did))).collect();
    let mut relay = Tap::open(&network.relay_firehose_url(), None).await;
    let mut hosts = [Tap::open(&network.host_firehose_url(0), None).await, Tap::open(&network.host_firehose_url(1), None).await];
    let mut writes = RandomWrites::new(61);
    write_some(&world, &mut writes, 1_500);
    let mut last = 0;
    let mut of_host = [0, 0];
    for event in relay.events(1_500).await {
        assert_eq!((event.kind.as_str(), event.seq() > last), ("#commit", true));
        last = event.seq();
        let did = Did::new(&event.did()).expect("a DID");
        let (rev, data, blocks) = verify(&event, &world.key(&did).expect("exists"));
        assert_eq!((rev, event.link("commit")), (event.text("rev"), Some(event.blocks().0)));
        invert(&event, data, &blocks);
        copies.get_mut(did.as_str()).expect("known").apply(&event, data);
        of_host[world.host_of(&did).expect("exists")] += 1;
    }
    for did in world.dids() {
        copies[did.as_str()].assert_is_truth(&world, &did);
    }
    for (host, tap) in hosts.iter_mut().enumerate() {
        let events = tap.events(of_host[host]).await;
        assert!(events.iter().all(|event| world.host_of(&Did::new(&event.did()).expect("a DID")) == Some(host)));
        assert_eq!(events.last().map(Event::seq), Some(network.host_head(host)));
    }
    assert_eq!((network.relay_head(), network.relay().frames(), network.relay().subscribers()), (1_500, 1_500, 1));
    network.shutdown().await;
    assert_eq!(relay.next().await, Heard::Closed(Some(1001)), "the end is said");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_repo_are_in_order_under_concurrent_writers() {
    let world = world(62, 2, 5, 500);
    let network = network(&world).await;
    let mut copies: HashMap<String, Copy> = world.dids().iter().map(|did| (did.to_string(), Copy::of(&world, did))).collect();
    let mut relay = Tap::open(&network.relay_firehose_url(), None).await;
    let writer = |seed| Writer::start(&world, WriterOptions { per_second: 4_000.0, seed, capacity: 4_096, limit: 400 });
    let writers: Vec<_> = (0..4).map(writer).collect();
    for event in relay.events(1_600).await {
        let (_, data, _) = verify(&event, &world.key(&Did::new(&event.did()).expect("a DID")).expect("exists"));
        copies.get_mut(&event.did()).expect("known").apply(&event, data);
    }
    for (writer, _op_sets) in writers {
        assert_eq!(writer.finished().await, 400);
    }
    for did in world.dids() {
        copies[did.as_str()].assert_is_truth(&world, &did);
    }
}

#[tokio::test]
async fn accounts_come_change_move_and_go_as_their_hosts_tell_it() {
    let world = world(63, 2, 2, 20);
    let network = network(&world).await;
    let mut relay = Tap::open(&network.relay_firehose_url(), None).await;
    let did = world.add_account(0);
    let events = relay.events(4).await;
    assert_eq!(kinds(&events), ["#identity", "#account", "#commit", "#sync"]);
    assert!(events.iter().all(|event| event.did() == did.as_str()));
    assert_eq!((&events[1].body["active"], &events[2].body["since"]), (&Ipld::Bool(true), &Ipld::Null));
    assert_eq!((events[2].link("prevData"), events[2].ops().len()), (None, 0));
    let key = world.key(&did).expect("exists");
    let (head, sync) = (world.truth(&did).expect("exists"), verify(&events[3], &key));
    assert_eq!((sync.0, sync.1, sync.2.len()), (head.rev.to_string(), head.data, 1), "a #sync holds the commit alone");
    let (_, data, blocks) = verify(&events[2], &key);
    assert!(Tree::load(data, |link| blocks.get(&link.to_string()).map(Vec::as_slice)).is_ok_and(|tree| tree.entries().count() == 0));

    world.write(&did, vec![Change::Create(path("a.b.c/1"), b"\xa0".as_slice().into())]).expect("it fits");
    let commit = relay.event().await;
    assert_eq!((commit.text("since"), commit.link("prevData")), (head.rev.to_string(), Some(head.data.to_string())));

    world.set_status(&did, AccountStatus::Deactivated);
    let away = relay.event().await;
    assert_eq!((away.kind.as_str(), &away.body["active"], away.text("status")), ("#account", &Ipld::Bool(false), "deactivated".to_owned()));
    world.write(&did, Vec::new()).expect("an empty commit fits");
    world.set_status(&did, AccountStatus::Active);
    let back = relay.events(3).await;
    assert_eq!(kinds(&back), ["#account", "#identity", "#sync"], "a relay carries nothing of an account that is not active");
    assert_eq!((back[0].body.get("status"), back[2].text("rev")), (None, world.truth(&did).expect("exists").rev.to_string()));

    world.set_handle(&did, "other.sim.test");
    let changed = relay.event().await;
    assert_eq!((changed.kind.as_str(), changed.text("handle")), ("#identity", "other.sim.test".to_owned()));
    let document: serde_json::Value = sim_support::get_json(format!("{}/{did}", network.plc_url())).await;
    assert_eq!(document["alsoKnownAs"][0], "at://other.sim.test");

    let old_key = key.to_multikey();
    world.rotate_key(&did).expect("an empty commit fits");
    let rotated = relay.events(2).await;
    assert_eq!((kinds(&rotated), rotated[1].ops().len()), (vec!["#identity", "#commit"], 0));
    assert_ne!(old_key, world.key(&did).expect("exists").to_multikey());
    verify(&rotated[1], &world.key(&did).expect("exists"));

    let mut old_host = Tap::open(&network.host_firehose_url(0), None).await;
    let mut new_host = Tap::open(&network.host_firehose_url(1), None).await;
    let before = world.truth(&did).expect("exists");
    world.migrate(&did, 1).expect("an empty commit fits");
    for tap in [&mut relay, &mut new_host] {
        let moved = tap.events(3).await;
        assert_eq!(kinds(&moved), ["#identity", "#account", "#sync"]);
        let (rev, data, _) = verify(&moved[2], &world.key(&did).expect("exists"));
        assert_eq!((rev > before.rev.to_string(), data), (true, before.data), "a new rev, the same data");
    }
    assert_eq!(old_host.event().await.text("status"), "deactivated");

    world.set_status(&did, AccountStatus::Deleted);
    assert_eq!((relay.event().await.text("status"), new_host.event().await.text("status")), ("deleted".to_owned(), "deleted".to_owned()));
    let purged = Tap::open(&network.host_firehose_url(1), Some(0)).await.events(1).await;
    assert_eq!((purged[0].text("status"), purged[0].seq()), ("deleted".to_owned(), 4), "the earlier events of the account are purged");
}

#[tokio::test]
async fn a_restored_repo_is_told_only_when_it_is_announced() {
    let world = world(64, 1, 1, 30);
    let network = network(&world).await;
    let did = world.dids()[0].clone();
    let snapshot = world.snapshot(&did).expect("exists");
    let mut tap = Tap::open(&network.relay_firehose_url(), None).await;
    let mut writes = RandomWrites::new(64);
    write_some(&world, &mut writes, 2);
    world.restore(&did, &snapshot);
    world.announce(&did);
    let events = tap.events(3).await;
    assert_eq!(kinds(&events), ["#commit", "#commit", "#sync"]);
    let (rev, data, _) = verify(&events[2], &world.key(&did).expect("exists"));
    let truth = world.truth(&did).expect("exists");
    assert_eq!((rev, data), (truth.rev.to_string(), truth.data));
    assert!(events[2].text("rev") < events[0].text("rev"), "its rev goes back");
}

#[tokio::test]
async fn hosts_before_sync_1_1_tell_no_previous_data() {
    let world = world(69, 2, 4, 200);
    let of_host = BTreeMap::from([(1, HostOptions { legacy: true, ..Default::default() })]);
    let network = Network::start(&world, NetworkOptions { of_host, ..Default::default() }).await.expect("ports are to be had");
    let mut tap = Tap::open(&network.relay_firehose_url(), None).await;
    let mut writes = RandomWrites::new(69);
    write_some(&world, &mut writes, 200);
    let mut legacy = 0;
    for event in tap.events(200).await {
        let did = Did::new(&event.did()).expect("a DID");
        verify(&event, &world.key(&did).expect("exists"));
        if world.host_of(&did) == Some(1) {
            legacy += 1;
            assert_eq!((event.link("prevData"), event.ops().iter().all(|(.., prev)| prev.is_none())), (None, true));
        } else {
            assert!(event.link("prevData").is_some());
        }
    }
    assert!((1..200).contains(&legacy));
}

#[tokio::test]
async fn relays_number_the_same_events_each_in_its_own_way() {
    let world = world(70, 2, 4, 100);
    let network = Network::start(&world, NetworkOptions { relays: 2, ..Default::default() }).await.expect("ports are to be had");
    world.set_status(&world.dids()[0], AccountStatus::Takendown);
    let urls = network.relay_firehose_urls();
    let (mut first, mut second) = (Tap::open(&urls[0], Some(0)).await, Tap::open(&urls[1], Some(0)).await);
    let mut writes = RandomWrites::new(70);
    write_some(&world, &mut writes, 50);
    for _ in 0..51 {
        assert_eq!(first.event().await, second.event().await);
    }
    let page = sim_support::get_json(format!("{}/xrpc/com.atproto.sync.listRepos?limit=2", network.relay_url())).await;
    let listed: Vec<_> = page["repos"].as_array().expect("a list").iter().map(|repo| repo["did"].as_str().expect("a DID")).collect();
    assert_eq!(listed, [world.dids()[1].as_str(), world.dids()[2].as_str()], "active accounts only");
    let page = sim_support::get_json(format!(
        "{}/xrpc/com.atproto.sync.listRepos?limit=2&cursor={}",
        network.relay_url(),
        page["cursor"].as_str().expect("a cursor")
    ));
    let page = page.await;
    assert_eq!((page["repos"][0]["did"].as_str(), page.get("cursor")), (Some(world.dids()[3].as_str()), None));
    let rev = Rev::new(page["repos"][0]["rev"].as_str().expect("a rev")).expect("a rev");
    assert_eq!(Some(rev), world.truth(&world.dids()[3]).map(|truth| truth.rev));
}

#[tokio::test]
async fn without_firehoses_and_without_an_upgrade_there_is_no_subscription() {
    let world = world(71, 1, 1, 10);
    let ask =
        async |url: &str| sim_support::client().get(url.replace("ws://", "http://")).send().await.expect("it answers").status().as_u16();
    let network = Network::start(&world, NetworkOptions { firehose: false, ..Default::default() }).await.expect("ports are to be had");
    assert!(Tap::try_open(&network.relay_firehose_url(), None).await.is_err());
    assert_eq!(ask(&network.host_firehose_url(0)).await, 501);
    drop(network);
    let network = sim_support::network(&world).await;
    assert_eq!(ask(&network.host_firehose_url(0)).await, 426);
    network.shut_relay().await;
    assert!(Tap::try_open(&network.relay_firehose_url(), None).await.is_err());
    network.open_relay().await;
    Tap::open(&network.relay_firehose_url(), None).await;
    let sizes = World::builder().sizes(Sizes::Each(1)).build().expect("no ports are needed");
    assert_eq!(
        RandomWrites::new(1).write(&sizes).map(|op_set| op_set.since.is_some()),
        Some(true),
        "a world of no network is written to as well"
    );
}

#[tokio::test]
async fn a_recorder_keeps_the_frames_that_a_relay_sends() {
    let world = world(72, 2, 4, 100);
    let relay = FirehoseOptions { window: 30, ..Default::default() };
    let options = NetworkOptions { relay, ..Default::default() };
    let network = Network::start(&world, options.clone()).await.expect("ports are to be had");
    let recorder = Recorder::start(&world, &options);
    assert!(recorder.frames().is_empty());
    let mut writes = RandomWrites::new(72);
    write_some(&world, &mut writes, 40);
    let mut tap = Tap::open(&network.relay_firehose_url(), Some(10)).await;
    let frames = recorder.frames();
    assert_eq!(frames.len(), 30);
    for frame in frames {
        assert_eq!(read(&frame), tap.next().await);
    }
}
