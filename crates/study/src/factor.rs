//! Factors: settings that differ between the arms of a study. They are applied before the guests start, and undone
//! after they end.

mod cpufreq;
mod error;
mod frequency;
mod host_levels;
mod in_force;
mod inhibit;
mod level;
mod modules;
mod setting;

pub use error::ApplyError;
pub use frequency::{Frequency, FrequencyLevel, Governor};
pub use host_levels::HostLevels;
pub use in_force::{InForce, in_force};
pub use inhibit::Inhibit;
pub use level::{BadLevel, CommandPair, Level, Switch};
pub use setting::Setting;
