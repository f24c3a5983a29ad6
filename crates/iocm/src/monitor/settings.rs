//! The bounds of the policy.

use serde::{Deserialize, Serialize};

/// The bounds of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// I/O cores at least. With 0, little I/O is served without a core of its own.
    pub least_cores: usize,
    /// I/O cores at most; no limit but the host's cores where it is not set.
    pub most_cores: Option<usize>,
    /// A core is added where those that are there would be busier than this share.
    pub add_above: f64,
    /// A core is given back where the others would be no busier than this share.
    pub remove_below: f64,
    /// A worker that spends this share of its time on requests is full.
    pub full: f64,
    /// CPUs' worth of waiting vCPUs from which they count as short of CPUs.
    pub short: f64,
    /// What is served must change by this share to count as better or worse.
    pub margin: f64,
    /// Periods that a change is given to show what it does.
    pub settle: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            least_cores: 0,
            most_cores: None,
            add_above: 0.8,
            remove_below: 0.65,
            full: 0.95,
            short: 0.2,
            margin: 0.01,
            settle: 1,
        }
    }
}
