//! A monitor on an actuator with simple figures.

use super::super::actuator::{Trouble, VmSeen};
use super::super::{Core, QueueView, State, View, WorkerCore, WorkerView};
use super::*;
use std::collections::BTreeMap;

/// A daemon on a host of four CPUs. Each queue wants the given share of a core.
#[derive(Debug, Default)]
struct MadeUp {
    wanted: Vec<f64>,
    layout: BTreeMap<u32, WorkerCore>,
    is_dead: bool,
    notes: Vec<String>,
    given_back: bool,
    /// The reason with which the daemon refuses everything.
    refuses: Option<&'static str>,
}

impl MadeUp {
    fn with(wanted: &[f64]) -> Self {
        let layout = (0..).zip(wanted).map(|(number, _)| (number, None)).collect();
        Self { wanted: wanted.to_vec(), layout, ..Self::default() }
    }
}

impl Actuator for MadeUp {
    fn look(&mut self) -> Result<Seen, Trouble> {
        if self.is_dead {
            return Err(Trouble::NoIo("the daemon ended".to_owned()));
        }
        let mut workers: BTreeMap<WorkerCore, f64> = BTreeMap::new();
        for (queue, core) in &self.layout {
            *workers.entry(*core).or_default() += self.wanted[*queue as usize];
        }
        let number = |core: WorkerCore| core.map_or(0, |core| core + 1);
        let queues = self.layout.iter().map(|(&queue, &core)| {
            // A full worker serves all of its queues in part.
            let useful = self.wanted[queue as usize] / workers[&core].max(1.0);
            let (requests, bytes) = (useful * 1e6, useful * 1e8);
            QueueView { number: queue, worker: number(core), node: None, useful, requests, bytes }
        });
        let view = View {
            cores: (0..4).map(|number| Core { number, node: 0 }).collect(),
            queues: queues.collect(),
            workers: workers
                .iter()
                .map(|(&core, &useful)| WorkerView { number: number(core), core, useful: useful.min(1.0) })
                .collect(),
            computing: 1.0,
            waiting: 0.0,
        };
        let vm =
            |pid, queues: Vec<u32>| VmSeen { name: format!("vm{pid}"), pid, queues, ..VmSeen::default() };
        let vms = vec![vm(7, self.layout.keys().copied().collect()), vm(8, Vec::new())];
        Ok(Seen { view, notes: self.notes.clone(), vms, ..Seen::default() })
    }

    fn act(&mut self, actions: &[Action], _: &Layout) -> Result<Vec<String>, Trouble> {
        if let Some(why) = self.refuses {
            return Ok(vec![why.to_owned(); actions.len()]);
        }
        for action in actions {
            if let Action::Move { queue, to } = action {
                self.layout.insert(*queue, *to);
            }
        }
        Ok(Vec::new())
    }

    fn give_back(&mut self) -> Vec<String> {
        self.given_back = true;
        Vec::new()
    }

    fn name_of(&self, queue: u32) -> String {
        format!("vq.{queue}.0")
    }
}

fn monitor(actuator: MadeUp, dry_run: bool) -> Monitor<MadeUp> {
    Monitor::new(actuator, Settings::default(), dry_run)
}

#[test]
fn busy_queues_get_cores_and_every_decision_says_its_figures() {
    let mut monitor = monitor(MadeUp::with(&[0.6, 0.6, 0.3]), false);
    let mut said = Vec::new();
    for period in 0..20 {
        said.extend(monitor.step(f64::from(period)).said);
    }
    let last = monitor.step(20.0);
    assert_eq!(
        (last.layout.cores(), last.said),
        (3, None),
        "it has settled, and says nothing more: {said:?}"
    );
    let first = &said[0];
    assert!(matches!(first.reason, Some(Reason::Busy { before: 0, .. })), "{first:?}");
    let figures = first.figures.unwrap();
    assert!((figures.useful - 1.0).abs() < 1e-9 && figures.busiest == 1.0, "{figures:?}");
    assert!(!first.actions.is_empty() && first.queues.values().flatten().any(|name| name == "vq.0.0"));
    let line = serde_json::to_string(first).unwrap();
    let read: Decided = serde_json::from_str(&line).unwrap();
    assert_eq!((&read.cores, &read.actions, &read.queues), (&first.cores, &first.actions, &first.queues));
}

#[test]
fn what_the_daemon_refuses_again_and_again_is_said_once_and_is_not_shown_as_done() {
    let mut monitor = monitor(MadeUp::with(&[0.1, 0.1]), false);
    // A worker that serves nothing, on a core of its own, and that only goes away with its device.
    monitor.actuator.layout.insert(1, Some(2));
    monitor.actuator.refuses = Some("w.2 serves only d.1, and is removed with it");
    let mut said = Vec::new();
    for period in 0..60 {
        let step = monitor.step(f64::from(period));
        assert_eq!(step.layout.cores_by_queue()[&1], Some(2));
        said.extend(step.said);
    }
    let refused: Vec<_> = said.iter().filter(|decided| !decided.left_out.is_empty()).collect();
    assert!(!refused.is_empty() && refused.len() < 10, "{}: {refused:?}", refused.len());
}

#[test]
fn a_dry_run_says_once_what_it_would_do_and_does_nothing() {
    let mut monitor = monitor(MadeUp::with(&[0.6, 0.6, 0.3]), true);
    let said: Vec<_> = (0..30).filter_map(|period| monitor.step(f64::from(period)).said).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].dry_run && !said[0].cores.is_empty() && !said[0].actions.is_empty());
    assert!(monitor.actuator().layout.values().all(Option::is_none));
}

#[test]
fn a_dry_run_wants_a_core_back_for_as_long_as_it_is_spare() {
    let mut idle = MadeUp::with(&[0.0, 0.0]);
    idle.layout = [(0, Some(3)), (1, Some(3))].into();
    let mut monitor = monitor(idle, true);
    let said: Vec<_> = (0..100).filter_map(|period| monitor.step(f64::from(period)).said).collect();
    let [first, wanted] = &said[..] else { panic!("{said:?}") };
    assert_eq!((&first.cores, first.reason), (&vec![3], Some(Reason::Fine { useful: 0.0, cores: 1 })));
    assert!(wanted.cores.is_empty() && matches!(wanted.reason, Some(Reason::Spare { .. })), "{wanted:?}");
    // The core was never given back, so there is no change to regret when I/O returns.
    monitor.actuator.wanted = vec![0.5, 0.4];
    let said: Vec<_> = (100..200).filter_map(|period| monitor.step(f64::from(period)).said).collect();
    assert!(said.iter().all(|said| !matches!(said.reason, Some(Reason::Regret { .. }))), "{said:?}");
    assert!(said.last().is_some_and(|said| said.cores.contains(&3)), "{said:?}");
}

#[test]
fn in_trouble_it_does_nothing_says_so_once_and_goes_on_afterwards() {
    let mut monitor = monitor(MadeUp::with(&[0.6, 0.6]), false);
    monitor.step(0.0);
    monitor.actuator.is_dead = true;
    let said: Vec<_> = (1..10).filter_map(|period| monitor.step(f64::from(period)).said).collect();
    let [one] = &said[..] else { panic!("{said:?}") };
    assert!(one.trouble.as_ref().unwrap().contains("the daemon ended") && one.actions.is_empty());
    monitor.actuator.is_dead = false;
    let again = monitor.step(10.0).said.unwrap();
    assert_eq!(again.trouble, None);
}

#[test]
fn a_vm_that_is_left_alone_is_told_once() {
    let mut monitor = monitor(MadeUp::with(&[0.1]), false);
    for period in 0..10 {
        monitor.step(f64::from(period));
    }
    monitor.actuator.notes = vec!["VM web is left alone".to_owned()];
    let said: Vec<_> = (10..20).filter_map(|period| monitor.step(f64::from(period)).said).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].notes, ["VM web is left alone"]);
    assert_eq!(monitor.end(), [""; 0]);
}

/// Decisions without their time, and without the exits in their figures.
fn decisions(exits: Option<ExitsSeen>) -> (Vec<Decided>, State) {
    let mut monitor = monitor(MadeUp::with(&[0.6, 0.6, 0.3]), false);
    let mut state = State::default();
    exits.into_iter().for_each(|exits| monitor.take_exits(exits));
    let mut said = Vec::new();
    for period in 0..30 {
        let step = monitor.step(f64::from(period));
        state.take(f64::from(period), &step, |queue| queue.to_string());
        said.extend(step.said);
    }
    (said, state)
}

#[test]
fn vm_exits_are_told_and_decide_nothing() {
    let (without, state) = decisions(None);
    assert!(without.len() > 1 && without.iter().all(|one| one.figures.unwrap().exits.is_none()));
    assert!(state.vms.iter().all(|vm| vm.exits.is_none()) && state.exits_missing.is_none());

    let seven = VmExits { per_second: 5e4, io_per_second: 2e4, io_handling: 0.1 };
    let (mut with, state) = decisions(Some(Ok([(7, seven), (9, seven)].into())));
    assert!(with.iter().all(|one| one.figures.unwrap().exits == Some(seven)), "others' VMs are not here");
    let told: Vec<_> = state.vms.iter().map(|vm| (vm.name.as_str(), vm.queues, vm.exits)).collect();
    assert_eq!(told, [("vm7", 3, Some(seven)), ("vm8", 0, Some(VmExits::default()))]);
    with.iter_mut().for_each(|one| one.figures.as_mut().unwrap().exits = None);
    assert_eq!(with, without);

    let (refused, state) = decisions(Some(Err("run as root".to_owned())));
    assert_eq!((refused, state.exits_missing.as_deref()), (without, Some("run as root")));
}
