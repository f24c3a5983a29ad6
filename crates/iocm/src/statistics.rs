//! The counters of queues and workers.

mod stopwatch;
mod times;

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

pub use stopwatch::Stopwatch;
pub use times::Times;

/// A counter that one thread adds to and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to it. Only the thread that owns the counter may do so: it then needs no locked instruction.
    #[inline]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it, under the condition of [`Self::add`].
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The buckets of a histogram of delays: one for each power of two nanoseconds.
pub const BUCKETS: usize = 40;

/// A histogram of times: bucket `n` has those from 2^n up to 2^(n+1) nanoseconds, bucket 0 also those below.
#[derive(Debug)]
pub struct Delays([Count; BUCKETS]);

impl Default for Delays {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl Delays {
    /// Counts `times` requests that each waited for `ns` nanoseconds.
    #[inline]
    pub fn add(&self, ns: u64, times: u64) {
        let bucket = (ns | 1).ilog2() as usize;
        self.0[bucket.min(BUCKETS - 1)].add(times);
    }

    /// The counts by bucket.
    #[must_use]
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|bucket| self.0[bucket].get())
    }
}

/// The moves of a queue from one worker to another, counted by the worker that has the queue.
#[derive(Debug, Default)]
pub struct Moves {
    /// The number of moves.
    pub count: Count,
    /// The time that no worker had it in the last move, nanoseconds.
    pub last_pause_ns: Count,
    /// The longest of these times, nanoseconds.
    pub longest_pause_ns: Count,
}

impl Moves {
    /// Counts a move that took this many nanoseconds.
    pub(crate) fn add(&self, pause_ns: u64) {
        self.count.add(1);
        self.last_pause_ns.set(pause_ns);
        self.longest_pause_ns.set(self.longest_pause_ns.get().max(pause_ns));
    }
}

macro_rules! counters {
    ($(#[$about:meta])* $live:ident, $read:ident { $($(#[doc = $doc:literal])* $name:ident: $kind:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $live { $($(#[doc = $doc])* pub $name: $kind,)* }

        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct $read { $($(#[doc = $doc])* pub $name: u64,)* }

        impl $live {
            /// Reads all counters.
            #[must_use]
            pub fn read(&self) -> $read {
                $read { $($name: self.$name.get(),)* }
            }
        }

        impl $read {
            /// The names of all counters, in order.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];
            /// The descriptions of the counters, in the same order.
            pub(crate) const ABOUT: &[&str] = &[$(concat!($($doc),*),)*];

            /// The counters with their names, in order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl std::ops::AddAssign for $read {
            fn add_assign(&mut self, more: Self) {
                $(self.$name = self.$name.wrapping_add(more.$name);)*
            }
        }
    };
}

counters! {
    /// The counters of a queue.
    QueueCounters, QueueFigures {
        /// Requests (packets) that were given back to the guest.
        requests: Count,
        /// Bytes of data in them.
        bytes: Count,
        /// Requests that were answered with an error, and stops whose data could not be written to the disk.
        errors: Count,
        /// Packets that were dropped because there was no room for them, because the queue that should take them was closed,
        /// or because they are larger than the MTU of its device.
        dropped: Count,
        /// Packets that were dropped because they are larger than the other side takes.
        too_large: Count,
        /// Kicks that came.
        kicks: Count,
        /// Times that the driver was asked to kick with its next request.
        kicks_asked: Count,
        /// Requests that were found without a kick for them.
        kicks_saved: Count,
        /// Calls that were made: interrupts of the guest.
        calls: Count,
        /// Times that requests were given back for which the guest wanted no call.
        calls_saved: Count,
        /// Times that the queue was polled and had something.
        polls_full: Count,
        /// Times that the queue was polled and had nothing.
        polls_empty: Count,
        /// Ticks of the TSC spent on its requests.
        useful_ticks: Count,
        /// Ticks of the TSC in which its driver was told not to kick: it was served, polled, or its worker napped.
        unkicked_ticks: Stopwatch,
        /// Those of them in which its worker napped, or slept until a limit allowed more.
        napped_ticks: Stopwatch,
        /// Ticks of the TSC in which it was left to its kicks.
        slept_ticks: Stopwatch,
        /// Nanoseconds in which requests waited while its worker served others.
        stuck_ns: Count,
        /// Requests that are with the host's kernel now.
        in_flight: Count,
    }
}

counters! {
    /// The counters of a worker.
    WorkerCounters, WorkerFigures {
        /// Times that it looked at its queues.
        sweeps: Count,
        /// Times that it slept until an event.
        sleeps: Count,
        /// Times that it slept for a set time between two sweeps.
        naps: Count,
        /// Ticks of the TSC spent on requests.
        useful_ticks: Count,
        /// Ticks of the TSC in which it was awake.
        awake_ticks: Stopwatch,
        /// Ticks of the TSC in which it slept for a set time.
        napped_ticks: Stopwatch,
        /// Ticks of the TSC in which it slept until an event.
        slept_ticks: Stopwatch,
        /// Queues that it serves.
        queues: Count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_their_names() {
        let live = QueueCounters::default();
        live.requests.add(3);
        live.in_flight.set(1);
        let read = live.read();
        assert_eq!(read.named()[0], ("requests", 3));
        assert_eq!(QueueFigures::NAMES.len(), read.named().len());
        assert_eq!(WorkerFigures::ABOUT[0], " Times that it looked at its queues.");
        assert_eq!((read.requests, read.in_flight), (3, 1));
    }

    #[test]
    fn delays_go_into_powers_of_two() {
        let delays = Delays::default();
        for (ns, times) in [(0, 1), (1, 1), (1023, 2), (1024, 3), (u64::MAX, 4)] {
            delays.add(ns, times);
        }
        let counts = delays.counts();
        assert_eq!((counts[0], counts[9], counts[10], counts[BUCKETS - 1]), (2, 2, 3, 4));
    }
}
