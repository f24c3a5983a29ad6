//! The frequencies of the processors, from cpufreq.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Better, Combine, Metric, Unit};

/// The files with the current frequency, by CPU.
#[derive(Debug)]
pub(super) struct FrequencyFiles(Vec<(u32, PathBuf)>);

impl FrequencyFiles {
    /// Finds the files of the host below `root`; `Err` is the reason why there are none.
    pub(super) fn find(root: &Path) -> Result<Self, String> {
        let home = root.join("sys/devices/system/cpu");
        let names = fs::read_dir(&home).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let file = |name: std::ffi::OsString| {
            let number = name.to_str()?.strip_prefix("cpu")?.parse().ok()?;
            let file = home.join(&name).join("cpufreq/scaling_cur_freq");
            file.exists().then_some((number, file))
        };
        let mut files: Vec<(u32, PathBuf)> = names.filter_map(file).collect();
        files.sort_unstable();
        let why = || {
            format!(
                "{} has no cpufreq: the frequency is set by firmware, or by an underlying hypervisor",
                home.display()
            )
        };
        if files.is_empty() { Err(why()) } else { Ok(Self(files)) }
    }

    /// The current frequencies in kilohertz by CPU, except for offline CPUs.
    pub(super) fn read(&self) -> BTreeMap<u32, u64> {
        let read =
            |(cpu, file): &(u32, PathBuf)| Some((*cpu, fs::read_to_string(file).ok()?.trim().parse().ok()?));
        self.0.iter().filter_map(read).collect()
    }
}

/// Frequencies over the run.
#[derive(Debug, Default)]
pub(super) struct Frequencies {
    readings: u64,
    sum_khz: f64,
    range: Option<(u64, u64)>,
}

impl Frequencies {
    pub(super) fn add(&mut self, reading: &BTreeMap<u32, u64>) {
        for &khz in reading.values() {
            self.readings += 1;
            self.sum_khz += khz as f64;
            let (low, high) = self.range.unwrap_or((khz, khz));
            self.range = Some((low.min(khz), high.max(khz)));
        }
    }

    /// The mean, the lowest and the highest frequency over all CPUs and readings, in hertz.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let Some((low, high)) = self.range else { return Vec::new() };
        let metric = |name: &str, khz: f64| Metric {
            name: format!("cpu.frequency{name}"),
            unit: Unit::Hertz,
            better: Better::Neither,
            combine: Combine::Single,
            value: khz * 1000.0,
        };
        let mean = self.sum_khz / self.readings as f64;
        vec![metric("", mean), metric(".lowest", low as f64), metric(".highest", high as f64)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_of_cpus_that_are_there() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, khz) in [("cpu0", "1200000\n"), ("cpu10", "2700000\n"), ("cpufreq", "9\n")] {
            let home = root.path().join("sys/devices/system/cpu").join(cpu).join("cpufreq");
            fs::create_dir_all(&home).unwrap();
            fs::write(home.join("scaling_cur_freq"), khz).unwrap();
        }
        let files = FrequencyFiles::find(root.path()).unwrap();
        let reading = files.read();
        assert_eq!(reading, BTreeMap::from([(0, 1_200_000), (10, 2_700_000)]));
        let mut frequencies = Frequencies::default();
        assert_eq!(frequencies.metrics(), []);
        frequencies.add(&reading);
        let values: Vec<f64> = frequencies.metrics().iter().map(|metric| metric.value).collect();
        assert_eq!(values, [1.95e9, 1.2e9, 2.7e9]);
    }

    #[test]
    fn a_host_without_says_why() {
        let root = tempfile::tempdir().unwrap();
        assert!(FrequencyFiles::find(root.path()).unwrap_err().contains("has no cpufreq"));
    }
}
