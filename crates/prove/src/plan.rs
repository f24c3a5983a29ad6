//! The plan: the measures and the number of runs.

use probe::measure::Measure;
use probe::run::{ApicMode, Irqchip};
use probe::{Arms, MAX_SAMPLES, MAX_VCPUS};
use serde::{Deserialize, Serialize};

/// The order of the arms in one block: Off, On, On, Off, which lets a linear drift cancel.
pub(crate) const RUNS_PER_BLOCK: u32 = 4;

/// The maximum number of blocks. The number of runs fits into 32 bits, and more would hardly narrow the interval.
const MOST_BLOCKS: u32 = 10_000;

/// The plan of [`super::collect()`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The measures, in this order.
    pub measures: Vec<Measure>,
    /// vCPUs of the micro VM; interrupts go from vCPU 0 to each of the others in turn.
    pub vcpus: u16,
    /// The irqchip mode.
    pub irqchip: Irqchip,
    /// The guest's access to its local APIC.
    pub apic: ApicMode,
    /// True if each vCPU's thread is pinned to one host CPU.
    pub pin: bool,
    /// Operations at the start of each run that are not timed.
    pub warm_up: u32,
    /// Samples of each timed run.
    pub samples: u32,
    /// Blocks of four timed runs (Off, On, On, Off) for each measure: two runs in each arm.
    pub blocks: u32,
    /// Operations of the counted run, of which there is one in each arm.
    pub counted_samples: u32,
    /// The only arm to run, instead of all that the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<OnlyArm>,
}

/// The arm of a plan that has only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnlyArm {
    /// Interrupt virtualization on.
    On,
    /// Interrupt virtualization off: inhibited for the micro VM, or not available on the host.
    Off,
    /// The state of a VM on this host: on if possible.
    Host,
}

impl OnlyArm {
    /// The host's `arms` restricted to this one; `None` if the host does not have it.
    pub(super) fn of(self, arms: &Arms) -> Option<Arms> {
        let why = || "the other arm was not asked for".to_owned();
        match (self, arms) {
            (Self::On | Self::Host, Arms::Both { .. }) => Some(Arms::OnlyOn { why: why() }),
            (Self::Off, Arms::Both { .. }) => Some(Arms::OnlyOff { why: why() }),
            (Self::On | Self::Host, Arms::OnlyOn { .. }) | (Self::Off | Self::Host, Arms::OnlyOff { .. }) => {
                Some(arms.clone())
            }
            (Self::On, Arms::OnlyOff { .. }) | (Self::Off, Arms::OnlyOn { .. }) => None,
        }
    }
}

impl Plan {
    /// The measures that depend on interrupt virtualization and the two controls, for a first answer.
    pub fn quick() -> Self {
        Self {
            measures: vec![
                Measure::Floor,
                Measure::IpiRunning,
                Measure::IpiHalted,
                Measure::SelfIpi,
                Measure::Eoi,
                Measure::TimerFire,
                Measure::Cpuid,
            ],
            vcpus: 2,
            irqchip: Irqchip::Split,
            apic: ApicMode::X2apic,
            pin: true,
            warm_up: 20,
            samples: 200,
            blocks: 3,
            counted_samples: 200,
            only: None,
        }
    }

    /// Every measure, with enough runs for a narrow interval.
    pub fn full() -> Self {
        Self {
            measures: Measure::ALL.to_vec(),
            warm_up: 200,
            samples: 2000,
            blocks: 8,
            counted_samples: 2000,
            ..Self::quick()
        }
    }

    /// Refuses a plan that cannot be carried out.
    ///
    /// # Errors
    /// The first fault of the plan.
    pub fn check(&self) -> Result<(), BadPlan> {
        if self.measures.is_empty() {
            return Err(BadPlan::NoMeasures);
        }
        for (index, &measure) in self.measures.iter().enumerate() {
            if self.measures[..index].contains(&measure) {
                return Err(BadPlan::Twice { measure });
            }
        }
        if !(2..=MAX_VCPUS).contains(&self.vcpus) {
            return Err(BadPlan::Vcpus { asked: self.vcpus });
        }
        for (asked, most, what) in [
            (self.blocks, MOST_BLOCKS, "blocks"),
            (self.samples, MAX_SAMPLES, "samples a run"),
            (self.counted_samples, MAX_SAMPLES, "operations a counted run"),
        ] {
            if !(1..=most).contains(&asked) {
                return Err(BadPlan::Count { what, asked, most });
            }
        }
        Ok(())
    }
}

/// The reason why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPlan {
    /// The list of measures is empty.
    #[error("The plan measures nothing; name at least one measure")]
    NoMeasures,
    /// A measure is named more than once.
    #[error("The plan names {measure} more than once")]
    Twice {
        /// The measure.
        measure: Measure,
    },
    /// The number of vCPUs is out of bounds.
    #[error("The plan asks for {asked} vCPUs; ask for 2 to {MAX_VCPUS}")]
    Vcpus {
        /// The number in the plan.
        asked: u16,
    },
    /// A count is zero or too large.
    #[error("The plan asks for {asked} {what}; ask for 1 to {most}")]
    Count {
        /// The thing that is counted.
        what: &'static str,
        /// The number in the plan.
        asked: u32,
        /// The largest number.
        most: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_can_be_carried_out_and_give_an_interval() {
        for plan in [Plan::quick(), Plan::full()] {
            assert_eq!(plan.check(), Ok(()));
            let runs_per_arm = plan.blocks * (RUNS_PER_BLOCK / 2);
            assert!(runs_per_arm as usize >= crate::MINIMUM_PAIRS);
        }
    }

    #[test]
    fn a_plan_that_cannot_work_is_refused_by_name() {
        let refused = |change: fn(&mut Plan)| {
            let mut plan = Plan::quick();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(refused(|plan| plan.measures.clear()).contains("measures nothing"));
        assert!(refused(|plan| plan.measures.push(Measure::Eoi)).contains("eoi more than once"));
        assert!(refused(|plan| plan.vcpus = 1).contains("1 vCPUs"));
        assert!(refused(|plan| plan.blocks = 0).contains("0 blocks"));
        assert!(refused(|plan| plan.counted_samples = 0).contains("0 operations a counted run"));
    }

    #[test]
    fn one_arm_is_left_where_the_host_has_it() {
        let both = Arms::Both { mechanism: probe::InhibitMechanism::BlockIrq };
        let off = Arms::OnlyOff { why: "avic=N".to_owned() };
        assert!(matches!(OnlyArm::On.of(&both), Some(Arms::OnlyOn { .. })));
        assert!(matches!(OnlyArm::Host.of(&both), Some(Arms::OnlyOn { .. })));
        assert!(matches!(OnlyArm::Off.of(&both), Some(Arms::OnlyOff { .. })));
        assert_eq!(OnlyArm::Host.of(&off), Some(off.clone()));
        assert_eq!(OnlyArm::On.of(&off), None);
        let older = serde_json::to_string(&Plan::quick()).unwrap();
        assert!(!older.contains("only"));
        assert_eq!(serde_json::from_str::<Plan>(&older).unwrap(), Plan::quick());
    }
}
