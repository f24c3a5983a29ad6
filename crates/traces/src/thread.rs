//! A thread of the recording, with the events that wait to be put in order.

use std::collections::VecDeque;

use exits::Vcpu;

use crate::event::Event;
use crate::pairing::Pairing;

/// Runs of events are kept as they are; shorter ones than this are appended to the previous row, so that thousands of
/// threads do not have thousands of tiny rows.
const FEW: usize = 32;
/// Longer rows are not appended to, because memory is only freed when all events of a row were processed.
const LONG: usize = 4096;

/// Events in the order of the recording.
#[derive(Debug, Default)]
struct Row {
    events: Vec<Event>,
    /// The number of events that were processed.
    done: usize,
    /// True if they are in order of time.
    ordered: bool,
}

impl Row {
    fn waiting(&self) -> &[Event] {
        &self.events[self.done..]
    }

    /// The times of the first and the last event.
    fn ends(&self) -> (u64, u64) {
        let times = || self.waiting().iter().map(|event| event.time_ns);
        match (self.waiting().first(), self.waiting().last()) {
            (Some(first), Some(last)) if self.ordered => (first.time_ns, last.time_ns),
            _ => (times().min().unwrap_or(0), times().max().unwrap_or(0)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) vcpu: Vcpu,
    pub(crate) pairing: Pairing,
    waiting: VecDeque<Row>,
    /// True if `waiting` is in order of time, which it is unless the thread moved to another CPU.
    ordered: bool,
    newest_waiting_ns: u64,
    /// The time of the newest event that was processed.
    handed_on_ns: u64,
}

impl Thread {
    pub(crate) fn new(vcpu: Vcpu) -> Self {
        Self {
            vcpu,
            pairing: Pairing::default(),
            waiting: VecDeque::new(),
            ordered: true,
            newest_waiting_ns: 0,
            handed_on_ns: 0,
        }
    }

    /// The row for all threads beyond the limit: without a VM, and without times.
    pub(crate) fn of_others() -> Self {
        let mut others = Self::new(Vcpu::default());
        others.pairing.is_mixed = true;
        others
    }

    /// Adds an event; `true` if it is the only one that waits. Memory comes from `spare`.
    pub(crate) fn push(&mut self, event: &Event, spare: &mut Vec<Vec<Event>>) -> bool {
        self.ordered &= event.time_ns >= self.newest_waiting_ns;
        self.newest_waiting_ns = self.newest_waiting_ns.max(event.time_ns);
        let first = self.waiting.is_empty();
        match self.waiting.back_mut().filter(|row| row.events.len() < LONG) {
            Some(row) => {
                row.ordered &= self.ordered;
                row.events.push(*event);
            }
            None => {
                let mut events = spare.pop().unwrap_or_default();
                events.push(*event);
                self.waiting.push_back(Row { events, done: 0, ordered: true });
            }
        }
        first
    }

    /// Adds a run of events and replaces `events` by other memory; `true` if no others were waiting. `ordered` tells
    /// whether they are in order of time.
    pub(crate) fn append(
        &mut self,
        events: &mut Vec<Event>,
        ordered: bool,
        spare: &mut Vec<Vec<Event>>,
    ) -> bool {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return false };
        let in_order = ordered && first.time_ns >= self.newest_waiting_ns;
        self.ordered &= in_order;
        let newest = if ordered { last.time_ns } else { newest(events) };
        self.newest_waiting_ns = self.newest_waiting_ns.max(newest);
        if let Some(row) = self.waiting.back_mut().filter(|row| events.len() < FEW && row.events.len() < LONG)
        {
            row.ordered &= in_order;
            row.events.append(events);
            return false;
        }
        let events = std::mem::replace(events, spare.pop().unwrap_or_default());
        self.waiting.push_back(Row { events, done: 0, ordered });
        self.waiting.len() == 1
    }

    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The time of the oldest waiting event.
    pub(crate) fn oldest_waiting_ns(&self) -> Option<u64> {
        self.waiting.iter().map(|row| row.ends().0).min()
    }

    /// Processes all events up to and including `up_to_ns`, in order; events with the same time stay in the
    /// recording's order. Returns their number, and how many of them came too late to be in order.
    pub(crate) fn hand_on(
        &mut self,
        up_to_ns: u64,
        spare: &mut Vec<Vec<Event>>,
        mut take: impl FnMut(&mut Pairing, &mut Vcpu, &Event),
    ) -> (usize, u64) {
        if !self.ordered {
            self.put_in_order(spare);
        }
        let (mut count, mut late) = (0, 0);
        while let Some(row) = self.waiting.front_mut() {
            let waiting = row.waiting();
            let mut done = 0;
            for event in waiting {
                if event.time_ns > up_to_ns {
                    break;
                }
                late += u64::from(event.time_ns < self.handed_on_ns);
                self.handed_on_ns = self.handed_on_ns.max(event.time_ns);
                take(&mut self.pairing, &mut self.vcpu, event);
                done += 1;
            }
            count += done;
            if done < waiting.len() {
                row.done += done;
                break;
            }
            row.events.clear();
            spare.extend(self.waiting.pop_front().map(|row| row.events));
        }
        (count, late)
    }

    /// Sorts rows by their start, and merges those that overlap: a thread that moved between CPUs has a few rows,
    /// most of which do not overlap.
    #[cold]
    fn put_in_order(&mut self, spare: &mut Vec<Vec<Event>>) {
        let mut rows: Vec<_> = self.waiting.drain(..).map(|row| (row.ends(), row)).collect();
        rows.sort_by_key(|((first_ns, _), _)| *first_ns);
        let mut end_ns = None;
        for ((first_ns, last_ns), row) in rows {
            match self.waiting.back_mut().filter(|_| end_ns.is_some_and(|end_ns| first_ns <= end_ns)) {
                Some(before) => {
                    // Otherwise a row that is merged again and again would keep all processed events.
                    before.events.drain(..std::mem::take(&mut before.done));
                    before.events.extend_from_slice(row.waiting());
                    before.ordered = false;
                    let mut events = row.events;
                    events.clear();
                    spare.push(events);
                }
                None => self.waiting.push_back(row),
            }
            end_ns = end_ns.max(Some(last_ns));
        }
        for row in self.waiting.iter_mut().filter(|row| !row.ordered) {
            // The sort is stable, and fast for concatenated sorted runs.
            row.events[row.done..].sort_by_key(|event| event.time_ns);
            row.ordered = true;
        }
        self.ordered = true;
    }
}

fn newest(events: &[Event]) -> u64 {
    events.iter().map(|event| event.time_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Kind;

    #[test]
    fn memory_stays_in_bounds_though_something_always_waits() {
        let mut thread = Thread::new(Vcpu::default());
        let mut spare = Vec::new();
        let mut taken = 0;
        for time_ns in 10..100 * LONG as u64 {
            let event = Event { time_ns, value: 0, extra: 0, thread: 1, cpu: 0, kind: Kind::Entry };
            thread.push(&event, &mut spare);
            taken += thread.hand_on(time_ns - 10, &mut spare, |_, _, _| {}).0;
            assert!(thread.waits());
        }
        let kept: usize = thread.waiting.iter().map(|row| row.events.len()).sum();
        assert!(kept <= 2 * LONG && spare.len() <= 2, "{kept} in {}", spare.len());
        assert_eq!(taken, 100 * LONG - 20);
    }
}
