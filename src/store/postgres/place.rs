use std::fmt;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;

use super::address::Address;
use super::session::LOCK_TIMEOUT;
use super::sql::from_sql;
use crate::store::{Durability, StoreError};

/// How a database is used.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Whether a commit waits until it is on the disk (`synchronous_commit`). Default: [`Durability::Full`].
    pub durability: Durability,
    /// How long opening a connection may take, for each address of the server; whole seconds, at least 2. A URL that has a `connect_timeout` keeps it. Default: 10 s.
    pub connect_timeout: Duration,
    /// How long this process keeps its part of the work without being heard of; then another takes it. Three seconds at least. Default: 30 s.
    pub lease: Duration,
    /// How long one statement may take, waiting for locks included; past it, what it belongs to fails as unavailable. Default: 30 s.
    pub statement_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            connect_timeout: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// Statements go by their indices, whatever is known of tables that were filled a moment ago: a plan is made once for each, and none that reads a whole table
/// where there is an index.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; \
                     SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// Where a database is and how it is used: enough to open another connection.
#[derive(Debug, Clone)]
pub(super) struct Place {
    address: Address,
    options: PostgresOptions,
}

impl Place {
    pub(super) fn new(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let address = Address::parse(url).map_err(|why| StoreError::Unavailable { action: "opening the database", source: why.into() })?;
        Ok(Self { address, options })
    }

    /// How long this process keeps its shares without a renewal.
    pub(super) fn lease(&self) -> Duration {
        self.options.lease.max(Duration::from_secs(3))
    }

    /// A connection that may write.
    pub(super) fn connect(&self) -> Result<PgConnection, StoreError> {
        let seconds = self.options.connect_timeout.as_secs().max(2);
        // A peer that is gone is noticed within half a minute, however it went.
        let defaults = [
            ("connect_timeout", seconds.to_string()),
            ("keepalives_idle", "15".to_owned()),
            ("keepalives_interval", "5".to_owned()),
            ("keepalives_count", "3".to_owned()),
            ("tcp_user_timeout", "30000".to_owned()),
            ("fallback_application_name", env!("CARGO_PKG_NAME").to_owned()),
        ];
        let mut connection = PgConnection::establish(&self.address.with_defaults(&defaults)).map_err(|error| {
            let why = self.address.without_secrets(&error.to_string());
            StoreError::Unavailable { action: "opening the database", source: why.into() }.with_place(self)
        })?;
        let synchronous = match self.options.durability {
            Durability::Full => "on",
            Durability::Normal => "off",
        };
        let timeout = self.options.statement_timeout.as_millis().max(1);
        // A process that is held up in the midst of a transaction keeps others from taking its work.
        let idle = timeout.min(self.lease().as_millis());
        let settings = format!(
            "SET synchronous_commit = {synchronous}; SET statement_timeout = {timeout}; SET idle_in_transaction_session_timeout = {idle}; \
             SET default_transaction_isolation = 'read committed'; {LOCK_TIMEOUT}; {PLANS}"
        );
        connection.batch_execute(&settings).map_err(|error| from_sql(error, "opening the database"))?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(super) fn connect_reader(&self) -> Result<PgConnection, StoreError> {
        let mut connection = self.connect()?;
        connection.batch_execute("SET default_transaction_read_only = on").map_err(|error| from_sql(error, "opening the database"))?;
        Ok(connection)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
