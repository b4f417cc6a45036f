//! Decides what of a buffer is delivered together. Pure.

use crate::consumer::{Change, CollectionFilter, Delivery, Origin, Record};
use crate::job::{BufferSeq, Chain, OpAction, OpSet, Position, chain};
use crate::manifest::Edit;
use crate::repo::record;
use crate::syntax::Did;

/// Consecutive op sets of one repo, made into one delivery and the advance that follows its acknowledgement.
#[derive(Debug)]
pub(super) struct FlushPlan {
    /// What the handler gets; may be empty.
    pub(super) delivery: Delivery,
    /// What then changes in the manifest, in path order, no path twice.
    pub(super) edits: Vec<Edit>,
    /// The last op set that is covered, delivered or stale; none when there is no op set at all or the first one is a gap.
    pub(super) through: Option<BufferSeq>,
    /// Where the job then stands.
    pub(super) position: Position,
    /// Whether the op set after `through` does not start there (I2).
    pub(super) gap: bool,
    /// Op sets that are covered by what was delivered before.
    pub(super) stale: usize,
    /// Op sets that the delivery makes.
    pub(super) applied: usize,
    /// Ops that the consumer does not take.
    pub(super) filtered: usize,
    /// Ops whose record is not well-formed.
    pub(super) bad: usize,
}

/// How a plan is made.
#[derive(Debug)]
pub(super) struct FlushRules<'a> {
    pub(super) did: &'a Did,
    pub(super) filter: &'a CollectionFilter,
    /// A plan takes no further op set once it has so many changes.
    pub(super) max_changes: usize,
}

impl FlushPlan {
    /// Takes op sets from the front of `rows` as long as they chain from `position`.
    pub(super) fn new(rules: &FlushRules<'_>, position: Position, rows: &[(BufferSeq, OpSet)]) -> Self {
        let mut plan = Self {
            delivery: Delivery::new(rules.did.clone(), position.rev, Origin::Live, 1),
            edits: Vec::new(),
            through: None,
            position,
            gap: false,
            stale: 0,
            applied: 0,
            filtered: 0,
            bad: 0,
        };
        for (seq, op_set) in rows {
            if plan.delivery.len() >= rules.max_changes {
                break;
            }
            match chain(Some(plan.position), op_set) {
                Chain::Stale => plan.stale += 1,
                Chain::Gap => {
                    plan.gap = true;
                    break;
                }
                Chain::Apply => plan.take(rules, op_set),
            }
            plan.through = Some(*seq);
        }
        // A path may occur in several op sets: the last one counts.
        plan.edits.reverse();
        plan.edits.sort_by(|a, b| a.path.cmp(&b.path));
        plan.edits.dedup_by(|later, earlier| later.path == earlier.path);
        plan
    }

    fn take(&mut self, rules: &FlushRules<'_>, op_set: &OpSet) {
        self.applied += 1;
        self.delivery.set_rev(op_set.rev);
        for op in &op_set.ops {
            let path = op.path.as_ref();
            if !rules.filter.takes(path.collection()) {
                self.filtered += 1;
                continue;
            }
            let (change, cid) = match &op.action {
                OpAction::Create { cid, record } => (Change::Create(Record { path, cid: *cid, bytes: record }), Some(*cid)),
                OpAction::Update { cid, record } => (Change::Update(Record { path, cid: *cid, bytes: record }), Some(*cid)),
                OpAction::Delete => (Change::Delete(path), None),
            };
            match change {
                Change::Create(made) if record::check(made.bytes).is_err() => self.bad += 1,
                // The consumer must not keep a version that is no more.
                Change::Update(made) if record::check(made.bytes).is_err() => {
                    self.bad += 1;
                    self.delivery.push(Change::Delete(path));
                    self.edits.push(Edit { path: op.path.clone(), cid: None });
                }
                change => {
                    self.delivery.push(change);
                    self.edits.push(Edit { path: op.path.clone(), cid });
                }
            }
        }
        self.position = Position { rev: op_set.rev, data: op_set.data };
    }
}
