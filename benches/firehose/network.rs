//! The other side of the wire, in a process of its own: a simulated network whose repos are followed, and a firehose of repos that nobody follows.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use atproto_backfill::repo::Curve;
use atproto_backfill::sim::{Change, FirehoseOptions, Network, NetworkOptions, Sizes, World};
use atproto_backfill::syntax::{Did, RecordPath, Rev};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::common::Failed;
use super::input::Input;

/// Set in the process that is the network.
const ROLE: &str = "BACKFILL_BENCH_NETWORK";
/// Events that the relay of the simulated network retains: all of them.
const WINDOW: usize = 10_000_000;
const REPOS: usize = 1000;
const RECORDS: u64 = 100_000;
/// Bytes that are written to a socket at once.
const PIECE: usize = 256 << 10;

/// The network, seen from the program.
pub(super) struct Remote {
    child: Child,
    lines: BufReader<ChildStdout>,
    pub(super) plc_url: String,
    /// The firehose of the repos that are followed.
    pub(super) relay: String,
    /// The firehose of the others: frames without end.
    pub(super) untracked: String,
    pub(super) dids: Vec<Did>,
}

impl Remote {
    pub(super) fn start() -> Result<Self, Failed> {
        let mut child = Command::new(std::env::current_exe()?).env(ROLE, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut remote = Self { child, lines, plc_url: String::new(), relay: String::new(), untracked: String::new(), dids: Vec::new() };
        (remote.plc_url, remote.relay, remote.untracked) = (remote.line()?, remote.line()?, remote.line()?);
        loop {
            match remote.line()? {
                line if line.is_empty() => return Ok(remote),
                line => remote.dids.push(Did::new(&line)?),
            }
        }
    }

    /// Has so many commits of one op written.
    pub(super) fn write(&mut self, commits: u64) -> Result<(), Failed> {
        writeln!(self.child.stdin.as_mut().ok_or("no standard input")?, "{commits}")?;
        self.line().map(|_| ())
    }

    fn line(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Err("the network died".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Its standard input closes, which ends it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// If this process is the network, serves until its standard input closes.
pub(super) fn serve() -> Option<Result<(), Failed>> {
    std::env::var_os(ROLE).map(|_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(network())
    })
}

async fn network() -> Result<(), Failed> {
    let world = World::builder().hosts(4).repos(REPOS).sizes(Sizes::Total(RECORDS)).build()?;
    world.make_all();
    let relay = FirehoseOptions { window: WINDOW, ..FirehoseOptions::default() };
    let network = Network::start(&world, NetworkOptions { relay, ..NetworkOptions::default() }).await?;
    let untracked = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}\n{}\nws://{}", network.plc_url(), network.relay_firehose_url(), untracked.local_addr()?);
    let dids = world.dids();
    dids.iter().for_each(|did| println!("{did}"));
    println!();
    thread::spawn(move || {
        let frames = Frames::new(&Input::new(Curve::K256, 20, 50));
        for stream in untracked.incoming().flatten() {
            let frames = frames.clone();
            // It ends when the program goes away.
            thread::spawn(move || frames.send(stream));
        }
    });
    tokio::task::spawn_blocking(move || -> Result<(), Failed> {
        let mut number = 0;
        for line in io::stdin().lines() {
            for _ in 0..line?.parse::<u64>()? {
                number += 1;
                let key = Rev::from_parts(1_700_000_000_000_000 + number, 0);
                let path = RecordPath::new(&format!("app.bsky.feed.like/{key}"))?;
                let record = atproto_backfill::repo::json::from_value(&serde_json::json!({"$type": "app.bsky.feed.like", "n": number}))?;
                world.write(&dids[number as usize % dids.len()], vec![Change::Create(path, record.into())])?;
            }
            println!("written");
        }
        Ok(())
    })
    .await??;
    network.shutdown().await;
    Ok(())
}

/// Frames as they go over the wire, with the place of the sequence number in each.
#[derive(Clone)]
struct Frames(Vec<(Vec<u8>, usize)>);

impl Frames {
    fn new(input: &Input) -> Self {
        let wire = |frame: &bytes::Bytes| {
            // FIN and binary; a length of two bytes; not masked (RFC 6455 §5.2).
            let mut wire = vec![0x82, 126];
            wire.extend(u16::try_from(frame.len()).expect("a commit of one op is small").to_be_bytes());
            wire.extend_from_slice(frame);
            let key = b"\x63seq\x1b";
            let at = wire.windows(key.len()).position(|window| window == key).expect("numbers of eight bytes") + key.len();
            (wire, at)
        };
        Self(input.frames.iter().map(wire).collect())
    }

    /// Sends them round and round, each with the next number.
    fn send(mut self, mut stream: TcpStream) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head);
        let field = |line: &str| {
            line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")).map(|(_, key)| key.to_owned())
        };
        let Some(key) = head.lines().find_map(field) else { return Ok(()) };
        let accept = derive_accept_key(key.as_bytes());
        write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n\r\n"
        )?;
        let (mut number, mut piece) = (super::input::FIRST_SEQ, Vec::with_capacity(2 * PIECE));
        loop {
            for (wire, at) in &mut self.0 {
                wire[*at..*at + 8].copy_from_slice(&u64::to_be_bytes(number));
                number += 1;
                piece.extend_from_slice(wire);
                if piece.len() >= PIECE {
                    stream.write_all(&piece)?;
                    piece.clear();
                }
            }
        }
    }
}
