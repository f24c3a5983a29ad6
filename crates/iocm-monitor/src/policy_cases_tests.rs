//! The number of cores, case by case: each row is a host of four cores whose figures do not change, with the policy's
//! decision.

use super::super::{Core, Layout, QueueView, WorkerView};
use super::*;

/// The figures of a host for at most `periods` periods; worker 0 runs anywhere if `floats` is set.
struct Seen {
    name: &'static str,
    /// The workers' shares of a core, each with the number of queues that share it evenly.
    workers: &'static [(f64, usize)],
    floats: bool,
    computing: f64,
    waiting: f64,
    periods: u32,
    cores: usize,
}

const fn own(
    name: &'static str,
    workers: &'static [(f64, usize)],
    computing: f64,
    waiting: f64,
    periods: u32,
    cores: usize,
) -> Seen {
    Seen { name, workers, floats: false, computing, waiting, periods, cores }
}

const fn anywhere(
    name: &'static str,
    worker: &'static [(f64, usize)],
    computing: f64,
    waiting: f64,
    periods: u32,
    cores: usize,
) -> Seen {
    Seen { name, workers: worker, floats: true, computing, waiting, periods, cores }
}

const CASES: &[Seen] = &[
    // Enough: nothing changes.
    own("half a core's work on one", &[(0.5, 1)], 1.0, 0.0, 10, 1),
    own("just below the bound", &[(0.79, 2)], 1.0, 0.0, 10, 1),
    own("two with what two can carry", &[(0.7, 2), (0.7, 2)], 1.0, 0.0, 10, 2),
    own("two with what one could hardly carry", &[(0.35, 1), (0.35, 1)], 1.0, 0.0, 10, 2),
    own("three with what two could hardly carry", &[(0.5, 1), (0.5, 1), (0.5, 1)], 0.5, 0.0, 10, 3),
    own("a little more than needs no core", &[(0.4, 1)], 1.0, 0.0, 10, 1),
    anywhere("little on no core", &[(0.3, 3)], 1.0, 0.0, 10, 0),
    anywhere("as much as needs no core", &[(0.49, 3)], 1.0, 0.0, 10, 0),
    anywhere("nothing at all", &[(0.0, 3)], 0.0, 0.0, 10, 0),
    anywhere("nothing, and vCPUs wait", &[(0.0, 3)], 4.0, 4.0, 10, 0),
    // More.
    own("just above the bound", &[(0.81, 2)], 1.0, 0.0, 1, 2),
    own("two above the bound", &[(0.85, 2), (0.85, 2)], 0.5, 0.0, 1, 3),
    own("one full: it may want twice as much", &[(1.0, 4)], 0.5, 0.0, 1, 3),
    own("two full: all but the vCPUs' core", &[(1.0, 2), (1.0, 2)], 0.5, 0.0, 1, 3),
    anywhere("too much for no core", &[(0.6, 3)], 1.0, 0.0, 1, 1),
    anywhere("full on no core", &[(1.0, 3)], 1.0, 0.0, 1, 3),
    anywhere("full, and vCPUs wait for half of their time", &[(0.5, 3)], 3.5, 3.5, 1, 1),
    // More would be good, but there are none left.
    own("three of four are full", &[(1.0, 2), (1.0, 2), (1.0, 2)], 0.5, 0.0, 10, 3),
    own("busy, and vCPUs fill the rest", &[(0.85, 2)], 3.0, 0.0, 10, 1),
    own("busy, and vCPUs want more than the rest", &[(0.9, 2)], 3.0, 3.0, 10, 1),
    // Fewer.
    own("two for what one carries", &[(0.3, 1), (0.3, 1)], 1.0, 0.0, 4, 1),
    own("two for one's work, for a moment", &[(0.3, 1), (0.3, 1)], 1.0, 0.0, 2, 2),
    own("three for what two carry", &[(0.42, 1), (0.42, 1), (0.42, 1)], 0.5, 0.0, 4, 2),
    own("one for what needs none", &[(0.3, 2)], 1.0, 0.0, 4, 0),
    own("one for what needs none, for a moment", &[(0.3, 2)], 1.0, 0.0, 2, 1),
    own("three that are idle", &[(0.0, 1), (0.0, 1), (0.0, 1)], 0.5, 0.0, 4, 0),
    own("a hardly used one that vCPUs wait for, at once", &[(0.1, 2)], 3.0, 2.0, 1, 0),
    own("two for one's work that vCPUs wait for, at once", &[(0.4, 1), (0.4, 1)], 2.0, 2.0, 1, 1),
    own("three that leave vCPUs one core for four", &[(0.1, 1); 3], 1.0, 3.0, 1, 1),
];

fn view(seen: &Seen) -> View {
    let mut queues = Vec::new();
    let mut workers = Vec::new();
    for (worker, &(useful, count)) in (0..).zip(seen.workers) {
        let core = if seen.floats && worker == 0 { None } else { Some(3 - worker) };
        workers.push(WorkerView { number: worker, core, useful });
        for _ in 0..count {
            let useful = useful / count as f64;
            let (number, requests, bytes) = (queues.len() as u32, useful * 1e6, useful * 1e8);
            queues.push(QueueView { number, worker, node: None, useful, requests, bytes });
        }
    }
    let cores = (0..4).map(|number| Core { number, node: 0 }).collect();
    View { cores, workers, queues, computing: seen.computing, waiting: seen.waiting }
}

#[test]
fn the_number_of_cores_case_by_case() {
    let mut wrong = Vec::new();
    for seen in CASES {
        let (view, mut memory) = (view(seen), PolicyState::default());
        let now = Layout::of(&view);
        let mut decision = decide(&Settings::default(), &mut memory, &view);
        for _ in 1..seen.periods {
            // A changed layout would have another view.
            if decision.layout.cores() != now.cores() {
                break;
            }
            decision = decide(&Settings::default(), &mut memory, &view);
        }
        if decision.layout.cores() != seen.cores {
            wrong.push((seen.name, seen.cores, decision.layout.cores(), decision.reason));
        }
    }
    assert!(wrong.is_empty(), "name, expected, found: {wrong:#?}");
}

#[test]
fn whatever_is_decided_every_queue_has_a_worker_and_vcpus_have_a_core() {
    for seen in CASES {
        let view = view(seen);
        let decision = decide(&Settings::default(), &mut PolicyState::default(), &view);
        assert_eq!(decision.layout.cores_by_queue().len(), view.queues.len(), "{}", seen.name);
        assert!(decision.layout.cores() < view.cores.len(), "{}", seen.name);
    }
}

/// A host with one I/O core goes through one trial under one load. `served` is the throughput after the change,
/// relative to that before.
fn tried(memory: &mut PolicyState, served: f64, waiting: f64) -> Reason {
    let full = Seen { computing: 2.9, ..own("full", &[(1.0, 2)], 2.9, 0.0, 1, 2) };
    let _ = decide(&Settings::default(), memory, &view(&full));
    let mut after = view(&own("two", &[(1.0, 1), (1.0, 1)], 2.9 - waiting, waiting, 1, 2));
    for queue in &mut after.queues {
        queue.requests = 5e5 * served;
        queue.bytes = queue.requests * 100.0;
        queue.useful = 0.5 * served;
    }
    let mut reason = Reason::Fine { useful: 0.0, cores: 0 };
    for _ in 0..3 {
        reason = decide(&Settings::default(), memory, &after).reason;
        if !matches!(reason, Reason::Fine { .. }) {
            break;
        }
    }
    reason
}

#[test]
fn a_try_is_judged_by_what_was_served_before_and_after() {
    // The throughput after the trial, how long vCPUs wait, whether the change is kept.
    let cases = [
        ("much more", 1.5, 0.0, true),
        ("the same, and nobody misses the core", 1.0, 0.0, true),
        ("within the margin", 0.995, 0.0, true),
        ("less", 0.9, 0.0, false),
        ("the same, and vCPUs miss the core", 1.0, 0.9, false),
        ("hardly more, and vCPUs miss the core", 1.005, 0.9, false),
        ("more, and vCPUs miss the core", 1.3, 0.9, true),
    ];
    for (name, served, waiting, is_kept) in cases {
        let reason = tried(&mut PolicyState::default(), served, waiting);
        let regretted = matches!(reason, Reason::Regret { direction: Direction::More, .. });
        assert_eq!(!regretted, is_kept, "{name}: {reason:?}");
    }
}

#[test]
fn each_regret_doubles_the_time_until_the_next_try_up_to_a_bound() {
    let mut memory = PolicyState::default();
    let full = own("full", &[(1.0, 2)], 2.9, 0.0, 1, 2);
    let mut seen = Vec::new();
    for _ in 0..7 {
        let Reason::Regret { patience, .. } = tried(&mut memory, 0.9, 0.0) else { panic!("{seen:?}") };
        seen.push(patience);
        for _ in 1..patience {
            let _ = decide(&Settings::default(), &mut memory, &view(&full));
        }
    }
    assert_eq!(seen, [8, 16, 32, 64, 128, 256, 256]);
}

#[test]
fn what_full_workers_hide_is_another_load_when_the_same_cores_do_much_more() {
    let mut memory = PolicyState::default();
    let crowded = |useful: f64| {
        let mut view = view(&anywhere("crowded", &[(0.0, 2)], 3.4, 1.4, 1, 0));
        view.workers[0].useful = useful;
        for queue in &mut view.queues {
            (queue.useful, queue.requests) = (useful / 2.0, useful * 1e5);
            queue.bytes = queue.requests * 100.0;
        }
        view
    };
    // A trial that did not pay.
    for _ in 0..3 {
        let _ = decide(&Settings::default(), &mut memory, &crowded(0.55));
    }
    memory.double_delay(Direction::More);
    assert!(memory.is_patient(Direction::More));
    let _ = decide(&Settings::default(), &mut memory, &crowded(0.57));
    assert!(memory.is_patient(Direction::More), "it is the same load");
    let _ = decide(&Settings::default(), &mut memory, &crowded(0.78));
    assert!(!memory.is_patient(Direction::More), "it is another one");
}

#[test]
fn what_was_given_back_is_taken_again_as_it_was() {
    let mut memory = PolicyState::default();
    let before = view(&own("two", &[(0.3, 1), (0.3, 1)], 1.0, 0.0, 1, 1));
    let mut decision = decide(&Settings::default(), &mut memory, &before);
    for _ in 0..5 {
        if decision.layout.cores() == 1 {
            break;
        }
        decision = decide(&Settings::default(), &mut memory, &before);
    }
    assert_eq!(decision.layout.cores(), 1);
    let mut worse = view(&own("one", &[(0.5, 2)], 1.0, 0.0, 1, 2));
    worse.queues.iter_mut().for_each(|queue| (queue.requests, queue.bytes) = (2e5, 2e7));
    let mut reasons = Vec::new();
    for _ in 0..3 {
        decision = decide(&Settings::default(), &mut memory, &worse);
        reasons.push(decision.reason);
        if matches!(decision.reason, Reason::Regret { .. }) {
            break;
        }
    }
    assert!(
        matches!(reasons.last(), Some(Reason::Regret { direction: Direction::Fewer, .. })),
        "{reasons:?}"
    );
    assert_eq!(decision.layout, Layout::of(&before));
}
