use super::mst::Node;
use super::{Commit, Link};

/// Follows a file for as long as its blocks come in the order of a walk (atproto.com/specs/repository, "Streamable CAR Ordering"): the commit, then each
/// node before what is in it, in key order. While they do, no block needs to be looked up, so none is indexed.
#[derive(Debug)]
pub(super) struct Preorder {
    /// What has to come, the next one last. At most a node's links for each layer.
    expected: Vec<Expected>,
    commit: Option<Commit>,
    node: Node,
}

#[derive(Debug)]
enum Expected {
    Commit(Link),
    Node(Link),
    Record(Link),
}

impl Preorder {
    pub(super) fn new(commit: Link) -> Self {
        Self { expected: vec![Expected::Commit(commit)], commit: None, node: Node::default() }
    }

    /// Takes the next section of the file: its CID and its block. `false` when another should have come; nothing more is to be asked then.
    pub(super) fn follow(&mut self, link: &Link, block: &[u8]) -> bool {
        match self.expected.pop() {
            Some(Expected::Record(expected)) => expected == *link,
            Some(Expected::Node(expected)) => expected == *link && self.enter(block),
            Some(Expected::Commit(expected)) => expected == *link && self.begin(block),
            None => false,
        }
    }

    /// The commit of a file that is whole and was in order to its end.
    pub(super) fn finish(self) -> Option<Commit> {
        self.commit.filter(|_| self.expected.is_empty())
    }

    fn begin(&mut self, block: &[u8]) -> bool {
        self.commit = Commit::decode(block).ok();
        self.expected.extend(self.commit.as_ref().map(|commit| Expected::Node(commit.data())));
        self.commit.is_some()
    }

    fn enter(&mut self, block: &[u8]) -> bool {
        // A chain of nodes cannot make this grow, nor a node that links to itself: its block would have to come again and again.
        if self.node.decode(block).is_err() {
            return false;
        }
        for entry in self.node.entries().iter().rev() {
            self.expected.extend(entry.tree(block).map(Expected::Node));
            self.expected.extend(entry.value(block).map(Expected::Record));
        }
        self.expected.extend(self.node.left(block).map(Expected::Node));
        true
    }
}
