use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Bool};

use super::backend::{Db, OF_CONSUMER};
use crate::job::ConsumerId;

/// That a job of one repo is a consumer's, in the words with which the database finds it by its repo.
#[derive(Debug, Clone, Copy, QueryId)]
pub(super) struct OfConsumer(pub(super) ConsumerId);

impl Expression for OfConsumer {
    type SqlType = Bool;
}

impl<From> AppearsOnTable<From> for OfConsumer {}

impl<From> SelectableExpression<From> for OfConsumer {}

impl<GroupBy> ValidGrouping<GroupBy> for OfConsumer {
    type IsAggregate = is_aggregate::Never;
}

impl QueryFragment<Db> for OfConsumer {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Db>) -> QueryResult<()> {
        out.push_sql(OF_CONSUMER);
        out.push_bind_param::<BigInt, _>(&self.0.0)
    }
}
