//! Reads the small JSON answers of hosts, which may be anything.

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::answer::printable;
use super::source::{Latest, ListedRepo, RepoPage};
use crate::syntax::{Did, Rev};

/// How much of an answer is read. A page of a thousand repos takes a quarter of a megabyte.
pub(super) const MAX_ANSWER: usize = 4 << 20;
/// A longer cursor would not fit into the next request.
const MAX_CURSOR: usize = 2048;

#[derive(Deserialize)]
struct LatestJson {
    cid: String,
    rev: String,
}

#[derive(Deserialize)]
struct PageJson {
    #[serde(default)]
    cursor: Option<String>,
    repos: Vec<RowJson>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RowJson {
    Good(GoodRow),
    Bad(IgnoredAny),
}

#[derive(Deserialize)]
struct GoodRow {
    did: String,
    #[serde(default)]
    rev: Option<String>,
    #[serde(default)]
    active: Option<bool>,
    #[serde(default)]
    status: Option<String>,
}

/// Reads the answer of `getLatestCommit`; an error says what is wrong with it.
pub(super) fn latest(body: &[u8]) -> Result<Latest, String> {
    let LatestJson { cid, rev } = json(body)?;
    let wrong = |what: &str, text: &str| format!("{what}: {:?}", printable(text, 80));
    Ok(Latest { rev: Rev::new(&rev).map_err(|_| wrong("not a rev", &rev))?, cid: cid.parse().map_err(|_| wrong("not a CID", &cid))? })
}

/// Reads the answer of `listRepos` to a request with the cursor `asked`; an error says what is wrong with it.
pub(super) fn page(body: &[u8], asked: Option<&str>) -> Result<RepoPage, String> {
    let PageJson { cursor, repos: rows } = json(body)?;
    if cursor.as_ref().is_some_and(|cursor| cursor.len() > MAX_CURSOR) {
        return Err(format!("a cursor of more than {MAX_CURSOR} bytes"));
    }
    let is_last = rows.is_empty();
    let next = cursor.filter(|cursor| !is_last && !cursor.is_empty() && Some(cursor.as_str()) != asked);
    let mut page = RepoPage { next, ..RepoPage::default() };
    for row in rows {
        match row {
            RowJson::Good(row) => match listed(row) {
                Some(repo) => page.repos.push(repo),
                None => page.bad += 1,
            },
            RowJson::Bad(_) => page.bad += 1,
        }
    }
    Ok(page)
}

/// A row as it is meant; none when it breaks a rule.
fn listed(row: GoodRow) -> Option<ListedRepo> {
    let did = Did::new(&row.did).ok()?;
    let rev = match row.rev.as_deref() {
        None | Some("") => None,
        Some(rev) => Some(Rev::new(rev).ok()?),
    };
    let status = row.status.map(|status| printable(&status, 64));
    // Hosts from before the field say nothing, and list active accounts only.
    Some(ListedRepo { did, rev, active: row.active.unwrap_or(true), status })
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| printable(&error.to_string(), 200))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DID: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";

    fn read(text: &str, asked: Option<&str>) -> RepoPage {
        page(text.as_bytes(), asked).unwrap()
    }

    #[test]
    fn a_bad_row_is_dropped_alone_and_counted() {
        let text = format!(
            r#"{{"cursor":"a","repos":[
                {{"did":"{DID}","head":"x","rev":"3jzfcijpj2z2a","active":true}},
                {{"did":"{DID}","rev":""}},
                {{"did":"{DID}","active":false,"status":"takendown","more":[1]}},
                {{"did":"at:plc:x"}}, {{"did":"{DID}","rev":"not a rev"}}, {{"rev":"3jzfcijpj2z2a"}}, {{"did":1}}, 7, null, [], "x"]}}"#
        );
        let page = read(&text, None);
        let did = Did::new(DID).unwrap();
        let rev = Some(Rev::new("3jzfcijpj2z2a").unwrap());
        let plain = ListedRepo { did, rev: None, active: true, status: None };
        let expected =
            [ListedRepo { rev, ..plain.clone() }, plain.clone(), ListedRepo { active: false, status: Some("takendown".into()), ..plain }];
        assert_eq!((page.repos.as_slice(), page.bad, page.next.as_deref()), (&expected[..], 8, Some("a")));
    }

    #[test]
    fn an_empty_page_or_one_whose_cursor_does_not_move_is_the_last() {
        let row = format!(r#"{{"did":"{DID}","active":false}}"#);
        let with = |cursor: &str, rows: &str| format!(r#"{{"cursor":{cursor},"repos":[{rows}]}}"#);
        assert_eq!(read(&with(r#""b""#, &row), Some("a")).next.as_deref(), Some("b"), "only inactive accounts do not end a list");
        assert_eq!(read(&with(r#""b""#, "7"), Some("a")).next.as_deref(), Some("b"), "only bad rows do not end a list");
        for (text, asked) in [
            (with(r#""b""#, ""), Some("a")),
            (with(r#""a""#, &row), Some("a")),
            (with(r#""""#, &row), Some("a")),
            (with("null", &row), None),
            (format!(r#"{{"repos":[{row}]}}"#), None),
        ] {
            assert_eq!(read(&text, asked).next, None, "{text}");
        }
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let long = format!(r#"{{"cursor":"{}","repos":[{{}}]}}"#, "x".repeat(MAX_CURSOR + 1));
        for text in ["", "{}", "[]", "null", r#"{"repos":{}}"#, r#"{"repos":[],"cursor":7}"#, r#"{"repos":[]"#, "<html>", &long] {
            assert!(page(text.as_bytes(), None).is_err(), "{text}");
        }
    }

    #[test]
    fn a_latest_commit_is_a_rev_and_the_cid_of_a_commit() {
        let (rev, cid) = ("3jzfcijpj2z2a", "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm");
        let found = latest(format!(r#"{{"rev":"{rev}","cid":"{cid}"}}"#).as_bytes()).unwrap();
        assert_eq!((found.rev.as_str(), found.cid.to_string().as_str()), (rev, cid));
        let raw = "bafkreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";
        for (rev, cid) in [("", cid), (rev, ""), (rev, raw), ("3jzfcijpj2z2", cid)] {
            assert!(latest(format!(r#"{{"rev":"{rev}","cid":"{cid}"}}"#).as_bytes()).is_err(), "{rev} {cid}");
        }
        assert!(latest(br#"{"rev":"3jzfcijpj2z2a"}"#).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body: Vec<u8>, text: String) {
            let _ = (latest(&body), page(&body, None), page(text.as_bytes(), Some(&text)));
            let row = serde_json::json!({"did": text, "rev": text, "status": text});
            let listing = serde_json::json!({"cursor": text, "repos": [row, text]}).to_string();
            let page = page(listing.as_bytes(), None);
            prop_assert!(page.is_err() || page.is_ok_and(|page| page.bad + page.repos.len() as u64 == 2));
        }
    }
}
