use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::{Change, Delivery, Origin, Record};
use crate::job::Account;
use crate::syntax::{Did, RecordPathRef, Rev};

/// Receives the changes of repos. Implemented by the user.
///
/// * Returning `Ok` acknowledges: the change will not come again, unless, before that is recorded, the process dies, the checkout fails, or the attempts
///   of its delivery are used up: one of commits is then planned anew, with all of its changes.
/// * Returning [`HandlerError::Retry`] (any error becomes one through `?`) has the change come again after a pause: with the default [`Handler::batch`]
///   that change alone, with one of your own its whole delivery. After [`handler_attempts`](crate::engine::Options::handler_attempts) the job fails and says why.
/// * Changes of one repo come in order: a checkout first, then commit after commit. Different repos come in parallel.
/// * After a crash or a failed checkout a change may come that is known already, or a delete of a record that never came. Treat create and
///   update as "store this", delete as "have it no more".
pub trait Handler: Send + Sync + 'static {
    /// A record came to be.
    fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// A record was replaced.
    fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// A record is no more.
    fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// The account is not to be had any more, or is again: its records are to be hidden, dropped ([`Account`] says when) or shown. Comes in order with the
    /// changes of its repo. Of several account changes that could not be delivered yet only the last comes, but every deletion does.
    fn account(&self, did: &Did, account: Account) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Several changes of one repo. Left as it is, it hands them to the other methods: those of a checkout several at once
    /// (`parallel_record_creates`), those of commits one after the other; when the delivery comes again, those that are not acknowledged yet.
    /// A handler that writes to a database implements it with one transaction.
    ///
    /// An error means that any of the changes may or may not have been made; the whole delivery comes again.
    /// A [`HandlerError::Reject`] from here drops all of its changes.
    fn batch(&self, delivery: &Delivery) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async move {
            let mut running = FuturesUnordered::new();
            let mut failed = None;
            for (at, change) in delivery.changes().enumerate().filter(|(at, _)| !delivery.is_acknowledged(*at)) {
                if running.len() >= delivery.parallel() {
                    failed = running.next().await.and_then(|(at, answer)| refusal(delivery, at, answer)).or(failed);
                }
                // What follows in a commit must not overtake it; the records of a checkout do not depend on each other.
                if failed.is_some() && delivery.origin() == Origin::Live {
                    break;
                }
                running.push(async move { (at, one(self, delivery, change).await) });
            }
            while let Some((at, answer)) = running.next().await {
                failed = refusal(delivery, at, answer).or(failed);
            }
            failed.map_or(Ok(()), Err)
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

    fn account(&self, did: &Did, account: Account) -> impl Future<Output = Result<(), HandlerError>> + Send {
        H::account(self, did, account)
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

/// Notes the answer to one change; the error, if it has to come again.
fn refusal(delivery: &Delivery, at: usize, answer: Result<(), HandlerError>) -> Option<HandlerError> {
    match answer {
        Ok(()) => delivery.acknowledge(at),
        Err(HandlerError::Reject(reason)) => {
            delivery.count_rejected(reason.as_ref());
            delivery.acknowledge(at);
        }
        Err(error @ HandlerError::Retry(_)) => return Some(error),
    }
    None
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

    fn tell<'a>(&'a self, did: &'a Did, account: Account) -> BoxFuture<'a, Result<(), HandlerError>>;
}

impl<H: Handler> ErasedHandler for H {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.batch(delivery))
    }

    fn tell<'a>(&'a self, did: &'a Did, account: Account) -> BoxFuture<'a, Result<(), HandlerError>> {
        Box::pin(self.account(did, account))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::repo::Link;

    /// Fails each path once, rejects those that end in `r`, and notes every call.
    #[derive(Default)]
    struct Once(Mutex<Vec<String>>);

    impl Handler for Once {
        async fn create(&self, _: &Did, _: Rev, record: Record<'_>) -> Result<(), HandlerError> {
            let path = record.path.as_str().to_owned();
            let mut calls = self.0.lock().unwrap();
            let first = !calls.contains(&path);
            calls.push(path.clone());
            match first {
                _ if path.ends_with('r') => Err(HandlerError::Reject("never".into())),
                true => Err("not now".into()),
                false => Ok(()),
            }
        }
        async fn update(&self, _: &Did, _: Rev, _: Record<'_>) -> Result<(), HandlerError> {
            Ok(())
        }
        async fn delete(&self, _: &Did, _: Rev, _: RecordPathRef<'_>) -> Result<(), HandlerError> {
            Ok(())
        }
        async fn account(&self, _: &Did, _: Account) -> Result<(), HandlerError> {
            Ok(())
        }
    }

    fn delivery(origin: Origin, parallel: usize) -> Delivery {
        let mut delivery = Delivery::new(Did::new("did:plc:abc").unwrap(), Rev::ZERO, origin, parallel);
        for path in ["a.b.c/1", "a.b.c/2", "a.b.c/r", "a.b.c/3"] {
            let path = RecordPathRef::new(path.as_bytes()).unwrap();
            delivery.push(Change::Create(Record { path, cid: Link::of(b""), bytes: b"" }));
        }
        delivery
    }

    #[tokio::test]
    async fn of_a_checkout_only_what_failed_comes_again() {
        let (handler, delivery) = (Once::default(), delivery(Origin::Checkout, 3));
        assert!(handler.batch(&delivery).await.is_err());
        assert!(handler.batch(&delivery).await.is_ok());
        assert!(handler.batch(&delivery).await.is_ok());
        let mut calls = handler.0.into_inner().unwrap();
        calls.sort();
        assert_eq!(calls, ["a.b.c/1", "a.b.c/1", "a.b.c/2", "a.b.c/2", "a.b.c/3", "a.b.c/3", "a.b.c/r"]);
        assert_eq!(delivery.rejected(), 1);
    }

    #[tokio::test]
    async fn of_commits_nothing_overtakes_what_failed() {
        let (handler, delivery) = (Once::default(), delivery(Origin::Live, 1));
        for _ in 0..3 {
            assert!(handler.batch(&delivery).await.is_err());
        }
        assert!(handler.batch(&delivery).await.is_ok());
        assert_eq!(handler.0.into_inner().unwrap(), ["a.b.c/1", "a.b.c/1", "a.b.c/2", "a.b.c/2", "a.b.c/r", "a.b.c/3", "a.b.c/3"]);
    }
}
