use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::answer::Answer;
use super::body::{Sender, Step};
use super::counters::{Counters, InFlight};
use super::distort::distort;
use super::door::Fuse;
use super::limit::{Allowance, Window};
use super::options::HostOptions;
use super::pds::Pds;
use super::request::{Endpoint, Request};
use super::source::Source;
use super::subscribe::Subscriptions;
use super::{plc, relay};
use crate::sim::fault::{Fault, Faults, Place};
use crate::sim::{World, lock};
use crate::syntax::Did;

/// Who answers on a port.
#[derive(Debug, Clone)]
pub(super) enum Role {
    Directory,
    Relay(usize),
    Pds(usize),
    Web(Did),
}

/// One port and who answers there.
pub(super) struct Server {
    pub(super) role: Role,
    pub(super) world: Arc<World>,
    pub(super) faults: Arc<Faults>,
    pub(super) counters: Arc<Counters>,
    pub(super) options: HostOptions,
    pub(super) host_urls: Arc<[String]>,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) window: Mutex<Window>,
    /// None where there is no firehose.
    pub(super) subscriptions: Option<Subscriptions>,
}

impl Server {
    pub(super) fn into_router(self) -> Router {
        Router::new().fallback(respond).with_state(Arc::new(self))
    }

    fn read(&self, parts: &axum::http::request::Parts) -> Request {
        match &self.role {
            Role::Directory => Request::document(None, parts),
            Role::Web(did) => Request::document(Some(did), parts),
            Role::Relay(index) => Request::xrpc(Place::Relay(*index), parts),
            Role::Pds(index) => Request::xrpc(Place::Host(*index), parts),
        }
    }

    /// The true answer, or what a fault in its content makes of it.
    async fn answer(&self, request: &Request, fault: Option<Fault>) -> Answer {
        match &self.role {
            Role::Directory | Role::Web(_) => plc::document(&self.world, request, &self.host_urls, fault.as_ref()),
            Role::Relay(_) => {
                self.make(request).await;
                relay::answer(&self.world, request, &self.host_urls)
            }
            Role::Pds(index) => {
                self.make(request).await;
                let pds = Pds { world: &self.world, index: *index, options: &self.options };
                pds.answer(request, &Source::new(fault))
            }
        }
    }

    /// Makes the repos that the answer needs, off the threads that serve.
    async fn make(&self, request: &Request) {
        let accounts = match (request.endpoint, &request.did) {
            (Endpoint::ListRepos, _) => self.world.accounts(),
            (_, Some(did)) => self.world.account(did).into_iter().collect(),
            (_, None) => return,
        };
        if accounts.iter().all(|account| account.is_made()) {
            return;
        }
        let made = tokio::task::spawn_blocking(move || accounts.iter().for_each(|account| drop(account.repo())));
        // A panic there shows again when the answer needs the repo.
        _ = made.await;
    }

    fn finish(&self, answer: Answer, gzip: bool, fuse: Fuse, mut in_flight: InFlight) -> Response {
        if answer.status == StatusCode::SWITCHING_PROTOCOLS {
            in_flight.whole();
            return (answer.status, answer.headers).into_response();
        }
        if matches!(answer.status.as_u16(), 429 | 503) {
            self.counters.refuse();
        }
        let body = Sender { steps: answer.body.into(), gzip, fuse, in_flight, ended: self.ended.clone() };
        let mut response = (answer.status, answer.headers, body.into_body()).into_response();
        if gzip {
            response.headers_mut().insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
        }
        response
    }

    async fn pause(&self, pause: Duration) {
        let mut ended = self.ended.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = ended.wait_for(|ended| *ended) => {}
        }
    }
}

async fn respond(State(server): State<Arc<Server>>, ConnectInfo(fuse): ConnectInfo<Fuse>, request: axum::extract::Request) -> Response {
    let mut parts = request.into_parts().0;
    let (request, upgrade) = (server.read(&parts), parts.extensions.remove());
    let mut in_flight = server.counters.arrive(&request);
    let allowance = server.options.rate.map(|rate| lock(&server.window).take(rate));
    if !server.options.latency.is_zero() {
        server.pause(server.options.latency).await;
    }
    if let Some(refusal) = allowance.as_ref().and_then(Allowance::refusal) {
        return server.finish(refusal, false, fuse, in_flight);
    }
    let fault = server.faults.pick(&request);
    match &fault {
        Some(Fault::Late(pause)) => server.pause(*pause).await,
        Some(Fault::Reset) => fuse.blow(),
        Some(Fault::Custom(answer)) => {
            in_flight.whole();
            return answer(&request);
        }
        _ => {}
    }
    let answer = match fault.as_ref().and_then(|fault| replaced(fault, &request, &server.host_urls)) {
        Some(answer) => answer,
        None => {
            let mut answer = match &server.subscriptions {
                Some(subscriptions) if request.endpoint == Endpoint::SubscribeRepos => {
                    subscriptions.open(&request, upgrade, fuse.clone(), fault.as_ref())
                }
                _ => server.answer(&request, fault.clone()).await,
            };
            if let Some(fault) = &fault {
                answer.body = distort(answer.body, fault);
            }
            match &allowance {
                Some(allowance) => allowance.announce(answer),
                None => answer,
            }
        }
    };
    let zips = server.options.gzip && request.endpoint == Endpoint::GetRepo && request.takes_gzip();
    let gzip = zips && fault.as_ref().is_none_or(Fault::keeps_encoding) && answer.status.is_success();
    server.finish(answer, gzip, fuse, in_flight)
}

/// The answer of a fault that does not look at the truth.
fn replaced(fault: &Fault, request: &Request, host_urls: &[String]) -> Option<Answer> {
    Some(match fault {
        Fault::TooManyRequests(hint) => Answer::too_many(*hint),
        Fault::ServiceUnavailable(after) => Answer::unavailable(*after),
        Fault::Status(code, name) => Answer::error(*code, name, "simulated"),
        Fault::StatusPage(code) => Answer::page(*code),
        Fault::Html => Answer::page(200),
        Fault::OtherBody(bytes) => Answer::car(vec![Step::Send(bytes.clone())]),
        Fault::EmptyBody => Answer::car(Vec::new()),
        Fault::RedirectToHost(host) => match host_urls.get(*host) {
            Some(url) => Answer::redirect(&format!("{url}{}", request.path_and_query)),
            None => Answer::error(500, "NoSuchHost", "the rule redirects to a host that there is not"),
        },
        Fault::RedirectTo(url) => Answer::redirect(url),
        _ => return None,
    })
}
