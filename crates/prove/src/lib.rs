//! The effect of interrupt virtualization on a host: plan, collect on the host, analyse anywhere.
//!
//! Collection only records, because it runs on the host in question, which may be emulated and slow. Analysis reads the
//! [`Recording`] on any machine and does the statistics.

mod analyse;
mod collect;
mod counting;
#[cfg(test)]
mod coverage_tests;
mod difference;
mod evidence;
#[cfg(test)]
mod files_tests;
mod outcome;
mod pairing;
mod plan;
mod recording;
mod samples;
pub mod synthetic;
pub mod table;
mod verdict;
mod warning;
mod wording;

pub use analyse::{NotAnalysed, analyse};
pub use collect::{CollectError, Progress, collect};
pub use difference::{Difference, MINIMUM_PAIRS, NoInterval, Pair, difference, p_value};
pub use evidence::{Evidence, gravest};
pub use outcome::{
    AtCost, Cost, Effect, ExitTotals, Judgement, MeasureOutcome, Method, OUTCOME_FORMAT, PerOperation, Proof,
    ReasonRow,
};
pub use plan::{BadPlan, OnlyArm, Plan};
pub use recording::{ArmPair, CountedRun, FORMAT, Failure, ReadError, Recording, TimedRun, Tracing};
pub use samples::{SamplesError, write_samples};
pub use warning::{Disagreement, Disturbed, Warning};
pub use wording::{EPYC_SWITCH_CYCLES, change_in_words, charged_switch, emulated_cycles, interval_in_words};
