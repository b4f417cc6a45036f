//! A PostgreSQL database of a test's own, in the cluster that `BACKFILL_TEST_POSTGRES` names (`tests/postgres/cluster` starts one).

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::pg::PgConnection;
use diesel::prelude::*;

/// The URL of any database of the cluster; its user may make others.
const CLUSTER: &str = "BACKFILL_TEST_POSTGRES";
/// Set by `tests/run`, which starts a cluster: a test that would skip itself fails.
const REQUIRED: &str = "BACKFILL_REQUIRE_POSTGRES";

/// A new and empty database, which goes with this. Its locale is not that of bytes, where the server can have another.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
    pub(crate) url: String,
    cluster: String,
}

/// The URL of the cluster. `None`, with a line on stderr, where there is none.
pub(crate) fn cluster(test: &str) -> Option<String> {
    if let Some(url) = std::env::var(CLUSTER).ok().filter(|url| !url.is_empty()) {
        return Some(url);
    }
    assert!(std::env::var_os(REQUIRED).is_none(), "{test}: {CLUSTER} is not set");
    // Said so where the test harness cannot hide it: `tests/run` counts these lines.
    std::io::stderr().write_all(format!("SKIPPED {test}: {CLUSTER} is not set\n").as_bytes()).expect("stderr");
    None
}

/// The same cluster's URL for another database.
pub(crate) fn url_of(cluster: &str, name: &str) -> String {
    let (place, query) = cluster.split_once('?').unwrap_or((cluster, ""));
    let (server, _) = place.rsplit_once('/').expect("a URL with a database");
    format!("{server}/{name}?{query}")
}

impl Database {
    /// Makes one. `None` where there is no cluster.
    pub(crate) fn create(test: &str) -> Option<Self> {
        cluster(test).map(|cluster| Self::in_cluster(&cluster))
    }

    pub(crate) fn in_cluster(cluster: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("backfill_test_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let make = format!("CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'");
        let mut connection = PgConnection::establish(cluster).expect("the cluster answers");
        if diesel::sql_query(make).execute(&mut connection).is_err() {
            // PostgreSQL 14 has no such databases.
            diesel::sql_query(format!("CREATE DATABASE {name}")).execute(&mut connection).expect("a new database");
        }
        Self { url: url_of(cluster, &name), name, cluster: cluster.to_owned() }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Whatever a failing test has left open goes with it. A cluster that is gone has no databases.
        if let Ok(mut connection) = PgConnection::establish(&self.cluster) {
            let _ = diesel::sql_query(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).execute(&mut connection);
        }
    }
}
