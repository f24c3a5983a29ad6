//! Doubts about a study, as data; the words are for people and may change.

use exits::{agree, counted};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::fingerprints::Unlike;

/// One doubt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Runs of one arm were made on unlike hosts or guests, and were compared because that was asked for.
    Unlike {
        /// In what.
        fields: Vec<Unlike>,
    },
    /// Fewer runs than were planned.
    Incomplete {
        /// Runs that are there.
        runs: usize,
        /// Runs that were planned.
        planned: usize,
    },
    /// Something in the folder is damaged or does not belong there, and was left out.
    Damaged {
        /// What, where, and why.
        what: String,
    },
    /// Attempts that failed; those that were repeated with success are counted too.
    Failed {
        /// How many.
        attempts: usize,
        /// Cells without any run that counts for it.
        lost: usize,
    },
    /// Blocks in which an arm has no run; its comparisons rest on the others.
    BrokenBlocks {
        /// How many.
        blocks: usize,
    },
    /// Too few repeats for intervals.
    TooFewRepeats {
        /// Blocks that hold every arm.
        blocks: usize,
    },
    /// Too few repeats for a test that assumes no shape of the noise.
    NoPermutation {
        /// Blocks that hold every arm.
        blocks: usize,
    },
    /// The baseline of the plan never ran, so nothing is compared.
    NoBaseline,
    /// Figures that were no number in some run.
    NotNumbers {
        /// Their names.
        figures: Vec<String>,
    },
    /// Runs of a cell beside a later one.
    Repeated {
        /// How many.
        runs: usize,
    },
    /// Guests did not start together: their loads ran side by side for a part of the run only.
    Skew {
        /// Runs in which the skew was more than a hundredth of the run.
        runs: usize,
        /// The largest skew, in seconds.
        largest: f64,
    },
    /// A load did not reach the rate that it was asked for.
    Behind {
        /// The workload.
        workload: String,
        /// The smallest share of the rate that was reached, in percent.
        percent: f64,
    },
    /// The baseline has no runs with so many guests, and another arm is in its place there.
    OtherBaseline {
        /// Guests.
        guests: u32,
        /// The arm.
        arm: String,
    },
    /// The host is an emulated one.
    Emulated {
        /// What its processors are.
        emulator: String,
    },
    /// The host is itself a VM.
    Nested {
        /// Whose.
        below: String,
    },
    /// What a run itself warned of.
    OfRuns {
        /// The text.
        text: String,
        /// How many runs said it.
        runs: usize,
    },
}

impl Warning {
    /// Whether the figures should not be believed before it is explained.
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
                write!(f, "; they were compared because that was asked for")
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
                    if planned.saturating_sub(*runs) == 1 { "the other" } else { "the others" }
                )
            }
            Self::Damaged { what } => write!(f, "{what}"),
            Self::Failed { attempts, lost: 0 } => {
                write!(
                    f,
                    "{attempts} failed and repeated with success; they are listed",
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
            Self::TooFewRepeats { blocks } => {
                write!(f, "{} no interval and no verdict; repeat at least three times", whole(*blocks))
            }
            Self::NoPermutation { blocks } => write!(
                f,
                "{} too few dealings for a permutation test; p values are Student's, which takes noise for normal. \
                 Six repeats are enough",
                whole(*blocks)
            ),
            Self::NoBaseline => write!(f, "The baseline of the plan has no run, so nothing is compared"),
            Self::NotNumbers { figures } => {
                write!(f, "Left out where it was no number: ")?;
                list(f, figures.iter().cloned())
            }
            Self::Repeated { runs } => {
                write!(f, "{} left out: a later one stands in the same place", counted(*runs as u64, "run"))
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
