//! Confidence intervals, tests and quantiles for the whole workspace.
//!
//! | question | answer |
//! |---|---|
//! | What is the middle of these samples, what their tail? | [`quantile`], [`median`], [`Summary`] |
//! | How far may the mean of a handful of figures be off? | [`student`] |
//! | How far does an arm differ from the baseline? | [`contrast`]: [`contrast::paired`], [`contrast::unpaired`] |
//! | And if the arms' events are few, or none? | [`contrast::counted`] |
//! | And if there is only one count before and one after? | [`poisson`] |
//! | How large is a share? | [`share`] |
//! | And if events come in bursts over time? | [`blocks`] |
//! | How often would chance alone show this? | [`permutation`], [`student::Error::p_value`], [`poisson::p_value`] |
//! | And if there are many comparisons? | [`holm`] |
//! | Was the measurement disturbed? | [`outliers`], [`half_shift`], [`noise`] |
//!
//! Samples of one run share that run's state (where its pages lay, which core it had, how warm the machine was): they are
//! not independent, and more samples of a run do not make the interval narrower. The unit of replication is the run, or the
//! block of runs: each gives one figure. See Kalibera and Jones, "Rigorous Benchmarking in Reasonable
//! Time", ISMM 2013, <https://doi.org/10.1145/2491894.2464160>.
//!
//! Intervals should contain the true value in 95 of 100 cases, and tests should have at most 5 false alarms in 100.
//! `tests/coverage.rs` simulates each method with realistic numbers of samples and checks this. If a method misses the
//! target, its documentation says by how much. No method drops samples.

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
