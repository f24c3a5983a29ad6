//! The figures of a run, from its readings.

use std::time::Duration;

use super::frequency::Frequencies;
use super::guest_threads::ThreadsSpent;
use super::interrupt::InterruptCounts;
use super::processor::Spent;
use super::reading::Reading;
use crate::{Better, Combine, Metric, Unit};

/// Nanoseconds of a clock tick of /proc: `USER_HZ` is 100 on x86 (include/asm-generic/param.h).
const TICK_NS: f64 = 1e7;

/// The sums over the readings of one run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    spent: Spent,
    struck: InterruptCounts,
    threads: ThreadsSpent,
    frequencies: Frequencies,
    cpus: usize,
}

/// The CPU time of sampling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    /// Of the sampling threads and of xentrace.
    pub(super) threads: Duration,
    /// Of the programs in the kernel; `None` if unknown.
    pub(super) programs: Option<Duration>,
}

impl Figures {
    /// Adds the interval between two readings.
    pub(super) fn add(&mut self, before: &Reading, after: &Reading) {
        if let (Some(earlier), Some(later)) = (&before.processors, &after.processors) {
            self.spent.add(earlier, later);
            self.cpus = self.cpus.max(later.each.len());
        }
        if let (Some(earlier), Some(later)) = (&before.interrupts, &after.interrupts) {
            self.struck.add(earlier, later);
        }
        let elapsed_ns = after.time_ns.saturating_sub(before.time_ns);
        self.threads.add(&before.threads, &after.threads, elapsed_ns);
        self.frequencies.add(&after.frequency);
    }

    /// Warnings about data that was left out.
    pub(super) fn warnings(&self) -> Vec<String> {
        [self.spent.warnings(), self.struck.warnings(), self.threads.warnings()].concat()
    }

    /// The figures over `elapsed_ns`; none if that is zero.
    pub(super) fn metrics(&self, elapsed_ns: u64, cost: Cost) -> Vec<Metric> {
        if elapsed_ns == 0 {
            return Vec::new();
        }
        let seconds = elapsed_ns as f64 / 1e9;
        let rate =
            |name: String, count: u64| figure(name, Unit::PerSecond, Better::Neither, count as f64 / seconds);
        let mut metrics = self.spent.metrics("cpu.", Combine::Single);
        if !metrics.is_empty() {
            metrics.push(rate("cpu.context-switches".to_owned(), self.spent.context_switches()));
        }
        let all_ns = elapsed_ns as f64 * self.cpus() as f64;
        metrics.extend(self.of_threads(all_ns));
        let struck = &self.struck.sources;
        if !struck.is_empty() {
            metrics.push(rate("interrupts.total".to_owned(), struck.values().sum()));
            metrics.push(rate("interrupts.devices".to_owned(), self.struck.of_devices()));
            let own = struck
                .iter()
                .filter(|(label, count)| **count > 0 && !label.starts_with(|c: char| c.is_ascii_digit()));
            metrics.extend(own.map(|(label, &count)| rate(format!("interrupts.{label}"), count)));
        }
        metrics.extend(self.frequencies.metrics());
        let share = |name: &str, time: Duration| {
            let value = time.as_nanos() as f64 * 100.0 / all_ns;
            figure(name.to_owned(), Unit::Percent, Better::Lower, value)
        };
        let sampling = share("sampling.cpu", cost.threads + cost.programs.unwrap_or_default());
        let busy = metrics.iter().find(|metric| metric.name == "cpu.busy").cloned();
        metrics.extend(busy.map(|busy| {
            let value = (busy.value - sampling.value).max(0.0);
            Metric { name: "cpu.without-sampling".to_owned(), value, ..busy }
        }));
        metrics.push(sampling);
        metrics.extend(cost.programs.map(|programs| share("sampling.programs", programs)));
        metrics
    }

    /// Run times in percent of all CPUs, and for vCPUs the shares of their lifetime in which they ran, were in the
    /// guest, and waited for a CPU.
    fn of_threads(&self, all_ns: f64) -> Vec<Metric> {
        let mut metrics = Vec::new();
        let share =
            |name: String, ns: f64, of: f64| figure(name, Unit::Percent, Better::Neither, ns * 100.0 / of);
        for kind in ["vcpu", "iothread", "vhost", "emulator"] {
            let Some(times) = self.threads.sum(kind) else { continue };
            metrics.push(share(format!("{kind}.cpu"), times.run_ns as f64, all_ns));
            let own_ns = self.threads.vcpu_time_ns as f64;
            if kind == "vcpu" && own_ns > 0.0 {
                metrics.push(share("vcpu.running".to_owned(), times.run_ns as f64, own_ns));
                metrics.push(share("vcpu.in-guest".to_owned(), times.guest as f64 * TICK_NS, own_ns));
                let wait = share("vcpu.run-queue-wait".to_owned(), times.wait_ns as f64, own_ns);
                metrics.push(Metric { better: Better::Lower, ..wait });
            }
        }
        metrics
    }

    fn cpus(&self) -> usize {
        match self.cpus {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            cpus => cpus,
        }
    }
}

fn figure(name: String, unit: Unit, better: Better, value: f64) -> Metric {
    Metric { name, unit, better, combine: Combine::Single, value }
}
