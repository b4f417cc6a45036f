use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::{Change, Delivery, Record};
use crate::syntax::{Did, RecordPathRef, Rev};

/// Receives the changes of repos. Implemented by the user.
///
/// * Returning `Ok` acknowledges: the change will not come again, unless the process dies before it has recorded that.
/// * Returning [`HandlerError::Retry`] (any error becomes one through `?`) has the same delivery come again after a pause, and shows on the job.
/// * Changes of one repo come in order: a checkout first, then commit after commit. Different repos come in parallel.
/// * After a crash or a failed attempt a change may come that is known already: a create of a record that is there, a delete of one that is not. Treat
///   create and update as "store this", delete as "have it no more".
pub trait Handler: Send + Sync + 'static {
    /// A record came to be.
    fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// A record was replaced.
    fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// A record is no more.
    fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Several changes of one repo. Left as it is, it hands them to the other methods: those of a checkout several at once
    /// (`parallel_record_creates`), those of commits one after the other. A handler that writes to a database implements it with one transaction.
    ///
    /// An error means that any of the changes may or may not have been made; the whole delivery comes again.
    /// A [`HandlerError::Reject`] from here drops all of its changes.
    fn batch(&self, delivery: &Delivery) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async move {
            let mut running = FuturesUnordered::new();
            for change in delivery.changes() {
                if running.len() >= delivery.parallel() {
                    accept(delivery, running.next().await)?;
                }
                running.push(one(self, delivery, change));
            }
            while let Some(answer) = running.next().await {
                accept(delivery, Some(answer))?;
            }
            Ok(())
        }
    }
}

/// A handler that is shared: whoever gives it to a backfiller keeps another pointer to it.
impl<H: Handler> Handler for Arc<H> {
    fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        H::create(self, did, rev, record)
    }

    fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        H::update(self, did, rev, record)
    }

    fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        H::delete(self, did, rev, path)
    }

    fn batch(&self, delivery: &Delivery) -> impl Future<Output = Result<(), HandlerError>> + Send {
        H::batch(self, delivery)
    }
}

async fn one<H: Handler + ?Sized>(handler: &H, delivery: &Delivery, change: Change<'_>) -> Result<(), HandlerError> {
    let (did, rev) = (delivery.did(), delivery.rev());
    match change {
        Change::Create(record) => handler.create(did, rev, record).await,
        Change::Update(record) => handler.update(did, rev, record).await,
        Change::Delete(path) => handler.delete(did, rev, path).await,
    }
}

fn accept(delivery: &Delivery, answer: Option<Result<(), HandlerError>>) -> Result<(), HandlerError> {
    match answer {
        Some(Err(HandlerError::Reject(reason))) => {
            delivery.count_rejected(reason.as_ref());
            Ok(())
        }
        Some(answer) => answer,
        None => Ok(()),
    }
}

/// Why a handler does not acknowledge.
#[derive(Debug)]
pub enum HandlerError {
    /// It cannot now: the delivery comes again after a pause.
    Retry(Box<dyn Error + Send + Sync>),
    /// It never will: the change is dropped, counted as rejected, and does not come again (until the record changes).
    Reject(Box<dyn Error + Send + Sync>),
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::Retry(error.into())
    }
}

/// A [`Handler`] behind a pointer, which its own methods do not allow.
pub(crate) trait ErasedHandler: Send + Sync + 'static {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), HandlerError>>;
}

impl<H: Handler> ErasedHandler for H {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.batch(delivery))
    }
}
