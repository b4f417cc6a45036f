use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::counters::Counters;
use super::door::{Door, Fuse, Latch};
use super::options::{HostOptions, NetworkOptions};
use super::server::{Role, Server};
use super::subscribe::Subscriptions;
use crate::sim::World;
use crate::sim::fault::Faults;
use crate::sim::firehose::{Log, Stream};
use crate::syntax::Did;

/// How long a shutdown lets answers finish before it resets their connections.
const GRACE: Duration = Duration::from_millis(500);

/// A world served over HTTP on 127.0.0.1, on ports that the system chose. [`Self::shutdown`] ends it; dropping it ends it less gently.
pub struct Network {
    world: Arc<World>,
    faults: Arc<Faults>,
    directory: Port,
    relays: Vec<Port>,
    hosts: Vec<Port>,
    web: Vec<Port>,
    /// None where there are no firehoses. The world tells it for as long as it is kept here.
    log: Option<Arc<Log>>,
    ended: watch::Sender<bool>,
    serving: JoinSet<io::Result<()>>,
    sockets: TaskTracker,
}

struct Port {
    url: String,
    counters: Arc<Counters>,
    latch: Latch,
}

impl Network {
    /// Starts all servers.
    ///
    /// # Errors
    /// When a port is not to be had.
    ///
    /// # Panics
    /// When it is not called within a Tokio runtime.
    pub async fn start(world: &Arc<World>, options: NetworkOptions) -> io::Result<Self> {
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let hosts: Vec<TcpListener> = (0..world.hosts()).map(|_| bind()).collect::<io::Result<_>>()?;
        let host_urls: Arc<[String]> = hosts.iter().map(origin).collect::<io::Result<_>>()?;
        let (ended, ends) = watch::channel(false);
        let faults = Arc::<Faults>::default();
        let log = options.firehose.then(|| Arc::new(Log::new(world.hosts(), &options, Arc::clone(&faults))));
        let (world, sockets) = (Arc::clone(world), TaskTracker::new());
        let mut starter = Starter { world, faults, log, host_urls, ends, serving: JoinSet::new(), sockets };
        let directory = starter.serve(bind()?, Role::Directory, HostOptions::default())?;
        let relay = |index| starter.serve(bind()?, Role::Relay(index), HostOptions::default());
        let relays = (0..options.relays.max(1)).map(relay).collect::<io::Result<_>>()?;
        let serve = |(index, listener)| starter.serve(listener, Role::Pds(index), options.host(index));
        let hosts = hosts.into_iter().enumerate().map(serve).collect::<io::Result<_>>()?;
        let Starter { world, .. } = &starter;
        let web: Vec<(Did, TcpListener)> =
            world.web().iter().map(|(did, listener)| Ok((did.clone(), listener.try_clone()?))).collect::<io::Result<_>>()?;
        let serve = |(did, listener)| starter.serve(listener, Role::Web(did), HostOptions::default());
        let web = web.into_iter().map(serve).collect::<io::Result<_>>()?;
        let Starter { world, faults, log, serving, sockets, .. } = starter;
        log.iter().for_each(|log| world.tell_to(log));
        Ok(Self { world, faults, directory, relays, hosts, web, log, ended, serving, sockets })
    }

    /// The world that is served.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The origin of the PLC directory, such as `http://127.0.0.1:4000`.
    pub fn plc_url(&self) -> &str {
        &self.directory.url
    }

    /// The origin of the relay, the first if there are several. It redirects `getRepo` to the account's host.
    pub fn relay_url(&self) -> &str {
        &self.relays[0].url
    }

    /// The origins of all relays, by number.
    pub fn relay_urls(&self) -> Vec<&str> {
        self.relays.iter().map(|relay| relay.url.as_str()).collect()
    }

    /// Where the relay, the first if there are several, tells its events: `ws://127.0.0.1:4000/xrpc/com.atproto.sync.subscribeRepos`.
    pub fn relay_firehose_url(&self) -> String {
        firehose_url(&self.relays[0])
    }

    /// Where all relays tell their events, by number.
    pub fn relay_firehose_urls(&self) -> Vec<String> {
        self.relays.iter().map(firehose_url).collect()
    }

    /// Where a host tells its events.
    ///
    /// # Panics
    /// When there is no host of this number.
    pub fn host_firehose_url(&self, host: usize) -> String {
        firehose_url(&self.hosts[host])
    }

    /// The number of the newest event of the relay, the first if there are several; 0 if there is none, or no firehose.
    pub fn relay_head(&self) -> u64 {
        self.log.as_ref().and_then(|log| log.relays.first()).map_or(0, |relay| relay.head())
    }

    /// What each relay and each host tells, with where; nothing where there are no firehoses.
    pub(super) fn streams(&self) -> impl Iterator<Item = (String, &Arc<Stream>)> {
        let relays = self.relays.iter().zip(self.log.iter().flat_map(|log| &log.relays));
        let hosts = self.hosts.iter().zip(self.log.iter().flat_map(|log| &log.hosts));
        relays.chain(hosts).map(|(port, stream)| (firehose_url(port), stream))
    }

    /// The number of the newest event of a host; 0 if there is none, or no such host, or no firehose.
    pub fn host_head(&self, host: usize) -> u64 {
        self.log.as_ref().and_then(|log| log.hosts.get(host)).map_or(0, |host| host.head())
    }

    /// The origins of the hosts, by number.
    pub fn host_urls(&self) -> Vec<&str> {
        self.hosts.iter().map(|host| host.url.as_str()).collect()
    }

    /// The faults of this network.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What a host saw.
    ///
    /// # Panics
    /// When there is no host of this number.
    pub fn host(&self, host: usize) -> &Counters {
        &self.hosts[host].counters
    }

    /// What the PLC directory saw.
    pub fn plc(&self) -> &Counters {
        &self.directory.counters
    }

    /// What the relay saw, the first if there are several.
    pub fn relay(&self) -> &Counters {
        &self.relays[0].counters
    }

    /// Shuts the port of the relay, the first if there are several, as [`Self::shut_host`] does that of a host.
    pub async fn shut_relay(&self) {
        self.relays[0].latch.set(false).await;
    }

    /// Opens the port of the relay again. Returns when it accepts connections.
    pub async fn open_relay(&self) {
        self.relays[0].latch.set(true).await;
    }

    /// Shuts the port of a host: its connections are reset, further ones refused. Returns when that is done.
    ///
    /// # Panics
    /// When there is no host of this number.
    pub async fn shut_host(&self, host: usize) {
        self.hosts[host].latch.set(false).await;
    }

    /// Opens the port of a host again. Returns when it accepts connections.
    ///
    /// # Panics
    /// When there is no host of this number.
    pub async fn open_host(&self, host: usize) {
        self.hosts[host].latch.set(true).await;
    }

    /// Ends all servers. Answers may finish within half a second, pauses that faults made end at once; then connections are reset.
    pub async fn shutdown(mut self) {
        self.ended.send_replace(true);
        self.sockets.close();
        let all = async {
            while self.serving.join_next().await.is_some() {}
            self.sockets.wait().await;
        };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            self.reset_all();
            while self.serving.join_next().await.is_some() {}
            self.sockets.wait().await;
        }
    }

    fn reset_all(&self) {
        let ports = self.hosts.iter().chain(&self.web).chain(&self.relays).chain([&self.directory]);
        ports.for_each(|port| port.latch.reset_all());
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.ended.send_replace(true);
        self.reset_all();
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plc, relay, hosts) = (self.plc_url(), self.relay_url(), self.host_urls());
        f.debug_struct("Network").field("world", &self.world).field("plc", &plc).field("relay", &relay).field("hosts", &hosts).finish()
    }
}

struct Starter {
    world: Arc<World>,
    faults: Arc<Faults>,
    log: Option<Arc<Log>>,
    host_urls: Arc<[String]>,
    ends: watch::Receiver<bool>,
    serving: JoinSet<io::Result<()>>,
    sockets: TaskTracker,
}

impl Starter {
    fn serve(&mut self, listener: TcpListener, role: Role, options: HostOptions) -> io::Result<Port> {
        let url = origin(&listener)?;
        listener.set_nonblocking(true)?;
        let (door, latch) = Door::new(tokio::net::TcpListener::from_std(listener)?)?;
        let counters = Arc::<Counters>::default();
        let subscriptions = self.stream(&role).map(|stream| Subscriptions {
            stream: Arc::clone(stream),
            faults: Arc::clone(&self.faults),
            counters: Arc::clone(&counters),
            ended: self.ends.clone(),
            sockets: self.sockets.clone(),
        });
        let server = Server {
            role,
            world: Arc::clone(&self.world),
            faults: Arc::clone(&self.faults),
            counters: Arc::clone(&counters),
            options,
            host_urls: Arc::clone(&self.host_urls),
            ended: self.ends.clone(),
            window: Default::default(),
            subscriptions,
        };
        let mut ends = self.ends.clone();
        let app = server.into_router().into_make_service_with_connect_info::<Fuse>();
        let serving = axum::serve(door, app).with_graceful_shutdown(async move { _ = ends.wait_for(|ended| *ended).await });
        self.serving.spawn(async move { serving.await });
        Ok(Port { url, counters, latch })
    }

    fn stream(&self, role: &Role) -> Option<&Arc<Stream>> {
        let log = self.log.as_ref()?;
        match role {
            Role::Relay(index) => log.relays.get(*index),
            Role::Pds(index) => log.hosts.get(*index),
            Role::Directory | Role::Web(_) => None,
        }
    }
}

fn firehose_url(port: &Port) -> String {
    format!("{}/xrpc/com.atproto.sync.subscribeRepos", port.url.replacen("http", "ws", 1))
}

fn origin(listener: &TcpListener) -> io::Result<String> {
    Ok(format!("http://{}", listener.local_addr()?))
}
