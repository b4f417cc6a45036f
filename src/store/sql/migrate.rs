use diesel::migration::MigrationSource;
use diesel_migrations::MigrationHarness;

use super::backend::{Connection, Db, MIGRATIONS};
use crate::store::StoreError;

/// Brings the schema up to date; refuses one that is newer than this program. Whoever calls it holds the lock that keeps others out.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let unavailable = |source| StoreError::Unavailable { action: "bringing the schema up to date", source };
    let applied = connection.applied_migrations().map_err(unavailable)?;
    let known = MigrationSource::<Db>::migrations(&MIGRATIONS).map_err(unavailable)?;
    let newest = |versions: &mut dyn Iterator<Item = String>| versions.max().unwrap_or_default();
    let found = newest(&mut applied.iter().map(ToString::to_string));
    let known = newest(&mut known.iter().map(|migration| migration.name().version().to_string()));
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    connection.run_pending_migrations(MIGRATIONS).map(drop).map_err(unavailable)
}
