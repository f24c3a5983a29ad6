//! Decisions in simple cases, one a row.

use super::super::{Core, QueueView, WorkerView};
use super::*;

/// A host of four cores; the first worker has the last core, and so on. Each queue has its worker and its useful share.
fn view(workers: &[f64], queues: &[(u32, f64)], computing: f64, waiting: f64) -> View {
    let cores = (0..4).map(|number| Core { number, node: 0 }).collect();
    let worker = |(number, &useful): (u32, &f64)| WorkerView { number, core: Some(3 - number), useful };
    let queue = |(number, &(worker, useful)): (u32, &(u32, f64))| QueueView {
        number,
        worker,
        node: None,
        useful,
        requests: useful * 1e6,
        bytes: useful * 1e8,
    };
    View {
        cores,
        workers: (0..).zip(workers).map(worker).collect(),
        queues: (0..).zip(queues).map(queue).collect(),
        computing,
        waiting,
    }
}

fn cores_after(view: &View, periods: u32) -> (usize, Reason) {
    let mut memory = PolicyState::default();
    let mut decision = decide(&Settings::default(), &mut memory, view);
    for _ in 1..periods {
        if decision.layout != Layout::of(view) {
            break;
        }
        decision = decide(&Settings::default(), &mut memory, view);
    }
    (decision.layout.cores(), decision.reason)
}

#[test]
fn the_number_of_cores_in_plain_cases() {
    // workers, queues, computing, waiting, periods -> cores
    let cases: &[(&str, View, u32, usize)] = &[
        ("as it should be", view(&[0.5], &[(0, 0.5)], 1.0, 0.0), 5, 1),
        ("busy, and cores are free", view(&[0.9], &[(0, 0.45), (0, 0.45)], 1.0, 0.0), 1, 2),
        ("full, and cores are free", view(&[1.0], &[(0, 0.5), (0, 0.5)], 1.0, 0.0), 1, 3),
        ("busy, but vCPUs need the rest", view(&[0.85], &[(0, 0.4), (0, 0.45)], 3.0, 0.0), 5, 1),
        ("one load does not ask for two cores", view(&[0.2, 0.2], &[(0, 0.2), (1, 0.2)], 1.0, 0.0), 5, 1),
        ("spare for a moment only", view(&[0.2, 0.2], &[(0, 0.2), (1, 0.2)], 1.0, 0.0), 1, 2),
        ("next to nothing, and vCPUs wait", view(&[0.05], &[(0, 0.05)], 3.0, 1.5), 1, 0),
        ("idle", view(&[0.0], &[(0, 0.0)], 0.0, 0.0), 5, 0),
        (
            "vCPUs wait for a core that is hardly used",
            view(&[0.3, 0.3], &[(0, 0.3), (1, 0.3)], 2.0, 1.0),
            1,
            1,
        ),
    ];
    for (name, view, periods, cores) in cases {
        let (found, reason) = cores_after(view, *periods);
        assert_eq!(found, *cores, "{name}: {reason:?}");
    }
}

#[test]
fn where_ten_times_too_many_vcpus_run_little_io_gets_no_core() {
    let mut crowded = view(&[0.03], &[(0, 0.03)], 4.0, 36.0);
    crowded.workers[0].core = None;
    let (cores, reason) = cores_after(&crowded, 5);
    assert_eq!(cores, 0, "{reason:?}");
}

#[test]
fn a_core_that_vcpus_miss_and_that_brings_nothing_is_taken_back_and_tried_later() {
    let mut memory = PolicyState::default();
    let full = view(&[1.0], &[(0, 0.5), (0, 0.5)], 2.9, 0.0);
    let first = decide(&Settings::default(), &mut memory, &full);
    assert!(matches!(first.reason, Reason::Busy { before: 1, .. }), "{first:?}");
    // With two cores the throughput is the same, vCPUs wait, and still both workers are full.
    let worse = View { waiting: 0.9, ..view(&[1.0, 1.0], &[(0, 0.5), (1, 0.5)], 2.0, 0.9) };
    let second = decide(&Settings::default(), &mut memory, &worse);
    let Reason::Regret { cores: 1, patience, .. } = second.reason else { panic!("{second:?}") };
    // It is not tried again at once.
    for period in 1..patience {
        let later = decide(&Settings::default(), &mut memory, &full);
        assert!(matches!(later.reason, Reason::Fine { .. }), "period {period}: {later:?}");
    }
    let again = decide(&Settings::default(), &mut memory, &full);
    assert!(matches!(again.reason, Reason::Busy { .. }), "{again:?}");
}

#[test]
fn a_core_that_is_refused_is_no_trial_and_is_asked_for_later() {
    let mut memory = PolicyState::default();
    let full = view(&[1.0], &[(0, 0.5), (0, 0.5)], 1.0, 0.0);
    let mut asked = Vec::new();
    for period in 0..60 {
        match decide(&Settings::default(), &mut memory, &full).reason {
            Reason::Busy { .. } => asked.push(period),
            Reason::Fine { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, [0, 9, 26, 59], "{asked:?}");
}

#[test]
fn the_order_of_actions_never_leaves_a_queue_alone() {
    let busy = view(&[1.0], &[(0, 0.3), (0, 0.3), (0, 0.4)], 1.0, 0.0);
    let now = Layout::of(&busy);
    let wanted = decide(&Settings::default(), &mut PolicyState::default(), &busy).layout;
    let mut cores: Vec<_> = now.0.keys().copied().collect();
    for action in now.actions_to(&wanted) {
        match action {
            super::super::Action::Add { at } => cores.push(at),
            super::super::Action::Move { to, .. } => assert!(cores.contains(&to), "{action:?}"),
            super::super::Action::Remove { at } => {
                assert!(wanted.cores_by_queue().values().all(|&core| core != at));
                cores.retain(|&core| core != at);
            }
        }
    }
    let mut end: Vec<_> = wanted.0.keys().copied().collect();
    cores.sort_unstable();
    end.sort_unstable();
    assert_eq!(cores, end);
}

#[test]
fn bounds_of_the_settings_hold() {
    let busy = view(&[1.0], &[(0, 0.5), (0, 0.5)], 1.0, 0.0);
    let most = Settings { most_cores: Some(1), ..Settings::default() };
    assert_eq!(decide(&most, &mut PolicyState::default(), &busy).layout.cores(), 1);
    let idle = view(&[0.0], &[(0, 0.0)], 0.0, 0.0);
    let least = Settings { least_cores: 1, ..Settings::default() };
    let mut memory = PolicyState::default();
    for _ in 0..10 {
        assert_eq!(decide(&least, &mut memory, &idle).layout.cores(), 1);
    }
}
