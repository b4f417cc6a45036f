//! Looking accounts up over real HTTP on loopback, and remembering what was found.
#[path = "common/responder.rs"]
mod responder;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use atproto_backfill::fetch::{Disposition, Host};
use atproto_backfill::identity::{
    CacheOptions, CachedResolver, HttpResolver, Identity, ResolveCause, ResolveError, Resolved, Resolver, ResolverOptions, StaticResolver,
};
use atproto_backfill::job::{FailureKind, UnavailableStatus};
use atproto_backfill::repo::PublicKey;
use atproto_backfill::syntax::Did;
use futures::future::{BoxFuture, join_all};
use responder::{Responder, Step, answer, head, nobody};
use tokio::sync::Semaphore;
use tokio::time::advance;
use url::Url;

const PLC: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
// From the W3C did:key test vectors, which the interop fixtures hold.
const K256: &str = "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme";

fn did(text: &str) -> Did {
    Did::new(text).expect("a DID")
}

fn document(did: &str) -> Vec<u8> {
    format!(
        r##"{{"@context":["https://www.w3.org/ns/did/v1"],"id":"{did}","alsoKnownAs":["at://alice.test"],
        "verificationMethod":[{{"id":"{did}#atproto","type":"Multikey","controller":"{did}","publicKeyMultibase":"{K256}"}}],
        "service":[{{"id":"#atproto_pds","type":"AtprotoPersonalDataServer","serviceEndpoint":"https://pds.example.com"}}]}}"##
    )
    .into_bytes()
}

fn options(directory: &str) -> ResolverOptions {
    ResolverOptions { plc_url: Url::parse(directory).expect("a URL"), ..ResolverOptions::default() }
}

async fn look_up(options: ResolverOptions, text: &str) -> Resolved {
    HttpResolver::new(options).expect("a client").resolve(&did(text)).await
}

async fn failure(steps: Vec<Step>) -> ResolveError {
    let directory = Responder::start(move |_| steps.clone()).await;
    let error = look_up(options(&directory.origin()), PLC).await.expect_err("a failure");
    let text = error.to_string();
    assert!(text.contains(PLC) && text.contains(&directory.name()), "{text} names the DID and the server");
    error
}

#[tokio::test]
async fn a_did_plc_is_looked_up_in_the_directory() {
    for base in ["", "/", "/replica/"] {
        let directory = Responder::start(|_| answer(200, &[("content-type", "application/did+ld+json")], &document(PLC))).await;
        let found = look_up(options(&format!("{}{base}", directory.origin())), PLC).await.expect("an identity");
        assert_eq!(found.did.as_str(), PLC);
        assert_eq!(found.key.to_multikey(), K256);
        assert_eq!(found.pds.origin(), "https://pds.example.com");
        let request = directory.seen().remove(0);
        assert_eq!(request.target, format!("{}/{PLC}", base.trim_end_matches('/')));
        assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("atproto-backfill/")));
    }
}

#[tokio::test]
async fn a_did_web_is_looked_up_at_its_domain() {
    let site = Responder::start(|seen| {
        let name = seen.header("host").expect("a host header");
        answer(200, &[], &document(&format!("did:web:{}", name.replace(':', "%3A"))))
    })
    .await;
    let text = format!("did:web:{}", site.name().replace(':', "%3A"));
    let options = ResolverOptions { development: true, ..options("https://plc.example.com") };
    let found = look_up(options.clone(), &text).await.expect("an identity");
    assert_eq!(found.did.as_str(), text);
    assert_eq!(site.seen()[0].target, "/.well-known/did.json");
    let outside = ResolverOptions { development: false, ..options };
    let error = look_up(outside, &text).await.expect_err("not this machine");
    assert!(matches!(error.cause, ResolveCause::Unsupported { .. }), "{error}");
    assert_eq!(site.seen().len(), 1);
}

#[tokio::test]
async fn not_found_tombstoned_and_trouble_are_kept_apart() {
    let page = |status| answer(status, &[], b"{\"message\":\"DID not available\"}");
    assert_eq!(failure(page(404)).await.disposition(), Disposition::Unavailable(UnavailableStatus::NotFound));
    assert_eq!(failure(page(410)).await.disposition(), Disposition::Unavailable(UnavailableStatus::Deleted));
    for status in [400, 401, 403, 500, 502, 504] {
        let error = failure(page(status)).await;
        assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
        assert!(error.is_transient(), "{error}");
    }
    let error = failure(vec![Step::Send([head(200, &[], Some(5000)), document(PLC)].concat())]).await;
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
    let error = failure(answer(200, &[], &document("did:plc:ewvi7nxzyoun6zhxrhs64oix"))).await;
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::BrokenIdentity), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_did_that_no_account_can_have_asks_nobody() {
    let directory = Responder::start(|_| answer(200, &[], &document(PLC))).await;
    for text in [
        "did:plc:short",
        "did:plc:EWVI7NXZYOUN6ZHXRHS64OIZ",
        "did:plc:ewvi7nxzyoun6zhxrhs64oi1",
        "did:key:zQ3sh",
        "did:web:a.example.com:b",
    ] {
        let error = look_up(options(&directory.origin()), text).await.expect_err("no account");
        assert_eq!(error.disposition(), Disposition::Unavailable(UnavailableStatus::NotFound), "{error}");
    }
    assert!(directory.seen().is_empty());
}

#[tokio::test]
async fn a_directory_that_refuses_for_load_is_left_alone() {
    let directory = Responder::start(|_| answer(429, &[("retry-after", "100")], b"")).await;
    let resolver = HttpResolver::new(options(&directory.origin())).expect("a client");
    for _ in 0..3 {
        let error = resolver.resolve(&did(PLC)).await.expect_err("refused");
        assert!(matches!(error.disposition(), Disposition::Refused(pause) if pause > Duration::from_secs(90)), "{error}");
    }
    assert_eq!(directory.seen().len(), 1, "the others were not even asked");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Responder::start(|_| answer(200, &[], &document(PLC))).await;
    let to = elsewhere.origin();
    let directory = Responder::start(move |_| answer(302, &[("location", &to)], b"")).await;
    let error = look_up(options(&directory.origin()), PLC).await.expect_err("a redirect");
    assert_eq!(error.cause, ResolveCause::Status { status: 302 });
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn a_directory_that_hangs_or_trickles_times_out() {
    let trickle = vec![Step::Send(head(200, &[], None)), Step::Trickle(b" ".to_vec(), Duration::from_millis(5))];
    for steps in [vec![Step::Stall], vec![Step::Send(head(200, &[], Some(9000))), Step::Stall], trickle] {
        let directory = Responder::start(move |_| steps.clone()).await;
        let after = Duration::from_millis(200);
        let error = look_up(ResolverOptions { total_timeout: after, ..options(&directory.origin()) }, PLC).await.expect_err("too slow");
        assert_eq!(error.cause, ResolveCause::Timeout { after });
    }
}

#[tokio::test]
async fn a_document_without_end_is_not_read() {
    let endless = vec![Step::Send(head(200, &[], None)), Step::Trickle(vec![b' '; 65536], Duration::from_millis(1))];
    let error = failure(endless).await;
    assert_eq!(error.cause, ResolveCause::TooLarge { max: 128 * 1024 });
}

#[tokio::test]
async fn nobody_at_the_directory_is_trouble_of_the_directory() {
    let error = look_up(options(&nobody().await), PLC).await.expect_err("nobody");
    assert_eq!(error.disposition(), Disposition::Failed(FailureKind::Resolve), "{error}");
}

fn identity(text: &str) -> Identity {
    Identity {
        did: did(text),
        key: PublicKey::from_multikey(K256).expect("a key"),
        pds: Host::parse("https://pds.example.com").expect("a host"),
    }
}

/// Answers what it is told, counts how often, and can be held up.
#[derive(Debug)]
struct Counting {
    asked: AtomicU32,
    open: Semaphore,
    cause: std::sync::Mutex<Option<ResolveCause>>,
}

impl Counting {
    fn new() -> Arc<Self> {
        Arc::new(Self { asked: AtomicU32::new(0), open: Semaphore::new(1_000_000), cause: std::sync::Mutex::default() })
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
    cache.purge(&did(PLC)).await;
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
        cache.purge(&account).await;
        counting.open.add_permits(10);
    };
    let (first, ()) = tokio::join!(cache.resolve(&account), purge);
    first.expect("found");
    advance(CacheOptions::default().refresh).await;
    cache.resolve(&account).await.expect("found");
    assert_eq!(counting.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_refreshes_is_not_a_flood_of_look_ups_and_none_is_forgotten() {
    let (counting, cache) = cached(CacheOptions::default());
    for _ in 0..1000 {
        cache.refresh(&did(PLC)).await.expect("found");
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(counting.asked(), 10, "100 s, one look-up in 10 s");
    advance(Duration::from_secs(10)).await;
    cache.resolve(&did(PLC)).await.expect("found");
    assert_eq!(counting.asked(), 11, "the last refresh came too soon after a look-up, so the next look-up is fresh");
    cache.resolve(&did(PLC)).await.expect("found");
    assert_eq!(counting.asked(), 11);
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
    let error = resolver.refresh(&did("did:web:b.example.com")).await.expect_err("unknown");
    assert_eq!(error.cause, ResolveCause::NotFound);
}
