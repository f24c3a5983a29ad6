//! The recent activity of the host around one thread.

use std::collections::VecDeque;

use exits::Meanwhile;

/// A change of a thread's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The thread was switched out for the thread with this name, or none; `preempted` if it was still runnable.
    Out { next: Option<String>, preempted: bool },
    /// The thread was switched in.
    In,
    /// KVM returns to the VMM.
    User,
    /// An interrupt or softirq began on its CPU.
    Interrupt,
    /// The interrupt or softirq ended.
    InterruptEnd,
}

/// The most changes that are kept per thread: enough for a second with four interrupts per millisecond.
const MOST: usize = 8192;

/// The changes of one thread, in order of time.
#[derive(Debug, Default)]
pub(super) struct Past {
    steps: VecDeque<(u64, Step)>,
    /// Nothing is known about the time before this.
    known_from_ns: u64,
}

impl Past {
    /// The history of a thread that is watched from now on.
    pub(super) fn from(now_ns: u64) -> Self {
        Self { steps: VecDeque::new(), known_from_ns: now_ns }
    }

    /// Adds a change. Changes from different CPUs may arrive slightly out of order.
    pub(super) fn push(&mut self, time_ns: u64, step: Step) {
        let at = self.steps.iter().rposition(|(time, _)| *time <= time_ns).map_or(0, |at| at + 1);
        self.steps.insert(at, (time_ns, step));
        if self.steps.len() > MOST
            && let Some((time_ns, _)) = self.steps.pop_front()
        {
            self.known_from_ns = self.known_from_ns.max(time_ns + 1);
        }
    }

    /// Changes before this time may be missing.
    pub(super) fn forget_before(&mut self, time_ns: u64) {
        self.known_from_ns = self.known_from_ns.max(time_ns);
    }

    /// Tests whether the thread is switched out between two moments.
    pub(super) fn is_switched_out(&self, from_ns: u64, to_ns: u64) -> bool {
        let first = self.steps.partition_point(|(time, _)| *time < from_ns);
        let mut steps = self.steps.range(first..).take_while(|(time, _)| *time <= to_ns);
        steps.any(|(_, step)| matches!(step, Step::Out { .. }))
    }

    /// The time between two moments by the thread's state; at the first one the thread runs in the kernel. `None` if
    /// the history does not reach back so far.
    pub(super) fn between(&self, from_ns: u64, to_ns: u64) -> Option<Meanwhile> {
        if from_ns < self.known_from_ns || to_ns < from_ns {
            return None;
        }
        let mut told = Meanwhile::default();
        let mut state = State { since_ns: from_ns, ..State::default() };
        let first = self.steps.partition_point(|(time, _)| *time < from_ns);
        for (time, step) in self.steps.range(first..).take_while(|(time, _)| *time <= to_ns) {
            state.account(*time, &mut told);
            match step {
                Step::Out { next, preempted } => state.out = Some((next.as_deref(), *preempted)),
                Step::In => state.out = None,
                Step::User => state.user = true,
                Step::Interrupt => {
                    told.interrupts += u32::from(state.depth == 0);
                    state.depth += 1;
                }
                Step::InterruptEnd => state.depth = state.depth.saturating_sub(1),
            }
        }
        state.account(to_ns, &mut told);
        told.instead = state.longest.and_then(|(next, _)| next).map(str::to_owned);
        Some(told)
    }
}

#[derive(Default)]
struct State<'a> {
    since_ns: u64,
    out: Option<(Option<&'a str>, bool)>,
    user: bool,
    depth: u32,
    longest: Option<(Option<&'a str>, u64)>,
}

impl State<'_> {
    /// Adds the time since the last change to the state that ends now.
    fn account(&mut self, now_ns: u64, told: &mut Meanwhile) {
        let ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        match self.out {
            Some((next, preempted)) => {
                *(if preempted { &mut told.preempted_ns } else { &mut told.blocked_ns }) += ns;
                // If the thread sleeps, the one that runs instead is not the cause.
                if preempted && ns > self.longest.map_or(0, |(_, ns)| ns) {
                    self.longest = Some((next, ns));
                }
            }
            None if self.depth > 0 => told.interrupts_ns += ns,
            None if self.user => told.user_ns += ns,
            None => told.kernel_ns += ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn out(next: &str, preempted: bool) -> Step {
        Step::Out { next: Some(next.to_owned()), preempted }
    }

    fn past(steps: &[(u64, Step)]) -> Past {
        let mut past = Past::from(0);
        steps.iter().for_each(|(time, step)| past.push(*time, step.clone()));
        past
    }

    #[test]
    fn each_part_of_an_exit_belongs_to_one_cause() {
        let past = past(&[
            (50, Step::User),
            (110, Step::Interrupt),
            (115, Step::Interrupt),
            (118, Step::InterruptEnd),
            (120, Step::InterruptEnd),
            (130, out("kworker/0:1", true)),
            (160, Step::In),
            (170, Step::User),
            (175, out("stress", false)),
            (185, Step::In),
            (190, Step::Interrupt),
            (192, Step::InterruptEnd),
            (210, Step::User),
        ]);
        let expected = Meanwhile {
            preempted_ns: 30,
            blocked_ns: 10,
            interrupts_ns: 12,
            user_ns: 18,
            kernel_ns: 30,
            interrupts: 2,
            instead: Some("kworker/0:1".to_owned()),
        };
        assert_eq!(past.between(100, 200), Some(expected));
        assert_eq!(past.between(300, 310), Some(Meanwhile { kernel_ns: 10, ..Meanwhile::default() }));
    }

    #[test]
    fn the_longest_time_in_which_none_ran_has_no_name() {
        let held = Step::Out { next: None, preempted: true };
        let steps = [(110, out("short", true)), (120, Step::In), (130, held), (160, Step::In)];
        let told = past(&steps).between(100, 200).unwrap();
        assert_eq!((told.preempted_ns, told.instead), (40, None));
    }

    #[test]
    fn nothing_is_said_of_times_that_were_not_watched() {
        let mut late = Past::from(100);
        late.push(90, Step::In);
        assert_eq!(late.between(99, 150), None);
        assert!(late.between(100, 150).is_some());
        late.forget_before(120);
        assert_eq!((late.between(110, 150), late.between(130, 120)), (None, None));
        for time in 0..2 * MOST as u64 {
            late.push(200 + time, Step::In);
        }
        assert_eq!(late.steps.len(), MOST);
        assert_eq!(late.between(300, 400), None, "what was dropped is not known");
        assert!(late.between(200 + MOST as u64 + 1, 200 + 2 * MOST as u64).is_some());
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(|preempted| out("x", preempted)),
            Just(Step::In),
            Just(Step::User),
            Just(Step::Interrupt),
            Just(Step::InterruptEnd),
        ]
    }

    proptest! {
        #[test]
        fn the_parts_add_up_in_any_order_of_arrival(
            steps in prop::collection::vec((0..1000u64, any_step()), 0..60),
            from in 0..900u64,
            length in 0..200u64,
        ) {
            let told = past(&steps).between(from, from + length).unwrap();
            let sum = told.preempted_ns + told.blocked_ns + told.interrupts_ns + told.user_ns + told.kernel_ns;
            prop_assert_eq!(sum, length);
        }
    }
}
