use atproto_backfill::manifest::{Diff, Edit, Step};
use atproto_backfill::store::{Advance, ManifestChange, StoreError};
use atproto_backfill::syntax::RecordPath;

use crate::world::{World, advance, chunks_of, did, entries, path, root};

crate::conformance!(
    chunks_are_appended_and_paged_from_the_one_that_holds_a_path,
    chunks_that_do_not_come_after_the_last_are_refused,
    edits_change_create_split_merge_and_delete,
    edits_that_are_not_in_order_are_refused_and_write_nothing,
    a_diff_over_the_store_survives_the_edits_it_causes,
    manifests_of_different_jobs_do_not_touch,
);

fn paths(range: std::ops::Range<u32>) -> Vec<RecordPath> {
    range.map(|n| path(&format!("{n:05}"))).collect()
}

async fn chunks_are_appended_and_paged_from_the_one_that_holds_a_path(world: World) {
    let job = world.claimed(&did(1)).await;
    let all = paths(0..1000);
    for part in [&all[..600], &all[600..]] {
        let append = Advance { manifest: ManifestChange::Append(chunks_of(part, 100)), ..advance(&job) };
        world.store.advance(append).await.unwrap();
    }
    assert_eq!(world.job(&did(1)).await.records, 1000);
    let page = |after: Option<RecordPath>, limit| {
        let store = world.store.clone();
        async move { store.manifest(job.id, after.as_ref(), limit).await.unwrap() }
    };
    assert_eq!(entries(&page(None, 99).await).into_iter().map(|(path, _)| path).collect::<Vec<_>>(), all);
    assert_eq!(page(None, 3).await.len(), 3);
    let firsts = |chunks: Vec<atproto_backfill::manifest::Chunk>| chunks.into_iter().map(|chunk| chunk.first).collect::<Vec<_>>();
    assert_eq!(firsts(page(Some(path("00250")), 2).await), [path("00200"), path("00300")]);
    assert_eq!(firsts(page(Some(path("00300")), 2).await), [path("00300"), path("00400")]);
    assert_eq!(firsts(page(Some(path("00999")), 2).await), [path("00900")]);
    assert_eq!(firsts(page(Some(path("99999")), 2).await), [path("00900")]);
    let before_all = RecordPath::new("a.b.c/x").unwrap();
    assert_eq!(firsts(page(Some(before_all), 2).await), [path("00000"), path("00100")]);
}

async fn chunks_that_do_not_come_after_the_last_are_refused(world: World) {
    let job = world.claimed(&did(1)).await;
    let append = |range| Advance { manifest: ManifestChange::Append(chunks_of(&paths(range), 100)), ..advance(&job) };
    world.store.advance(append(100..200)).await.unwrap();
    for range in [0..50, 100..200] {
        assert!(matches!(world.store.advance(append(range)).await, Err(StoreError::OutOfOrder { .. })));
    }
    assert_eq!(world.job(&did(1)).await.records, 100);
    assert_eq!(world.held_paths(job.id).await.len(), 100);
}

async fn edits_change_create_split_merge_and_delete(world: World) {
    let job = world.claimed(&did(1)).await;
    let edit = |path: &RecordPath, n: Option<u8>| Edit { path: path.clone(), cid: n.map(root) };
    let apply = |edits: Vec<Edit>| Advance { manifest: ManifestChange::Apply(edits), ..advance(&job) };
    let all = paths(0..2000);
    world.store.advance(apply(all.iter().map(|path| edit(path, Some(1))).collect())).await.unwrap();
    assert_eq!(world.job(&did(1)).await.records, 2000);
    // One by one, in front of all, behind all, between, changed, and gone: there or not.
    for (path, cid) in [
        (path("!0".replace('!', "-").as_str()), Some(2)),
        (path("zz"), Some(2)),
        (path("00100x"), Some(2)),
        (path("00200"), Some(2)),
        (path("00300"), None),
        (path("none"), None),
    ] {
        world.store.advance(apply(vec![edit(&path, cid)])).await.unwrap();
    }
    assert_eq!(world.job(&did(1)).await.records, 2002);
    let held = entries(&world.store.manifest(job.id, None, 10_000).await.unwrap());
    assert_eq!(held.len(), 2002);
    let cid_of = |wanted: &RecordPath| held.iter().find(|(path, _)| path == wanted).map(|(_, cid)| *cid);
    assert_eq!((cid_of(&path("00200")), cid_of(&path("00300")), cid_of(&path("-0"))), (Some(root(2)), None, Some(root(2))));
    for part in held.chunks(7) {
        world.store.advance(apply(part.iter().map(|(path, _)| edit(path, None)).collect())).await.unwrap();
    }
    assert_eq!(world.job(&did(1)).await.records, 0);
    assert!(world.store.manifest(job.id, None, 9).await.unwrap().is_empty());
}

async fn edits_that_are_not_in_order_are_refused_and_write_nothing(world: World) {
    let job = world.claimed(&did(1)).await;
    let edit = |key: &str| Edit { path: path(key), cid: Some(root(1)) };
    for edits in [vec![edit("b"), edit("a")], vec![edit("a"), edit("a")]] {
        let apply = Advance { manifest: ManifestChange::Apply(edits), ..advance(&job) };
        assert!(matches!(world.store.advance(apply).await, Err(StoreError::OutOfOrder { .. })));
    }
    assert!(world.held_paths(job.id).await.is_empty());
}

async fn a_diff_over_the_store_survives_the_edits_it_causes(world: World) {
    let job = world.claimed(&did(1)).await;
    let old: Vec<_> = paths(0..3000).into_iter().step_by(2).collect();
    let append = Advance { manifest: ManifestChange::Append(chunks_of(&old, 256)), ..advance(&job) };
    world.store.advance(append).await.unwrap();
    // Two of three are new; what was even and is not there any more must be deleted.
    let new: Vec<_> = paths(0..3000).into_iter().enumerate().filter(|(n, _)| n % 3 != 0).map(|(_, path)| path).collect();
    let mut diff = Diff::new(Vec::new());
    let mut edits: Vec<Edit> = Vec::new();
    for path in &new {
        let step = loop {
            match diff.leaf(path.as_ref(), root(1), &mut |gone| edits.push(Edit { path: gone.to_owned(), cid: None })).unwrap() {
                Step::Starved => diff.feed(world.store.manifest(job.id, diff.after().as_ref(), 2).await.unwrap()),
                step => break step,
            }
        };
        if step != Step::Same {
            edits.push(Edit { path: path.clone(), cid: Some(root(1)) });
        }
        if edits.len() > 20 {
            let apply = Advance { manifest: ManifestChange::Apply(std::mem::take(&mut edits)), ..advance(&job) };
            world.store.advance(apply).await.unwrap();
        }
    }
    while !diff.finish(&mut |gone| edits.push(Edit { path: gone.to_owned(), cid: None })).unwrap() {
        diff.feed(world.store.manifest(job.id, diff.after().as_ref(), 2).await.unwrap());
    }
    world.store.advance(Advance { manifest: ManifestChange::Apply(edits), ..advance(&job) }).await.unwrap();
    assert_eq!(world.held_paths(job.id).await, new.iter().map(|path| path.to_string()).collect::<Vec<_>>());
    assert_eq!(world.job(&did(1)).await.records, new.len() as u64);
}

async fn manifests_of_different_jobs_do_not_touch(world: World) {
    let one = world.claimed(&did(1)).await;
    let two = world.claimed(&did(2)).await;
    for (job, range) in [(&one, 0..300), (&two, 100..400)] {
        let append = Advance { manifest: ManifestChange::Append(chunks_of(&paths(range), 256)), ..advance(job) };
        world.store.advance(append).await.unwrap();
    }
    let delete: Vec<Edit> = paths(0..300).into_iter().map(|path| Edit { path, cid: None }).collect();
    world.store.advance(Advance { manifest: ManifestChange::Apply(delete), ..advance(&one) }).await.unwrap();
    assert!(world.held_paths(one.id).await.is_empty());
    assert_eq!(world.held_paths(two.id).await.len(), 300);
}
