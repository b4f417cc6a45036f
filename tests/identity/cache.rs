//! What is remembered of them.
use super::*;

/// Answers what it is told, counts how often, and can be held up.
#[derive(Debug)]
struct Counting {
    asked: AtomicU32,
    /// When.
    moments: std::sync::Mutex<Vec<Instant>>,
    open: Semaphore,
    cause: std::sync::Mutex<Option<ResolveCause>>,
}

impl Counting {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: AtomicU32::new(0),
            moments: std::sync::Mutex::default(),
            open: Semaphore::new(1_000_000),
            cause: std::sync::Mutex::default(),
        })
    }

    fn fail_with(&self, cause: Option<ResolveCause>) {
        *self.cause.lock().expect("no panics") = cause;
    }

    fn asked(&self) -> u32 {
        self.asked.load(SeqCst)
    }
}

#[derive(Debug, Clone)]
struct Shared(Arc<Counting>);

impl Resolver for Shared {
    fn resolve<'a>(&'a self, did: &'a Did) -> BoxFuture<'a, Resolved> {
        Box::pin(async move {
            self.0.asked.fetch_add(1, SeqCst);
            self.0.moments.lock().expect("no panics").push(Instant::now());
            let cause = self.0.cause.lock().expect("no panics").clone();
            self.0.open.acquire().await.expect("never closed").forget();
            match cause {
                Some(cause) => Err(ResolveError { did: did.clone(), server: "counting".into(), cause }),
                None => Ok(Arc::new(identity(did.as_str()))),
            }
        })
    }
}

fn cached(options: CacheOptions) -> (Arc<Counting>, CachedResolver<Shared>) {
    let counting = Counting::new();
    (counting.clone(), CachedResolver::new(Shared(counting), options))
}

#[tokio::test(start_paused = true)]
async fn what_was_found_is_remembered_for_a_day_and_errors_for_minutes() {
    let not_found = Some(ResolveCause::NotFound);
    let trouble = Some(ResolveCause::Status { status: 500 });
    for (cause, lasting) in [(None, 24 * 60 * 60), (not_found, 120), (Some(ResolveCause::Tombstoned), 120), (trouble, 10)] {
        let (counting, cache) = cached(CacheOptions::default());
        counting.fail_with(cause.clone());
        for _ in 0..3 {
            let resolved = cache.resolve(&did(PLC)).await;
            assert_eq!(resolved.err().map(|error| error.cause), cause);
        }
        advance(Duration::from_secs(lasting - 1)).await;
        let _ = cache.resolve(&did(PLC)).await;
        assert_eq!(counting.asked(), 1, "{cause:?} still counts");
        advance(Duration::from_secs(1)).await;
        let _ = cache.resolve(&did(PLC)).await;
        assert_eq!(counting.asked(), 2, "{cause:?} has expired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_remembered_no_longer_than_the_server_is_left_alone() {
    for (pause, lasting) in [(3, 3), (10, 10), (300, 10)] {
        let (counting, cache) = cached(CacheOptions::default());
        counting.fail_with(Some(ResolveCause::Refused { pause: Duration::from_secs(pause) }));
        cache.resolve(&did(PLC)).await.expect_err("refused");
        advance(Duration::from_secs(lasting) - Duration::from_millis(1)).await;
        cache.resolve(&did(PLC)).await.expect_err("refused");
        assert_eq!(counting.asked(), 1, "{pause} s: it still counts");
        advance(Duration::from_millis(1)).await;
        cache.resolve(&did(PLC)).await.expect_err("refused");
        assert_eq!(counting.asked(), 2, "{pause} s: the server may be asked");
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_is_found_again_after_two_minutes_of_trouble() {
    let (counting, cache) = cached(CacheOptions::default());
    counting.fail_with(Some(ResolveCause::Status { status: 500 }));
    let mut asks = 0;
    for second in 0..121 {
        if second == 120 {
            counting.fail_with(None);
        }
        asks += u32::from(cache.resolve(&did(PLC)).await.is_err());
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!((asks, counting.asked()), (120, 13), "one look-up in ten seconds, and the last one finds it");
}

#[tokio::test(start_paused = true)]
async fn look_ups_that_come_at_once_are_made_once() {
    let (counting, cache) = cached(CacheOptions::default());
    counting.open.forget_permits(1_000_000);
    let (account, other) = (did(PLC), did("did:web:b.example.com"));
    let all = async { join_all((0..50).map(|_| cache.resolve(&account))).await };
    let open = async {
        tokio::task::yield_now().await;
        assert_eq!(counting.asked(), 1);
        counting.open.add_permits(10);
    };
    let (answers, ()) = tokio::join!(all, open);
    assert!(answers.iter().all(|answer| answer.is_ok()));
    assert_eq!(counting.asked(), 1);
    cache.resolve(&other).await.expect("another account");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_is_dropped_midway_leaves_the_next_one_to_ask() {
    let (counting, cache) = cached(CacheOptions::default());
    counting.open.forget_permits(1_000_000);
    tokio::time::timeout(Duration::from_secs(1), cache.resolve(&did(PLC))).await.expect_err("held up");
    counting.open.add_permits(10);
    cache.resolve(&did(PLC)).await.expect("found");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_purged_account_is_looked_up_again() {
    let (counting, cache) = cached(CacheOptions::default());
    cache.resolve(&did(PLC)).await.expect("found");
    advance(Duration::from_secs(60)).await;
    cache.purge(&did(PLC), Instant::now()).await;
    assert_eq!(counting.asked(), 1, "a purge looks nothing up");
    cache.resolve(&did(PLC)).await.expect("found");
    cache.resolve(&did(PLC)).await.expect("found");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_purge_during_a_look_up_makes_its_answer_stale() {
    let (counting, cache) = cached(CacheOptions::default());
    counting.open.forget_permits(1_000_000);
    let account = did(PLC);
    let purge = async {
        advance(Duration::from_secs(1)).await;
        cache.purge(&account, Instant::now()).await;
        counting.open.add_permits(10);
    };
    let (first, ()) = tokio::join!(cache.resolve(&account), purge);
    first.expect("found");
    advance(CacheOptions::default().refresh).await;
    cache.resolve(&account).await.expect("found");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_for_what_is_current_waits_until_it_may_be_looked_up_and_holds_up_nobody() {
    let (counting, cache) = cached(CacheOptions::default());
    cache.resolve(&did(PLC)).await.expect("found");
    advance(Duration::from_secs(3)).await;
    let (account, arrived) = (did(PLC), Instant::now());
    let waiting = async {
        cache.current(&account, Some(arrived)).await.expect("found");
        assert_eq!(arrived.elapsed(), Duration::from_secs(7), "ten seconds after the last look-up");
    };
    let others = async {
        tokio::task::yield_now().await;
        cache.resolve(&account).await.expect("remembered");
        cache.current(&account, None).await.expect("remembered");
        assert_eq!((counting.asked(), arrived.elapsed()), (1, Duration::ZERO), "they were made to wait");
    };
    tokio::join!(waiting, others);
    assert_eq!(counting.asked(), 2);
    // What was asked for since will do.
    cache.current(&account, Some(arrived)).await.expect("found");
    assert_eq!((counting.asked(), arrived.elapsed()), (2, Duration::from_secs(7)));
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_not_a_flood_of_look_ups_and_each_is_answered_with_what_was_true_after_it_came() {
    let (counting, cache) = cached(CacheOptions::default());
    let (begun, account) = (Instant::now(), did(PLC));
    let ask = |number: u64| {
        let (cache, account, counting) = (&cache, &account, &counting);
        async move {
            tokio::time::sleep_until(begun + Duration::from_millis(100) * number as u32).await;
            let arrived = Instant::now();
            cache.current(account, Some(arrived)).await.expect("found");
            assert!(arrived.elapsed() <= CacheOptions::default().refresh, "it waited {:?}", arrived.elapsed());
            assert!(counting.moments.lock().expect("no panics").iter().any(|asked| *asked >= arrived), "it was given an old answer");
        }
    };
    join_all((0..1000).map(ask)).await;
    assert_eq!(counting.asked(), 11, "100 s, one look-up in 10 s");
}

#[tokio::test(start_paused = true)]
async fn what_was_purged_is_not_current_and_will_do_for_whoever_cannot_wait() {
    let (counting, cache) = cached(CacheOptions::default());
    let account = did(PLC);
    cache.resolve(&account).await.expect("found");
    advance(Duration::from_secs(4)).await;
    cache.purge(&account, Instant::now()).await;
    cache.resolve(&account).await.expect("in doubt, and too young");
    assert_eq!(counting.asked(), 1);
    let purged = Instant::now();
    cache.current(&account, None).await.expect("found");
    assert_eq!((counting.asked(), purged.elapsed()), (2, Duration::from_secs(6)));
    // A purge from before what is remembered was asked for changes nothing.
    cache.purge(&account, purged).await;
    advance(Duration::from_secs(60)).await;
    cache.resolve(&account).await.expect("remembered");
    cache.current(&account, None).await.expect("remembered");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_asked_again_for_what_is_current_no_later_than_it_is_forgotten() {
    let (counting, cache) = cached(CacheOptions::default());
    let account = did(PLC);
    for (cause, waits) in [(ResolveCause::Refused { pause: Duration::from_secs(3) }, 3), (ResolveCause::NotFound, 10)] {
        counting.fail_with(Some(cause));
        advance(Duration::from_secs(20)).await;
        cache.purge(&account, Instant::now()).await;
        cache.resolve(&account).await.expect_err("fails");
        advance(Duration::from_millis(1)).await;
        counting.fail_with(None);
        let arrived = Instant::now();
        cache.current(&account, Some(arrived)).await.expect("found");
        assert_eq!(arrived.elapsed(), Duration::from_secs(waits) - Duration::from_millis(1));
    }
}

#[tokio::test]
async fn the_number_of_remembered_accounts_is_bounded() {
    let (counting, cache) = cached(CacheOptions { capacity: 100, ..CacheOptions::default() });
    let accounts: Vec<Did> = (0..5000).map(|n| did(&format!("did:web:a{n}.example.com"))).collect();
    for account in &accounts {
        cache.resolve(account).await.expect("found");
    }
    assert!(cache.remembered().await <= 100);
    let before = counting.asked();
    for account in &accounts {
        cache.resolve(account).await.expect("found");
    }
    assert!(counting.asked() - before >= 4800, "most had been forgotten");
}

#[tokio::test]
async fn a_static_resolver_knows_what_it_was_given() {
    let resolver: StaticResolver = [identity(PLC)].into_iter().collect();
    assert_eq!(*resolver.resolve(&did(PLC)).await.expect("known"), identity(PLC));
    let error = resolver.current(&did("did:web:b.example.com"), Some(Instant::now())).await.expect_err("unknown");
    assert_eq!(error.cause, ResolveCause::NotFound);
}
