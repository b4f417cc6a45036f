//! What the reference PDS holds, asked of it over HTTP, and the repo as its firehose tells it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Path → CID and JSON value of every record of one repo.
pub(crate) type Records = BTreeMap<String, (String, Value)>;

async fn get(pds: &str, method: &str, query: &[(&str, &str)]) -> Value {
    let url = format!("{pds}/xrpc/{method}");
    let response = reqwest::Client::new().get(url).query(query).send().await.expect("the PDS answers");
    let (status, text) = (response.status(), response.text().await.expect("a body"));
    assert!(status.is_success(), "{method}: {status}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// Every record as `com.atproto.repo.listRecords` lists it.
pub(crate) async fn list_records(pds: &str, did: &str) -> Records {
    let mut records = Records::new();
    let description = get(pds, "com.atproto.repo.describeRepo", &[("repo", did)]).await;
    for collection in description["collections"].as_array().expect("collections") {
        let collection = collection.as_str().expect("a collection");
        let mut cursor = String::new();
        loop {
            let query = [("repo", did), ("collection", collection), ("limit", "100"), ("cursor", &cursor)];
            let page = get(pds, "com.atproto.repo.listRecords", &query[..if cursor.is_empty() { 3 } else { 4 }]).await;
            records.extend(page["records"].as_array().expect("records").iter().map(|record| listed(did, record)));
            match page["cursor"].as_str() {
                Some(next) => cursor = next.to_owned(),
                None => break,
            }
        }
    }
    records
}

fn listed(did: &str, record: &Value) -> (String, (String, Value)) {
    let text = |name: &str| record[name].as_str().expect("text").to_owned();
    let path = text("uri").strip_prefix(&format!("at://{did}/")).expect("the repo's own").to_owned();
    (path, (text("cid"), record["value"].clone()))
}

/// The rev of the newest commit.
pub(crate) async fn latest_rev(pds: &str, did: &str) -> String {
    get(pds, "com.atproto.sync.getLatestCommit", &[("did", did)]).await["rev"].as_str().expect("a rev").to_owned()
}

/// The URL of the PDS as the directory names it to the world. A host is known by this name.
#[cfg(all(unix, feature = "cli"))]
pub(crate) async fn host(plc: &str, did: &str) -> String {
    let response = reqwest::get(format!("{plc}/{did}")).await.expect("the directory answers");
    let document: Value = serde_json::from_str(&response.text().await.expect("a body")).expect("a DID document");
    document["service"][0]["serviceEndpoint"].as_str().expect("an endpoint").to_owned()
}
