//! The certainty of a figure: the intervals, tests and quantiles of the whole workspace.
//!
//! | question | answer |
//! |---|---|
//! | What is the middle of these samples, what their tail? | [`quantile`], [`median`], [`Summary`] |
//! | How far may the mean of a handful of figures be off? | [`student`] |
//! | How far does an arm differ from the baseline? | [`contrast`]: [`contrast::paired`], [`contrast::unpaired`] |
//! | And where events are counted that are few, or none? | [`contrast::counted`] |
//! | And if two counts are all there is? | [`poisson`] |
//! | How large a share is it of all? | [`share`] |
//! | And if what is counted over time comes in bursts? | [`blocks`] |
//! | How often would chance alone show this? | [`permutation`], [`student::Error::p_value`], [`poisson::p_value`] |
//! | And if many things were compared? | [`holm`] |
//! | Was the measurement disturbed? | [`outliers`], [`half_shift`], [`noise`] |
//!
//! Samples of one run share that run's state (where its pages lay, which core it had, how warm the machine was): they are
//! not independent, and ten times more of them do not make the answer ten times more certain. The unit of replication is
//! the run, or the block of runs: each gives one figure. See Kalibera and Jones, "Rigorous Benchmarking in Reasonable
//! Time", ISMM 2013, <https://doi.org/10.1145/2491894.2464160>.
//!
//! Intervals are to hold the truth in 95 of 100 cases, and tests to call what is alike different in 5 of 100 at most.
//! `tests/coverage.rs` simulates each method at the sizes that it is used at and counts. Where a method misses that, its
//! own documentation says by how much. Nothing here drops a sample.

pub mod blocks;
pub mod contrast;
mod holm;
mod interval;
pub mod noise;
pub mod normal;
mod outlier;
pub mod permutation;
pub mod poisson;
mod quantile;
mod share;
pub mod student;

pub use contrast::{Contrast, MINIMUM_REPEATS, Scale, Test};
pub use holm::holm;
pub use interval::{CONFIDENCE, Estimate, Interval, TAIL, percent};
pub use outlier::{Outliers, half_shift, outliers};
pub use permutation::LEVEL;
pub use quantile::{Sample, Summary, median, quantile};
pub use share::share;
pub use student::mean;
