//! A load over time: recorded, generated, or written by hand.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A machine, its VMs, and their load in each phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// The machine.
    pub machine: Machine,
    /// VMs, in groups with the same load.
    pub groups: Vec<Group>,
    /// The phases of their load, one after the other.
    pub phases: Vec<Phase>,
}

/// The host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its cores, numbered from 0.
    pub cores: u32,
    /// The number of NUMA nodes. Each has the same number of consecutive cores.
    #[serde(default = "one")]
    pub nodes: u32,
}

/// VMs with the same load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name, which the phases refer to.
    pub name: String,
    /// The number of VMs.
    pub vms: u32,
    /// The number of virtqueues of each VM.
    #[serde(default = "one")]
    pub queues: u32,
    /// The NUMA node of all its VMs; `None` spreads them over the nodes in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// A time during which the load does not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// The duration, seconds.
    pub seconds: f64,
    /// The load by group; a group that is not listed is idle.
    pub loads: BTreeMap<String, Load>,
}

/// The load of one VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The number of CPUs that its vCPUs would use if they got them.
    #[serde(default)]
    pub computing: f64,
    /// Requests per second of each queue if the vCPUs got all the CPU time that they want.
    #[serde(default)]
    pub requests: f64,
    /// Microseconds of CPU time that one request costs a busy worker.
    #[serde(default)]
    pub cost_us: f64,
    /// Bytes of one request.
    #[serde(default)]
    pub bytes: f64,
}

/// A defect of a trace.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BadTrace {
    /// The machine is too small or too large, or its nodes are of unequal size.
    #[error("The machine has {cores} cores on {nodes} nodes; give it 2 to 4096, a multiple of its nodes")]
    Machine {
        /// The cores of the machine.
        cores: u32,
        /// The nodes of the machine.
        nodes: u32,
    },
    /// There are too many queues, or none.
    #[error("The trace has {0} queues; give it 1 to 100000")]
    Queues(u64),
    /// A group is on a NUMA node that the machine does not have.
    #[error("Group {group:?} is on node {node}, and the machine has {nodes}")]
    Node {
        /// The group.
        group: String,
        /// The node of the group.
        node: u32,
        /// The number of nodes of the machine.
        nodes: u32,
    },
    /// Two groups have one name.
    #[error("Group {group:?} is there twice; give each group a name of its own")]
    Twice {
        /// The group.
        group: String,
    },
    /// A phase names a group that does not exist.
    #[error("Phase {phase:?} has a load for group {group:?}, which is not among the groups")]
    Group {
        /// The phase.
        phase: String,
        /// The name.
        group: String,
    },
    /// A figure is negative, too large or not a number.
    #[error("Phase {phase:?}: {what} must be a number from 0 to {most}")]
    Figure {
        /// The phase.
        phase: String,
        /// The name of the figure.
        what: &'static str,
        /// The largest valid value.
        most: f64,
    },
    /// There is nothing to replay.
    #[error("The trace has no phases")]
    NoPhases,
}

fn one() -> u32 {
    1
}

impl Trace {
    /// Tests whether the trace can be replayed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), BadTrace> {
        self.machine.check()?;
        let mut known = KnownGroups::default();
        self.groups.iter().try_for_each(|group| known.add(self.machine, group))?;
        if known.queues == 0 {
            return Err(BadTrace::Queues(0));
        }
        if self.phases.is_empty() {
            return Err(BadTrace::NoPhases);
        }
        self.phases.iter().try_for_each(|phase| known.check_phase(phase))
    }
}

impl Machine {
    pub(super) fn check(self) -> Result<(), BadTrace> {
        let Self { cores, nodes } = self;
        if (2..=4096).contains(&cores) && nodes > 0 && cores % nodes == 0 {
            Ok(())
        } else {
            Err(BadTrace::Machine { cores, nodes })
        }
    }
}

/// The groups that were defined so far.
#[derive(Debug, Default)]
pub(super) struct KnownGroups {
    names: BTreeSet<String>,
    size: u64,
    queues: u64,
}

impl KnownGroups {
    /// Adds a group if it is valid.
    pub(super) fn add(&mut self, machine: Machine, group: &Group) -> Result<(), BadTrace> {
        // VMs without queues take memory, too.
        let size = self.size + u64::from(group.vms) * u64::from(group.queues.max(1));
        if size > 100_000 {
            return Err(BadTrace::Queues(size));
        }
        if let Some(node) = group.node.filter(|&node| node >= machine.nodes) {
            return Err(BadTrace::Node { group: group.name.clone(), node, nodes: machine.nodes });
        }
        if !self.names.insert(group.name.clone()) {
            return Err(BadTrace::Twice { group: group.name.clone() });
        }
        self.size = size;
        self.queues += u64::from(group.vms) * u64::from(group.queues);
        Ok(())
    }

    pub(super) fn check_phase(&self, phase: &Phase) -> Result<(), BadTrace> {
        let figure = |what, value: f64, most: f64| {
            let fine = value.is_finite() && (0.0..=most).contains(&value);
            let phase = || phase.name.clone();
            if fine { Ok(()) } else { Err(BadTrace::Figure { phase: phase(), what, most }) }
        };
        figure("seconds", phase.seconds, 1e6)?;
        for (group, load) in &phase.loads {
            if !self.names.contains(group) {
                return Err(BadTrace::Group { phase: phase.name.clone(), group: group.clone() });
            }
            figure("computing", load.computing, 4096.0)?;
            figure("requests", load.requests, 1e9)?;
            figure("cost_us", load.cost_us, 1e6)?;
            figure("bytes", load.bytes, 1e9)?;
        }
        Ok(())
    }
}
