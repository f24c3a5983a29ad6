//! Decoding on several threads, with the results taken in order.
//!
//! Every thread does all three steps: fetch the next chunk (one thread at a time), decode it (all at once),
//! hand the result on (one at a time, in the order of fetching). So the cores stay busy whichever step takes
//! longest, and a chunk is decoded and taken on the core whose cache holds it.

use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, PoisonError};
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
    let taker = Mutex::new((take, 0u64));
    let turned = Condvar::new();
    let work = || {
        let (mut chunk, mut result) = (F::Chunk::default(), R::default());
        loop {
            let turn = {
                let mut feed = feed.lock().unwrap_or_else(PoisonError::into_inner);
                if !feed.0.next(&mut chunk) {
                    return;
                }
                feed.1 += 1;
                feed.1 - 1
            };
            decode(&chunk, &mut result);
            let mut taker = taker.lock().unwrap_or_else(PoisonError::into_inner);
            while taker.1 != turn {
                taker = turned.wait(taker).unwrap_or_else(PoisonError::into_inner);
            }
            (taker.0)(&mut result);
            taker.1 += 1;
            drop(taker);
            turned.notify_all();
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
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
