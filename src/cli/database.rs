//! What `--db` names: a file, or a database of a PostgreSQL server.

use std::path::Path;
use std::sync::Arc;

use super::wrong_usage;
use crate::store::{SqliteStore, Store, StoreError};

/// Whether it is meant to be a URL of a server.
pub(super) fn is_url(db: &Path) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| db.as_os_str().as_encoded_bytes().starts_with(scheme.as_bytes()))
}

/// Opens it. A URL that this program was not built for is wrong usage, which ends it.
pub(super) fn open(db: &Path) -> Result<Arc<dyn Store>, StoreError> {
    if is_url(db) { postgres(db) } else { Ok(Arc::new(SqliteStore::open(db)?)) }
}

#[cfg(feature = "postgres")]
fn postgres(url: &Path) -> Result<Arc<dyn Store>, StoreError> {
    let url = url.to_str().unwrap_or_else(|| wrong_usage(&"--db: a URL is UTF-8"));
    Ok(Arc::new(crate::store::PostgresStore::open(url)?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &Path) -> Result<Arc<dyn Store>, StoreError> {
    wrong_usage(&"--db: this program was built without the feature \"postgres\", so it knows no database but a file")
}
