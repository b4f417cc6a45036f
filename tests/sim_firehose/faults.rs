//! Every fault of an event: that it fires where it was told to, and shows on the wire.
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use atproto_backfill::repo::mst::Tree;
use atproto_backfill::repo::{Commit, Link, inversion};
use atproto_backfill::sim::{Change, EventFault, EventKind, Fault, Missing, Network, Rule, World};
use atproto_backfill::syntax::{Did, Rev};
use ipld_core::ipld::Ipld;

use crate::sim_support::tap::{Event, Heard, Tap};
use crate::sim_support::{network, world};
use crate::{invert, kinds, path, verify};

/// A network whose first account is struck by one fault, once, at the relay.
struct Struck {
    world: Arc<World>,
    network: Network,
    did: Did,
    relay: Tap,
    writes: u8,
}

impl Struck {
    async fn by(fault: impl Into<Fault>) -> Self {
        Self::with(Rule::new(fault)).await
    }

    async fn with(rule: Rule) -> Self {
        let world = world(81, 2, 4, 6_000);
        let network = network(&world).await;
        let did = world.dids()[0].clone();
        network.faults().inject(rule.did(&did).times(1));
        let relay = Tap::open(&network.relay_firehose_url(), None).await;
        Self { world, network, did, relay, writes: 0 }
    }

    /// Makes a commit of one record, and returns its rev.
    fn write(&mut self) -> String {
        self.writes += 1;
        let record = vec![0xa1, 0x61, b'n', self.writes % 24].into();
        let create = Change::Create(path(&format!("app.bsky.feed.post/{}", self.writes)), record);
        self.world.write(&self.did, vec![create]).expect("it fits").rev.to_string()
    }

    /// Makes a commit and returns what the relay tells of it; the next one is told as it should be.
    async fn told(&mut self) -> Event {
        self.write();
        let event = self.relay.event().await;
        self.write();
        self.is_well().await;
        event
    }

    async fn is_well(&mut self) {
        assert_eq!((self.network.faults().total(), self.network.faults().unfired().len()), (1, 0), "the fault struck");
        let next = self.relay.event().await;
        let (rev, data, blocks) = verify(&next, &self.world.key(&self.did).expect("exists"));
        assert_eq!(rev, self.world.truth(&self.did).expect("exists").rev.to_string());
        invert(&next, data, &blocks);
    }

    fn key_signed(&self, event: &Event) -> bool {
        let (root, blocks) = event.blocks();
        let commit = Commit::decode(&blocks[&root]).expect("a commit");
        self.world.key(&self.did).expect("exists").verify(commit.unsigned(), commit.signature()).is_ok()
    }
}

fn revs(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| event.text("rev")).collect()
}

#[tokio::test]
async fn commits_are_dropped_swapped_and_told_twice() {
    let mut struck = Struck::by(EventFault::Drop).await;
    let [_, second, third] = [struck.write(), struck.write(), struck.write()];
    let events = struck.relay.events(2).await;
    assert_eq!((revs(&events), events[1].seq()), (vec![second, third], 2));
    struck.write();
    struck.is_well().await;

    let mut struck = Struck::by(EventFault::Swap).await;
    let [first, second, third] = [struck.write(), struck.write(), struck.write()];
    let events = struck.relay.events(3).await;
    assert_eq!((revs(&events), events[2].seq()), (vec![second, first, third], 3));
    struck.write();
    struck.is_well().await;

    let mut struck = Struck::by(EventFault::Twice).await;
    let first = struck.write();
    let events = struck.relay.events(2).await;
    assert_eq!((revs(&events), events[0].seq(), events[1].seq()), (vec![first.clone(), first], 1, 2));
    struck.write();
    struck.is_well().await;
}

#[tokio::test]
async fn another_host_tells_of_an_account_that_is_not_there() {
    let mut struck = Struck::by(EventFault::AlsoAt(1)).await;
    let mut foreign = Tap::open(&struck.network.host_firehose_url(1), None).await;
    assert_eq!(struck.told().await.body.remove("rev"), foreign.event().await.body.remove("rev"));
    assert_eq!(struck.world.host_of(&struck.did), Some(0));
}

#[tokio::test]
async fn a_sequence_begins_anew() {
    let mut struck = Struck::with(Rule::new(EventFault::Restart).after(2)).await;
    let mut revs = Vec::new();
    for seq in 1..=2 {
        revs.push(struck.write());
        assert_eq!(struck.relay.event().await.seq(), seq);
    }
    revs.push(struck.write());
    assert_eq!(struck.relay.next().await, Heard::Broken, "the connection is reset");
    let url = struck.network.relay_firehose_url();
    assert_eq!(Tap::open(&url, Some(2)).await.next().await, Heard::Error("FutureCursor".to_owned()));
    let first = Tap::open(&url, Some(0)).await.event().await;
    assert_eq!((first.seq(), first.text("rev"), struck.network.relay_head()), (1, revs[2].clone(), 1));
}

#[tokio::test]
async fn a_status_changes_in_a_storm_and_ends_as_it_is() {
    let mut struck = Struck::by(EventFault::Storm(6)).await;
    struck.write();
    let events = struck.relay.events(7).await;
    assert_eq!(kinds(&events), [["#account"; 6].as_slice(), &["#commit"]].concat());
    let active: Vec<&Ipld> = events[..6].iter().map(|event| &event.body["active"]).collect();
    assert_eq!(active, [false, true, false, false, false, true].map(Ipld::Bool).iter().collect::<Vec<_>>());
    struck.write();
    struck.is_well().await;
}

#[tokio::test]
async fn an_event_of_an_unknown_kind_is_numbered_like_the_others() {
    let mut struck = Struck::by(EventFault::UnknownFirst).await;
    struck.write();
    let events = struck.relay.events(2).await;
    assert_eq!((kinds(&events), events[0].seq(), events[1].seq()), (vec!["#simulated", "#commit"], 1, 2));
    struck.write();
    struck.is_well().await;
}

#[tokio::test]
async fn commits_are_signed_by_another_key_or_are_of_another_tree_or_of_the_future() {
    let mut struck = Struck::by(EventFault::WrongKey).await;
    let event = struck.told().await;
    assert!(!struck.key_signed(&event));
    assert_eq!(event.link("commit"), Some(event.blocks().0), "all else is sound");

    let mut struck = Struck::by(EventFault::OtherData).await;
    let event = struck.told().await;
    let (root, blocks) = event.blocks();
    let data = Commit::decode(&blocks[&root]).expect("a commit").data();
    assert!(struck.key_signed(&event) && !blocks.contains_key(&data.to_string()));

    let mut struck = Struck::by(EventFault::FutureRev(Duration::from_secs(3_600))).await;
    let event = struck.told().await;
    let ahead = Rev::new(&event.text("rev")).expect("a rev").micros() as u128;
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_micros();
    assert!(struck.key_signed(&event) && (3_000_000_000..=3_600_000_000).contains(&(ahead - now)));
    assert_eq!(Commit::decode(&event.blocks().1[&event.blocks().0]).expect("a commit").rev().to_string(), event.text("rev"));

    let mut struck = Struck::with(Rule::new(EventFault::OtherData).event(EventKind::Sync)).await;
    struck.world.announce(&struck.did);
    let event = struck.relay.event().await;
    let (root, blocks) = event.blocks();
    let commit = Commit::decode(&blocks[&root]).expect("a commit");
    let truth = struck.world.truth(&struck.did).expect("exists");
    assert!(struck.key_signed(&event) && commit.rev() == truth.rev && commit.data() != truth.data);
    struck.write();
    struck.is_well().await;
}

#[tokio::test]
async fn blocks_are_missing() {
    for which in [Missing::Commit, Missing::Root, Missing::Node, Missing::Record] {
        let mut struck = Struck::by(EventFault::Without(which)).await;
        let event = struck.told().await;
        let (root, blocks) = event.blocks();
        let (_, path, cid, _) = event.ops().remove(0);
        let Some(commit) = blocks.get(&root) else {
            assert_eq!(which, Missing::Commit);
            continue;
        };
        let data = Commit::decode(commit).expect("a commit").data();
        let block = |link: &Link| blocks.get(&link.to_string()).map(Vec::as_slice);
        if which != Missing::Record {
            let change = inversion::Change { key: path.as_bytes(), cid: cid.as_ref().map(|cid| cid.parse().expect("a link")), prev: None };
            assert!(inversion::invert(data, block, &[change]).is_err(), "the commit cannot be undone");
        }
        match (which, Tree::load(data, block)) {
            (Missing::Root, tree) => assert!(tree.is_err()),
            (Missing::Node, tree) => assert!(tree.expect("the root is there").get(path.as_bytes()).is_err(), "the way to the op ends"),
            (Missing::Record, _) => assert!(!blocks.contains_key(&cid.expect("a create"))),
            (Missing::Commit, _) => panic!("the commit is there"),
        }
    }
    let mut struck = Struck::by(EventFault::NoBlocks).await;
    let event = struck.told().await;
    assert_eq!((&event.body["blocks"], event.ops().len()), (&Ipld::Bytes(Vec::new()), 1));

    let mut struck = Struck::by(EventFault::TooBig).await;
    let event = struck.told().await;
    assert_eq!((&event.body["tooBig"], event.ops().len(), event.blocks().1.len()), (&Ipld::Bool(true), 0, 1));
    assert!(struck.key_signed(&event));
}

#[tokio::test]
async fn one_block_has_not_its_hash() {
    for which in [Missing::Commit, Missing::Root, Missing::Node, Missing::Record] {
        let mut struck = Struck::by(EventFault::WrongHash(which)).await;
        let event = struck.told().await;
        let (root, blocks) = event.blocks();
        let wrong: Vec<&String> = blocks.iter().filter(|(cid, block)| Link::of(block).to_string() != **cid).map(|(cid, _)| cid).collect();
        assert_eq!(wrong.len(), 1, "{which:?}");
        let cid = event.ops().remove(0).2.expect("a create");
        assert_eq!((*wrong[0] == root, *wrong[0] == cid), (which == Missing::Commit, which == Missing::Record), "{which:?}");
    }
}

#[tokio::test]
async fn what_is_not_signed_is_wrong() {
    let mut struck = Struck::by(EventFault::WrongPrevData).await;
    let before = struck.world.truth(&struck.did).expect("exists").data.to_string();
    assert!(struck.told().await.link("prevData").is_some_and(|link| link != before));

    let mut struck = Struck::by(EventFault::NoPrevData).await;
    assert_eq!(struck.told().await.link("prevData"), None);

    let mut struck = Struck::by(EventFault::WrongCid).await;
    let event = struck.told().await;
    assert!(!event.blocks().1.contains_key(&event.ops().remove(0).2.expect("a create")));

    let mut struck = Struck::by(EventFault::WrongSince).await;
    assert_eq!(struck.told().await.text("since"), Rev::ZERO.as_str());

    let mut struck = Struck::by(EventFault::MoreOps(300)).await;
    assert_eq!(struck.told().await.ops().len(), 301);

    let mut struck = Struck::by(EventFault::Padded(3_000_000)).await;
    let event = struck.told().await;
    assert!(event.blocks().1.values().any(|block| block.len() == 3_000_000) && struck.key_signed(&event));

    let mut struck = Struck::by(EventFault::AsSync).await;
    let event = struck.told().await;
    assert_eq!((event.kind.as_str(), event.blocks().1.len(), struck.key_signed(&event)), ("#sync", 1, true));

    let other = world(81, 2, 4, 6_000).dids()[1].clone();
    let mut struck = Struck::by(EventFault::OtherAccount(other.clone())).await;
    assert_eq!(struck.told().await.did(), other.as_str());

    let mut struck = Struck::by(EventFault::WithoutField("rev")).await;
    assert!(!struck.told().await.body.contains_key("rev"));
}

#[tokio::test]
async fn a_fault_strikes_the_upstream_that_its_rule_names_and_all_who_follow_that() {
    let mut struck = Struck::with(Rule::new(EventFault::NoPrevData).host(0)).await;
    let url = struck.network.host_firehose_url(0);
    let (mut one, mut other) = (Tap::open(&url, None).await, Tap::open(&url, None).await);
    struck.write();
    assert!(struck.relay.event().await.link("prevData").is_some());
    for tap in [&mut one, &mut other, &mut Tap::open(&url, Some(0)).await] {
        assert_eq!(tap.event().await.link("prevData"), None);
    }
    struck.write();
    struck.is_well().await;
}
