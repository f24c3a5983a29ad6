//! A queue's turn.

use super::entry::Entry;
use super::signals::Signals;
use super::uring::Uring;
use crate::clock::ticks;
use crate::statistics::WorkerCounters;

/// A queue that had nothing in so many sweeps, and for so many nanoseconds, while others had is left to its kicks: to look
/// at it has cost about what its next kick costs. Sweeps alone would say so after a few microseconds where little is to do,
/// which is shorter than a driver takes for its next burst.
const COLD_AFTER: u32 = 64;
const COLD_AFTER_NS: u64 = 200_000;

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
    let served = entry.queue.serve(&mut uring.submitter(key), budget);
    // Most turns find nothing, and are to be short.
    match served.requests {
        0 => entry.queue.lane.publish(),
        _ => entry.queue.publish(),
    }
    entry.queue.wake(|file| signals.add(file));
    let state = entry.queue.lane.state();
    let figures = &state.counters;
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(served, served.more || entry.waiting);
    entry.held_until = served.held_back_ns.map_or(0, |ns| now + ns);
    let kicked = std::mem::take(&mut entry.kicked);
    let found = u64::from(served.requests);
    if found == 0 {
        figures.polls_empty.add(1);
        entry.empty += 1;
        let is_held = served.held_back_ns.is_some();
        if entry.hot {
            let is_cold = entry.empty >= COLD_AFTER && now.saturating_sub(entry.found) >= COLD_AFTER_NS;
            if is_cold && !is_held {
                entry.cool(always);
            }
        } else if is_held || entry.queue.rest() {
            // Whoever woke it for nothing will not wake it again, unless it is asked to.
            entry.heat();
        }
    } else {
        figures.polls_full.add(1);
        figures.kicks_saved.add(found - u64::from(kicked));
        state.delays.add(now - entry.looked.min(now), found);
        let useful = ticks().wrapping_sub(began);
        figures.useful_ticks.add(useful);
        counters.useful_ticks.add(useful);
        if let Some(since) = entry.stuck.take() {
            figures.stuck_ns.add(now - since.min(now));
        }
        entry.heat();
        (entry.empty, entry.found) = (0, now);
    }
    entry.stuck = served.more.then_some(now);
    entry.looked = now;
    found
}

/// Gives requests under way of a queue that takes no new ones their turn.
pub(super) fn go_on(entry: &mut Entry, uring: &mut Uring, signals: &mut Signals) {
    let budget = entry.share.turn(entry.queue.weight);
    let key = entry.queue.key;
    let served = entry.queue.go_on(&mut uring.submitter(key), budget);
    entry.queue.publish();
    entry.queue.wake(|file| signals.add(file));
    entry.waiting = entry.queue.has_waiting();
    entry.share.used(served, entry.waiting);
}
