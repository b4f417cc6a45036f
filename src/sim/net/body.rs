use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use tokio::sync::watch;

use super::counters::InFlight;
use super::door::Fuse;
use crate::sim::account::Account;
use crate::sim::fault::Gate;
use crate::sim::frame;

/// Bytes that are handed to the connection at once.
const CHUNK: usize = 128 << 10;

/// What a body is made of, in order.
#[derive(Debug, Clone)]
pub(in crate::sim) enum Step {
    /// These bytes.
    Send(Bytes),
    /// These whole frames, without the blocks that their repo no longer holds when their turn comes.
    SendLive(Bytes, Arc<Account>),
    /// Nothing for a while.
    Wait(Duration),
    /// Nothing until the gate opens.
    Hold(Gate),
    /// The end, without saying so: the connection closes.
    Close,
    /// The end: the connection is reset.
    Reset,
}

/// A body on its way.
pub(super) struct Sender {
    pub(super) steps: VecDeque<Step>,
    pub(super) gzip: bool,
    pub(super) fuse: Fuse,
    pub(super) in_flight: InFlight,
    pub(super) ended: watch::Receiver<bool>,
}

impl Sender {
    pub(super) fn into_body(self) -> Body {
        let encoder = self.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Body::from_stream(stream::try_unfold((self, encoder), |(mut sender, mut encoder)| async move {
            let chunk = sender.next(&mut encoder).await?;
            if let Some(chunk) = &chunk {
                sender.in_flight.sent(chunk.len());
            } else {
                sender.in_flight.whole();
            }
            Ok::<_, io::Error>(chunk.map(|chunk| (chunk, (sender, encoder))))
        }))
    }

    async fn next(&mut self, encoder: &mut Option<GzEncoder<Vec<u8>>>) -> io::Result<Option<Bytes>> {
        while let Some(step) = self.steps.pop_front() {
            let chunk = match step {
                Step::Send(bytes) if bytes.len() > CHUNK => {
                    self.steps.push_front(Step::Send(bytes.slice(CHUNK..)));
                    bytes.slice(..CHUNK)
                }
                Step::Send(bytes) => bytes,
                Step::SendLive(frames, account) => held(&frames, &account),
                Step::Wait(pause) => {
                    self.until(tokio::time::sleep(pause)).await?;
                    continue;
                }
                Step::Hold(gate) => {
                    self.until(gate.pass()).await?;
                    continue;
                }
                Step::Close | Step::Reset => {
                    // Lets the connection send what it was given before.
                    self.until(tokio::time::sleep(Duration::from_millis(1))).await?;
                    if matches!(step, Step::Reset) {
                        self.fuse.blow();
                    }
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            };
            let chunk = match encoder {
                Some(encoder) => compress(encoder, &chunk)?,
                None => chunk,
            };
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
        match encoder.take() {
            Some(encoder) => encoder.finish().map(|end| Some(end.into())),
            None => Ok(None),
        }
    }

    async fn until(&mut self, event: impl Future<Output = ()>) -> io::Result<()> {
        tokio::select! {
            () = event => Ok(()),
            _ = self.ended.wait_for(|ended| *ended) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

fn compress(encoder: &mut GzEncoder<Vec<u8>>, chunk: &[u8]) -> io::Result<Bytes> {
    encoder.write_all(chunk)?;
    encoder.flush()?;
    Ok(std::mem::take(encoder.get_mut()).into())
}

/// The frames whose blocks the repo holds now.
fn held(frames: &Bytes, account: &Account) -> Bytes {
    let repo = account.repo();
    let mut out = Vec::with_capacity(frames.len());
    for at in frame::iter(frames) {
        if repo.blocks.contains(&frame::link(frames, at)) {
            out.extend_from_slice(&frames[at.start..at.end]);
        }
    }
    out.into()
}
