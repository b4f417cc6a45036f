//! A client of the firehose that shares nothing with the library's own: frames are read by `serde_ipld_dagcbor`.
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use ipld_core::ipld::Ipld;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Tap {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

/// A frame, or how the connection ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    Event(Event),
    Error(String),
    Text(String),
    /// A frame that is not two values.
    Garbage(Vec<u8>),
    Closed(Option<u16>),
    Broken,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) body: BTreeMap<String, Ipld>,
}

impl Tap {
    pub(crate) async fn open(url: &str, cursor: Option<u64>) -> Self {
        Self::try_open(url, cursor).await.expect("the upgrade is answered")
    }

    pub(crate) async fn try_open(url: &str, cursor: Option<u64>) -> Result<Self, Error> {
        let address = url.trim_start_matches("ws://").split('/').next().expect("an authority");
        let stream = TcpStream::connect(address).await?;
        let url = cursor.map_or_else(|| url.to_owned(), |cursor| format!("{url}?cursor={cursor}"));
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await?;
        Ok(Self { socket })
    }

    pub(crate) async fn next(&mut self) -> Heard {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("something comes");
            return match message {
                Some(Ok(Message::Binary(frame))) => read(&frame),
                Some(Ok(Message::Text(text))) => Heard::Text(text.to_string()),
                Some(Ok(Message::Close(frame))) => Heard::Closed(frame.map(|frame| frame.code.into())),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Err(_)) => Heard::Broken,
                None => Heard::Closed(None),
            };
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Event {
        match self.next().await {
            Heard::Event(event) => event,
            other => panic!("{other:?} is not an event"),
        }
    }

    pub(crate) async fn events(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            events.push(self.event().await);
        }
        events
    }

    /// Sends a ping and waits for its pong, leaving out events that come before it. None if something else comes first.
    pub(crate) async fn ping(&mut self) -> bool {
        self.socket.send(Message::Ping("are you there".into())).await.expect("it is sent");
        loop {
            match tokio::time::timeout(Duration::from_secs(1), self.socket.next()).await {
                Ok(Some(Ok(Message::Pong(pong)))) => return pong == "are you there",
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(_)) | None) | Err(_) => return false,
            }
        }
    }
}

/// Two values in canonical form, and nothing behind.
pub(crate) fn read(frame: &[u8]) -> Heard {
    let garbage = || Heard::Garbage(frame.to_vec());
    let values: Result<Vec<Ipld>, _> = serde_ipld_dagcbor::de::Deserializer::from_slice(frame).into_iter().collect();
    let Ok(values) = values else { return garbage() };
    let encoded: Vec<u8> = values.iter().flat_map(|value| serde_ipld_dagcbor::to_vec(value).expect("it was decoded")).collect();
    let (2, true, [Ipld::Map(header), Ipld::Map(body)]) = (values.len(), encoded == frame, &values[..]) else { return garbage() };
    let body = body.clone();
    match (header.get("op"), header.get("t")) {
        (Some(Ipld::Integer(1)), Some(Ipld::String(kind))) => Heard::Event(Event { kind: kind.clone(), body }),
        (Some(Ipld::Integer(-1)), None) => Heard::Error(text(&body, "error")),
        (Some(Ipld::Integer(op)), _) => Heard::Event(Event { kind: format!("op {op}"), body }),
        _ => garbage(),
    }
}

fn text(body: &BTreeMap<String, Ipld>, name: &str) -> String {
    match body.get(name) {
        Some(Ipld::String(text)) => text.clone(),
        other => panic!("{name} is {other:?}"),
    }
}

impl Event {
    pub(crate) fn text(&self, name: &str) -> String {
        text(&self.body, name)
    }

    pub(crate) fn seq(&self) -> u64 {
        match self.body.get("seq") {
            Some(Ipld::Integer(seq)) => u64::try_from(*seq).expect("positive"),
            other => panic!("seq is {other:?}"),
        }
    }

    /// The account, whatever the kind calls it.
    pub(crate) fn did(&self) -> String {
        if self.kind == "#commit" { self.text("repo") } else { self.text("did") }
    }

    /// A link in text; none where it is null or absent.
    pub(crate) fn link(&self, name: &str) -> Option<String> {
        link(self.body.get(name))
    }

    /// Action, path, CID and previous CID of each op.
    pub(crate) fn ops(&self) -> Vec<(String, String, Option<String>, Option<String>)> {
        let Some(Ipld::List(ops)) = self.body.get("ops") else { panic!("no ops") };
        let read = |op: &Ipld| match op {
            Ipld::Map(op) => (text(op, "action"), text(op, "path"), link(op.get("cid")), link(op.get("prev"))),
            other => panic!("an op is {other:?}"),
        };
        ops.iter().map(read).collect()
    }

    /// The root of the CAR in this event, and its blocks by CID, none of them twice.
    pub(crate) fn blocks(&self) -> (String, HashMap<String, Vec<u8>>) {
        let Some(Ipld::Bytes(car)) = self.body.get("blocks") else { panic!("no blocks") };
        let mut chunks = super::car::chunks(car);
        let header: Ipld = serde_ipld_dagcbor::from_slice(&chunks.remove(0)).expect("a header");
        let Ok(Some(Ipld::List(roots))) = header.get("roots") else { panic!("no roots") };
        let count = chunks.len();
        let cid = |chunk: &[u8]| cid::Cid::try_from(&chunk[..36]).expect("a CID").to_string();
        let blocks: HashMap<_, _> = chunks.iter().map(|chunk| (cid(chunk), chunk[36..].to_vec())).collect();
        assert_eq!(blocks.len(), count, "no block comes twice");
        (link(roots.first()).expect("a root"), blocks)
    }
}

fn link(value: Option<&Ipld>) -> Option<String> {
    match value {
        Some(Ipld::Link(cid)) => Some(cid.to_string()),
        Some(Ipld::Null) | None => None,
        other => panic!("a link is {other:?}"),
    }
}
