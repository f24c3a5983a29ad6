//! A queue's turn.

use super::entry::Entry;
use super::signals::Signals;
use super::uring::Uring;
use crate::clock::ticks;
use crate::statistics::WorkerCounters;

/// A queue that had nothing in so many sweeps, and for so many nanoseconds, while others had is left to its kicks: to look
/// at it has cost about what its next kick costs. Sweeps alone would say so after a few microseconds where little is to do,
/// which is shorter than a driver takes for its next burst.
const IDLE_POLLS: u32 = 64;
const IDLE_NS: u64 = 200_000;

/// Gives a queue its turn; `always` says that it stays to be looked at. How many requests it had.
#[inline]
pub(super) fn serve(
    entry: &mut Entry,
    uring: &mut Uring,
    signals: &mut Signals,
    counters: &WorkerCounters,
    now: u64,
    always: bool,
) -> u64 {
    let began = ticks();
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let work = entry.queue.serve(&mut uring.submitter(key), budget);
    // Most turns find nothing, and are to be short.
    match work.requests {
        0 => entry.queue.virtqueue.publish(),
        _ => entry.queue.publish(),
    }
    entry.queue.wake(|file| signals.add(file));
    let state = entry.queue.state();
    let figures = &state.counters;
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, work.more || entry.waiting);
    entry.throttled_until = work.throttled_ns.map_or(0, |ns| now + ns);
    let kicked = std::mem::take(&mut entry.kicked);
    let found = u64::from(work.requests);
    if found == 0 {
        figures.polls_empty.add(1);
        entry.empty_polls += 1;
        let is_throttled = work.throttled_ns.is_some();
        if entry.polling_now {
            let is_idle = entry.empty_polls >= IDLE_POLLS && now.saturating_sub(entry.last_found) >= IDLE_NS;
            if is_idle && !is_throttled {
                entry.stop_polling(always);
            }
        } else if is_throttled || entry.queue.enable_wakeups() {
            // Whoever woke it for nothing will not wake it again, unless it is asked to.
            entry.start_polling();
        }
    } else {
        figures.polls_full.add(1);
        figures.kicks_saved.add(found - u64::from(kicked));
        state.delays.add(now - entry.last_polled.min(now), found);
        let useful = ticks().wrapping_sub(began);
        figures.useful_ticks.add(useful);
        counters.useful_ticks.add(useful);
        if let Some(since) = entry.starved_since.take() {
            figures.stuck_ns.add(now - since.min(now));
        }
        entry.start_polling();
        (entry.empty_polls, entry.last_found) = (0, now);
    }
    entry.starved_since = work.more.then_some(now);
    entry.last_polled = now;
    found
}

/// Gives requests under way of a queue that takes no new ones their turn.
pub(super) fn resume(entry: &mut Entry, uring: &mut Uring, signals: &mut Signals) {
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let work = entry.queue.resume(&mut uring.submitter(key), budget);
    entry.queue.publish();
    entry.queue.wake(|file| signals.add(file));
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(work, entry.waiting);
}
