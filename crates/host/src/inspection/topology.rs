//! The topology of processors, and their idle states.

use crate::{AbsenceKind, CpuSet, Fact, Root};
use std::collections::{BTreeMap, BTreeSet};

/// The topology of processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// NUMA nodes.
    pub nodes: Fact<Vec<Node>>,
    /// `/sys/devices/system/cpu/smt/control`: `on`, `off`, `forceoff`, `notsupported`.
    pub smt: Fact<String>,
    /// Sets of threads of one core, each once, ascending; empty without SMT.
    pub siblings: Vec<CpuSet>,
    /// `/sys/devices/system/cpu/isolated` (`isolcpus=`).
    pub isolated: Fact<CpuSet>,
    /// `/sys/devices/system/cpu/nohz_full`.
    pub nohz_full: Fact<CpuSet>,
    /// Idle states and frequencies.
    pub idle: Idle,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u32,
    /// Its processors.
    pub cpus: CpuSet,
}

/// The idle states of processors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Idle {
    /// `cpuidle/current_driver`: `intel_idle`, `acpi_idle`, `haltpoll`, `none`.
    pub driver: Fact<String>,
    /// `cpuidle/current_governor`.
    pub governor: Fact<String>,
    /// The number of frequency policies (usually one for each processor) by governor (`performance`,
    /// `powersave`, `schedutil`).
    pub frequency_governors: Fact<BTreeMap<String, u32>>,
    /// `cpufreq/policy0/scaling_driver`.
    pub frequency_driver: Fact<String>,
}

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

impl Topology {
    pub(super) fn read(root: &Root, online: Option<&CpuSet>) -> Self {
        let list = |name: &str| root.fact(&format!("{CPUS}/{name}"), "a list such as 2-7", list_or_none);
        let smt = root.line(&format!("{CPUS}/smt/control"), "a state such as on");
        // Without SMT do not read the hundreds of files.
        let siblings = match smt.get().map(String::as_str) {
            Some("on") | None => siblings(root, online),
            Some(_) => Vec::new(),
        };
        Self {
            nodes: nodes(root),
            smt,
            siblings,
            isolated: list("isolated"),
            nohz_full: list("nohz_full"),
            idle: Idle::read(root),
        }
    }
}

/// Parses a list of CPUs. Kernels without the feature print `(null)`; those with it print nothing if it is
/// unused.
fn list_or_none(text: &str) -> Option<CpuSet> {
    if text == "(null)" { Some(CpuSet::default()) } else { CpuSet::parse(text) }
}

fn siblings(root: &Root, online: Option<&CpuSet>) -> Vec<CpuSet> {
    let Some(online) = online else { return Vec::new() };
    let mut found: Vec<CpuSet> = Vec::new();
    let mut seen = BTreeSet::new();
    for cpu in online.iter().take(MOST_CPUS) {
        // Each core is read once.
        if seen.contains(&cpu) {
            continue;
        }
        let path = format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list");
        let set = root.text(&path, "a list such as 0,4").ok().and_then(|text| CpuSet::parse(&text));
        let Some(set) = set.filter(|set| set.count() > 1) else { continue };
        seen.extend(set.iter().take(MOST_CPUS));
        found.push(set);
    }
    found
}

/// The largest number of processors of an x86 kernel (`NR_CPUS_RANGE_END`, `arch/x86/Kconfig`).
const MOST_CPUS: usize = 8192;

fn nodes(root: &Root) -> Fact<Vec<Node>> {
    root.fact(&format!("{NODES}/online"), "a list such as 0-1", CpuSet::parse).map(|numbers| {
        let node = |number: u32| {
            let text = root.text(&format!("{NODES}/node{number}/cpulist"), "a list such as 0-7").ok()?;
            Some(Node { number, cpus: CpuSet::parse(&text)? })
        };
        numbers.iter().take(MOST_CPUS).filter_map(node).collect()
    })
}

impl Idle {
    fn read(root: &Root) -> Self {
        let idle = |name: &str| root.line(&format!("{CPUS}/cpuidle/{name}"), "a name");
        let frequency = format!("{CPUS}/cpufreq");
        Self {
            driver: idle("current_driver"),
            // Kernels before 5.7 have the second name (`drivers/cpuidle/sysfs.c`).
            governor: idle("current_governor").or(|| idle("current_governor_ro")),
            frequency_governors: governors(root, &frequency),
            frequency_driver: root.line(&format!("{frequency}/policy0/scaling_driver"), "a name"),
        }
    }
}

fn governors(root: &Root, home: &str) -> Fact<BTreeMap<String, u32>> {
    let policies = root.entries(home, |name| name.starts_with("policy")).unwrap_or_default();
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for policy in &policies {
        let governor = root.text(&format!("{home}/{policy}/scaling_governor"), "a governor");
        governor.into_iter().for_each(|governor| *found.entry(governor).or_default() += 1);
    }
    if found.is_empty() {
        return Fact::absent(AbsenceKind::NotThere, format!("{home} has no policy with a governor"));
    }
    let text: Vec<String> = found.iter().map(|(governor, count)| format!("{governor} ({count})")).collect();
    Fact::known(found, format!("{home}/policy*/scaling_governor"), text.join(", "))
}
