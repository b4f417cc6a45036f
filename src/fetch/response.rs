//! What comes back for one request: no connection, a redirect, a small body.

use reqwest::Response;
use reqwest::header::HeaderValue;
use url::Url;

use super::answer::MAX_ERROR_BODY;
use super::body::Limit;
use super::client::Transport;
use super::error::{FetchCause, Phase};
use super::listing::MAX_ANSWER;
use super::{HttpOptions, Permit};

/// Tells the pace and the caller why there was no answer.
pub(super) fn no_answer(transport: Transport, permit: &Permit, options: &HttpOptions) -> FetchCause {
    match transport {
        Transport::Connect { reason, .. } => {
            permit.unreachable();
            FetchCause::Connect { reason }
        }
        Transport::ConnectTimeout => {
            permit.unreachable();
            FetchCause::Timeout { phase: Phase::Connect, after: options.connect_timeout }
        }
        Transport::Forbidden { reason } => {
            permit.unreachable();
            FetchCause::Forbidden { reason }
        }
        Transport::Broken { reason } => {
            permit.troubled();
            FetchCause::Connect { reason }
        }
    }
}

/// Where a redirect leads.
pub(super) fn target(from: &Url, location: Option<&HeaderValue>) -> Result<Url, FetchCause> {
    let broken = |reason| FetchCause::Redirect { reason };
    let location = location.ok_or(broken("it names no target"))?;
    let url = location.to_str().ok().and_then(|location| from.join(location).ok()).ok_or(broken("the target is not a URL"))?;
    if from.scheme() == "https" && url.scheme() != "https" {
        return Err(broken("it leads away from TLS"));
    }
    Ok(url)
}

/// The first bytes of an error's body, or what came of them in time.
pub(super) async fn beginning(mut response: Response, limit: &Limit) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = limit.apply(Phase::Body, response.chunk()).await {
        let room = MAX_ERROR_BODY - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MAX_ERROR_BODY {
            break;
        }
    }
    body
}

/// The whole body of an answer that has to be small.
pub(super) async fn whole(mut response: Response, permit: &Permit, limit: &Limit) -> Result<Vec<u8>, FetchCause> {
    let mut body = Vec::new();
    loop {
        let cause = match limit.apply(Phase::Body, response.chunk()).await {
            Ok(Ok(None)) => return Ok(body),
            Ok(Ok(Some(chunk))) if body.len() + chunk.len() > MAX_ANSWER => {
                return Err(FetchCause::Malformed { reason: format!("longer than {MAX_ANSWER} bytes") });
            }
            Ok(Ok(Some(chunk))) => {
                body.extend_from_slice(&chunk);
                continue;
            }
            Ok(Err(error)) => FetchCause::Cut { received: body.len() as u64, reason: Transport::of(error).reason() },
            Err(timeout) => timeout,
        };
        permit.troubled();
        return Err(cause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, location: &[u8]) -> Result<String, FetchCause> {
        target(&Url::parse(from).unwrap(), HeaderValue::from_bytes(location).ok().as_ref()).map(Into::into)
    }

    #[test]
    fn a_redirect_may_be_relative_and_may_gain_tls_but_not_lose_it() {
        let from = "https://relay.example.com/xrpc/a?did=did:plc:x";
        assert_eq!(redirect(from, b"https://pds.example.com/xrpc/a").unwrap(), "https://pds.example.com/xrpc/a");
        assert_eq!(redirect(from, b"/other?x").unwrap(), "https://relay.example.com/other?x");
        assert_eq!(redirect("http://127.0.0.1:1/a", b"https://pds.example.com/a").unwrap(), "https://pds.example.com/a");
        for away in [&b"http://pds.example.com/xrpc/a"[..], b"ftp://pds.example.com/", b"file:///etc/passwd", b"https://[::/", b"\xff"] {
            assert!(matches!(redirect(from, away), Err(FetchCause::Redirect { .. })), "{away:?}");
        }
        assert!(matches!(target(&Url::parse(from).unwrap(), None), Err(FetchCause::Redirect { .. })));
    }
}
