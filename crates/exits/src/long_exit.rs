//! Exits that took at least a given time.

use serde::Serialize;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::{Access, ExitReason, Vcpu};

/// An exit that took long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LongExit {
    /// The number of the recording that it is from.
    pub recording: usize,
    /// The time of the exit, in nanoseconds of the source's clock.
    pub time_ns: u64,
    /// The vCPU.
    pub vcpu: Vcpu,
    /// The CPU on which it occurred.
    pub cpu: u16,
    /// The reason.
    pub reason: ExitReason,
    /// The ports, addresses and registers that the host handled for it, in order.
    pub accesses: Vec<Access>,
    /// The guest's instruction pointer, if the source has it.
    pub guest_rip: Option<u64>,
    /// The time to the next entry, in nanoseconds.
    pub handling_ns: u64,
    /// The host's activity meanwhile, if it was watched during the whole exit.
    pub meanwhile: Option<Meanwhile>,
}

/// The handling time of an exit by the state of the vCPU's thread. The five times add up to the whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Meanwhile {
    /// Preempted: the thread was runnable, but another one ran on its CPU, or none (a CPU quota).
    pub preempted_ns: u64,
    /// The thread waited or slept.
    pub blocked_ns: u64,
    /// The CPU handled interrupts and softirqs.
    pub interrupts_ns: u64,
    /// The thread was in the VMM, or on the way between KVM and it.
    pub user_ns: u64,
    /// The thread was in the kernel otherwise: KVM's own handling.
    pub kernel_ns: u64,
    /// The number of interrupts.
    pub interrupts: u32,
    /// The name of the thread that ran longest in its place; `None` if the CPU was idle for longer than each of them ran.
    pub instead: Option<String>,
}

impl ExitReason {
    /// Tests whether the guest was idle, so that the time to the next entry is sleep and not work of the host.
    ///
    /// MWAIT does not count: KVM emulates it as a NOP and enters the guest again (`kvm_emulate_monitor_mwait` in
    /// `arch/x86/kvm/x86.c`), and Xen injects #UD.
    ///
    /// A vCPU of a guest with SEV-ES or SEV-SNP that waits to be started does not count: its reason is that of all calls,
    /// `vmgexit`, because KVM reads the code of the call after `kvm_exit` (`sev_handle_vmgexit` in
    /// `arch/x86/kvm/svm/sev.c`). When idle it halts as others do.
    ///
    /// Codes: Intel SDM volume 3, appendix C; AMD64 APM volume 2, appendix C.
    #[must_use]
    pub fn is_sleep(self) -> bool {
        match self.isa {
            crate::Isa::Vmx => self.basic().code == 12 && !self.failed_entry(),
            crate::Isa::Svm => matches!(self.code, 0x78 | 0xa6),
        }
    }
}

/// The definition of a long exit.
#[derive(Debug, Clone, Copy, Default)]
pub struct LongOptions {
    /// The minimum handling time in nanoseconds.
    pub bound_ns: u64,
    /// Include exits in which the guest slept.
    pub sleep: bool,
}

impl LongOptions {
    /// The handling time of an exit, if it counts as long. If it is excluded only because the guest slept, `slept` is
    /// incremented.
    pub fn long_ns(self, reason: ExitReason, handling_ns: Option<u64>, slept: &mut u64) -> Option<u64> {
        let ns = handling_ns.filter(|&ns| ns >= self.bound_ns)?;
        if !self.sleep && reason.is_sleep() {
            *slept += 1;
            return None;
        }
        Some(ns)
    }
}

/// The longest exits of a source. All exits beyond the bound are counted, but only a limited number is kept.
#[derive(Debug, Clone)]
pub struct LongExits {
    options: LongOptions,
    most: usize,
    kept: BinaryHeap<Reverse<Longest>>,
    /// Exits beyond the bound, including those that were not kept.
    pub beyond: u64,
    /// Excluded exits in which the guest slept.
    pub slept: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Longest(LongExit);

impl Ord for Longest {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |one: &Self| (one.0.handling_ns, Reverse(one.0.time_ns));
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Longest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl LongExits {
    /// Collects exits that count by `options`, and keeps the `most` longest.
    #[must_use]
    pub const fn new(options: LongOptions, most: usize) -> Self {
        Self { options, most, kept: BinaryHeap::new(), beyond: 0, slept: 0 }
    }

    /// Counts an exit, and tests whether it is worth building a [`LongExit`] for [`Self::keep`].
    pub fn takes(&mut self, reason: ExitReason, handling_ns: Option<u64>) -> bool {
        let Some(ns) = self.options.long_ns(reason, handling_ns, &mut self.slept) else { return false };
        self.beyond += 1;
        self.kept.len() < self.most || self.kept.peek().is_some_and(|Reverse(least)| least.0.handling_ns < ns)
    }

    /// Keeps an exit for which [`Self::takes`] returned true.
    pub fn keep(&mut self, exit: LongExit) {
        self.kept.push(Reverse(Longest(exit)));
        if self.kept.len() > self.most {
            self.kept.pop();
        }
    }

    /// The exits that were kept, the longest first.
    #[must_use]
    pub fn longest(&self) -> Vec<LongExit> {
        let mut all: Vec<Longest> = self.kept.iter().map(|Reverse(one)| one.clone()).collect();
        all.sort_by(|one, other| other.cmp(one));
        all.into_iter().map(|one| one.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exit(time_ns: u64, handling_ns: u64) -> LongExit {
        LongExit {
            recording: 0,
            time_ns,
            vcpu: Vcpu::default(),
            cpu: 0,
            reason: ExitReason::svm(0x7c),
            accesses: Vec::new(),
            guest_rip: None,
            handling_ns,
            meanwhile: None,
        }
    }

    #[test]
    fn sleep_is_left_out_and_counted() {
        let mut exits = LongExits::new(LongOptions { bound_ns: 50, sleep: false }, 10);
        assert!(!exits.takes(ExitReason::svm(0x78), Some(90)) && !exits.takes(ExitReason::vmx(12), Some(90)));
        assert!(!exits.takes(ExitReason::svm(0x7c), Some(49)) && !exits.takes(ExitReason::svm(0x7c), None));
        assert!(exits.takes(ExitReason::svm(0x7c), Some(50)));
        assert_eq!((exits.beyond, exits.slept), (1, 2));
        assert!(
            LongExits::new(LongOptions { bound_ns: 50, sleep: true }, 10)
                .takes(ExitReason::svm(0x78), Some(90))
        );
    }

    #[test]
    fn these_are_all_reasons_in_which_a_guest_sleeps() {
        let known: Vec<ExitReason> = ExitReason::known().filter(|reason| reason.is_sleep()).collect();
        let (vmx, svm) = (ExitReason::vmx, ExitReason::svm);
        assert_eq!(known, [vmx(12), svm(0x78), svm(0xa6)]);
        // With another flag of VMX, and with the one of a failed entry.
        assert!(vmx(0x0400_000c).is_sleep() && !vmx(0x8000_000c).is_sleep());
    }

    proptest! {
        #[test]
        fn the_longest_are_kept_and_all_are_counted(times in prop::collection::vec(0..200u64, 0..100), most in 1..20usize) {
            let mut exits = LongExits::new(LongOptions { bound_ns: 100, sleep: false }, most);
            for (at, &ns) in times.iter().enumerate() {
                if exits.takes(ExitReason::svm(0x7c), Some(ns)) {
                    exits.keep(exit(at as u64, ns));
                }
            }
            let mut expected: Vec<u64> = times.iter().copied().filter(|&ns| ns >= 100).collect();
            prop_assert_eq!(exits.beyond, expected.len() as u64);
            expected.sort_unstable_by(|one, other| other.cmp(one));
            expected.truncate(most);
            let kept: Vec<u64> = exits.longest().iter().map(|one| one.handling_ns).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
