//! Setting CPU frequencies: in cpufreq's files, or with `xenpm` on Xen, where the hypervisor controls them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use host::CpuSet;
use host::inspection::{XenFrequency, xen_frequencies};

use super::{ApplyError, FrequencyLevel};

/// The time limit of a call of xenpm.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGEST_ANSWER: usize = 4 << 20;

/// One change; a level's changes are applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A value written to a file.
    File { path: String, value: String },
    /// A command, and the command that undoes it.
    Program { run: Vec<String>, undo: Vec<String> },
}

/// The limits of a CPU, frequencies in kilohertz.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Limits {
    governor: Option<String>,
    minimum: u32,
    maximum: u32,
}

/// A limit of a CPU that is not the level's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) what: String,
    pub(super) asked: String,
    pub(super) found: String,
}

/// The changes that a level needs.
pub(super) fn steps(root: &Path, level: &FrequencyLevel) -> Result<Vec<Step>, ApplyError> {
    let limits = limits(root).map_err(frequency)?;
    let chosen = chosen(level, limits.keys().copied()).map_err(frequency)?;
    let of_host = if on_xen(root) { xen_steps } else { linux_steps };
    Ok(chosen.iter().flat_map(|cpu| of_host(*cpu, &limits[cpu], level)).collect())
}

/// Checks on Xen that governor and frequency limits are in force: `xenpm` returns 0 even if Xen refuses them. cpufreq's
/// files need no check: each is read back when it is written.
pub(super) fn check(root: &Path, level: &FrequencyLevel) -> Result<(), ApplyError> {
    if !on_xen(root) {
        return Ok(());
    }
    match differing(root, level).map_err(frequency)? {
        Some(Differing { what, asked, found }) => Err(ApplyError::NotTaken { what, asked, found }),
        None => Ok(()),
    }
}

/// The first governor or frequency limit that is not the level's, if any; an error is the reason why they cannot be
/// read.
pub(super) fn differing(root: &Path, level: &FrequencyLevel) -> Result<Option<Differing>, String> {
    let limits = limits(root)?;
    let chosen = chosen(level, limits.keys().copied())?;
    Ok(chosen.iter().find_map(|cpu| compare(*cpu, &limits[cpu], level)))
}

fn compare(cpu: u32, now: &Limits, level: &FrequencyLevel) -> Option<Differing> {
    let governor = now.governor.as_deref().unwrap_or("not shown");
    let differing =
        |what: &str, asked, found| Differing { what: format!("The {what} of CPU {cpu}"), asked, found };
    // Xen ignores the case.
    if let Some(asked) = level.governor.as_ref().filter(|asked| !asked.0.eq_ignore_ascii_case(governor)) {
        return Some(differing("governor", asked.0.clone(), governor.to_owned()));
    }
    let limits =
        [("lowest frequency", level.minimum, now.minimum), ("highest frequency", level.maximum, now.maximum)];
    limits.into_iter().find_map(|(what, asked, found)| {
        let asked = asked.filter(|asked| asked.khz != found)?;
        Some(differing(what, asked.to_string(), format!("{found}kHz")))
    })
}

/// The limits of all CPUs.
fn limits(root: &Path) -> Result<BTreeMap<u32, Limits>, String> {
    if on_xen(root) {
        return xen_limits();
    }
    let limits = linux_limits(root);
    if limits.is_empty() {
        return Err(
            "there is no /sys/devices/system/cpu/cpu*/cpufreq: firmware or an underlying hypervisor sets it; leave the \
             factor out here"
                .to_owned(),
        );
    }
    Ok(limits)
}

fn frequency(why: String) -> ApplyError {
    ApplyError::Frequency { why }
}

fn on_xen(root: &Path) -> bool {
    fs::read_to_string(root.join("sys/hypervisor/type")).is_ok_and(|text| text.trim() == "xen")
}

/// The CPUs that the level names, all of which must be among `there`.
fn chosen(level: &FrequencyLevel, there: impl Iterator<Item = u32>) -> Result<Vec<u32>, String> {
    let there: Vec<u32> = there.collect();
    let Some(named) = &level.cpus else { return Ok(there) };
    let set = CpuSet::parse(named).ok_or_else(|| format!("{named:?} is not a list of CPUs such as 0-3"))?;
    match set.iter().find(|cpu| !there.contains(cpu)) {
        Some(cpu) => Err(format!("CPU {cpu} of {named:?} does not exist, or has no cpufreq")),
        None => Ok(set.iter().collect()),
    }
}

/// Orders the changes of both limits so that the minimum never exceeds the maximum, which the kernel would refuse.
fn ordered<T>(
    before: &Limits,
    level: &FrequencyLevel,
    minimum: impl Fn(u32) -> T,
    maximum: impl Fn(u32) -> T,
) -> Vec<T> {
    let low = level.minimum.map(|frequency| frequency.khz).filter(|&khz| khz != before.minimum);
    let high = level.maximum.map(|frequency| frequency.khz).filter(|&khz| khz != before.maximum);
    let (low_step, high_step) = (low.map(minimum), high.map(maximum));
    if high.is_some_and(|high| high < before.minimum) {
        low_step.into_iter().chain(high_step).collect()
    } else {
        high_step.into_iter().chain(low_step).collect()
    }
}

fn linux_limits(root: &Path) -> BTreeMap<u32, Limits> {
    let home = root.join("sys/devices/system/cpu");
    let names = fs::read_dir(&home).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let limits = |name: std::ffi::OsString| {
        let cpu = name.to_str()?.strip_prefix("cpu")?.parse().ok()?;
        let read = |file: &str| fs::read_to_string(home.join(&name).join("cpufreq").join(file)).ok();
        let khz = |file: &str| read(file)?.trim().parse().ok();
        let governor = read("scaling_governor").map(|text| text.trim().to_owned());
        Some((cpu, Limits { governor, minimum: khz("scaling_min_freq")?, maximum: khz("scaling_max_freq")? }))
    };
    names.filter_map(limits).collect()
}

fn linux_steps(cpu: u32, before: &Limits, level: &FrequencyLevel) -> Vec<Step> {
    let file = |name: &str, value: String| Step::File {
        path: format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"),
        value,
    };
    let governor = level.governor.iter().filter(|wanted| before.governor.as_ref() != Some(&wanted.0));
    let mut steps: Vec<Step> = governor.map(|wanted| file("scaling_governor", wanted.0.clone())).collect();
    let minimum = |khz: u32| file("scaling_min_freq", khz.to_string());
    steps.extend(ordered(before, level, minimum, |khz| file("scaling_max_freq", khz.to_string())));
    steps
}

fn xen_steps(cpu: u32, before: &Limits, level: &FrequencyLevel) -> Vec<Step> {
    let xenpm = |what: &str, value: &str| {
        ["xenpm", &format!("set-scaling-{what}"), &cpu.to_string(), value].map(str::to_owned).to_vec()
    };
    let mut steps = Vec::new();
    if let (Some(wanted), Some(old)) = (&level.governor, &before.governor)
        && wanted.0 != *old
    {
        steps.push(Step::Program { run: xenpm("governor", &wanted.0), undo: xenpm("governor", old) });
    }
    let step = |what: &str, khz: u32, old: u32| Step::Program {
        run: xenpm(what, &khz.to_string()),
        undo: xenpm(what, &old.to_string()),
    };
    let minimum = |khz| step("minfreq", khz, before.minimum);
    steps.extend(ordered(before, level, minimum, |khz| step("maxfreq", khz, before.maximum)));
    steps
}

fn xen_limits() -> Result<BTreeMap<u32, Limits>, String> {
    let mut xenpm = Command::new("xenpm");
    xenpm
        .arg("get-cpufreq-para")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/lib/xen-common/bin")
        .env("LC_ALL", "C");
    let answer = programs::answer(&mut xenpm, PATIENCE, LARGEST_ANSWER)
        .map_err(|error| format!("cannot run xenpm, which comes with Xen's tools: {error}"))?;
    let limits = parse_xenpm(&String::from_utf8_lossy(&answer.stdout));
    if limits.is_empty() {
        let said = String::from_utf8_lossy(&answer.stderr);
        let said = said.lines().next().unwrap_or("nothing").to_owned();
        return Err(format!("`xenpm get-cpufreq-para` shows no CPU with limits (it said: {said})"));
    }
    Ok(limits)
}

/// The limits in the output of `xenpm get-cpufreq-para`: with a driver that controls frequencies itself there are none.
fn parse_xenpm(text: &str) -> BTreeMap<u32, Limits> {
    let limited = |one: XenFrequency| {
        let (minimum, maximum) = one.limits_khz?;
        Some((one.cpu, Limits { governor: one.governor, minimum, maximum }))
    };
    xen_frequencies(text).into_iter().filter_map(limited).collect()
}

#[cfg(test)]
#[path = "cpufreq_tests.rs"]
mod tests;
