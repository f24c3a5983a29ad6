//! Doubts about the figures, as data. Their text may change.

use exits::counted;
use std::fmt;

use probe::measure::Measure;
use probe::run::Arm;
use serde::Serialize;

/// One doubt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// EOIs cause about as many exits with interrupt virtualization on as with it off, so one arm was not in its state.
    ArmsAlike {
        /// Exits for each EOI with interrupt virtualization off.
        off: f64,
        /// Exits for each EOI with it on.
        on: f64,
    },
    /// A check of one arm found exits that it should not have, or too few.
    ArmContradicted {
        /// The arm.
        arm: Arm,
        /// The expectation, and the known causes.
        why: String,
    },
    /// No exits of EOIs were counted, so there is no evidence that the arms differ.
    ArmsUnproved,
    /// The kernel did not report the switch of the arms.
    SwitchUnseen,
    /// A measure could not be taken.
    Failed {
        /// The measure.
        measure: Measure,
        /// The arm.
        arm: Arm,
        /// The error.
        why: String,
        /// It failed in the counted run: the timed ones are complete.
        counted: bool,
    },
    /// There are too few runs for an interval.
    TooFewRuns {
        /// The measure.
        measure: Measure,
        /// The number of runs in each arm.
        runs: usize,
    },
    /// Blocks that lack a run were left out of the difference.
    BrokenBlocks {
        /// The measure.
        measure: Measure,
        /// The number of blocks.
        blocks: usize,
    },
    /// Costs drifted during the measurement: the second half of the runs against the first.
    Drift {
        /// The measures and arms concerned.
        found: Vec<Disturbed>,
    },
    /// Many samples are outliers: their share of all samples.
    Outliers {
        /// The measures and arms concerned.
        found: Vec<Disturbed>,
    },
    /// All runs have the same median. The interval has no width because the clock is too coarse.
    NoVariation {
        /// The first measure concerned.
        measure: Measure,
        /// The others.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        others: Vec<Measure>,
    },
    /// A control measure, which cannot depend on the arm, differed.
    ControlMoved {
        /// The measure.
        measure: Measure,
        /// Change from off to on, in percent.
        percent: f64,
    },
    /// The kernel dropped events.
    Lost {
        /// The measure.
        measure: Measure,
        /// The arm.
        arm: Arm,
        /// The number of events.
        events: u64,
    },
    /// The tracepoints and KVM's own count disagree.
    CountsDisagree {
        /// The measures and arms concerned.
        found: Vec<Disagreement>,
    },
    /// The host is a virtual machine itself.
    Nested {
        /// The hypervisor below it.
        below: String,
    },
    /// Exits are known in total only.
    NoTracepoints {
        /// The reason.
        why: String,
    },
}

/// A disturbance of one measure in one arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Disturbed {
    /// The measure.
    pub measure: Measure,
    /// The arm.
    pub arm: Arm,
    /// The size of the disturbance, in percent.
    pub percent: f64,
}

/// The exits of one counted run, by the tracepoints and by KVM's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// The measure.
    pub measure: Measure,
    /// The arm.
    pub arm: Arm,
    /// By the tracepoints.
    pub traced: u64,
    /// By KVM's statistics.
    pub statistics: u64,
}

/// The maximum number of items in the text of a warning. The JSON has all.
const NAMED: usize = 4;

/// Writes, for example, "IPI to a running vCPU, off (+25 %); EOI, on (+6 %); 3 more", largest first.
fn list(found: &[Disturbed], sign: bool) -> String {
    let one = |disturbed: &Disturbed| {
        let Disturbed { measure, arm, percent } = disturbed;
        let percent = if sign { format!("{percent:+.0}") } else { format!("{percent:.0}") };
        // A line must not end between a figure and its unit.
        format!("{}, {} ({percent}\u{a0}%)", measure.title(), arm_in_words(*arm))
    };
    let mut worst: Vec<&Disturbed> = found.iter().collect();
    worst.sort_by(|a, b| b.percent.abs().total_cmp(&a.percent.abs()));
    let named = worst.iter().take(NAMED).copied().map(one);
    let rest = found.len().checked_sub(NAMED).filter(|&rest| rest > 0).map(|rest| format!("{rest} more"));
    named.chain(rest).collect::<Vec<_>>().join("; ")
}

impl Warning {
    /// Tests whether the warning makes the figures unreliable.
    pub fn is_grave(&self) -> bool {
        matches!(self, Self::ArmsAlike { .. } | Self::ArmContradicted { .. })
    }
}

/// The arm in words.
pub(super) fn arm_in_words(arm: Arm) -> &'static str {
    match arm {
        Arm::Off => "off",
        Arm::On => "on",
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ArmsAlike { off, on } => write!(
                f,
                "An EOI takes {off:.2} exits with interrupt virtualization off and {on:.2} with it on. It should \
                 take about none with it on: the arms were not what they are called."
            ),
            Self::ArmContradicted { arm, why } => write!(
                f,
                "A check of the arm with interrupt virtualization {} contradicts it: {why}.",
                arm_in_words(*arm)
            ),
            Self::ArmsUnproved => f.write_str(
                "No EOI was counted in both arms, so nothing but the switch itself shows that they differ. Add \
                 the measure eoi.",
            ),
            Self::SwitchUnseen => f.write_str(
                "The arms were switched, but the kernel, which has an event for that, reported no change of inhibit \
                 reasons.",
            ),
            Self::Failed { measure, arm, why, counted } => {
                let what = if *counted { "its exits were not counted" } else { "not measured" };
                write!(f, "{}, {}: {what}. {why}", measure.title(), arm_in_words(*arm))
            }
            Self::TooFewRuns { measure, runs } => write!(
                f,
                "{}: no interval from {} an arm; plan at least 2 blocks.",
                measure.title(),
                counted(*runs as u64, "run")
            ),
            Self::BrokenBlocks { measure, blocks } => write!(
                f,
                "{}: {} without a run, and with no part in the difference.",
                measure.title(),
                counted(*blocks as u64, "block")
            ),
            Self::Drift { found } => write!(
                f,
                "Costs moved from the first half of the runs to the last: {}. The order of the runs lets a steady \
                 drift cancel; pin the vCPUs and quieten the host for a narrower interval.",
                list(found, true)
            ),
            Self::Outliers { found } => write!(
                f,
                "Samples far from the rest: {}. None was dropped; means and p99 feel them, medians hardly.",
                list(found, false)
            ),
            Self::NoVariation { measure, others } => {
                let titles: Vec<_> = [measure].into_iter().chain(others).map(|measure| measure.title()).collect();
                let titles = titles.join("; ");
                write!(
                    f,
                    "{titles}: every run gave the same median, so the interval has no width. The true one is as wide as \
                     a step of the clock."
                )
            }
            Self::ControlMoved { measure, percent } => write!(
                f,
                "{} changed by {percent:+.1} % although interrupt virtualization does not touch it. Doubt other \
                 differences of that size.",
                measure.title()
            ),
            Self::Lost { measure, arm, events } => write!(
                f,
                "{}, {}: the kernel dropped {}; the exits by reason are too few.",
                measure.title(),
                arm_in_words(*arm),
                counted(*events, "event")
            ),
            Self::CountsDisagree { found } => {
                let one = |at: &Disagreement| {
                    let Disagreement { measure, arm, traced, statistics } = at;
                    format!("{}, {} ({traced} and {statistics})", measure.title(), arm_in_words(*arm))
                };
                let list = found.iter().map(one).collect::<Vec<_>>().join("; ");
                write!(f, "The exits that the tracepoints saw and those that KVM counted disagree: {list}.")
            }
            Self::Nested { below } => write!(
                f,
                "This host is itself a virtual machine ({below}). Its exits cost what the underlying hypervisor makes \
                 of them; bare metal will differ."
            ),
            Self::NoTracepoints { why } => {
                write!(f, "Exits are known in total only, not by reason: {why}")
            }
        }
    }
}
