//! Saves the cursor of an upstream: its low watermark (I5), by time and count, and when the program stops.

use std::sync::Arc;
use std::time::Duration;

use super::Follow;
use super::source::Source;
use crate::engine::core::Core;
use crate::firehose::{SavedCursor, Saves};

/// How often it is looked whether a cursor is to be saved.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a stop waits for events that are being settled; what is not settled then comes again.
const LAST_EVENTS: Duration = Duration::from_secs(2);

pub(super) async fn run(core: Arc<Core>, follow: Arc<Follow>, source: Arc<Source>, saved: Option<SavedCursor>) {
    let mut saves = Saves::new(follow.options.save, saved);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let (id, watermark) = source.watermark();
        if let Some(cursor) = saves.due(watermark, core.now()) {
            match core.store.save_cursor(id, cursor).await {
                Ok(()) => saves.saved(cursor, core.now()),
                // The next look tries again; until then a restart repeats more.
                Err(error) => core.store_failed("saving a cursor", &error),
            }
        }
    }
    let settled = async {
        while source.in_flight() > 0 {
            tokio::time::sleep(LOOK_EVERY / 10).await;
        }
    };
    let _ = tokio::time::timeout(LAST_EVENTS, settled).await;
    let (id, watermark) = source.watermark();
    if let Some(cursor) = saves.unsaved(watermark)
        && let Err(error) = core.store.save_cursor(id, cursor).await
    {
        core.store_failed("saving a cursor", &error);
    }
}
