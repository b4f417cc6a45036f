//! The least there is to write: a handler that prints, the memory store, and, so that it works offline, a simulated network.
//!
//! ```text
//! cargo run --example minimal
//! ```
#![allow(clippy::print_stdout, reason = "printing is what this handler does")]

use std::error::Error;
use std::sync::Arc;

use atproto_backfill::consumer::{Handler, HandlerError, Record};
use atproto_backfill::engine::Backfiller;
use atproto_backfill::fetch::HttpOptions;
use atproto_backfill::identity::{CacheOptions, CachedResolver, HttpResolver, ResolverOptions};
use atproto_backfill::job::Account;
use atproto_backfill::repo::json;
use atproto_backfill::sim::{Network, NetworkOptions, RandomWrites, World};
use atproto_backfill::store::MemoryStore;
use atproto_backfill::syntax::{Did, RecordPathRef, Rev};

struct Printing;

impl Handler for Printing {
    async fn create(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        println!("create {did}/{} {}", record.path, json::to_value(record.bytes)?);
        Ok(())
    }

    async fn update(&self, did: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        println!("update {did}/{} {}", record.path, json::to_value(record.bytes)?);
        Ok(())
    }

    async fn delete(&self, did: &Did, _: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        println!("delete {did}/{path}");
        Ok(())
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        println!("{did} is {account}");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let world = World::builder().repos(3).build()?;
    let network = Network::start(&world, NetworkOptions::default()).await?;
    let directory = ResolverOptions { plc_url: network.plc_url().parse()?, development: true, ..ResolverOptions::default() };

    let backfiller = Backfiller::builder("minimal", Arc::new(MemoryStore::new()), Printing)
        .http(HttpOptions { development: true, ..HttpOptions::default() })
        .resolver(Arc::new(CachedResolver::new(HttpResolver::new(directory)?, CacheOptions::default())))
        .build()
        .await?;
    backfiller.enqueue(&world.dids()).await?;
    backfiller.start().await?;
    backfiller.idle().await?;

    // From now on the repos are followed: hand in what the firehose brings.
    if let Some(op_set) = RandomWrites::new(7).write(&world) {
        println!("handed in: {:?}", backfiller.buffer(&op_set).await?);
    }
    backfiller.idle().await?;
    backfiller.stop().await?;
    network.shutdown().await;
    Ok(())
}
