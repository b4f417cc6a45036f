use std::time::SystemTime;

use reqwest::header::{
    CONNECTION, HeaderMap, HeaderName, LOCATION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Client as HttpClient, Response, StatusCode, Upgraded};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use url::Url;

use super::upstream::http_url;
use super::{ClientOptions, ConnectionCause, Resume, Upstream};
use crate::fetch::{ClientError, Guard, Host, HttpOptions, Limits, Phase, Transport, upgrading_client};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;
/// How much of the body of an answer that is no WebSocket is read and told.
const MAX_SAID: usize = 200;

/// Opens WebSockets over HTTP, by hand: the operator's settings for HTTP (TLS, user agent, guard, redirects) hold for them too.
#[derive(Debug)]
pub(super) struct Connector {
    options: ClientOptions,
    /// For what the operator names.
    trusted: HttpClient,
    /// For where redirects lead.
    guarded: HttpClient,
}

enum Answer {
    Open(Upgraded),
    Elsewhere(Url),
}

impl Connector {
    pub(super) fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let http = HttpOptions {
            user_agent: options.user_agent.clone(),
            connect_timeout: options.connect_timeout,
            development: options.development,
            ..HttpOptions::default()
        };
        let trusted = upgrading_client(&http, false)?;
        let guarded = upgrading_client(&http, !options.development)?;
        Ok(Self { options, trusted, guarded })
    }

    pub(super) fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Opens the firehose of an upstream, and tells which host was reached in the end.
    pub(super) async fn open(&self, upstream: &Upstream, resume: Resume) -> Result<(Upgraded, Host), ConnectionCause> {
        let after = self.options.open_timeout;
        let opened = tokio::time::timeout(after, self.follow_redirects(upstream, resume)).await;
        opened.unwrap_or(Err(ConnectionCause::Timeout { phase: Phase::Answer, after }))
    }

    async fn follow_redirects(&self, upstream: &Upstream, resume: Resume) -> Result<(Upgraded, Host), ConnectionCause> {
        let mut client = &self.trusted;
        let mut url = upstream.url().clone();
        for _ in 0..=MAX_REDIRECTS {
            set_cursor(&mut url, resume);
            url = match self.ask(client, &url).await? {
                Answer::Open(stream) => {
                    let host = Host::of_url(&url).unwrap_or_else(|_| upstream.at().clone());
                    return Ok((stream, host));
                }
                Answer::Elsewhere(url) => url,
            };
            self.check(&url)?;
            client = &self.guarded;
        }
        Err(ConnectionCause::Redirect { reason: "more than 5 in a row" })
    }

    /// Whether this program goes where a redirect leads.
    fn check(&self, url: &Url) -> Result<(), ConnectionCause> {
        if self.options.development {
            return Ok(());
        }
        if url.scheme() != "https" {
            return Err(ConnectionCause::Forbidden { reason: "not asked over TLS".into() });
        }
        Guard::check(url).map_err(|refused| ConnectionCause::Forbidden { reason: refused.to_string() })
    }

    async fn ask(&self, client: &HttpClient, url: &Url) -> Result<Answer, ConnectionCause> {
        let key = generate_key();
        let request = client
            .get(url.clone())
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key);
        let response = request.send().await.map_err(|error| self.no_answer(error))?;
        let status = response.status();
        match status {
            StatusCode::SWITCHING_PROTOCOLS => {
                consents(response.headers(), &key)?;
                let upgraded = response.upgrade().await;
                upgraded.map(Answer::Open).map_err(|error| ConnectionCause::Cut { reason: Transport::of(error).reason() })
            }
            status if status.is_redirection() => target(url, response.headers()).map(Answer::Elsewhere),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let retry_after = Limits::of(response.headers(), SystemTime::now()).retry_after;
                Err(ConnectionCause::Refused { status: status.as_u16(), retry_after })
            }
            status => Err(ConnectionCause::Answered { status: status.as_u16(), said: beginning(response).await }),
        }
    }

    fn no_answer(&self, error: reqwest::Error) -> ConnectionCause {
        match Transport::of(error) {
            Transport::Connect { reason, .. } => ConnectionCause::Connect { reason },
            Transport::Forbidden { reason } => ConnectionCause::Forbidden { reason },
            Transport::ConnectTimeout => ConnectionCause::Timeout { phase: Phase::Connect, after: self.options.connect_timeout },
            Transport::Broken { reason } => ConnectionCause::Cut { reason },
        }
    }
}

/// Adds the cursor, which a redirect may have dropped: without it the upstream would go live without a word.
fn set_cursor(url: &mut Url, resume: Resume) {
    let Some(cursor) = resume.cursor() else { return };
    if !url.query_pairs().any(|(key, _)| key == "cursor") {
        url.query_pairs_mut().append_pair("cursor", &cursor.to_string());
    }
}

/// Whether the upstream agrees to exactly what was asked for (RFC 6455, section 4.1).
fn consents(headers: &HeaderMap, key: &str) -> Result<(), ConnectionCause> {
    let broken = |rule| Err(ConnectionCause::Handshake { rule });
    if !lists(headers, UPGRADE, "websocket") || !lists(headers, CONNECTION, "upgrade") {
        return broken("it upgrades to something else");
    }
    if headers.get(SEC_WEBSOCKET_ACCEPT).map(|accept| accept.as_bytes().trim_ascii()) != Some(derive_accept_key(key.as_bytes()).as_bytes())
    {
        return broken("it answers another key");
    }
    if headers.contains_key(SEC_WEBSOCKET_EXTENSIONS) || headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return broken("it chose what was not offered");
    }
    Ok(())
}

fn lists(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(word))
}

/// Where a redirect leads.
fn target(from: &Url, headers: &HeaderMap) -> Result<Url, ConnectionCause> {
    let broken = |reason| ConnectionCause::Redirect { reason };
    let location = headers.get(LOCATION).ok_or(broken("it names no target"))?;
    let url = location.to_str().ok().and_then(|location| from.join(location).ok()).ok_or(broken("the target is not a URL"))?;
    let url = http_url(&url).ok_or(broken("the target is neither a WebSocket nor http(s)"))?;
    if from.scheme() == "https" && url.scheme() != "https" {
        return Err(broken("it leads away from TLS"));
    }
    Ok(url)
}

/// The first characters of a body, as far as they come; [`Connector::open`] limits the time.
async fn beginning(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_SAID - body.len())]);
        if body.len() == MAX_SAID {
            break;
        }
    }
    String::from_utf8_lossy(&body).chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header"))).collect()
    }

    #[test]
    fn a_cursor_is_asked_for_once_and_survives_a_redirect_without_one() {
        for (url, resume, expected) in [
            ("https://a.example/x", Resume::Live, "https://a.example/x"),
            ("https://a.example/x", Resume::Oldest, "https://a.example/x?cursor=0"),
            ("https://a.example/x?cursor=7", Resume::Oldest, "https://a.example/x?cursor=7"),
            ("https://a.example/x?key=1", Resume::After(crate::syntax::Seq::MAX), "https://a.example/x?key=1&cursor=9007199254740991"),
        ] {
            let mut url = Url::parse(url).unwrap();
            set_cursor(&mut url, resume);
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn a_redirect_may_name_a_websocket_but_not_lose_tls() {
        let to = |from: &str, location: &str| target(&Url::parse(from).unwrap(), &headers(&[(LOCATION, location)])).map(String::from);
        assert_eq!(to("https://a.example/x", "wss://b.example/y?cursor=1").unwrap(), "https://b.example/y?cursor=1");
        assert_eq!(to("http://127.0.0.1:1/x", "/y").unwrap(), "http://127.0.0.1:1/y");
        for away in ["ws://b.example/", "http://b.example/", "file:///x", "https://[::/"] {
            assert!(matches!(to("https://a.example/x", away), Err(ConnectionCause::Redirect { .. })), "{away}");
        }
    }

    #[test]
    fn an_answer_must_consent_to_what_was_asked_for() {
        // The key and the answer of RFC 6455, section 1.3.
        let (key, accept) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let good = [(UPGRADE, "WebSocket"), (CONNECTION, "keep-alive, Upgrade"), (SEC_WEBSOCKET_ACCEPT, accept)];
        assert_eq!(consents(&headers(&good), key), Ok(()));
        for missing in 0..good.len() {
            let mut less = good.to_vec();
            less.remove(missing);
            assert!(consents(&headers(&less), key).is_err(), "without {:?}", good[missing]);
        }
        assert!(consents(&headers(&good), "AAAAAAAAAAAAAAAAAAAAAA==").is_err());
        for more in [(SEC_WEBSOCKET_EXTENSIONS, "permessage-deflate"), (SEC_WEBSOCKET_PROTOCOL, "chat")] {
            assert!(consents(&headers(&[good.to_vec(), vec![more]].concat()), key).is_err());
        }
    }
}
