//! What `--db` names: a file, or a database of a PostgreSQL server.

use std::path::Path;
use std::sync::Arc;

use super::wrong_usage;
use crate::store::{SqliteStore, Store, StoreCheck, StoreError, StoreStats};

/// Whether it is meant to be a URL of a server.
pub(super) fn is_url(db: &Path) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| db.as_os_str().as_encoded_bytes().starts_with(scheme.as_bytes()))
}

/// Opens it. A URL that this program was not built for is wrong usage, which ends it.
pub(super) fn open(db: &Path) -> Result<Arc<dyn Store>, StoreError> {
    if is_url(db) { postgres::open(url(db)) } else { Ok(Arc::new(SqliteStore::open(db)?)) }
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

    use crate::store::{PostgresStore, Store, StoreCheck, StoreError, StoreStats};

    pub(super) fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(PostgresStore::open(url)?))
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
    use crate::store::{Store, StoreCheck, StoreError, StoreStats};

    pub(super) fn open(_: &str) -> Result<Arc<dyn Store>, StoreError> {
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
