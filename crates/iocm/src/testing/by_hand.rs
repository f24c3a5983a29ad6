//! A queue that is served when the test says so, without a worker.

use super::driver::Driver;
use crate::queue::{Handler, Notifiers, Queue, QueueState, Submitter, WorkDone, completed};
use std::collections::VecDeque;
use std::sync::Arc;

/// A queue that is served when the test says so. No `io_uring` is needed for it.
#[derive(Debug)]
pub struct ByHand {
    /// The queue.
    pub queue: Queue,
}

impl ByHand {
    /// A queue that is enabled.
    ///
    /// # Panics
    /// When the driver's ring is not valid.
    #[must_use]
    pub fn new(driver: &Driver, handler: Box<dyn Handler>) -> Self {
        let ring = driver.ring().expect("a ring that fits");
        let mut queue = Queue::new(ring, Notifiers::default(), handler, Arc::<QueueState>::default());
        queue.set_enabled(true);
        Self { queue }
    }

    /// Serves the queue with this budget, executes its I/O until nothing is in flight, and publishes the used buffers.
    pub fn serve(&mut self, budget: u32) -> WorkDone {
        let mut made = VecDeque::new();
        let key = self.queue.key;
        let work = self.queue.serve(&mut Submitter::new(&mut made, key), budget);
        loop {
            while let Some((submission, user_data)) = made.pop_front() {
                // SAFETY: the queue keeps the memory until it is told of the completion.
                let result = unsafe { submission.execute() };
                self.queue.complete(completed(user_data).1, result);
            }
            // The next step may wait although none was submitted: a queue executes some itself.
            if !self.queue.has_waiting() {
                break;
            }
            self.queue.resume(&mut Submitter::new(&mut made, key), u32::MAX);
        }
        self.queue.publish();
        work
    }

    /// Tests whether the driver violated the ring's format.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.queue.virtqueue.broken().is_some()
    }
}
