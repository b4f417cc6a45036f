//! Every fault of the simulator: that it strikes where it was told to, and looks over HTTP as it should.
#![cfg(feature = "sim")]

mod sim_support;

use std::sync::Arc;
use std::time::Duration;

use atproto_backfill::repo::CheckoutError;
use atproto_backfill::sim::{
    AccountStatus, Ending, Endpoint, Fault, Gate, HostOptions, Missing, Network, NetworkOptions, Position, RandomWrites, RetryHint, Rule,
    World,
};
use atproto_backfill::syntax::Did;
use axum::response::IntoResponse;
use reqwest::Response;
use sim_support::{GET_REPO, check_out, client, fetch, json, network, truth, url, world};

/// A network whose only account is struck by one fault, on the first request to the fault's endpoint.
struct Struck {
    world: Arc<World>,
    network: Network,
    did: Did,
    whole: Vec<u8>,
}

async fn strike(fault: Fault) -> Struck {
    let world = world(41, 2, 2, 600);
    let network = network(&world).await;
    let did = world.dids()[0].clone();
    let whole = world.export(&did).expect("exists").to_vec();
    network.faults().inject(Rule::new(fault).did(&did).times(1));
    Struck { world, network, did, whole }
}

impl Struck {
    async fn send(&self) -> reqwest::Result<Response> {
        client().get(url(&self.network, &self.did, GET_REPO)).send().await
    }

    /// The status and headers of the struck answer; and that the next one is well.
    async fn answer(self) -> Response {
        let response = self.send().await.expect("it answers");
        self.is_over().await;
        response
    }

    /// The body of the struck answer, which is a whole one over HTTP.
    async fn body(&self) -> Vec<u8> {
        let response = self.send().await.expect("it answers");
        assert_eq!(response.status(), 200);
        response.bytes().await.expect("the body is whole").to_vec()
    }

    fn read(&self, car: &[u8]) -> Result<sim_support::Read, CheckoutError> {
        check_out(car, &self.did, &self.world.key(&self.did).expect("exists"))
    }

    async fn is_over(&self) {
        assert_eq!((self.network.faults().total(), self.network.faults().unfired().len()), (1, 0), "the fault struck");
        assert_eq!(fetch(&self.network, &self.did, &client()).await.expect("a sound CAR"), truth(&self.world, &self.did));
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().expect("text").to_owned())
}

fn unix_now() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

#[tokio::test]
async fn a_429_says_when_to_come_back_in_every_form_there_is() {
    const AFTER: Duration = Duration::from_secs(30);
    let seconds = strike(Fault::TooManyRequests(RetryHint::Seconds(AFTER))).await.answer().await;
    assert_eq!((seconds.status().as_u16(), header(&seconds, "retry-after").as_deref()), (429, Some("30")));

    let date = strike(Fault::TooManyRequests(RetryHint::Date(AFTER))).await.answer().await;
    let at = httpdate::parse_http_date(&header(&date, "retry-after").expect("there is one")).expect("an HTTP date");
    let ahead = at.duration_since(std::time::SystemTime::now()).expect("in the future").as_secs();
    assert!((25..=30).contains(&ahead), "{ahead}");

    let reset = strike(Fault::TooManyRequests(RetryHint::ResetAt(AFTER))).await.answer().await;
    let at: u64 = header(&reset, "ratelimit-reset").expect("there is one").parse().expect("a number");
    assert!((25..=30).contains(&(at - unix_now())) && header(&reset, "retry-after").is_none());
    assert_eq!(header(&reset, "ratelimit-remaining").as_deref(), Some("0"));

    let delta = strike(Fault::TooManyRequests(RetryHint::ResetIn(AFTER))).await.answer().await;
    assert_eq!(header(&delta, "ratelimit-reset").as_deref(), Some("30"));

    let bare = strike(Fault::TooManyRequests(RetryHint::None)).await.answer().await;
    assert_eq!((bare.status().as_u16(), header(&bare, "retry-after"), header(&bare, "ratelimit-reset")), (429, None, None));
    assert!(bare.text().await.expect("a body").starts_with("<!DOCTYPE html>"));
}

#[tokio::test]
async fn error_statuses_come_with_a_name_or_a_page() {
    let busy = strike(Fault::ServiceUnavailable(Some(Duration::from_secs(7)))).await.answer().await;
    assert_eq!((busy.status().as_u16(), header(&busy, "retry-after").as_deref()), (503, Some("7")));
    let busy = strike(Fault::ServiceUnavailable(None)).await.answer().await;
    assert_eq!((busy.status().as_u16(), header(&busy, "retry-after")), (503, None));
    for (code, name) in [(400, "InvalidRequest"), (403, "Forbidden"), (404, "NotFound"), (410, "Gone"), (500, "InternalServerError")] {
        let answer = strike(Fault::Status(code, name)).await.answer().await;
        assert_eq!(answer.status(), code);
        assert_eq!(json(answer).await["error"], name);
    }
    let page = strike(Fault::StatusPage(502)).await.answer().await;
    assert_eq!((page.status().as_u16(), header(&page, "content-type").as_deref()), (502, Some("text/html; charset=utf-8")));
    let gone = strike(Fault::Account(AccountStatus::Takendown)).await.answer().await;
    assert_eq!((gone.status().as_u16(), json(gone).await["error"].as_str()), (400, Some("RepoTakendown")));
    let own =
        strike(Fault::Custom(Arc::new(|request| (axum::http::StatusCode::IM_A_TEAPOT, format!("{:?}", request.endpoint)).into_response())));
    let own = own.await.answer().await;
    assert_eq!((own.status().as_u16(), own.text().await.expect("a body").as_str()), (418, "GetRepo"));
}

#[tokio::test]
async fn bodies_that_are_no_repo_are_sent_with_status_200() {
    let html = strike(Fault::Html).await;
    assert!(html.body().await.starts_with(b"<!DOCTYPE html>"));
    html.is_over().await;
    let empty = strike(Fault::EmptyBody).await;
    assert!(empty.body().await.is_empty());
    empty.is_over().await;
    let damaged = strike(Fault::OtherBody(vec![0x3a, 0xa2].into())).await;
    assert_eq!(damaged.body().await, [0x3a, 0xa2]);
    damaged.is_over().await;
    let header_only = strike(Fault::HeaderOnlyCar).await;
    assert_eq!(header_only.body().await, header_only.whole[..59]);
    header_only.is_over().await;
}

#[tokio::test]
async fn bodies_are_cut_where_they_should_be_and_end_as_they_should() {
    for position in [Position::Byte(1_000), Position::Block(20), Position::BeforeEnd(1)] {
        let struck = strike(Fault::Cut(position, Ending::Clean)).await;
        let cut = struck.body().await;
        assert!(cut.len() < struck.whole.len() && struck.whole.starts_with(&cut), "{position:?}");
        match position {
            Position::Byte(bytes) => assert_eq!(cut.len() as u64, bytes),
            Position::BeforeEnd(bytes) => assert_eq!((struck.whole.len() - cut.len()) as u64, bytes),
            // At a block boundary nothing is wrong but that blocks are missing.
            Position::Block(_) => assert!(matches!(struck.read(&cut), Err(CheckoutError::MissingNode { .. })), "{:?}", struck.read(&cut)),
        }
        assert!(struck.read(&cut).is_err());
        struck.is_over().await;
    }
    for ending in [Ending::Close, Ending::Reset] {
        let struck = strike(Fault::Cut(Position::Byte(5_000), ending)).await;
        let mut response = struck.send().await.expect("headers come");
        let mut received = 0;
        let error = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => received += chunk.len(),
                Ok(None) => panic!("{ending:?} looked like an end"),
                Err(error) => break error,
            }
        };
        assert!(received <= 5_000 && (error.is_body() || error.is_decode()), "{received} {error:?}");
        struck.is_over().await;
    }
}

#[tokio::test]
async fn connections_are_reset_before_an_answer() {
    let struck = strike(Fault::Reset).await;
    let error = struck.send().await.expect_err("there is no answer");
    assert!(error.is_request() && !error.is_timeout(), "{error:?}");
    struck.is_over().await;
}

#[tokio::test]
async fn answers_and_bodies_are_late_but_come() {
    const PAUSE: Duration = Duration::from_millis(300);
    for fault in [Fault::Late(PAUSE), Fault::Stall(Position::Block(2), PAUSE), Fault::Trickle(20_000, Duration::from_millis(30))] {
        let name = format!("{fault:?}");
        let struck = strike(fault).await;
        let began = std::time::Instant::now();
        assert_eq!(struck.body().await, struck.whole, "{name}");
        let took = began.elapsed();
        assert!(took >= PAUSE || (name.starts_with("Trickle") && took >= PAUSE / 3), "{name} took {took:?}");
        struck.is_over().await;
    }
}

#[tokio::test]
async fn a_body_is_held_until_the_test_lets_it_go() {
    let gate = Gate::new();
    let struck = strike(Fault::Hold(Position::Block(5), gate.clone())).await;
    let mut response = struck.send().await.expect("headers come");
    gate.reached(1).await;
    let before = truth(&struck.world, &struck.did);
    RandomWrites::new(2).write_to(&struck.world, &struck.did).expect("exists");
    assert_eq!(struck.network.host(0).in_flight(), 1);
    gate.open();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.expect("the body goes on") {
        body.extend_from_slice(&chunk);
    }
    assert_eq!(struck.read(&body).expect("a sound CAR"), before, "the export is of the moment when it began");
    struck.is_over().await;
}

#[tokio::test]
async fn one_flipped_bit_and_bytes_too_many_are_found_by_the_reader() {
    let struck = strike(Fault::FlipByte(2_000)).await;
    let flipped = struck.body().await;
    let differ: Vec<usize> = (0..flipped.len()).filter(|&at| flipped[at] != struck.whole[at]).collect();
    assert_eq!((flipped.len(), differ), (struck.whole.len(), vec![2_000]));
    assert!(struck.read(&flipped).is_err());
    let struck = strike(Fault::TrailingBytes(vec![9, 9])).await;
    let longer = struck.body().await;
    assert_eq!(longer, [&struck.whole[..], &[9, 9]].concat());
    assert!(struck.read(&longer).is_err());
}

#[tokio::test]
async fn redirects_lead_to_other_hosts() {
    let struck = strike(Fault::RedirectToHost(1)).await;
    let expected = url(&struck.network, &struck.did, GET_REPO).replace(struck.network.host_urls()[0], struck.network.host_urls()[1]);
    let answer = struck.answer().await;
    assert_eq!((answer.status().as_u16(), header(&answer, "location")), (302, Some(expected)));
    let answer = strike(Fault::RedirectTo("http://127.0.0.1:1/".to_owned())).await.answer().await;
    assert_eq!(header(&answer, "location").as_deref(), Some("http://127.0.0.1:1/"));
}

#[tokio::test]
async fn repos_that_are_not_the_one_asked_for_are_told_apart() {
    let other = world(41, 2, 2, 600).dids()[1].clone();
    let struck = strike(Fault::OtherRepo(other.clone())).await;
    let body = struck.body().await;
    assert_eq!(body, struck.world.export(&other).expect("exists"));
    assert!(matches!(struck.read(&body), Err(CheckoutError::Account { found, .. }) if found == other));

    let struck = strike(Fault::WrongKey).await;
    let body = struck.body().await;
    assert!(matches!(struck.read(&body), Err(CheckoutError::Signature { .. })), "{:?}", struck.read(&body));
    struck.is_over().await;

    let struck = strike(Fault::StaleReplica).await;
    let before = truth(&struck.world, &struck.did);
    RandomWrites::new(1).write_to(&struck.world, &struck.did).expect("exists");
    assert_eq!(struck.read(&struck.body().await).expect("a sound CAR"), before);
    struck.is_over().await;
}

#[tokio::test]
async fn missing_blocks_are_missed_by_the_reader() {
    for which in [Missing::Commit, Missing::Root, Missing::Node, Missing::Record] {
        let struck = strike(Fault::MissingBlock(which)).await;
        let body = struck.body().await;
        assert!(body.len() < struck.whole.len());
        let error = struck.read(&body).expect_err("something is missing");
        match which {
            Missing::Commit => assert!(matches!(error, CheckoutError::MissingCommit { .. }), "{error:?}"),
            Missing::Root | Missing::Node => assert!(matches!(error, CheckoutError::MissingNode { .. }), "{error:?}"),
            Missing::Record => assert!(matches!(error, CheckoutError::MissingRecord { .. }), "{error:?}"),
        }
        struck.is_over().await;
    }
}

#[tokio::test]
async fn an_export_that_is_torn_by_a_commit_lacks_nodes() {
    let struck = strike(Fault::TornExport(1)).await;
    let body = struck.body().await;
    assert!(
        matches!(struck.read(&body), Err(CheckoutError::MissingNode { .. } | CheckoutError::MissingCommit { .. })),
        "{:?}",
        struck.read(&body)
    );
    struck.is_over().await;

    let world = world(42, 1, 1, 3_000);
    let hosts = HostOptions { atomic: false, ..Default::default() };
    let network = Network::start(&world, NetworkOptions { hosts, ..Default::default() }).await.expect("ports are to be had");
    let did = &world.dids()[0];
    assert_eq!(fetch(&network, did, &client()).await.expect("nothing was written meanwhile"), truth(&world, did));
}

#[tokio::test]
async fn documents_are_missing_tombstoned_late_or_lack_something() {
    let other = world(41, 2, 2, 600).dids()[1].clone();
    let ask = async |fault: Fault| {
        let struck = strike(fault).await;
        let response = client().get(format!("{}/{}", struck.network.plc_url(), struck.did)).send().await.expect("it answers");
        assert_eq!(struck.network.faults().total(), 1);
        (response.status().as_u16(), json(response).await)
    };
    assert_eq!(ask(Fault::DidNotFound).await.0, 404);
    assert_eq!(ask(Fault::DidTombstoned).await.0, 410);
    let (status, document) = ask(Fault::DocumentWithoutKey).await;
    assert_eq!(
        (status, document["verificationMethod"].as_array().map(Vec::len), document["service"].as_array().map(Vec::len)),
        (200, Some(0), Some(1))
    );
    let (_, document) = ask(Fault::DocumentWithoutPds).await;
    assert_eq!((document["verificationMethod"].as_array().map(Vec::len), document["service"].as_array().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!(ask(Fault::OtherDocument(other.clone())).await.1["id"], other.as_str());

    let world = world(44, 1, 1, 1);
    let network = network(&world).await;
    let url = format!("{}/{}", network.plc_url(), world.dids()[0]);
    let at_directory = |fault| network.faults().inject(Rule::new(fault).endpoint(Endpoint::DidDocument).times(1));
    at_directory(Fault::Status(500, "InternalServerError"));
    at_directory(Fault::Late(Duration::from_secs(3_600)));
    assert_eq!(client().get(&url).send().await.expect("it answers").status(), 500);
    let hangs = client().get(&url).timeout(Duration::from_millis(200)).send().await.expect_err("it hangs");
    assert!(hangs.is_timeout(), "{hangs:?}");
    assert_eq!((client().get(&url).send().await.expect("it answers").status().as_u16(), network.faults().unfired().len()), (200, 0));
}

#[tokio::test]
async fn rules_strike_only_where_and_when_they_were_told() {
    let world = world(43, 2, 4, 40);
    let network = network(&world).await;
    let dids = world.dids();
    let faults = network.faults();
    let third = faults.inject(Rule::new(Fault::Status(500, "Third")).host(0).after(2).every(2).times(2));
    let elsewhere = faults.inject(Rule::new(Fault::Status(500, "Elsewhere")).endpoint(Endpoint::GetLatestCommit).did(&dids[1]));
    let never = faults.inject(Rule::new(Fault::Reset).host(7));
    let mut struck = Vec::new();
    for request in 1..=9 {
        let status = client().get(url(&network, &dids[0], GET_REPO)).send().await.expect("it answers").status();
        if status == 500 {
            struck.push(request);
        }
        assert_eq!(client().get(url(&network, &dids[1], GET_REPO)).send().await.expect("it answers").status(), 200);
    }
    assert_eq!((struck, faults.fired(third), faults.fired(elsewhere)), (vec![3, 5], 2, 0));
    let latest =
        async || client().get(url(&network, &dids[1], "com.atproto.sync.getLatestCommit")).send().await.expect("it answers").status();
    assert_eq!(latest().await, 500);
    faults.heal(elsewhere);
    assert_eq!(latest().await, 200);
    assert_eq!((faults.fired(elsewhere), faults.fired(never), faults.unfired().len()), (1, 0, 1));
}
