//! A queue that is served when the test says so, without a worker.

use super::driver::Driver;
use crate::queue::{Handler, Notifiers, Queue, QueueState, Served, Submitter};
use std::sync::Arc;

/// A queue that is served when the test says so. The host has no `io_uring` for it.
#[derive(Debug)]
pub struct ByHand {
    /// The queue.
    pub queue: Queue,
}

impl ByHand {
    /// A queue that is enabled.
    ///
    /// # Panics
    /// When the driver's ring is none.
    #[must_use]
    pub fn new(driver: &Driver, handler: Box<dyn Handler>) -> Self {
        let ring = driver.ring().expect("a ring that fits");
        let mut queue = Queue::new(ring, Notifiers::default(), handler, Arc::<QueueState>::default());
        queue.set_enabled(true);
        Self { queue }
    }

    /// Serves at most so many requests, and lets the driver see what came back.
    pub fn serve(&mut self, budget: u32) -> Served {
        let (mut pending, mut in_flight) = (0, 0);
        let mut submitter = Submitter::new(None, self.queue.key, &mut pending, &mut in_flight);
        let served = self.queue.serve(&mut submitter, budget);
        self.queue.lane.publish();
        served
    }

    /// Whether its ring broke the rules.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.queue.broken().is_some()
    }
}
