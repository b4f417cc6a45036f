//! What `--db` names: a file, or a database of a PostgreSQL server.

use std::path::Path;
use std::sync::Arc;

use super::wrong_usage;
use crate::store::{Durability, SqliteOptions, SqliteStore, Store, StoreCheck, StoreError, StoreStats};

/// Whether it is meant to be a URL of a server.
pub(super) fn is_url(db: &Path) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| db.as_os_str().as_encoded_bytes().starts_with(scheme.as_bytes()))
}

/// Opens it; without a durability, with the one that is the store's default. A URL that this program was not built for is wrong usage, which ends it.
pub(super) fn open(db: &Path, durability: Option<Durability>) -> Result<Arc<dyn Store>, StoreError> {
    if is_url(db) {
        return postgres::open(url(db), durability);
    }
    let mut options = SqliteOptions::default();
    options.durability = durability.unwrap_or(options.durability);
    Ok(Arc::new(SqliteStore::open_with(db, options)?))
}

/// Reads `--durability`.
pub(super) fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "full" => Ok(Durability::Full),
        "normal" => Ok(Durability::Normal),
        _ => Err("neither full nor normal".to_owned()),
    }
}

/// Checks it, whoever works with it meanwhile.
pub(super) fn check(db: &Path) -> Result<StoreCheck, StoreError> {
    if is_url(db) { postgres::check(url(db)) } else { SqliteStore::check(db) }
}

/// What is in it, whoever works with it meanwhile.
pub(super) fn stats(db: &Path) -> Result<StoreStats, StoreError> {
    if is_url(db) { postgres::stats(url(db)) } else { SqliteStore::stats(db) }
}

fn url(db: &Path) -> &str {
    db.to_str().unwrap_or_else(|| wrong_usage(&"--db: a URL is UTF-8"))
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::Arc;

    use crate::store::{Durability, PostgresOptions, PostgresStore, Store, StoreCheck, StoreError, StoreStats};

    pub(super) fn open(url: &str, durability: Option<Durability>) -> Result<Arc<dyn Store>, StoreError> {
        let mut options = PostgresOptions::default();
        options.durability = durability.unwrap_or(options.durability);
        Ok(Arc::new(PostgresStore::open_with(url, options)?))
    }

    pub(super) fn check(url: &str) -> Result<StoreCheck, StoreError> {
        PostgresStore::check(url)
    }

    pub(super) fn stats(url: &str) -> Result<StoreStats, StoreError> {
        PostgresStore::stats(url)
    }
}

#[cfg(not(feature = "postgres"))]
mod postgres {
    use std::sync::Arc;

    use super::wrong_usage;
    use crate::store::{Durability, Store, StoreCheck, StoreError, StoreStats};

    pub(super) fn open(_: &str, _: Option<Durability>) -> Result<Arc<dyn Store>, StoreError> {
        unknown()
    }

    pub(super) fn check(_: &str) -> Result<StoreCheck, StoreError> {
        unknown()
    }

    pub(super) fn stats(_: &str) -> Result<StoreStats, StoreError> {
        unknown()
    }

    fn unknown() -> ! {
        wrong_usage(&"--db: this program was built without the feature \"postgres\", so it knows no database but a file")
    }
}
