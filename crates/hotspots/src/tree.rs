//! Stacks as a tree for flame graphs, outermost code at the root.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Activity, Frame, Recording, Selection, Stack};

/// The measure of a stack's size in a flame graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Samples on a processor.
    Samples,
    /// Nanoseconds off the CPU.
    Away,
}

impl Weight {
    /// The weight of a stack.
    #[must_use]
    pub const fn of(self, stack: &Stack) -> u64 {
        match self {
            Self::Samples => stack.samples,
            Self::Away => stack.away.away_ns,
        }
    }
}

/// A function in the context of its callers, which are the nodes above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The weight of the function and of all that it calls.
    pub total: u64,
    /// The functions that it called.
    pub children: BTreeMap<NodeName, Node>,
}

/// The name of a node: an activity at the first level, code below.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    /// The exits of a reason.
    Reason(exits::ExitReason),
    /// Device models outside of exits.
    Monitor,
    /// Code.
    Code(Arc<Frame>),
}

/// The tree of the selected stacks: of exits, and of device models outside of exits. Samples in guests are left out:
/// they have no stack of the host.
#[must_use]
pub fn tree(recording: &Recording, selection: &Selection, weight: Weight) -> Node {
    let mut root = Node::default();
    for stack in recording.stacks.iter().filter(|stack| selection.takes(stack)) {
        let name = match stack.activity {
            Activity::Exit(reason) => NodeName::Reason(reason),
            Activity::Monitor => NodeName::Monitor,
            Activity::Guest => continue,
        };
        let amount = weight.of(stack);
        if amount == 0 {
            continue;
        }
        root.total = root.total.saturating_add(amount);
        let mut node = root.child(name, amount);
        let code = stack.frames.iter().rev().filter_map(|&number| recording.frame(number));
        for frame in code {
            node = node.child(NodeName::Code(frame.clone()), amount);
        }
    }
    root
}

impl Node {
    fn child(&mut self, name: NodeName, amount: u64) -> &mut Self {
        let child = self.children.entry(name).or_default();
        child.total = child.total.saturating_add(amount);
        child
    }

    /// The number of levels below this node.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.children.values().map(|child| child.depth() + 1).max().unwrap_or(0)
    }
}
