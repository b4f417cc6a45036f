use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep_until};

use super::connect::Connector;
use super::connection::{Connection, Inbound};
use super::{ClientOptions, ConnectionCause, ConnectionError, Remedy, Resume, Upstream};
use crate::fetch::{ClientError, Host};

/// How many frames are read ahead at most; [`ClientOptions::read_ahead`] limits their bytes.
const READ_AHEAD_FRAMES: usize = 1024;

/// Connects to firehoses. Cloning is cheap; one client serves all upstreams.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Arc<Connector>,
}

impl Client {
    /// A client.
    ///
    /// # Errors
    /// When the system has no usable TLS configuration, or the user agent is not a header value.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        Ok(Self { connector: Arc::new(Connector::new(options)?) })
    }

    /// Follows an upstream, live unless [`Subscription::resume_from`] says otherwise. Nothing is connected to before the first
    /// [`Subscription::next`], which needs a tokio runtime.
    pub fn subscribe(&self, upstream: Upstream) -> Subscription {
        Subscription {
            connector: self.connector.clone(),
            upstream,
            resume: Resume::Live,
            failures: 0,
            state: State::Pausing(Instant::now()),
        }
    }
}

/// One upstream, followed for as long as somebody asks for what comes next: it connects again and again, with pauses.
///
/// The connection is kept alive by a task of its own, which reads ahead a little and pings; it ends when this is dropped.
#[derive(Debug)]
pub struct Subscription {
    connector: Arc<Connector>,
    upstream: Upstream,
    /// Where the next connection begins.
    resume: Resume,
    /// Connections lost in a row, without progress.
    failures: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing is connected until then.
    Pausing(Instant),
    /// Connecting, or connected, with what was asked for.
    Connected(Receiver<Inbound>, Resume),
    /// The loss is still to be told.
    Ended(ConnectionCause),
}

/// What comes from an upstream.
#[derive(Debug)]
pub enum Arrival {
    /// A connection was made.
    Connected {
        /// Where it was asked to begin.
        asked: Resume,
        /// The host that was reached in the end: another than the upstream's own where it redirects.
        host: Host,
    },
    /// A message, as its bytes.
    Frame(Bytes),
    /// There is no connection any more, or there was none to be had. The next one is made after the pause, by the next call.
    Lost {
        /// Why.
        error: ConnectionError,
        /// How long it is waited.
        pause: Duration,
    },
}

impl Subscription {
    /// What comes next. Waits without end on a quiet upstream; a connection, a silence and a pause each have their limit.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Arrival {
        loop {
            match &mut self.state {
                State::Pausing(until) => {
                    // A timer is never sooner than the next millisecond.
                    if *until > Instant::now() {
                        sleep_until(*until).await;
                    }
                    self.state = State::Connected(self.connect(), self.resume);
                }
                State::Connected(inbound, asked) => {
                    return match inbound.recv().await {
                        Some(Inbound::Open(host)) => Arrival::Connected { asked: *asked, host },
                        Some(Inbound::Frame(frame, _)) => Arrival::Frame(frame),
                        Some(Inbound::Lost(cause)) => self.lost(cause),
                        None => self.lost(ConnectionCause::Cut { reason: "what reads it has stopped".into() }),
                    };
                }
                State::Ended(cause) => {
                    let cause = cause.clone();
                    return self.lost(cause);
                }
            }
        }
    }

    /// Where the next connection begins. The current one is not touched.
    pub fn resume_from(&mut self, resume: impl Into<Resume>) {
        self.resume = resume.into();
    }

    /// An event was taken, so the pauses begin anew. That a connection was made is no progress: it may fail at once, again and again.
    pub fn progressed(&mut self) {
        self.failures = 0;
    }

    /// Ends the connection; what it has read ahead is forgotten. The next arrival is the loss, with `why` and a pause. Without a connection it does
    /// nothing.
    pub fn reconnect(&mut self, why: &'static str) {
        match self.state {
            State::Connected(..) => self.state = State::Ended(ConnectionCause::Ended { why }),
            State::Pausing(_) | State::Ended(_) => {}
        }
    }

    /// The upstream that is followed.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    fn connect(&self) -> Receiver<Inbound> {
        let (into, inbound) = channel(READ_AHEAD_FRAMES);
        tokio::spawn(connection(self.connector.clone(), self.upstream.clone(), self.resume, into));
        inbound
    }

    fn lost(&mut self, cause: ConnectionCause) -> Arrival {
        self.failures = self.failures.saturating_add(1);
        let random = RandomState::new().hash_one(self.failures) as f64 / u64::MAX as f64;
        let pause = pause(cause.remedy(), self.failures, self.connector.options(), random);
        self.state = State::Pausing(Instant::now() + pause);
        Arrival::Lost { error: ConnectionError { upstream: self.upstream.shared_name(), cause }, pause }
    }
}

/// One connection from its beginning to its end.
async fn connection(connector: Arc<Connector>, upstream: Upstream, resume: Resume, into: Sender<Inbound>) {
    let opened = tokio::select! {
        biased;
        () = into.closed() => return,
        opened = connector.open(&upstream, resume) => opened,
    };
    // Sending fails only when nobody takes it, which is no matter; the connection finds out by itself.
    match opened {
        Ok((stream, host)) => {
            let _ = into.send(Inbound::Open(host)).await;
            Connection::new(stream, into, connector.options().clone()).await.run().await;
        }
        Err(cause) => {
            let _ = into.send(Inbound::Lost(cause)).await;
        }
    }
}

/// How long to wait after so many losses in a row; `random` is from 0 to 1.
fn pause(remedy: Remedy, failures: u32, options: &ClientOptions, random: f64) -> Duration {
    let share = 0.5 + random / 2.0;
    let backoff = options.backoff.pause(failures, share);
    match remedy {
        Remedy::Again | Remedy::Unreadable => backoff,
        // Not sooner than asked, and not all at the same moment.
        Remedy::After(asked) => backoff.max(asked.min(options.longest_refusal) + options.backoff.first.mul_f64(random)),
        Remedy::Rarely => options.backoff.pause(u32::MAX, share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(remedy: Remedy, failures: u32) -> (Duration, Duration) {
        let pause = |random| pause(remedy, failures, &ClientOptions::default(), random);
        (pause(0.0), pause(1.0))
    }

    fn seconds(from: f64, to: f64) -> (Duration, Duration) {
        (Duration::from_secs_f64(from), Duration::from_secs_f64(to))
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_stay_there() {
        for (failures, to) in [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (63, 60.0), (64, 60.0), (65, 60.0), (u32::MAX, 60.0)] {
            assert_eq!(pauses(Remedy::Again, failures), seconds(to / 2.0, to), "after {failures}");
            assert_eq!(pauses(Remedy::Unreadable, failures), seconds(to / 2.0, to), "after {failures}");
        }
        assert_eq!(pauses(Remedy::Rarely, 1), seconds(30.0, 60.0));
    }

    #[test]
    fn a_pause_that_is_asked_for_is_kept_within_reason() {
        for (asked, failures, from, to) in [(0, 1, 0.5, 1.0), (0, 9, 30.0, 60.0), (90, 1, 90.0, 91.0), (86_400, 1, 600.0, 601.0)] {
            assert_eq!(pauses(Remedy::After(Duration::from_secs(asked)), failures), seconds(from, to), "{asked} s after {failures}");
        }
    }
}
