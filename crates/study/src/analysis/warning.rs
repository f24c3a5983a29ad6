//! Doubts about a study, as data; their wording may change.

use exits::{agree, counted};
use std::fmt;

use serde::Serialize;

use super::fingerprints::Unlike;

/// One doubt.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Runs of one arm are from different hosts or guests, and were compared because the user asked for it.
    Unlike {
        /// The facts that differ.
        fields: Vec<Unlike>,
    },
    /// There are fewer runs than planned.
    Incomplete {
        /// The number of runs.
        runs: usize,
        /// The number of planned runs.
        planned: usize,
    },
    /// A file in the folder was ignored because it is damaged or does not belong there.
    Damaged {
        /// The file and its fault.
        what: String,
    },
    /// Attempts that failed, including those that a later attempt replaced.
    Failed {
        /// The number of failed attempts.
        attempts: usize,
        /// The number of cells without a valid run.
        lost: usize,
    },
    /// Blocks in which an arm has no run; the arm's comparisons use the other blocks.
    BrokenBlocks {
        /// The number of blocks.
        blocks: usize,
    },
    /// Blocks whose runs are of several sessions, and are pairs only within one.
    SplitBlocks {
        /// The number of blocks.
        blocks: usize,
    },
    /// A side of a comparison has fewer than three results, each made in one session or a few. The changes include
    /// differences between sessions; the intervals do not cover them.
    BetweenSessions,
    /// Too few repeats for intervals.
    TooFewRepeats {
        /// The number of blocks that hold every arm.
        blocks: usize,
    },
    /// Too few repeats for a permutation test, which makes no assumption about the distribution of the noise.
    NoPermutation {
        /// The number of blocks that hold every arm.
        blocks: usize,
    },
    /// The baseline of the plan never ran, so no arm is compared with it.
    NoBaseline,
    /// Figures that were infinite or NaN in some run.
    NotNumbers {
        /// Their names.
        figures: Vec<String>,
    },
    /// Runs that were ignored because of a later run of the same cell.
    Repeated {
        /// The number of runs.
        runs: usize,
    },
    /// Guests did not start together, so their workloads overlapped only in part of the run.
    Skew {
        /// The number of runs in which the skew was more than a hundredth of the run.
        runs: usize,
        /// The largest skew, in seconds.
        largest: f64,
    },
    /// A workload did not attain the requested rate.
    Behind {
        /// The workload.
        workload: String,
        /// The smallest attained share of the rate, in percent.
        percent: f64,
    },
    /// Counting exits took unlike shares of the vCPUs' time in two arms, which is part of the change between them.
    CountingDiffers {
        /// The workload.
        workload: String,
        /// The full names of the two arms.
        arms: [String; 2],
        /// The cost in each arm, in percent of the run time of the vCPUs.
        percent: [f64; 2],
    },
    /// The baseline has no runs with this number of guests, and another arm replaces it there.
    OtherBaseline {
        /// The number of guests.
        guests: u32,
        /// The arm.
        arm: String,
    },
    /// The host is emulated.
    Emulated {
        /// The emulator of its processors.
        emulator: String,
    },
    /// The host is itself a VM.
    Nested {
        /// The hypervisor below it.
        below: String,
    },
    /// A warning of the runs themselves.
    OfRuns {
        /// The text.
        text: String,
        /// The number of runs with this warning.
        runs: usize,
    },
}

impl Warning {
    /// Tests whether the warning makes the figures unreliable until it is explained.
    pub fn is_grave(&self) -> bool {
        matches!(self, Self::Unlike { .. } | Self::NoBaseline | Self::Damaged { .. })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlike { fields } => {
                write!(f, "Runs of one arm differ in ")?;
                list(f, fields.iter().map(ToString::to_string))?;
                write!(f, "; they were compared on request")
            }
            Self::OtherBaseline { guests, arm } => {
                write!(f, "With {guests} at once the baseline never ran: arms are compared with {arm} there")
            }
            Self::Incomplete { runs, planned } => {
                write!(
                    f,
                    "{runs} of {} {} there; `exitless experiment run` makes {}",
                    counted(*planned as u64, "planned run"),
                    agree(*runs as u64, "is", "are"),
                    agree(planned.saturating_sub(*runs) as u64, "the other", "the others")
                )
            }
            Self::Damaged { what } => write!(f, "{what}"),
            Self::Failed { attempts, lost: 0 } => {
                write!(
                    f,
                    "{attempts} failed and succeeded when repeated; they are listed",
                    attempts = attempted(*attempts)
                )
            }
            Self::Failed { attempts, lost } => {
                write!(
                    f,
                    "{} failed, and {lost} planned {} no run that counts; they are listed",
                    attempted(*attempts),
                    if *lost == 1 { "run has" } else { "runs have" }
                )
            }
            Self::BrokenBlocks { blocks } => {
                write!(
                    f,
                    "{blocks} of the blocks {} a run of some arm; comparisons rest on the others",
                    agree(*blocks as u64, "lacks", "lack")
                )
            }
            Self::SplitBlocks { blocks } => write!(
                f,
                "The runs of {} were made in several sessions, and only those of one session are paired; `exitless \
                 experiment run` repeats {}",
                counted(*blocks as u64, "block"),
                agree(*blocks as u64, "it", "them")
            ),
            Self::BetweenSessions => write!(
                f,
                "The intervals of changes from before to after do not cover differences from boot to boot and from day to \
                 day, because the repeats of one result share them. Three results or more on each side of `exitless \
                 experiment diff` cover them. Changes of the arms' effects are not affected"
            ),
            Self::TooFewRepeats { blocks } => {
                write!(f, "{} no interval and no verdict; repeat at least three times", whole(*blocks))
            }
            Self::NoPermutation { blocks } => write!(
                f,
                "{} too few dealings for a permutation test; p values are Student's, which takes noise for normal. \
                 Six repeats are enough",
                whole(*blocks)
            ),
            Self::NoBaseline => {
                write!(f, "The baseline of the plan has no run, so no arm is compared with it")
            }
            Self::NotNumbers { figures } => {
                write!(f, "Left out because it was not a number: ")?;
                list(f, figures.iter().cloned())
            }
            Self::Repeated { runs } => {
                write!(f, "{} left out: replaced by later ones", counted(*runs as u64, "run"))
            }
            Self::Skew { runs, largest } => write!(
                f,
                "In {} the guests did not start together (at most {:.1} ms apart): more than 1 % of the run",
                counted(*runs as u64, "run"),
                largest * 1000.0
            ),
            Self::Behind { workload, percent } => {
                write!(f, "{workload} reached {percent:.1} % of the rate that it was asked for")
            }
            Self::CountingDiffers { workload, arms, percent } => write!(
                f,
                "During {workload} counting exits took {:.2} % of the vCPUs' time with {} and {:.2} % with {}, which is part \
                 of any change between them; with `exits = \"apart\"` in [samples] they are counted after each measured run",
                percent[0], arms[0], percent[1], arms[1]
            ),
            Self::Emulated { emulator } => write!(
                f,
                "The host is emulated ({emulator}): counts of exits are a real hypervisor's, times and rates are the emulator's"
            ),
            Self::Nested { below } => {
                write!(f, "The host is itself a VM ({below}): what it costs to exit is that machine's")
            }
            Self::OfRuns { text, runs } => write!(f, "{text} ({})", counted(*runs as u64, "run")),
        }
    }
}

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.field)?;
        for (at, value) in self.values.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { " or " }, value.as_deref().unwrap_or("unknown"))?;
        }
        write!(f, ")")
    }
}

fn attempted(attempts: usize) -> String {
    if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") }
}

fn whole(blocks: usize) -> String {
    match blocks {
        0 => "No block holds every arm:".to_owned(),
        1 => "1 block holds every arm:".to_owned(),
        _ => format!("{blocks} blocks hold every arm:"),
    }
}

fn list(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = String>) -> fmt::Result {
    for (at, item) in items.enumerate() {
        write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}
