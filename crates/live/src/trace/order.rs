//! Sorts the events of many buffers by time.

/// Holds items until no earlier ones can arrive.
#[derive(Debug)]
pub(crate) struct Order<T> {
    held: Vec<(u64, T)>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self { held: Vec::new() }
    }
}

impl<T> Order<T> {
    /// Adds an item with the time `time_ns`.
    pub(crate) fn push(&mut self, time_ns: u64, thing: T) {
        self.held.push((time_ns, thing));
    }

    /// Removes the items up to `until_ns`, in order of time; items with the same time in the order of arrival.
    pub(crate) fn release(&mut self, until_ns: u64) -> Vec<T> {
        self.held.sort_by_key(|(time_ns, _)| *time_ns);
        let ready = self.held.partition_point(|(time_ns, _)| *time_ns <= until_ns);
        self.held.drain(..ready).map(|(_, thing)| thing).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_time_is_put_in_order() {
        let mut order = Order::default();
        for (time, name) in [(30, 'c'), (10, 'a'), (40, 'd'), (30, 'C')] {
            order.push(time, name);
        }
        assert_eq!(order.release(20), ['a']);
        order.push(25, 'b');
        assert_eq!(order.release(30), ['b', 'c', 'C']);
        // Too late for the right order, but not lost.
        order.push(5, 'x');
        assert_eq!(order.release(u64::MAX), ['x', 'd']);
        assert!(order.release(u64::MAX).is_empty());
    }
}
