use diesel::result::Error as SqlError;

use super::backend::is_corruption;
use crate::job::{IllegalMove, OpSetError};
use crate::manifest::ManifestError;
use crate::store::StoreError;

/// Why an act within a transaction failed, before it is known what the act was.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(SqlError),
    Store(StoreError),
}

pub(crate) type Act<T> = Result<T, Fault>;

impl Fault {
    /// What was read from `row` cannot have been written by this program.
    pub(super) fn corrupt(row: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Fault::Store(StoreError::Corrupt { what: format!("{row}: {error}") })
    }

    pub(super) fn into_error(self, action: &'static str) -> StoreError {
        match self {
            Fault::Store(error) => error,
            Fault::Sql(error) => from_sql(error, action),
        }
    }
}

/// Tells a damaged database from one that cannot be used now.
pub(crate) fn from_sql(error: SqlError, action: &'static str) -> StoreError {
    match &error {
        SqlError::DeserializationError(source) => StoreError::Corrupt { what: format!("{source} while {action}") },
        SqlError::DatabaseError(kind, information) if is_corruption(kind, &**information) => {
            StoreError::Corrupt { what: format!("{} while {action}", information.message()) }
        }
        _ => StoreError::Unavailable { action, source: Box::new(error) },
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

impl From<IllegalMove> for Fault {
    fn from(error: IllegalMove) -> Self {
        Fault::Store(error.into())
    }
}

impl From<ManifestError> for Fault {
    fn from(error: ManifestError) -> Self {
        Fault::Store(error.into())
    }
}

impl From<OpSetError> for Fault {
    fn from(error: OpSetError) -> Self {
        Fault::Store(StoreError::Corrupt { what: error.to_string() })
    }
}
