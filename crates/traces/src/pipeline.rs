//! Decoding on several threads, with the results taken in order.
//!
//! Every thread does all three steps: fetch the next chunk (one thread at a time), decode it (all at once),
//! hand the result on (one at a time, in the order of fetching). So the cores stay busy whichever step takes
//! longest, and a chunk is decoded and taken on the core whose cache holds it.

use std::hint;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

/// More threads only wait for each other: the steps that one thread does at a time take about a third.
const MOST_THREADS: usize = 8;

/// Where chunks come from.
pub(crate) trait Feed: Send {
    /// A piece of the recording; its memory is used again and again.
    type Chunk: Default + Send;
    /// Fills the next chunk; `false` at the end.
    fn next(&mut self, chunk: &mut Self::Chunk) -> bool;
}

/// How often to look before going to sleep: some tens of microseconds. Waking up takes about as long, much longer
/// in a VM whose processor has gone idle meanwhile, and a chunk is decoded in little more.
const LOOKS: u32 = 20_000;

/// Runs until the feed ends. `decode` turns a chunk into a result (whose memory is used again, too);
/// `take` gets the results in the chunks' order.
pub(crate) fn run<F: Feed, R: Default + Send>(
    feed: &mut F,
    threads: Option<NonZeroUsize>,
    decode: impl Fn(&F::Chunk, &mut R) + Sync,
    take: impl FnMut(&mut R) + Send,
) {
    let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
    let threads = threads.map_or_else(available, NonZeroUsize::get);
    let feed = Mutex::new((feed, 0u64));
    let taker = Mutex::new(take);
    let turns = Turns::default();
    let work = || {
        let (mut chunk, mut result) = (F::Chunk::default(), R::default());
        loop {
            let turn = {
                let mut feed = lock(&feed);
                if !feed.0.next(&mut chunk) {
                    return;
                }
                feed.1 += 1;
                feed.1 - 1
            };
            decode(&chunk, &mut result);
            turns.wait_for(turn);
            lock(&taker)(&mut result);
            turns.end(turn);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// Locks, looking for a while before sleeping.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOOKS {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => hint::spin_loop(),
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whose turn it is to hand on a result.
#[derive(Default)]
struct Turns {
    now: AtomicU64,
    sleepers: Mutex<()>,
    turned: Condvar,
}

impl Turns {
    fn wait_for(&self, turn: u64) {
        for _ in 0..LOOKS {
            if self.now.load(Ordering::Acquire) == turn {
                return;
            }
            hint::spin_loop();
        }
        let mut guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        while self.now.load(Ordering::Acquire) != turn {
            guard = self.turned.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, turn: u64) {
        // Under the lock, so that nobody goes to sleep between having looked and being woken.
        let guard = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.now.store(turn + 1, Ordering::Release);
        drop(guard);
        self.turned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(u32);

    impl Feed for Numbers {
        type Chunk = u32;

        fn next(&mut self, chunk: &mut u32) -> bool {
            *chunk = self.0;
            self.0 += 1;
            self.0 <= 1000
        }
    }

    #[test]
    fn results_keep_the_order_on_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let mut taken = Vec::new();
            let decode = |chunk: &u32, result: &mut u32| {
                // Later chunks are quicker, so that they would overtake.
                (0..(1000 - chunk)).for_each(|n| *result = std::hint::black_box(n));
                *result = chunk * 2;
            };
            run(&mut Numbers(0), NonZeroUsize::new(threads), decode, |result: &mut u32| taken.push(*result));
            assert_eq!(taken, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        }
    }
}
