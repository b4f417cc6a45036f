//! PostgreSQL by TLS: what `sslmode` in the URL says holds for every connection of a store.

use atproto_backfill::store::{PostgresStore, Store as _, StoreError};
use diesel::pg::PgConnection;
use diesel::prelude::*;

use crate::database::cluster;
use crate::own_cluster::OwnCluster;
use crate::postgres::complete;
use crate::support::Count;
use crate::words::words;

#[tokio::test]
async fn every_connection_is_by_tls_where_the_url_says_so_and_to_nobody_else() {
    if cluster("every_connection_is_by_tls_where_the_url_says_so_and_to_nobody_else").is_none() {
        return;
    }
    let own = OwnCluster::start();
    let url = own.over_tls();
    let store = PostgresStore::open(&url).unwrap();
    let (consumer, _) = complete(&store).await;
    assert_eq!(store.totals(consumer).await.unwrap().complete, 1);
    let mut stranger = PgConnection::establish(&url).unwrap();
    let mut connections = |condition: &str| {
        let sql = format!(
            "SELECT count(*) AS n FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE backend_type = 'client backend' AND {condition}"
        );
        diesel::sql_query(sql).get_result::<Count>(&mut stranger).unwrap().n
    };
    assert_eq!(connections("NOT ssl"), 0);
    assert!(connections("ssl") >= 4, "one that writes, two that read, and the one that looks: {}", connections("ssl"));
    drop(store);

    let error = PostgresStore::open(&url.replace("sslmode=verify-full", "sslmode=disable")).unwrap_err();
    assert!(words(&error).contains("no encryption"), "{}", words(&error));
    // A certificate that the server's does not come from.
    let other = OwnCluster::start();
    let certificate = other.over_tls().rsplit_once("sslrootcert=").unwrap().1.to_owned();
    let (place, _) = url.rsplit_once("sslrootcert=").unwrap();
    let error = PostgresStore::open(&format!("{place}sslrootcert={certificate}")).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }) && words(&error).contains("certificate verify failed"), "{}", words(&error));
}
