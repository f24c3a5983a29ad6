//! Xen's frequency drivers and governors.

/// A processor's frequency driver and governor, as `xenpm get-cpufreq-para` shows them (`tools/misc/xenpm.c`,
/// `print_cpufreq_para`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XenFrequency {
    /// The processor.
    pub cpu: u32,
    /// The driver: `acpi-cpufreq`, `hwp`.
    pub driver: String,
    /// The governor: `performance`, `ondemand`. `None` if the driver decides itself (`hwp`).
    pub governor: Option<String>,
    /// The lowest and the highest frequency that are allowed, in kilohertz. `None` if the driver decides itself.
    pub limits_khz: Option<(u32, u32)>,
}

/// The processors of `xenpm get-cpufreq-para`; empty if Xen sets no frequencies.
#[must_use]
pub fn xen_frequencies(text: &str) -> Vec<XenFrequency> {
    let mut found: Vec<XenFrequency> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match (name.trim(), found.last_mut()) {
            ("cpu id", _) => {
                if let Ok(cpu) = value.parse() {
                    found.push(XenFrequency { cpu, driver: String::new(), governor: None, limits_khz: None });
                }
            }
            ("scaling_driver", Some(last)) => value.clone_into(&mut last.driver),
            ("current_governor", Some(last)) => last.governor = Some(value.to_owned()),
            ("scaling frequency", Some(last)) => {
                last.limits_khz = bracketed(value, "min").zip(bracketed(value, "max"));
            }
            _ => {}
        }
    }
    found
}

/// The number in the brackets after a name: `max [2701000] min [1200000] cur [2701000]`.
fn bracketed(value: &str, name: &str) -> Option<u32> {
    let (_, rest) = value.split_once(&format!("{name} ["))?;
    rest.split(']').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The lines are those of RELEASE-4.20.0, tools/misc/xenpm.c, print_cpufreq_para.
    #[test]
    fn governors_and_drivers_without_one() {
        let text = "cpu id               : 0\naffected_cpus        : 0\n\
            cpuinfo frequency    : max [2100000] min [800000] cur [2100000]\nscaling_driver       : acpi-cpufreq\n\
            scaling_avail_gov    : userspace performance powersave ondemand\ncurrent_governor     : ondemand\n\
            \x20 ondemand specific  :\n    sampling_rate    : max [10000000] min [10000] cur [20000]\n\
            scaling frequency    : max [2100000] min [1200000] cur [2100000]\n\
            turbo mode           : enabled\n\ncpu id               : 1\nscaling_driver       : hwp\n\
            cppc variables       :\n";
        let expected = [
            XenFrequency {
                cpu: 0,
                driver: "acpi-cpufreq".to_owned(),
                governor: Some("ondemand".to_owned()),
                limits_khz: Some((1_200_000, 2_100_000)),
            },
            XenFrequency { cpu: 1, driver: "hwp".to_owned(), governor: None, limits_khz: None },
        ];
        assert_eq!(xen_frequencies(text), expected);
        // Standard error of Xen 4.20 in the lab, where no frequencies can be set.
        assert!(xen_frequencies("[CPU0] failed to get cpufreq parameter\n").is_empty());
    }
}
