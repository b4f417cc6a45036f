//! Every fault of a connection: that it fires, and what a client sees of it.
use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::sim::{Ending, Endpoint, Fault, FrameFn, Gate, Network, Position, RandomWrites, RetryHint, Rule, StreamFault, World};
use tokio_tungstenite::tungstenite::Error;

use crate::sim_support::tap::{Event, Heard, Tap};
use crate::sim_support::{client, network, world};
use crate::write_some;

/// A network in which ten events have happened before the fault.
struct Struck {
    world: Arc<World>,
    network: Network,
    writes: RandomWrites,
}

impl Struck {
    async fn by(fault: impl Into<Fault>) -> Self {
        let world = world(91, 1, 3, 60);
        let network = network(&world).await;
        let mut writes = RandomWrites::new(91);
        write_some(&world, &mut writes, 10);
        network.faults().inject(Rule::new(fault).endpoint(Endpoint::SubscribeRepos).times(1));
        Self { world, network, writes }
    }

    async fn open(&self, cursor: Option<u64>) -> Tap {
        Tap::open(&self.network.relay_firehose_url(), cursor).await
    }

    async fn refused(&self) -> Error {
        match Tap::try_open(&self.network.relay_firehose_url(), None).await {
            Err(error) => error,
            Ok(_) => panic!("it was not refused"),
        }
    }

    fn write(&mut self) {
        write_some(&self.world, &mut self.writes, 1);
    }

    /// The fault struck once, and a new connection is well.
    async fn ends_well(mut self) {
        assert_eq!((self.network.faults().total(), self.network.faults().unfired().len()), (1, 0), "the fault struck");
        let head = self.network.relay_head();
        let mut tap = self.open(Some(head)).await;
        self.write();
        assert_eq!(tap.event().await.seq(), head + 1);
        assert!(tap.ping().await);
        self.network.shutdown().await;
    }
}

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(Event::seq).collect()
}

#[tokio::test]
async fn events_come_again() {
    let struck = Struck::by(StreamFault::Duplicate).await;
    assert_eq!(seqs(&struck.open(Some(7)).await.events(4).await), [8, 8, 9, 10]);
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::Replay(3)).await;
    assert_eq!(seqs(&struck.open(Some(7)).await.events(6).await), [8, 6, 7, 8, 9, 10]);
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::OldCursor(4)).await;
    assert_eq!(seqs(&struck.open(Some(7)).await.events(7).await), [4, 5, 6, 7, 8, 9, 10]);
    struck.ends_well().await;
}

#[tokio::test]
async fn a_cursor_is_ignored() {
    let mut struck = Struck::by(StreamFault::IgnoreCursor).await;
    let mut tap = struck.open(Some(3)).await;
    struck.write();
    assert_eq!(tap.event().await.seq(), 11);
    struck.ends_well().await;
}

#[tokio::test]
async fn frames_that_are_no_events_come_between() {
    for (fault, expected) in [
        (StreamFault::Text("hello".to_owned()), Heard::Text("hello".to_owned())),
        (StreamFault::Binary(vec![0xff, 0].into()), Heard::Garbage(vec![0xff, 0])),
    ] {
        let struck = Struck::by(fault).await;
        let mut tap = struck.open(Some(7)).await;
        assert_eq!((tap.next().await, tap.event().await.seq()), (expected, 8));
        struck.ends_well().await;
    }
    let struck = Struck::by(StreamFault::UnknownOp).await;
    let mut tap = struck.open(Some(7)).await;
    assert_eq!((tap.event().await.kind.as_str(), tap.event().await.seq()), ("op 2", 8));
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::Frame(FrameFn::new(|frame| [frame, &[0]].concat()))).await;
    let mut tap = struck.open(Some(7)).await;
    assert!(matches!(tap.next().await, Heard::Garbage(frame) if frame.last() == Some(&0)), "a byte too many");
    assert_eq!(tap.event().await.seq(), 9, "it came in place of the event");
    struck.ends_well().await;
}

#[tokio::test]
async fn connections_break_off() {
    for ending in [Ending::Close, Ending::Reset] {
        let struck = Struck::by(StreamFault::CutMidFrame(ending)).await;
        let mut tap = struck.open(Some(7)).await;
        assert_eq!(tap.next().await, Heard::Broken, "{ending:?}");
        struck.ends_well().await;
    }
    let struck = Struck::by(StreamFault::CloseAtOnce).await;
    assert_eq!(struck.open(Some(7)).await.next().await, Heard::Closed(Some(1000)));
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::Close(1012)).await;
    assert_eq!(struck.open(Some(7)).await.next().await, Heard::Closed(Some(1012)));
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::Error("ConsumerTooSlow")).await;
    let mut tap = struck.open(Some(7)).await;
    assert_eq!((tap.next().await, tap.next().await), (Heard::Error("ConsumerTooSlow".to_owned()), Heard::Closed(Some(1008))));
    struck.ends_well().await;

    let struck = Struck::by(StreamFault::Reset).await;
    assert_eq!(struck.open(Some(7)).await.next().await, Heard::Broken);
    struck.ends_well().await;
}

#[tokio::test]
async fn a_frame_that_is_cut_was_half_sent() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let struck = Struck::by(StreamFault::CutMidFrame(Ending::Close)).await;
    let url = struck.network.relay_firehose_url();
    let (address, target) = url.trim_start_matches("ws://").split_once('/').expect("a path");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it is open");
    let request = format!(
        "GET /{target}?cursor=9 HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("the connection ends");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("headers") + 4;
    let headers = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    assert!(headers.starts_with("http/1.1 101 ") && headers.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{headers}");
    let frame = &answer[head..];
    assert_eq!(frame[..2], [0x82, 126], "a frame of more than 125 bytes");
    let length = usize::from(u16::from_be_bytes([frame[2], frame[3]]));
    assert_eq!(frame.len() - 4, length / 2);
    struck.ends_well().await;
}

#[tokio::test]
async fn pings_are_not_answered() {
    let mut struck = Struck::by(StreamFault::NoPong).await;
    let mut tap = struck.open(Some(9)).await;
    assert_eq!(tap.event().await.seq(), 10);
    assert!(!tap.ping().await);
    struck.write();
    assert_eq!(tap.event().await.seq(), 11, "it tells its events all the same");
    drop(tap);
    struck.ends_well().await;

    let mut struck = Struck::by(StreamFault::Silence).await;
    let mut tap = struck.open(Some(0)).await;
    struck.write();
    assert!(!tap.ping().await);
    assert_eq!((struck.network.relay().frames(), struck.network.relay().subscribers()), (0, 1));
    struck.ends_well().await;
}

#[tokio::test]
async fn an_event_is_held_back_until_the_test_lets_it_go() {
    let gate = Gate::new();
    let struck = Struck::by(StreamFault::Hold(gate.clone())).await;
    let mut tap = struck.open(Some(8)).await;
    gate.reached(1).await;
    assert!(tap.ping().await, "it is well");
    assert_eq!(struck.network.relay().frames(), 0);
    gate.open();
    assert_eq!(seqs(&tap.events(2).await), [9, 10]);
    struck.ends_well().await;
}

#[tokio::test]
async fn upgrades_are_refused() {
    let refused = async |fault: Fault, header: &str| {
        let struck = Struck::by(fault).await;
        let Error::Http(response) = struck.refused().await else { panic!("it was answered") };
        let url = struck.network.host_firehose_url(0).replace("ws://", "http://");
        let header = response.headers().get(header).map(|value| value.to_str().expect("text").to_owned());
        struck.ends_well().await;
        (response.status().as_u16(), header, url)
    };
    let (status, after, _) = refused(Fault::TooManyRequests(RetryHint::Seconds(Duration::from_secs(30))), "retry-after").await;
    assert_eq!((status, after.as_deref()), (429, Some("30")));
    let (status, after, _) = refused(Fault::ServiceUnavailable(Some(Duration::from_secs(7))), "retry-after").await;
    assert_eq!((status, after.as_deref()), (503, Some("7")));
    assert_eq!(refused(Fault::Status(501, "MethodNotImplemented"), "none").await.0, 501);
    let (status, location, url) = refused(Fault::RedirectToHost(0), "location").await;
    assert_eq!((status, location), (302, Some(url)));

    let struck = Struck::by(Fault::Reset).await;
    assert!(!matches!(struck.refused().await, Error::Http(_)), "there is no answer");
    struck.ends_well().await;

    let struck = Struck::by(Fault::Late(Duration::from_secs(3_600))).await;
    let url = struck.network.relay_firehose_url();
    assert!(tokio::time::timeout(Duration::from_millis(200), Tap::try_open(&url, None)).await.is_err(), "it hangs");
    struck.ends_well().await;
}

#[tokio::test]
async fn the_directory_hangs_for_chosen_accounts() {
    let world = world(92, 1, 2, 20);
    let network = network(&world).await;
    let gate = Gate::new();
    let dids = world.dids();
    let hold = Rule::new(Fault::Hold(Position::Byte(0), gate.clone())).endpoint(Endpoint::DidDocument).did(&dids[0]);
    let hanging = network.faults().inject(hold);
    let ask = |number: usize| client().get(format!("{}/{}", network.plc_url(), dids[number])).send();
    let first = tokio::spawn({
        let first = ask(0);
        async { ask_body(first.await).await }
    });
    gate.reached(1).await;
    assert!(ask_body(ask(1).await).await.contains(dids[1].as_str()), "others are answered meanwhile");
    gate.open();
    assert!(first.await.expect("it ends").contains(dids[0].as_str()));
    assert_eq!(network.faults().fired(hanging), 1);
}

async fn ask_body(answer: reqwest::Result<reqwest::Response>) -> String {
    answer.expect("it answers").text().await.expect("the body is whole")
}
