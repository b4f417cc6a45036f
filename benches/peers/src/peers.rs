//! How each peer reads a whole repo from the bytes of a CAR file; each answers the number of records.

use std::collections::HashMap;
use std::io::Cursor;
use std::sync::Arc;

use atproto_backfill::repo::{Commit, Link};
use futures::StreamExt;

/// The root of the tree, from the commit, which the files of this benchmark have first.
pub(crate) fn data(car: &[u8]) -> Link {
    let (_, mut blocks) = shrike::car::read_slice(car).expect("the file is sound");
    Commit::decode(blocks.swap_remove(0).data).expect("the commit is sound").data()
}

/// Its parts, put together so that nothing is copied, with a faster map than its own examples have.
pub(crate) fn shrike_walk(car: &[u8]) -> usize {
    use shrike::cbor::Cid;
    let reader = shrike::car::SliceReader::new(car).expect("the file is sound");
    let (root, mut blocks) = (reader.roots()[0], HashMap::<Cid, &[u8], foldhash::fast::RandomState>::default());
    for block in reader {
        let block = block.expect("the file is sound");
        assert_eq!(Cid::compute(block.cid.codec(), block.data), block.cid);
        blocks.insert(block.cid, block.data);
    }
    let commit = shrike::repo::Commit::from_cbor(blocks[&root]).expect("the commit is sound");
    let (mut tree, mut count) = (shrike::mst::DetachedTree::load(commit.data), 0);
    let walked = tree.walk(&blocks, |_, record| {
        assert!(blocks.contains_key(&record));
        count += 1;
        Ok(())
    });
    walked.expect("the tree is sound");
    count
}

pub(crate) async fn repo_stream(car: &[u8]) -> usize {
    let builder = repo_stream::DriverBuilder::new().with_mem_limit_mb(8192);
    let Ok(mut repo) = builder.load_car(car).await else { panic!("the repo is sound") };
    let mut count = 0;
    while let Some(chunk) = repo.next_chunk_keys_strict(1000).expect("the tree is sound") {
        count += chunk.len();
    }
    count
}

pub(crate) async fn repo_stream_disk(car: &[u8]) -> usize {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = repo_stream::DriverBuilder::new().with_mem_limit_mb(1);
    let partial = match builder.load_car(car).await {
        Err(repo_stream::LoadError::MemoryLimitReached(partial)) => partial,
        Ok(_) => return repo_stream(car).await,
        Err(error) => panic!("the repo is sound: {error}"),
    };
    let store = repo_stream::DiskBuilder::new().open(directory.path().join("store")).await.expect("a store");
    let (_, _, mut driver) = partial.finish_loading(store).await.expect("the repo is sound");
    let mut count = 0;
    while let Some(chunk) = driver.next_chunk(1000).await.expect("the tree is sound") {
        count += chunk.len();
    }
    count
}

pub(crate) async fn atrium(car: &[u8]) -> usize {
    let store = atrium_repo::blockstore::CarStore::open(Cursor::new(car)).await.expect("the file is sound");
    let root = store.roots().next().expect("a root");
    let mut repo = atrium_repo::Repository::open(store, root).await.expect("the commit is sound");
    let mut tree = repo.tree();
    let mut entries = Box::pin(tree.entries());
    let mut count = 0;
    while let Some(entry) = entries.next().await {
        entry.expect("the tree is sound");
        count += 1;
    }
    count
}

pub(crate) async fn jacquard(car: &[u8]) -> usize {
    let parsed = jacquard_repo::car::reader::parse_car_bytes(car).await.expect("the file is sound");
    let commit = Commit::decode(&parsed.blocks[&parsed.root]).expect("the commit is sound");
    let store = Arc::new(jacquard_repo::MemoryBlockStore::new_from_blocks(parsed.blocks));
    let tree = jacquard_repo::Mst::load(store, commit.data().to_cid(), None);
    tree.leaves_sequential().await.expect("the tree is sound").len()
}
