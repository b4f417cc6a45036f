use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counters::Counters;
use super::door::{Door, Fuse, Latch};
use super::options::{HostOptions, NetworkOptions};
use super::server::{Role, Server};
use crate::sim::World;
use crate::sim::fault::Faults;
use crate::syntax::Did;

/// How long a shutdown lets answers finish before it resets their connections.
const GRACE: Duration = Duration::from_millis(500);

/// A world served over HTTP on 127.0.0.1, on ports that the system chose. [`Self::shutdown`] ends it; dropping it ends it less gently.
pub struct Network {
    world: Arc<World>,
    faults: Arc<Faults>,
    directory: Port,
    relay: Port,
    hosts: Vec<Port>,
    web: Vec<Port>,
    ended: watch::Sender<bool>,
    serving: JoinSet<io::Result<()>>,
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
        let mut starter = Starter { world: Arc::clone(world), faults: Arc::default(), host_urls, ends, serving: JoinSet::new() };
        let directory = starter.serve(bind()?, Role::Directory, HostOptions::default())?;
        let relay = starter.serve(bind()?, Role::Relay, HostOptions::default())?;
        let serve = |(index, listener)| starter.serve(listener, Role::Pds(index), options.host(index));
        let hosts = hosts.into_iter().enumerate().map(serve).collect::<io::Result<_>>()?;
        let mut serve =
            |(did, listener): &(Did, TcpListener)| starter.serve(listener.try_clone()?, Role::Web(did.clone()), HostOptions::default());
        let web = world.web().iter().map(&mut serve).collect::<io::Result<_>>()?;
        Ok(Self { world: starter.world, faults: starter.faults, directory, relay, hosts, web, ended, serving: starter.serving })
    }

    /// The world that is served.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The origin of the PLC directory, such as `http://127.0.0.1:4000`.
    pub fn plc_url(&self) -> &str {
        &self.directory.url
    }

    /// The origin of the relay, which redirects `getRepo` to the account's host.
    pub fn relay_url(&self) -> &str {
        &self.relay.url
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

    /// What the relay saw.
    pub fn relay(&self) -> &Counters {
        &self.relay.counters
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
        let all = async { while self.serving.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all).await.is_err() {
            self.reset_all();
            while self.serving.join_next().await.is_some() {}
        }
    }

    fn reset_all(&self) {
        let ports = self.hosts.iter().chain(&self.web).chain([&self.directory, &self.relay]);
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
    host_urls: Arc<[String]>,
    ends: watch::Receiver<bool>,
    serving: JoinSet<io::Result<()>>,
}

impl Starter {
    fn serve(&mut self, listener: TcpListener, role: Role, options: HostOptions) -> io::Result<Port> {
        let url = origin(&listener)?;
        listener.set_nonblocking(true)?;
        let (door, latch) = Door::new(tokio::net::TcpListener::from_std(listener)?)?;
        let counters = Arc::<Counters>::default();
        let server = Server {
            role,
            world: Arc::clone(&self.world),
            faults: Arc::clone(&self.faults),
            counters: Arc::clone(&counters),
            options,
            host_urls: Arc::clone(&self.host_urls),
            ended: self.ends.clone(),
            window: Default::default(),
        };
        let mut ends = self.ends.clone();
        let app = server.into_router().into_make_service_with_connect_info::<Fuse>();
        let serving = axum::serve(door, app).with_graceful_shutdown(async move { _ = ends.wait_for(|ended| *ended).await });
        self.serving.spawn(async move { serving.await });
        Ok(Port { url, counters, latch })
    }
}

fn origin(listener: &TcpListener) -> io::Result<String> {
    Ok(format!("http://{}", listener.local_addr()?))
}
