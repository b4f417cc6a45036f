use std::time::Duration;

use crate::fetch::{Backoff, user_agent};

/// How firehoses are connected to and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// What the `User-Agent` header says: product, version and a contact; see [`user_agent`].
    pub user_agent: String,
    /// How long a TCP connection may take, name look-up and TLS included. Default 10 s.
    pub connect_timeout: Duration,
    /// How long it may take until the WebSocket is open, redirects included. Default 30 s.
    pub open_timeout: Duration,
    /// How often the upstream is pinged. Default 30 s, the custom of the network.
    pub ping_interval: Duration,
    /// How long an upstream that is being read may send nothing at all, not even a pong, before it is given up. Events are not asked for: a quiet
    /// upstream is a healthy one. Default 60 s, two pings.
    pub silence: Duration,
    /// The pauses before connecting again, from one loss to the next; they begin anew after progress. Default 1 s to 60 s.
    pub backoff: Backoff,
    /// The longest pause that an upstream may ask for. Default 10 min: one that asks for a day would be lost for a day.
    pub longest_refusal: Duration,
    /// How long a connection that ends may take to say so. Default 1 s.
    pub close_timeout: Duration,
    /// How many bytes of frames are read ahead of who takes them; then reading stops, and so in the end does the upstream's sending. Default
    /// 8 MiB. One frame always fits.
    pub read_ahead: u32,
    /// Allows redirects to `http` and to addresses that are not public, for networks on one's own machine. Default off.
    pub development: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: user_agent(None),
            connect_timeout: Duration::from_secs(10),
            open_timeout: Duration::from_secs(30),
            ping_interval: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            backoff: Backoff { first: Duration::from_secs(1), last: Duration::from_secs(60) },
            longest_refusal: Duration::from_secs(600),
            close_timeout: Duration::from_secs(1),
            read_ahead: 8 << 20,
            development: false,
        }
    }
}
