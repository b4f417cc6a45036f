use diesel::migration::MigrationSource;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;

use super::backend::{Connection, Db, IS_MADE, MIGRATIONS};
use super::fault::from_sql;
use crate::store::StoreError;

/// Brings the schema up to date; refuses one that is newer than this program. Whoever calls it holds the lock that keeps others out.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let unavailable = |source| StoreError::Unavailable { action: "bringing the schema up to date", source };
    let applied = connection.applied_migrations().map_err(unavailable)?;
    let found = applied.iter().map(ToString::to_string).max().unwrap_or_default();
    let known = known(unavailable)?;
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    connection.run_pending_migrations(MIGRATIONS).map(drop).map_err(unavailable)
}

/// The version of the schema, which is left as it is; refuses one that is not this program's own.
pub(super) fn version(connection: &mut Connection) -> Result<String, StoreError> {
    const ACTION: &str = "reading the version of the schema";
    #[derive(QueryableByName)]
    struct Version {
        #[diesel(sql_type = diesel::sql_types::Text)]
        version: String,
    }
    #[derive(QueryableByName)]
    struct IsMade {
        #[diesel(sql_type = diesel::sql_types::Bool)]
        made: bool,
    }
    let unavailable = |source| StoreError::Unavailable { action: ACTION, source };
    let is_made: IsMade = diesel::sql_query(IS_MADE).get_result(connection).map_err(|error| from_sql(error, ACTION))?;
    if !is_made.made {
        return Err(unavailable("no store was made in this database".into()));
    }
    let rows = diesel::sql_query("SELECT version FROM __diesel_schema_migrations").load::<Version>(connection);
    let found = rows.map_err(|error| from_sql(error, ACTION))?.into_iter().map(|row| row.version).max().unwrap_or_default();
    let known = known(unavailable)?;
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    if found < known {
        return Err(unavailable(
            format!("it is {found:?}, older than {known:?}: the next program that works with it brings it up to date").into(),
        ));
    }
    Ok(found)
}

/// The newest version that this program knows.
fn known<E>(failed: impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> E) -> Result<String, E> {
    let known = MigrationSource::<Db>::migrations(&MIGRATIONS).map_err(failed)?;
    Ok(known.iter().map(|migration| migration.name().version().to_string()).max().unwrap_or_default())
}
