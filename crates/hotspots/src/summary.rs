//! Sums of samples: by exit reason, by part, by symbol.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use exits::ExitReason;
use serde::Serialize;
use stats::{Estimate, poisson};

use crate::{Activity, Frame, FrameNumber, Measured, Part, Recording, Space, Stack};

/// The part of a recording to sum up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// Only these VMs; all if empty.
    pub vms: BTreeSet<u32>,
    /// Only these reasons; all if empty.
    pub reasons: BTreeSet<ExitReason>,
}

impl Selection {
    fn takes_vm(&self, vm: Option<u32>) -> bool {
        self.vms.is_empty() || vm.is_some_and(|vm| self.vms.contains(&vm))
    }

    fn takes_reason(&self, reason: ExitReason) -> bool {
        self.reasons.is_empty() || self.reasons.contains(&reason.basic())
    }

    /// Tests whether a stack is selected.
    #[must_use]
    pub fn takes(&self, stack: &Stack) -> bool {
        let reason = match stack.activity {
            Activity::Exit(reason) => self.takes_reason(reason),
            Activity::Guest | Activity::Monitor => self.reasons.is_empty(),
        };
        reason && self.takes_vm(stack.vm)
    }
}

/// The samples of a function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SymbolRow {
    /// The function.
    #[serde(flatten)]
    pub frame: Arc<Frame>,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in the function or in functions that it called.
    pub total: u64,
    /// The share of its own samples among those of the whole table, from 0 to 1.
    pub share: Estimate,
}

/// A place in the code where threads were off the CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moment {
    /// The frames that identify the place, innermost first, without those of the scheduler.
    #[serde(rename = "functions")]
    pub frames: Vec<Arc<Frame>>,
    /// The number of times, and the total time.
    #[serde(flatten)]
    pub away: crate::Away,
}

/// The exits of one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReasonRow {
    /// The exit reason.
    pub reason: ExitReason,
    /// The number of exits; 0 if the recording has only samples.
    pub exits: u64,
    /// The total handling time, nanoseconds.
    pub handling_ns: u64,
    /// The part of it off the CPU.
    pub away: crate::Away,
    /// The part of it on the CPU, nanoseconds.
    pub on_cpu_ns: u64,
    /// Samples taken while exits were handled.
    pub samples: u64,
    /// The time on the CPU as estimated from the samples, nanoseconds.
    pub sampled_ns: Estimate,
    /// Samples by the part of exit handling.
    pub parts: BTreeMap<Part, u64>,
    /// Functions, by their own samples, the most first.
    pub by_own: Vec<SymbolRow>,
    /// Functions, by their total samples, the most first.
    pub by_total: Vec<SymbolRow>,
    /// Places where threads were off the CPU, the longest time first.
    pub moments: Vec<Moment>,
}

impl ReasonRow {
    /// The share of a part among the samples, from 0 to 1. `None` without samples.
    #[must_use]
    pub fn share_of(&self, part: Part) -> Option<Estimate> {
        stats::share(self.parts.get(&part).copied().unwrap_or(0), self.samples)
    }
}

/// A summary of a recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The selected part.
    pub selection: Selection,
    /// By reason, the longest time on the CPU first.
    pub reasons: Vec<ReasonRow>,
    /// Samples within exits.
    pub in_exits: u64,
    /// Samples in guests.
    pub in_guests: u64,
    /// Samples in other threads of device models.
    pub in_monitors: u64,
    /// Samples whose stack was deeper than the recorder's limit.
    pub cut: u64,
    /// Functions of the kernel while exits were handled, by their own samples.
    pub kernel: Vec<SymbolRow>,
    /// Functions of device models, while exits were handled and otherwise.
    pub monitors: Vec<SymbolRow>,
    /// Functions of guests at their exits.
    pub guests: Vec<SymbolRow>,
}

impl Summary {
    /// Sums up the selected part of a recording.
    #[must_use]
    pub fn of(recording: &Recording, selection: &Selection) -> Self {
        let stacks = || recording.stacks.iter().filter(|stack| selection.takes(stack));
        let samples_of = |wanted: &dyn Fn(&Stack) -> bool| {
            stacks().filter(|stack| wanted(stack)).fold(0u64, |sum, stack| sum.saturating_add(stack.samples))
        };
        let in_exit = |stack: &Stack| matches!(stack.activity, Activity::Exit(_));
        let rows = |wanted: &dyn Fn(&Stack) -> bool, space: Space| {
            let own = stacks().filter(|stack| wanted(stack));
            let mut rows = symbols(recording, own, |frame| frame.space == space);
            sort_by_own(&mut rows);
            rows
        };
        Self {
            selection: selection.clone(),
            reasons: reasons(recording, selection),
            in_exits: samples_of(&in_exit),
            in_guests: samples_of(&|stack| stack.activity == Activity::Guest),
            in_monitors: samples_of(&|stack| stack.activity == Activity::Monitor),
            cut: samples_of(&|stack| stack.cut),
            kernel: rows(&in_exit, Space::Kernel),
            monitors: rows(&|_| true, Space::User),
            guests: rows(&in_exit, Space::Guest),
        }
    }

    /// Handling time on the CPU for all reasons, nanoseconds.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.reasons.iter().fold(0, |sum, row| sum.saturating_add(row.on_cpu_ns))
    }
}

fn reasons(recording: &Recording, selection: &Selection) -> Vec<ReasonRow> {
    let mut measured: BTreeMap<ExitReason, Measured> = BTreeMap::new();
    for (&(vm, reason), &one) in &recording.measured {
        if selection.takes_vm(vm) && selection.takes_reason(reason) {
            measured.entry(reason).or_default().add(one);
        }
    }
    let mut stacks: BTreeMap<ExitReason, Vec<&Stack>> = BTreeMap::new();
    for stack in recording.stacks.iter().filter(|stack| selection.takes(stack)) {
        if let Activity::Exit(reason) = stack.activity {
            measured.entry(reason).or_default();
            stacks.entry(reason).or_default().push(stack);
        }
    }
    let rows = measured.into_iter().map(|(reason, measured)| {
        row(recording, reason, &measured, stacks.get(&reason).map_or(&[][..], Vec::as_slice))
    });
    let mut rows: Vec<ReasonRow> = rows.collect();
    rows.sort_by_key(|row| (Reverse(row.on_cpu_ns), Reverse(row.samples), row.reason));
    rows
}

fn row(recording: &Recording, reason: ExitReason, measured: &Measured, stacks: &[&Stack]) -> ReasonRow {
    let samples = stacks.iter().fold(0u64, |sum, stack| sum.saturating_add(stack.samples));
    let mut parts: BTreeMap<Part, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.samples > 0) {
        let part = parts.entry(recording.part(stack)).or_default();
        *part = part.saturating_add(stack.samples);
    }
    let mut by_own = symbols(recording, stacks.iter().copied(), |_| true);
    let mut by_total = by_own.clone();
    sort_by_own(&mut by_own);
    by_total.sort_by(|a, b| (Reverse(a.total), &a.frame).cmp(&(Reverse(b.total), &b.frame)));
    ReasonRow {
        reason,
        exits: measured.exits,
        handling_ns: measured.handling_ns,
        away: measured.away,
        on_cpu_ns: measured.on_cpu_ns(),
        samples,
        sampled_ns: poisson::count(samples).times(recording.ns_a_sample()),
        parts,
        by_own,
        by_total,
        moments: moments(recording, stacks),
    }
}

fn sort_by_own(rows: &mut Vec<SymbolRow>) {
    rows.retain(|row| row.own > 0);
    rows.sort_by(|a, b| {
        (Reverse(a.own), Reverse(a.total), &a.frame).cmp(&(Reverse(b.own), Reverse(b.total), &b.frame))
    });
}

/// The functions of some stacks that `wanted` accepts. Shares are relative to the samples whose innermost frame is
/// accepted.
fn symbols<'s>(
    recording: &Recording,
    stacks: impl Iterator<Item = &'s Stack>,
    wanted: impl Fn(&Frame) -> bool,
) -> Vec<SymbolRow> {
    let mut sums: HashMap<FrameNumber, (u64, u64)> = HashMap::new();
    let mut all = 0u64;
    for stack in stacks.filter(|stack| stack.samples > 0) {
        let frames: Vec<FrameNumber> = stack
            .frames
            .iter()
            .copied()
            .filter(|&number| recording.frame(number).is_some_and(|frame| wanted(frame)))
            .collect();
        // A recursive function counts once per stack.
        for number in frames.iter().copied().collect::<BTreeSet<_>>() {
            let total = &mut sums.entry(number).or_default().1;
            *total = total.saturating_add(stack.samples);
        }
        let innermost = stack.frames.first().filter(|first| frames.first() == Some(first));
        if let Some(first) = innermost {
            let own = &mut sums.entry(*first).or_default().0;
            *own = own.saturating_add(stack.samples);
            all = all.saturating_add(stack.samples);
        }
    }
    let none = Estimate::ZERO;
    let rows = sums.into_iter().filter_map(|(number, (own, total))| {
        let frame = recording.frame(number)?.clone();
        Some(SymbolRow { frame, own, total, share: stats::share(own, all).unwrap_or(none) })
    });
    rows.collect()
}

/// The number of frames that identify the place where a thread was off the CPU.
const TELLING: usize = 3;

fn moments(recording: &Recording, stacks: &[&Stack]) -> Vec<Moment> {
    let mut moments: HashMap<Vec<FrameNumber>, crate::Away> = HashMap::new();
    for stack in stacks.iter().filter(|stack| stack.away.times > 0) {
        moments.entry(telling(recording, stack)).or_default().add(stack.away);
    }
    let frames = |numbers: &[FrameNumber]| {
        numbers.iter().filter_map(|&number| recording.frame(number).cloned()).collect()
    };
    let mut moments: Vec<Moment> =
        moments.into_iter().map(|(numbers, away)| Moment { frames: frames(&numbers), away }).collect();
    moments.sort_by(|a, b| (Reverse(a.away.away_ns), &a.frames).cmp(&(Reverse(b.away.away_ns), &b.frames)));
    moments
}

/// Functions of the scheduler (`kernel/sched/core.c` of Linux), which are in every stack of a thread that is off the
/// CPU.
const SCHEDULER: [&str; 8] = [
    "schedule",
    "__schedule",
    "preempt_schedule",
    "preempt_schedule_common",
    "preempt_schedule_irq",
    "__cond_resched",
    "schedule_timeout",
    "schedule_hrtimeout_range_clock",
];

fn telling(recording: &Recording, stack: &Stack) -> Vec<FrameNumber> {
    let in_scheduler = |number: &FrameNumber| {
        let symbol = recording.frame(*number).and_then(|frame| frame.symbol.as_deref());
        // The BPF program that takes the stack, and its callers, are in it too.
        symbol.is_some_and(|name| {
            SCHEDULER.contains(&name)
                || ["bpf_", "__bpf_", "trace_call_bpf", "perf_trace_", "__traceiter_"]
                    .iter()
                    .any(|start| name.starts_with(start))
        })
    };
    stack.frames.iter().copied().skip_while(in_scheduler).take(TELLING).collect()
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
