//! The CPU time of processors by state: `/proc/stat`.

use exits::counted;
use host::scheduling::cpu_ticks;
use std::collections::BTreeMap;

use crate::{Better, Combine, Metric, Unit};

/// The columns of a `cpu` line in order (proc_stat(5); fs/proc/stat.c, `show_stat`).
pub(super) const STATES: [&str; 10] =
    ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"];
const USER: usize = 0;
const NICE: usize = 1;
const IDLE: usize = 3;
const IOWAIT: usize = 4;
const STEAL: usize = 7;
const GUEST: usize = 8;
const GUEST_NICE: usize = 9;

/// Time by state since boot, in clock ticks, indexed as [`STATES`]. The kernel counts `guest` in `user` too,
/// and `guest_nice` in `nice` (kernel/sched/cputime.c, `account_guest_time`). Columns that an older kernel
/// lacks are 0.
pub(super) type Ticks = [u64; STATES.len()];

/// One reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Processors {
    /// The sum over all CPUs, including offline ones.
    pub(super) all: Ticks,
    /// The online CPUs, by number.
    pub(super) each: BTreeMap<u32, Ticks>,
    /// Context switches since boot.
    pub(super) context_switches: Option<u64>,
}

/// The error of a text that is not `/proc/stat`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Could not read {place}: expected a line `cpu` with at least 4 numbers, found {found:?}")]
pub struct NoProcessorTimes {
    place: &'static str,
    found: String,
}

impl Processors {
    /// Parses a text from `place`. Skips damaged lines, except for the line of the sum, which is required.
    pub(super) fn parse(text: &str, place: &'static str) -> Result<Self, NoProcessorTimes> {
        let (mut all, mut read) = (None, Self::default());
        for line in text.lines() {
            let (name, values) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            match name.strip_prefix("cpu") {
                Some("") => all = all.or_else(|| cpu_ticks(values)),
                Some(number) => {
                    let number =
                        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok());
                    if let (Some(Some(number)), Some(ticks)) = (number, cpu_ticks(values)) {
                        read.each.insert(number, ticks);
                    }
                }
                None if name == "ctxt" => read.context_switches = values.trim().parse().ok(),
                None => {}
            }
        }
        let found = || text.lines().next().unwrap_or_default().chars().take(80).collect();
        read.all = all.ok_or_else(|| NoProcessorTimes { place, found: found() })?;
        Ok(read)
    }
}

/// The CPU time by state between readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Spent {
    ticks: Ticks,
    /// States whose counter decreased, and the number of times: those intervals are left out.
    pub(super) went_back: BTreeMap<&'static str, u64>,
    /// CPUs that went offline between two readings.
    pub(super) went_offline: BTreeMap<u32, u64>,
    context_switches: u64,
}

impl Spent {
    /// Adds the time between two readings, for CPUs that were online in both: the counters of an offline CPU stop or
    /// jump.
    pub(super) fn add(&mut self, before: &Processors, after: &Processors) {
        for (number, earlier) in &before.each {
            match after.each.get(number) {
                Some(later) => self.add_ticks(earlier, later),
                None => *self.went_offline.entry(*number).or_default() += 1,
            }
        }
        if before.each.is_empty() || after.each.is_empty() {
            self.add_ticks(&before.all, &after.all);
        }
        let switches = before.context_switches.zip(after.context_switches);
        self.context_switches += switches.map_or(0, |(before, after)| after.saturating_sub(before));
    }

    fn add_ticks(&mut self, before: &Ticks, after: &Ticks) {
        let mut grown = Ticks::default();
        for (at, state) in STATES.into_iter().enumerate() {
            match after[at].checked_sub(before[at]) {
                Some(more) => grown[at] = more,
                // idle and iowait of a tickless CPU are computed when they are read, and can go backwards
                // (kernel/time/tick-sched.c, `get_cpu_iowait_time_us`).
                None => *self.went_back.entry(state).or_default() += 1,
            }
        }
        self.ticks.iter_mut().zip(grown).for_each(|(sum, more)| *sum += more);
    }

    /// Ticks by state with each tick counted once: `guest` is not in `user` too.
    fn alone(&self) -> Ticks {
        let mut alone = self.ticks;
        // Subtract the totals, not each interval: a reading may fall between the updates of the two counters, which the
        // next reading makes up for.
        alone[USER] = alone[USER].saturating_sub(alone[GUEST]);
        alone[NICE] = alone[NICE].saturating_sub(alone[GUEST_NICE]);
        alone
    }

    /// Shares of the time of all CPUs, in percent; empty if no time passed. `prefix` is `cpu.` or `guest.`.
    ///
    /// `busy` is all except idle, iowait and steal: this machine's own work, including its guests.
    pub(super) fn metrics(&self, prefix: &str, combine: Combine) -> Vec<Metric> {
        let ticks = self.alone();
        let total: u64 = ticks.iter().sum();
        if total == 0 {
            return Vec::new();
        }
        let share = |name: &str, ticks: u64| Metric {
            name: format!("{prefix}{name}"),
            unit: Unit::Percent,
            better: Better::Neither,
            combine,
            value: ticks as f64 * 100.0 / total as f64,
        };
        let of = |at: usize| ticks[at];
        let guest = of(GUEST) + of(GUEST_NICE);
        let mut metrics =
            vec![share("busy", total - of(IDLE) - of(IOWAIT) - of(STEAL)), share("guest", guest)];
        let alone = (0..STATES.len()).filter(|&at| at != GUEST && at != GUEST_NICE);
        metrics.extend(alone.map(|at| share(STATES[at], of(at))));
        metrics
    }

    /// The number of context switches.
    pub(super) fn context_switches(&self) -> u64 {
        self.context_switches
    }

    /// Warnings about intervals that were left out.
    pub(super) fn warnings(&self) -> Vec<String> {
        let back = self.went_back.iter().map(|(state, times)| {
            let times = counted(*times, "time");
            format!("The CPU time counter {state} went backwards {times}; such intervals count as 0")
        });
        let offline = self
            .went_offline
            .keys()
            .map(|number| format!("CPU {number} went offline during the run; its time then is not counted"));
        back.chain(offline).collect()
    }
}

/// CPU time inside a guest between two texts of its `/proc/stat`, in percent of all its CPUs: `guest.busy`,
/// `guest.user`, `guest.steal` and the others, like those of the host in [`HostSamples`](super::HostSamples).
///
/// # Errors
/// [`NoProcessorTimes`] if a text is something else.
pub fn guest_processor_time(before: &str, after: &str) -> Result<Vec<Metric>, NoProcessorTimes> {
    let place = "/proc/stat of a guest";
    let mut spent = Spent::default();
    spent.add(&Processors::parse(before, place)?, &Processors::parse(after, place)?);
    Ok(spent.metrics("guest.", Combine::Mean))
}

#[cfg(test)]
#[path = "processor_tests.rs"]
mod tests;
