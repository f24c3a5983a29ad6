//! Calls of the assembly that are stored and executed later, so that one thread can find out which vCPU ran where
//! while another one counts exits.

use exits::Vcpu;

use crate::Sink;
use crate::assembly::Assembly;
use crate::event::Event;

/// Consecutive events of the same vCPU and CPU.
#[derive(Debug, Default)]
struct Row {
    key: u32,
    events: Vec<Event>,
    ordered: bool,
    newest_ns: u64,
}

#[derive(Debug)]
enum Order {
    /// Append the next row.
    Row,
    Round,
    Introduce {
        key: u32,
        vcpu: Vcpu,
    },
    Lost {
        cpu: u16,
        count: u64,
    },
    LostSpan {
        from_ns: u64,
        to_ns: u64,
    },
}

/// Calls in the order in which they were made. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Orders {
    orders: Vec<Order>,
    rows: Vec<Row>,
    /// The number of rows in use; events are added to the last one while it is `open`.
    used: usize,
    open: bool,
    events: usize,
}

impl Orders {
    /// Removes all calls.
    pub(super) fn clear(&mut self) {
        self.rows[..self.used].iter_mut().for_each(|row| row.events.clear());
        self.orders.clear();
        (self.used, self.open, self.events) = (0, false, 0);
    }

    /// The number of events, without those in the open row.
    pub(super) fn events(&self) -> usize {
        self.events
    }

    /// Adds an event of the current CPU.
    #[inline(always)]
    pub(super) fn push(&mut self, event: Event) {
        let at = self.used.wrapping_sub(1);
        let row = match self.rows.get_mut(at) {
            Some(row) if self.open && row.key == event.thread => row,
            _ => self.begin(event.thread),
        };
        row.ordered &= event.time_ns >= row.newest_ns;
        row.newest_ns = row.newest_ns.max(event.time_ns);
        row.events.push(event);
    }

    #[inline(never)]
    fn begin(&mut self, key: u32) -> &mut Row {
        self.end_row();
        if self.used == self.rows.len() {
            self.rows.push(Row::default());
        }
        self.orders.push(Order::Row);
        self.used += 1;
        self.open = true;
        let row = &mut self.rows[self.used - 1];
        (row.key, row.ordered, row.newest_ns) = (key, true, 0);
        row
    }

    /// Ends the row, because events of another CPU follow.
    pub(super) fn end_row(&mut self) {
        if std::mem::take(&mut self.open) {
            self.events += self.rows[self.used - 1].events.len();
        }
    }

    fn order(&mut self, order: Order) {
        self.end_row();
        self.orders.push(order);
    }

    /// See [`Assembly::round`].
    pub(super) fn round(&mut self) {
        self.order(Order::Round);
    }

    /// See [`Assembly::introduce`].
    pub(super) fn introduce(&mut self, key: u32, vcpu: Vcpu) {
        self.order(Order::Introduce { key, vcpu });
    }

    /// See [`Assembly::lost`].
    pub(super) fn lost(&mut self, cpu: u16, count: u64) {
        self.order(Order::Lost { cpu, count });
    }

    /// See [`Assembly::lost_span`].
    pub(super) fn lost_span(&mut self, from_ns: u64, to_ns: u64) {
        self.order(Order::LostSpan { from_ns, to_ns });
    }

    /// Executes the calls.
    pub(super) fn carry_out<S: Sink>(&mut self, assembly: &mut Assembly<'_, S>) {
        let mut rows = self.rows[..self.used].iter_mut();
        for order in &self.orders {
            match *order {
                Order::Row => {
                    let Some(row) = rows.next() else { continue };
                    let last = row.events.last().map(|last| (last.cpu, last.time_ns));
                    assembly.append(row.key, &mut row.events, row.ordered, row.newest_ns);
                    last.into_iter().for_each(|(cpu, last_ns)| assembly.last_of_cpu(cpu, last_ns));
                }
                Order::Round => assembly.round(),
                Order::Introduce { key, vcpu } => assembly.introduce(key, vcpu),
                Order::Lost { cpu, count } => assembly.lost(cpu, count),
                Order::LostSpan { from_ns, to_ns } => assembly.lost_span(from_ns, to_ns),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::event::Kind;

    fn event(thread: u32, time_ns: u64) -> Event {
        let kind = if time_ns.is_multiple_of(2) { Kind::Exit } else { Kind::Entry };
        Event { time_ns, value: 0, extra: 0, thread, cpu: 1, kind }
    }

    #[test]
    fn orders_are_carried_out_as_if_at_once() {
        let mut orders = Orders::default();
        // The second time, the memory of the first is reused.
        for _ in 0..2 {
            orders.clear();
            for (thread, time_ns) in [(1, 10), (1, 13), (2, 14), (1, 20)] {
                orders.push(event(thread, time_ns));
            }
            assert_eq!(orders.events(), 3);
            // Between the exit before and the entry after it.
            orders.lost(1, 5);
            orders.push(event(1, 27));
            orders.push(event(2, 29));
            orders.round();
            assert_eq!(orders.events(), 6);
            let mut times = Vec::new();
            let mut sink = |exit: &crate::ExitRecord| times.push((exit.time_ns, exit.handling_ns));
            let mut assembly = Assembly::new(Options::default(), &mut sink);
            orders.carry_out(&mut assembly);
            let profile = assembly.finish(&mut Vec::new());
            times.sort_unstable();
            assert_eq!(times, [(10, Some(3)), (14, None), (20, None)]);
            assert_eq!((profile.losses.lost_events, profile.losses.pairs_across_loss), (5, 2));
        }
    }
}
