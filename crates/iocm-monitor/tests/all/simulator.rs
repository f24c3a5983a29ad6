//! The policy on machines of all sizes, compared with the best number of cores.

use iocm_monitor::Layout;
use iocm_monitor::simulator::{
    Group, Kind, Load, Machine, Phase, Replay, Replayed, Trace, best_static, made, replay,
};

const MACHINES: [(u32, u32, u32); 5] = [(2, 1, 1), (4, 1, 8), (8, 1, 16), (16, 2, 64), (64, 2, 500)];

fn replayed(kind: Kind, (cores, nodes, devices): (u32, u32, u32)) -> Replayed {
    let trace = made(kind, Machine { cores, nodes }, devices);
    replay(&trace, &Replay::default(), &mut |_| {}).unwrap()
}

#[test]
fn each_phase_ends_near_the_best_that_is_known_beforehand() {
    for kind in Kind::ALL {
        for machine in MACHINES {
            let outcome = replayed(kind, machine);
            for phase in &outcome.phases {
                let told = || format!("{kind:?} on {machine:?}: {phase:?}");
                assert!(phase.of_best() >= 0.95, "{}", told());
                // A thread for each device may serve exactly as much.
                assert!(phase.settled >= phase.each - 1e-3, "{}", told());
                assert!(phase.converged.is_some_and(|seconds| seconds <= 2.0), "{}", told());
            }
        }
    }
}

#[test]
fn what_changes_serves_more_than_any_number_of_cores_that_never_does() {
    for machine in MACHINES {
        for kind in [Kind::Steps, Kind::Adversarial] {
            let outcome = replayed(kind, machine);
            let seconds: f64 = outcome.phases.iter().map(|phase| phase.seconds).sum();
            let served: f64 = outcome.phases.iter().map(|phase| phase.attained * phase.seconds).sum();
            let single = outcome.best_single;
            assert!(served / seconds > single.attained, "{kind:?} on {machine:?}: {served} {single:?}");
        }
    }
}

#[test]
fn a_load_that_stays_is_left_alone() {
    let trace = made(Kind::Steps, Machine { cores: 16, nodes: 2 }, 64);
    let long = Trace { phases: vec![Phase { seconds: 200.0, ..trace.phases[0].clone() }], ..trace };
    let mut last_change = 0.0;
    let outcome = replay(&long, &Replay::default(), &mut |period| {
        if Layout::of(period.view) != period.decision.layout {
            last_change = period.time;
        }
    });
    assert!(last_change < 10.0, "{last_change}: {:?}", outcome.unwrap().phases);
}

#[test]
fn the_search_knows_what_a_second_guess_would() {
    let computing = Load { computing: 1.0, ..Load::default() };
    let io = Load { requests: 1e6, cost_us: 1.5, bytes: 100.0, ..computing };
    let trace = Trace {
        machine: Machine { cores: 4, nodes: 1 },
        groups: vec![Group { name: "all".into(), vms: 2, queues: 1, node: None }],
        phases: vec![
            Phase { name: "rest".into(), seconds: 1.0, loads: [("all".into(), computing)].into() },
            Phase { name: "busy".into(), seconds: 1.0, loads: [("all".into(), io)].into() },
        ],
    };
    // Two queues of 1.5 cores each: each fills a core, and two cores are left for the two vCPUs.
    let best = best_static(&trace);
    assert_eq!((best[0].0, best[1].0), (0, 2));
    assert!((best[1].1 - 2.0 / 3.0).abs() < 1e-9, "{best:?}");
}

#[test]
fn traces_that_mean_nothing_are_refused_by_name() {
    let fine = || made(Kind::Bursts, Machine { cores: 4, nodes: 2 }, 3);
    let refused = |change: fn(&mut Trace)| {
        let mut trace = fine();
        change(&mut trace);
        trace.check().unwrap_err().to_string()
    };
    assert_eq!(fine().check(), Ok(()));
    assert!(refused(|trace| trace.machine.nodes = 3).contains("4 cores on 3 nodes"));
    assert!(refused(|trace| trace.groups.clear()).contains("0 queues"));
    assert!(refused(|trace| trace.groups[0].node = Some(2)).contains("node 2"));
    assert!(refused(|trace| trace.phases.clear()).contains("no phases"));
    assert!(refused(|trace| trace.phases[0].seconds = f64::NAN).contains("seconds must be"));
    let unknown = refused(|trace| {
        let load = Load::default();
        trace.phases[0].loads.insert("nobody".into(), load);
    });
    assert!(unknown.contains("nobody"), "{unknown}");
}

#[test]
fn one_device_is_a_group_of_one() {
    let trace = made(Kind::Steps, Machine { cores: 2, nodes: 1 }, 1);
    assert_eq!(trace.groups.len(), 1);
    assert_eq!(trace.check(), Ok(()));
}
