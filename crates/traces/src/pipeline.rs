//! Decodes on several threads and takes the results in order.
//!
//! Every thread does whatever can be done: take the next result in order (one thread at a time), or fetch a chunk
//! (one at a time) and decode it (all at once). Results are taken in bursts, because events are counted at the end of
//! a round. So some results may wait meanwhile, or the threads would wait for each other.

use std::collections::VecDeque;
use std::hint;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The most threads that are useful: the steps that only one thread can do at a time take about a third.
const MOST_THREADS: usize = 8;
/// The number of results that may wait, besides one per thread; each takes about 100 KiB.
const MOST_READY: usize = 6;

/// The source of chunks.
pub(crate) trait Feed: Send {
    /// A piece of the recording; its memory is reused.
    type Chunk: Default + Send;
    /// Fills the next chunk; `false` at the end.
    fn next(&mut self, chunk: &mut Self::Chunk) -> bool;
}

/// The number of polls before sleeping, about 100 microseconds. Waking up takes nearly as long in a VM whose CPU has
/// become idle, and decoding a chunk takes less.
const LOOKS: u32 = 4_000;

/// Runs until the feed ends. `decode` turns a chunk into a result (whose memory is reused too; they may be swapped);
/// `take` receives the results in the order of the chunks.
pub(crate) fn run<F: Feed, R: Default + Send>(
    feed: &mut F,
    threads: Option<NonZeroUsize>,
    decode: impl Fn(&mut F::Chunk, &mut R) + Sync,
    take: impl FnMut(&mut R) + Send,
) {
    let available = || thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS);
    let threads = threads.map_or_else(available, NonZeroUsize::get);
    // Never contended: the desk lets only one thread do either at a time.
    let (feed, take) = (Mutex::new(feed), Mutex::new(take));
    // A single thread takes what it has just decoded.
    let desk = Desk::new(if threads > 1 { threads + MOST_READY } else { 1 });
    let work = || {
        let _alarm = Alarm(&desk);
        let mut chunk = F::Chunk::default();
        let mut takes = false;
        loop {
            match desk.next(takes) {
                Task::Take(mut result) => {
                    takes = true;
                    lock(&take)(&mut result);
                    desk.taken(result);
                }
                Task::Fetch(number, mut result) => {
                    takes = false;
                    let fetched = lock(&feed).next(&mut chunk);
                    desk.fetched(fetched);
                    if fetched {
                        decode(&mut chunk, &mut result);
                        desk.decoded(number, result);
                    }
                }
                Task::Leave => return,
            }
        }
    };
    thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        // Joined, because the scope only waits until the closures have returned, not for the end of the threads.
        for helper in helpers {
            helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task for a thread.
enum Task<R> {
    /// Take this result.
    Take(R),
    /// Fetch the chunk with this number, and decode it into the memory of this result.
    Fetch(u64, R),
    /// Nothing is left that other threads do not do already.
    Leave,
}

/// The queue from which threads take their tasks.
struct Desk<R> {
    state: Mutex<State<R>>,
    most_results: usize,
    /// The number of changes of the state.
    changes: AtomicU64,
    changed: Condvar,
}

struct State<R> {
    /// The results that were not taken yet, in order; `None` for those that are being fetched or decoded.
    results: VecDeque<Option<R>>,
    /// The number of the first one.
    first: u64,
    /// Memory for results.
    spare: Vec<R>,
    fetching: bool,
    taking: bool,
    ended: bool,
    sleepers: usize,
}

impl<R: Default> Desk<R> {
    fn new(most_results: usize) -> Self {
        let state = State {
            results: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
            fetching: false,
            taking: false,
            ended: false,
            sleepers: 0,
        };
        Self { state: Mutex::new(state), most_results, changes: AtomicU64::new(0), changed: Condvar::new() }
    }

    /// Waits for the next task. A thread continues with the same kind of task if possible, because the data is in its
    /// core's cache. `takes` tells that it took a result.
    fn next(&self, takes: bool) -> Task<R> {
        let mut state = lock(&self.state);
        loop {
            let task = match takes {
                true => self.take(&mut state).or_else(|| self.fetch(&mut state)),
                false => self.fetch(&mut state).or_else(|| self.take(&mut state)),
            };
            if let Some(task) = task {
                return task;
            }
            if state.ended {
                return Task::Leave;
            }
            let seen = self.changes.load(Ordering::Acquire);
            drop(state);
            let unchanged = || self.changes.load(Ordering::Acquire) == seen;
            let mut looks = 0;
            while looks < LOOKS && unchanged() {
                hint::spin_loop();
                looks += 1;
            }
            state = lock(&self.state);
            // Changes are made under the lock, so none is missed between the test and the wait.
            while unchanged() {
                state.sleepers += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.sleepers -= 1;
            }
        }
    }

    fn take(&self, state: &mut State<R>) -> Option<Task<R>> {
        if state.taking {
            return None;
        }
        let result = state.results.front_mut().and_then(Option::take)?;
        state.results.pop_front();
        state.first += 1;
        state.taking = true;
        Some(Task::Take(result))
    }

    fn fetch(&self, state: &mut State<R>) -> Option<Task<R>> {
        if state.ended || state.fetching || state.results.len() >= self.most_results {
            return None;
        }
        state.fetching = true;
        let number = state.first + state.results.len() as u64;
        state.results.push_back(None);
        Some(Task::Fetch(number, state.spare.pop().unwrap_or_default()))
    }

    fn change(&self, change: impl FnOnce(&mut State<R>)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.changes.fetch_add(1, Ordering::Release);
        let sleepers = state.sleepers > 0;
        drop(state);
        if sleepers {
            self.changed.notify_all();
        }
    }

    fn taken(&self, result: R) {
        self.change(|state| {
            state.taking = false;
            state.spare.push(result);
        });
    }

    /// Called after a chunk was fetched, or the end was reached.
    fn fetched(&self, there: bool) {
        self.change(|state| {
            state.fetching = false;
            if !there {
                state.results.pop_back();
                state.ended = true;
            }
        });
    }

    fn decoded(&self, number: u64, result: R) {
        self.change(|state| {
            let at = (number - state.first) as usize;
            if let Some(place) = state.results.get_mut(at) {
                *place = Some(result);
            }
        });
    }
}

/// Ends the work of all threads if one panics, because the others would wait for its result.
struct Alarm<'d, R: Default>(&'d Desk<R>);

impl<R: Default> Drop for Alarm<'_, R> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.change(|state| state.ended = true);
        }
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
            let decode = |chunk: &mut u32, result: &mut u32| {
                // Later chunks take less time, so they would overtake earlier ones.
                (0..(1000 - *chunk)).for_each(|n| *result = std::hint::black_box(n));
                *result = *chunk * 2;
            };
            run(&mut Numbers(0), NonZeroUsize::new(threads), decode, |result: &mut u32| taken.push(*result));
            assert_eq!(taken, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn little_is_decoded_ahead_of_what_is_taken() {
        let ahead = AtomicU64::new(0);
        let decode = |_: &mut u32, _: &mut u32| {
            ahead.fetch_add(1, Ordering::Relaxed);
        };
        let mut most = 0;
        run(&mut Numbers(0), NonZeroUsize::new(3), decode, |_: &mut u32| {
            thread::sleep(std::time::Duration::from_micros(50));
            most = most.max(ahead.fetch_sub(1, Ordering::Relaxed));
        });
        assert!(most > 1 && most <= 4 + MOST_READY as u64, "{most}");
    }

    #[test]
    #[should_panic(expected = "number 500")]
    fn a_panic_ends_the_work() {
        let decode = |chunk: &mut u32, _: &mut u32| assert!(*chunk != 500, "number 500");
        run(&mut Numbers(0), NonZeroUsize::new(1), decode, |_: &mut u32| {});
    }

    #[test]
    fn a_panic_on_another_thread_ends_the_work() {
        let run = || {
            let decode = |chunk: &mut u32, _: &mut u32| assert!(*chunk != 500, "number 500");
            run(&mut Numbers(0), NonZeroUsize::new(3), decode, |_: &mut u32| {});
        };
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
