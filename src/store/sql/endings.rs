//! How a query ends: what diesel says for one database only, or in a way that costs on another.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use super::backend::{Connection, Db, FOR_CHANGE, FOR_CLAIM};

/// The first row only.
#[derive(Debug, Clone, Copy, QueryId)]
pub(super) struct One<Q>(Q);

/// Rows of jobs that are to be changed in this transaction: nobody else can until it ends, and what is read is what is there.
#[derive(Debug, Clone, Copy, QueryId)]
pub(super) struct ForChange<Q>(Q);

/// Rows of jobs that are to be claimed: as [`ForChange`], but without those that somebody else is changing.
#[derive(Debug, Clone, Copy, QueryId)]
pub(super) struct ForClaim<Q>(Q);

pub(super) trait Endings: Sized {
    fn one(self) -> One<Self> {
        One(self)
    }

    fn for_change(self) -> ForChange<Self> {
        ForChange(self)
    }

    fn for_claim(self) -> ForClaim<Self> {
        ForClaim(self)
    }
}

impl<Q: Query> Endings for Q {}

macro_rules! ended {
    ($ending:ident, $words:expr) => {
        impl<Q: Query> Query for $ending<Q> {
            type SqlType = Q::SqlType;
        }

        impl<Q> RunQueryDsl<Connection> for $ending<Q> {}

        impl<Q: QueryFragment<Db>> QueryFragment<Db> for $ending<Q> {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Db>) -> QueryResult<()> {
                self.0.walk_ast(out.reborrow())?;
                out.push_sql($words);
                Ok(())
            }
        }
    };
}
ended!(One, " LIMIT 1");
ended!(ForChange, FOR_CHANGE);
ended!(ForClaim, FOR_CLAIM);
