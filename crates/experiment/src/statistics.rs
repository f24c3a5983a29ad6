//! Summaries of samples, and the difference between two arms with an honest interval.
//!
//! The samples inside a run share that run's state (where its pages lay, which core it had, how warm the
//! machine was), so they are not independent, and ten times more of them do not make the answer ten times more
//! certain. The unit of replication here is the *run*: each gives one number, and neighbouring runs of the two
//! arms give one pair. See Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013,
//! <https://doi.org/10.1145/2491894.2464160>.

mod difference;
mod doubt;
mod permutation;
mod summary;

pub use difference::{CONFIDENCE, Difference, Interval, MINIMUM_PAIRS, NoInterval, Pair, difference};
pub use doubt::{Outliers, half_shift, outliers};
pub use permutation::{PERMUTATIONS, permutation_p_value};
pub(crate) use summary::median_of;
pub use summary::{Summary, quantile};
