//! Stacks as a tree, outermost code first: what flame graphs draw.

use std::collections::BTreeMap;

use crate::{Activity, Frame, Recording, Selection, Stack};

/// The measure by which stacks are weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Samples on a processor.
    Samples,
    /// Nanoseconds without one.
    Away,
}

impl Weight {
    /// That of a stack.
    #[must_use]
    pub const fn of(self, stack: &Stack) -> u64 {
        match self {
            Self::Samples => stack.samples,
            Self::Away => stack.away.away_ns,
        }
    }
}

/// A function, called by those above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Weight of it and of all that it calls.
    pub total: u64,
    /// The functions that it calls.
    pub children: BTreeMap<NodeName, Node>,
}

/// The name of a node: at the first level an activity, below it code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    /// The exits of a reason.
    Reason(exits::ExitReason),
    /// Device models outside of exits.
    Monitor,
    /// Code.
    Code(Frame),
}

/// All stacks of device models and within exits that `selection` takes. What guests did is no stack of the host's and is
/// left out, unless it is all there is.
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

    /// Levels below this one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.children.values().map(|child| child.depth() + 1).max().unwrap_or(0)
    }
}
