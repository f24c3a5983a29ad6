//! The frequency of CPUs as a level.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// CPUs held at frequencies: through cpufreq's files, or through `xenpm` on Xen, whose hypervisor controls
/// frequencies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrequencyLevel {
    /// The CPUs as the kernel lists them ("0-3,8"); on Xen the hypervisor's. All CPUs by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// The governor; CPUs keep theirs by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<Governor>,
    /// The lowest frequency: "1200MHz".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Frequency>,
    /// The highest frequency: "1.2GHz".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Frequency>,
}

impl FrequencyLevel {
    /// These settings over `earlier` ones.
    ///
    /// # Errors
    /// If they are for other CPUs.
    pub(crate) fn over(&self, earlier: &Self) -> Result<Self, String> {
        if self.cpus != earlier.cpus {
            let cpus = |level: &Self| level.cpus.clone().unwrap_or_else(|| "all".to_owned());
            return Err(format!(
                "frequency.cpus is {:?}, and {:?} in what was kept; give both the same CPUs",
                cpus(self),
                cpus(earlier)
            ));
        }
        Ok(Self {
            cpus: self.cpus.clone(),
            governor: self.governor.clone().or_else(|| earlier.governor.clone()),
            minimum: self.minimum.or(earlier.minimum),
            maximum: self.maximum.or(earlier.maximum),
        })
    }
}

/// A governor by cpufreq's name, such as "performance".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Governor(pub String);

/// A frequency in kilohertz, the unit of cpufreq and xenpm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Frequency {
    /// Kilohertz.
    pub khz: u32,
}

/// The error of a text that is not a [`Frequency`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Expected a frequency in kHz, MHz or GHz (\"1200MHz\"), found {0:?}")]
pub struct NoFrequency(String);

/// Units by name, in kilohertz.
const UNITS: [(&str, u32); 3] = [("GHz", 1_000_000), ("MHz", 1000), ("kHz", 1)];

impl FromStr for Frequency {
    type Err = NoFrequency;

    fn from_str(text: &str) -> Result<Self, NoFrequency> {
        let unit = |&(name, factor): &(&str, u32)| Some((text.strip_suffix(name)?, factor));
        let khz =
            UNITS.iter().find_map(unit).and_then(|(number, factor)| kilohertz(number.trim_end(), factor));
        khz.filter(|&khz| khz > 0).map(|khz| Self { khz }).ok_or_else(|| NoFrequency(text.to_owned()))
    }
}

/// A decimal number times `factor`; `None` if the product is not a whole number of kilohertz.
fn kilohertz(number: &str, factor: u32) -> Option<u32> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let part = part.parse::<u64>().ok()?.checked_mul(u64::from(factor))?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(u64::from(factor))?;
    (part % scale == 0).then(|| u32::try_from(whole.checked_add(part / scale)?).ok())?
}

impl TryFrom<String> for Frequency {
    type Error = NoFrequency;

    fn try_from(text: String) -> Result<Self, NoFrequency> {
        text.parse()
    }
}

impl From<Frequency> for String {
    fn from(frequency: Frequency) -> Self {
        frequency.to_string()
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, factor) =
            UNITS.into_iter().find(|(_, factor)| self.khz.is_multiple_of(*factor)).unwrap_or(("kHz", 1));
        write!(formatter, "{}{name}", self.khz / factor)
    }
}

impl JsonSchema for Frequency {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Frequency".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *[GMk]Hz$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frequencies_as_people_write_them() {
        let khz = |text: &str| text.parse::<Frequency>().map(|frequency| frequency.khz);
        assert_eq!(khz("1200MHz"), Ok(1_200_000));
        assert_eq!(khz("1.2GHz"), Ok(1_200_000));
        assert_eq!(khz("2.6 GHz"), Ok(2_600_000));
        assert_eq!(khz("800000kHz"), Ok(800_000));
        assert_eq!("1200MHz".parse::<Frequency>().unwrap().to_string(), "1200MHz");
        for wrong in ["1200", "0MHz", "MHz", "-1MHz", "1.MHz", ".5GHz", "0.5kHz", "99999GHz", "1e3MHz"] {
            let error = khz(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(khz in 1..=u32::MAX) {
            let frequency = Frequency { khz };
            prop_assert_eq!(frequency.to_string().parse::<Frequency>(), Ok(frequency));
        }

        #[test]
        fn any_text_is_a_frequency_or_an_error(text in "[0-9.]{0,25}[ GMkHz]{0,4}") {
            let _ = text.parse::<Frequency>();
        }
    }
}
