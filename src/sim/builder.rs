use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use super::{Sizes, World};
use crate::syntax::{Did, Nsid};

/// Describes a world. Begin with [`World::builder`].
#[derive(Debug, Clone)]
pub struct WorldBuilder {
    pub(super) seed: u64,
    pub(super) hosts: usize,
    pub(super) repos: usize,
    pub(super) sizes: Sizes,
    pub(super) collections: Vec<String>,
    web: usize,
}

impl Default for WorldBuilder {
    /// Seed 1, two hosts, ten repos, 1,000 records in all, the collections of a microblog.
    fn default() -> Self {
        Self { seed: 1, hosts: 2, repos: 10, sizes: Sizes::Total(1_000), collections: Vec::new(), web: 0 }
    }
}

impl WorldBuilder {
    /// The seed, from which all else follows.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How many PDS hosts there are (at least one). Accounts are dealt to them in turn.
    pub fn hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts.max(1);
        self
    }

    /// How many accounts there are, all `did:plc`.
    pub fn repos(mut self, repos: usize) -> Self {
        self.repos = repos;
        self
    }

    /// How many accounts of `did:web` there are besides, in the development form `did:web:localhost%3A<port>`. Their ports are taken from
    /// the system when the world is made, so these accounts, and they alone, differ from run to run.
    pub fn web_repos(mut self, repos: usize) -> Self {
        self.web = repos;
        self
    }

    /// How many records each repo has.
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Collections of your own, used equally often. Records in collections whose kind is not known are notes with unusual keys.
    pub fn collections(mut self, collections: impl IntoIterator<Item = Nsid>) -> Self {
        self.collections = collections.into_iter().map(|collection| collection.as_str().to_owned()).collect();
        self
    }

    /// Makes the world.
    ///
    /// # Errors
    /// When no port is to be had for a `did:web` account.
    pub fn build(self) -> io::Result<Arc<World>> {
        let mut web = Vec::new();
        for _ in 0..self.web {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = listener.local_addr()?.port();
            let did = Did::new(&format!("did:web:localhost%3A{port}")).map_err(io::Error::other)?;
            web.push((did, listener));
        }
        Ok(Arc::new(World::new(&self, web)))
    }
}
