use std::ops::Bound;

use serde_json::{Value, json};

use super::answer::Answer;
use super::request::Request;
use crate::repo::json::to_value;
use crate::sim::account::Account;
use crate::syntax::{Nsid, RecordKey, RecordPath};

/// A page of one collection as JSON, the highest record key first, as the reference implementation lists it. The cursor is the last key.
pub(super) fn list(request: &Request, account: &Account) -> Answer {
    let limit = request.parameter("limit").map_or(Ok(50), str::parse::<usize>);
    let (Ok(limit @ 1..=100), Some(Ok(collection))) = (limit, request.parameter("collection").map(Nsid::new)) else {
        return Answer::error(400, "InvalidRequest", "a collection and a limit from 1 to 100");
    };
    // `-` is the lowest character of a record key and `~` the highest.
    let path = |key: &str| RecordPath::new(&format!("{}/{key}", collection.as_str()));
    let before = request.parameter("cursor").map_or_else(|| path(&"~".repeat(RecordKey::MAX_LEN)), path);
    let (Ok(first), Ok(before)) = (path("-"), before) else { return Answer::error(400, "InvalidRequest", "malformed cursor") };
    let end = if request.parameter("cursor").is_some() { Bound::Excluded(before) } else { Bound::Included(before) };
    let repo = account.repo();
    let in_reverse = repo.leaves.range((Bound::Included(first), end)).rev();
    let page: Vec<(&RecordPath, Value)> = in_reverse
        .take(limit)
        .map(|(path, leaf)| {
            let value = to_value(&leaf.record()).unwrap_or(Value::Null);
            (path, json!({"uri": format!("at://{}/{path}", account.did), "cid": leaf.link().to_string(), "value": value}))
        })
        .collect();
    let cursor = page.last().map(|(path, _)| path.record_key().to_owned());
    let mut answer = json!({"records": page.into_iter().map(|(_, record)| record).collect::<Vec<_>>()});
    if let Some(cursor) = cursor {
        answer["cursor"] = cursor.into();
    }
    Answer::json(&answer)
}
