//! The bounds of the policy.

use serde::{Deserialize, Serialize};

/// The bounds of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// I/O cores at least. With 0, little I/O is served without a core of its own.
    pub least_cores: usize,
    /// I/O cores at most; `None` limits them only by the cores of the host.
    pub most_cores: Option<usize>,
    /// A core is added if the present ones would be busier than this share.
    pub add_above: f64,
    /// A core is given back if the others would be no busier than this share.
    pub remove_below: f64,
    /// A worker that spends this share of its time on requests is full.
    pub full: f64,
    /// vCPUs count as short of CPUs from this much waiting, in CPUs' worth.
    pub short: f64,
    /// The relative change of the throughput that counts as better or worse.
    pub margin: f64,
    /// The number of periods that a change has to show its effect.
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

/// An invalid bound.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("`{name}` is {value}, expected a number {expected}")]
pub struct BadSetting {
    name: &'static str,
    value: f64,
    expected: &'static str,
}

impl Settings {
    /// Checks the bounds.
    ///
    /// # Errors
    /// [`BadSetting`] for the first invalid one.
    pub fn check(&self) -> Result<(), BadSetting> {
        let shares =
            [("add-above", self.add_above), ("remove-below", self.remove_below), ("full", self.full)];
        for (name, value) in shares {
            if !(value > 0.0 && value <= 1.0) {
                return Err(BadSetting { name, value, expected: "above 0 and up to 1" });
            }
        }
        for (name, value, most) in [("short", self.short, 1e6), ("margin", self.margin, 1.0)] {
            if !(0.0..=most).contains(&value) {
                return Err(BadSetting { name, value, expected: "from 0" });
            }
        }
        if self.remove_below >= self.add_above {
            // Cores would be added and removed forever.
            let (name, value) = ("remove-below", self.remove_below);
            return Err(BadSetting { name, value, expected: "below `add-above`" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_mean_nothing_are_refused_by_name() {
        assert_eq!(Settings::default().check(), Ok(()));
        let refused = |settings: Settings| settings.check().unwrap_err().to_string();
        let usual = Settings::default();
        assert!(refused(Settings { full: f64::NAN, ..usual }).contains("`full`"));
        assert!(refused(Settings { add_above: 1.5, ..usual }).contains("`add-above`"));
        assert!(refused(Settings { remove_below: 0.9, ..usual }).contains("below `add-above`"));
        assert!(refused(Settings { short: -1.0, ..usual }).contains("`short`"));
    }
}
