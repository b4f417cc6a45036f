//! What hosts say of their repos: where one stands, and which there are.
use atproto_backfill::fetch::{Latest, RepoPage};
use atproto_backfill::sim::{AccountStatus, Endpoint, Fault, HostOptions, Network, NetworkOptions, RateLimit, Rule, Sizes, World};

use super::*;

async fn latest(options: HttpOptions, origin: &str) -> (Result<Latest, FetchError>, Pace) {
    let pace = fast_pace();
    let source = HttpSource::new(options, pace.clone()).expect("a client");
    let pds = Host::parse(origin).expect("an origin");
    let permit = pace.admit(pds.name()).await;
    (source.latest_commit(&did(), &pds, permit).await, pace)
}

async fn page(options: HttpOptions, origin: &str, cursor: Option<&str>) -> (Result<RepoPage, FetchError>, Pace) {
    let pace = fast_pace();
    let source = HttpSource::new(options, pace.clone()).expect("a client");
    let pds = Host::parse(origin).expect("an origin");
    let permit = pace.admit(pds.name()).await;
    (source.list_repos(&pds, cursor, 1000, permit).await, pace)
}

/// A world of which a part is not active, and its network.
async fn network(options: HostOptions) -> (std::sync::Arc<World>, Network) {
    let world = World::builder().seed(71).hosts(1).repos(25).sizes(Sizes::Each(3)).build().expect("a world");
    for (index, did) in world.dids().iter().enumerate() {
        match index {
            3..14 => world.set_status(did, AccountStatus::Deactivated),
            14 => world.set_status(did, AccountStatus::Takendown),
            _ => {}
        }
    }
    let network = Network::start(&world, NetworkOptions { hosts: options, ..NetworkOptions::default() }).await.expect("a network");
    (world, network)
}

#[tokio::test]
async fn the_pages_of_a_host_hold_every_repo_once_with_where_it_stands() {
    let (world, network) = network(HostOptions::default()).await;
    let pds = Host::parse(network.host_urls()[0]).expect("an origin");
    let pace = fast_pace();
    let source = HttpSource::new(options(), pace.clone()).expect("a client");
    let mut found = Vec::new();
    let (mut cursor, mut pages, mut inactive_pages) = (None, 0, 0);
    loop {
        let page = source.list_repos(&pds, cursor.as_deref(), 4, pace.admit(pds.name()).await).await.expect("a page");
        pages += 1;
        inactive_pages += usize::from(!page.repos.is_empty() && page.repos.iter().all(|repo| !repo.active));
        assert_eq!(page.bad, 0);
        found.extend(page.repos);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    // The last page is empty: the reference implementation names a cursor with every other.
    assert_eq!((pages, inactive_pages), (8, 2), "pages of only inactive accounts are in the middle");
    let truth: Vec<_> = world.dids().into_iter().map(|did| (world.head(&did).map(|(rev, ..)| rev), did)).collect();
    assert_eq!(found.iter().map(|repo| (repo.rev, repo.did.clone())).collect::<Vec<_>>(), truth);
    for repo in &found {
        let status = world.status(&repo.did).expect("an account");
        assert_eq!((repo.active, repo.status.as_deref()), (status == AccountStatus::Active, status.word()));
    }
    network.shutdown().await;
}

#[tokio::test]
async fn the_latest_commit_is_the_worlds_and_of_an_inactive_account_there_is_none() {
    let (world, network) = network(HostOptions::default()).await;
    let pds = Host::parse(network.host_urls()[0]).expect("an origin");
    let pace = fast_pace();
    let source = HttpSource::new(options(), pace.clone()).expect("a client");
    for did in world.dids() {
        let latest = source.latest_commit(&did, &pds, pace.admit(pds.name()).await).await;
        match world.status(&did) {
            Some(AccountStatus::Active) => {
                let latest = latest.expect("a commit");
                assert_eq!(Some(latest.rev), world.head(&did).map(|(rev, ..)| rev));
                let export = world.export(&did).expect("an export");
                assert!(export.windows(36).any(|bytes| bytes == latest.cid.to_bytes()), "the commit is not in the export");
            }
            _ => assert!(matches!(latest.expect_err("nothing").disposition(), Disposition::Unavailable(_))),
        }
    }
    network.shutdown().await;
}

#[tokio::test]
async fn refusals_of_both_pause_the_host() {
    let rate = RateLimit { limit: 1, window: Duration::from_secs(300), enforced: true, announced: true };
    let (world, network) = network(HostOptions { rate: Some(rate), ..HostOptions::default() }).await;
    let pds_origin = network.host_urls()[0];
    let pds = Host::parse(pds_origin).expect("an origin");
    // The first answer says that nothing is left, so that a pace that listens asks no more; one that has just begun does.
    latest(options(), pds_origin).await.0.expect_err("there is no such account");
    for listing in [false, true] {
        let pace = fast_pace();
        let source = HttpSource::new(options(), pace.clone()).expect("a client");
        let permit = pace.admit(pds.name()).await;
        let error = match listing {
            true => source.list_repos(&pds, None, 10, permit).await.map(drop),
            false => source.latest_commit(&world.dids()[0], &pds, permit).await.map(drop),
        };
        assert!(matches!(error.expect_err("refused").disposition(), Disposition::Refused(_)));
        assert!(pace.try_admit(pds.name()).is_err(), "the host is not left alone");
    }
    network.shutdown().await;
}

#[tokio::test]
async fn a_page_that_never_ends_or_makes_no_sense_is_an_error_and_the_place_is_free_again() {
    let long = vec![Step::Send(head(200, &[], None)), Step::Send(vec![b' '; 5 << 20]), Step::Stall];
    for (steps, words) in [
        (long, "longer than 4194304 bytes"),
        (answer(200, &[], b"<html>"), "makes no sense"),
        (answer(200, &[], b""), "makes no sense"),
        (answer(200, &[], br#"{"repos":{}}"#), "makes no sense"),
    ] {
        let host = Responder::start(move |_| steps.clone()).await;
        let (found, pace) = page(options(), &host.origin(), None).await;
        let error = found.expect_err("no page");
        assert!(error.to_string().contains(words) && error.to_string().contains(&host.name()), "{error}");
        assert_eq!(error.disposition(), Disposition::Failed(FailureKind::HttpServer));
        assert_eq!((error.did, pace.hosts()[0].in_flight), (None, 0));
        let (found, _) = latest(options(), &host.origin()).await;
        assert!(matches!(found.expect_err("no commit").cause, FetchCause::Malformed { .. }));
    }
}

#[tokio::test]
async fn a_small_answer_that_is_cut_or_stalls_is_an_error() {
    let begun = || Step::Send([head(200, &[], Some(1000)), br#"{"repos":["#.to_vec()].concat());
    let host = Responder::start(move |_| vec![begun()]).await;
    let (found, _) = page(options(), &host.origin(), None).await;
    assert!(matches!(found.expect_err("cut").cause, FetchCause::Cut { received: 10, .. }));
    let host = Responder::start(move |_| vec![begun(), Step::Stall]).await;
    let (found, pace) = page(hurried(), &host.origin(), None).await;
    assert_eq!(found.expect_err("stalled").cause, FetchCause::Timeout { phase: Phase::Body, after: STALL });
    assert_eq!(pace.hosts()[0].in_flight, 0);
}

#[tokio::test]
async fn the_requests_name_what_is_asked_and_who_asks_and_follow_redirects() {
    let pds = Responder::start(|_| answer(200, &[], br#"{"cursor":"2","repos":[{"did":"did:plc:ewvi7nxzyoun6zhxrhs64oiz"}]}"#)).await;
    let to = pds.origin();
    let relay = Responder::start(move |seen| answer(302, &[("location", &format!("{to}{}", seen.target))], b"")).await;
    let (found, _) = page(options(), &relay.origin(), Some("1::did:plc:x&y")).await;
    assert_eq!(found.expect("a page").next.as_deref(), Some("2"));
    let request = pds.seen().remove(0);
    let asked = Url::parse(&format!("http://x{}", request.target)).expect("a URL");
    assert_eq!(asked.path(), "/xrpc/com.atproto.sync.listRepos");
    let query: Vec<_> = asked.query_pairs().collect();
    assert_eq!(query, [("limit".into(), "1000".into()), ("cursor".into(), "1::did:plc:x&y".into())]);
    assert!(request.header("user-agent").is_some_and(|agent| agent.starts_with("atproto-backfill/")));
}

#[tokio::test]
async fn a_checkout_path_is_asked_for_listings_and_commits_too() {
    let mirror = Responder::start(|_| error(404, "RepoNotFound")).await;
    let pace = fast_pace();
    let base = Url::parse(&format!("{}/mirror/xrpc/com.atproto.sync.getRepo", mirror.origin())).expect("a URL");
    let source = HttpSource::new(options(), pace.clone()).and_then(|source| source.with_checkout_path(&base)).expect("a client");
    let pds = Host::parse("https://pds.example.com").expect("an origin");
    let host = source.host_for(&pds);
    let gone = source.latest_commit(&did(), &pds, pace.admit(host.name()).await).await.expect_err("not found");
    assert_eq!(gone.disposition(), Disposition::Unavailable(UnavailableStatus::NotFound));
    source.list_repos(&pds, None, 1000, pace.admit(host.name()).await).await.expect_err("not found");
    let targets: Vec<String> = mirror.seen().into_iter().map(|seen| seen.target).collect();
    assert!(targets[0].starts_with("/mirror/xrpc/com.atproto.sync.getLatestCommit?did="), "{targets:?}");
    assert_eq!(targets[1], "/mirror/xrpc/com.atproto.sync.listRepos?limit=1000");
}

#[tokio::test]
async fn a_host_that_fails_once_may_be_asked_for_the_same_page_again() {
    let (_, network) = network(HostOptions::default()).await;
    let rule = network.faults().inject(Rule::new(Fault::Status(500, "InternalServerError")).endpoint(Endpoint::ListRepos).times(1));
    let origin = network.host_urls()[0].to_owned();
    let (found, _) = page(options(), &origin, None).await;
    assert_eq!(found.expect_err("a failure").disposition(), Disposition::Failed(FailureKind::HttpServer));
    assert_eq!(page(options(), &origin, None).await.0.expect("a page").repos.len(), 25);
    assert_eq!(network.faults().fired(rule), 1);
    network.shutdown().await;
}
