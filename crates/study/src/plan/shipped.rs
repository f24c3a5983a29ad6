//! The plans that come with the program.

use super::{BadPlan, Plan};

/// A plan that is built into the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(Shipped { name: $name, text: include_str!(concat!("../../../../plans/", $name, ".toml")) }),*]
    };
}

/// All shipped plans, each in full size and in a size for laboratories.
pub const SHIPPED: [Shipped; 27] = shipped![
    "iozone-apicv",
    "iozone-apicv-lab",
    "iozone-irqchip-lab",
    "iozone-disk-lab",
    "netperf-xen",
    "netperf-xen-shared",
    "netperf-xen-lab",
    "netperf-xen-apicv-lab",
    "sysbench-threads",
    "sysbench-threads-lab",
    "sysbench-avic-lab",
    "sysbench-avic-wide-lab",
    "two-vf-avic-lab",
    "two-vf-xen-lab",
    "ipi-cost",
    "ipi-cost-lab",
    "side-cores",
    "side-cores-lab",
    "shadow-paging-lab",
    "cure-irqchip",
    "cure-irqchip-lab",
    "cure-disk",
    "cure-disk-lab",
    "cure-network",
    "cure-network-lab",
    "cure-display",
    "cure-display-lab",
];

impl Shipped {
    /// The plan with this name.
    pub fn find(name: &str) -> Option<Self> {
        SHIPPED.into_iter().find(|shipped| shipped.name == name)
    }

    /// Parses the plan.
    ///
    /// # Errors
    /// None for those in [`SHIPPED`], all of which a test reads.
    pub fn plan(self) -> Result<Plan, BadPlan> {
        Plan::read(self.text, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_plan_is_right_and_has_the_name_of_its_file() {
        for shipped in SHIPPED {
            let plan = shipped.plan().unwrap_or_else(|bad| panic!("{bad}"));
            assert_eq!(plan.name, shipped.name);
        }
    }

    #[test]
    fn a_run_that_fails_in_a_laboratory_is_not_tried_again() {
        for shipped in SHIPPED.iter().filter(|shipped| shipped.name.ends_with("-lab")) {
            assert_eq!(shipped.plan().unwrap().order.attempts, 1, "{}", shipped.name);
        }
    }

    #[test]
    fn a_plan_for_any_host_runs_no_program_that_has_to_be_put_there_first() {
        for shipped in SHIPPED.iter().filter(|shipped| !shipped.name.ends_with("-lab")) {
            let factors = shipped.plan().unwrap().factors;
            let pairs = factors.iter().flat_map(|factor| &factor.levels).flat_map(|level| &level.commands);
            for line in pairs.flat_map(|pair| [&pair.before, &pair.after]) {
                let program = line.split_whitespace().next();
                assert!(matches!(program, Some("modprobe" | "true")), "{}: {line}", shipped.name);
            }
        }
    }

    #[test]
    fn every_file_of_a_plan_is_shipped() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plans");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            // Skip the directories of suites and tunings.
            .filter(|name| name.ends_with(".toml"))
            .collect();
        files.sort();
        let mut names: Vec<_> = SHIPPED.iter().map(|shipped| format!("{}.toml", shipped.name)).collect();
        names.sort();
        assert_eq!(files, names);
    }
}
