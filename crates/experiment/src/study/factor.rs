//! Factors: what differs between the arms of a study, put in force around the guests' life and taken back after it.

mod frequency;
mod inhibit;
mod level;
mod setting;

pub use frequency::{Frequency, FrequencyLevel, Governor};
pub use inhibit::Inhibit;
pub use level::{BadLevel, CommandPair, Level, Switch};
pub use setting::Setting;
