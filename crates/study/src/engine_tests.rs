use std::cell::RefCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::*;
use crate::factor::InForce;
use crate::record::Run;
use crate::sampling::{SamplePlan, SampledGuest, Samples};
use crate::workload::{Output, Tool};
use crate::{Better, Combine, Metric, Unit};
use guests::{Armed, Finished, GuestError, GuestPlan};

/// Instructions for the mocks, and a record of their calls.
#[derive(Default)]
struct World {
    /// The number of steps of runs that were released, over all guests.
    runs: AtomicU32,
    /// The numbers of steps, counted from 0, whose output cannot be parsed.
    bad: Vec<u32>,
    /// The numbers of steps that print 7.
    sevens: Vec<u32>,
    /// The number of the step at which a signal arrives.
    signal_at: Option<u32>,
    /// The numbers of steps that never end by themselves.
    endless: Vec<u32>,
    /// The run's limit has passed: while such a step is waited for, and in no other.
    is_late: AtomicBool,
    /// A signal arrives while guests start.
    signal_at_start: bool,
    /// Guests never start by themselves.
    endless_start: bool,
    /// No guest starts beyond this number.
    most_guests: Option<u32>,
    /// No guest starts with this level.
    no_guests_with: Option<&'static str>,
    /// The result of undoing the first arm, and the changes left over when a session begins.
    not_undone: Option<&'static str>,
    left_over: Option<&'static str>,
    /// The reason why no arm can be applied.
    not_applied: Option<&'static str>,
    stop: AtomicBool,
    seen: Mutex<Vec<String>>,
}

impl World {
    fn saw(&self, what: impl Into<String>) {
        self.seen.lock().unwrap().push(what.into());
    }

    fn seen(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.starts_with(what)).count()
    }
}

struct StandIn {
    name: String,
    world: Arc<World>,
}

impl Guest for StandIn {
    fn name(&self) -> &str {
        &self.name
    }

    fn vcpus(&self) -> u32 {
        1
    }

    fn address(&self) -> Option<IpAddr> {
        None
    }

    fn host_address(&self) -> Option<IpAddr> {
        None
    }

    fn process(&self) -> Option<i32> {
        None
    }

    fn run(&mut self, script: &str, _: Duration) -> Result<Output, GuestError> {
        let ticks = 100 + 10 * self.world.runs.load(Ordering::SeqCst);
        let stat = format!("cpu  {ticks} 0 0 {ticks} 0 0 0 0 0 0\ncpu0 {ticks} 0 0 {ticks} 0 0 0 0 0 0\n");
        let stdout = if script.contains("uname") { "kernel=6.12\n" } else { &stat };
        Ok(Output { status: 0, stdout: stdout.to_owned(), stderr: String::new() })
    }

    fn arm(&mut self, script: &str, _: Duration) -> Result<Box<dyn Armed>, GuestError> {
        Ok(Box::new(StandInArmed { script: script.to_owned(), world: Arc::clone(&self.world), began: None }))
    }

    fn stop(&mut self) -> Result<(), GuestError> {
        self.world.saw("stop");
        Ok(())
    }
}

struct StandInArmed {
    script: String,
    world: Arc<World>,
    began: Option<u32>,
}

impl Armed for StandInArmed {
    fn release(&mut self) -> Result<(), GuestError> {
        self.began = Some(self.world.runs.fetch_add(1, Ordering::SeqCst));
        Ok(())
    }

    fn finish(self: Box<Self>, stop: &AtomicBool) -> Result<Finished, GuestError> {
        let number = self.began.expect("a step is released before it is waited for");
        if self.world.signal_at == Some(number) {
            self.world.stop.store(true, Ordering::SeqCst);
            while !stop.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if self.world.endless.contains(&number) {
            self.world.is_late.store(true, Ordering::SeqCst);
            while !stop.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.world.is_late.store(false, Ordering::SeqCst);
        }
        if let Some((_, server)) = self.script.split_once("serve-") {
            let (status, ended_ns) = match server.trim_end() {
                "badly" => (1, 1),
                "aside" => (0, 1),
                _ => {
                    while !stop.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    (143, live::monotonic_ns())
                }
            };
            let output = Output { status, ..Output::default() };
            return Ok(Finished { output, began_ns: 0, ended_ns });
        }
        let said = if self.script.contains("echo 1") { "1" } else { "2" };
        let said = if self.world.sevens.contains(&number) { "7" } else { said };
        let stdout = if self.world.bad.contains(&number) { "nonsense" } else { said };
        let output = Output { status: 0, stdout: format!("{stdout}\n"), stderr: String::new() };
        let began_ns = 1_000_000 * u64::from(number);
        Ok(Finished { output, began_ns, ended_ns: began_ns + 2_000_000_000 })
    }
}

struct StandInRig {
    world: Arc<World>,
}

/// Samples with a figure of each kind that the plan asks for.
struct StandInSamples(SamplePlan);

impl Samples for StandInSamples {
    fn metrics(&self) -> Vec<Metric> {
        let metric = |name: &str, unit| {
            let (better, combine) = (Better::Lower, Combine::Single);
            Metric { name: name.to_owned(), unit, better, combine, value: 8.0 }
        };
        let busy = self.0.cpu.then(|| metric("cpu.busy", Unit::Percent));
        let exits = self.0.exits.is_on().then(|| metric("exits.total", Unit::PerSecond));
        busy.into_iter().chain([metric("sampling.cpu", Unit::Percent)]).chain(exits).collect()
    }

    fn seconds(&self) -> f64 {
        2.5
    }

    fn exits_seconds(&self) -> Option<f64> {
        self.0.exits.is_on().then_some(2.75)
    }

    fn warnings(&self) -> Vec<String> {
        vec!["nothing was sampled".to_owned()]
    }

    fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("host.parquet"), "samples")
    }
}

impl Sampling for StandInSamples {
    fn stop(self: Box<Self>) -> Box<dyn Samples> {
        self
    }
}

impl Rig for StandInRig {
    fn apply(&mut self, levels: &[&Level]) -> Result<(), String> {
        self.world.saw(format!("apply {}", levels[0].name));
        self.world.not_applied.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn undo(&mut self) -> Vec<String> {
        self.world.saw("undo");
        self.world.not_undone.map(str::to_owned).into_iter().collect()
    }

    fn left_over(&mut self) -> Vec<String> {
        self.world.left_over.map(str::to_owned).into_iter().collect()
    }

    fn fingerprint(&mut self) -> host::Fingerprint {
        host::Fingerprint::default()
    }

    fn host(&mut self) -> Result<Box<dyn Guest>, GuestError> {
        Ok(Box::new(StandIn { name: "host".to_owned(), world: Arc::clone(&self.world) }))
    }

    fn start(
        &mut self,
        _: &GuestPlan,
        levels: &[&Level],
        there: u32,
        more: u32,
        ending: &AtomicBool,
    ) -> Result<Vec<Box<dyn Guest>>, GuestError> {
        let are_too_many = self.world.most_guests.is_some_and(|most| there + more > most);
        if are_too_many || self.world.no_guests_with.is_some_and(|level| levels[0].name == level) {
            let (name, why) = ("second".to_owned(), "no memory".to_owned());
            return Err(GuestError::Start { name, why });
        }
        if self.world.signal_at_start {
            self.world.stop.store(true, Ordering::SeqCst);
        }
        if self.world.signal_at_start || self.world.endless_start {
            while !ending.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            return Err(GuestError::Start { name: "first".to_owned(), why: "no answer".to_owned() });
        }
        let guest = |number: u32| -> Box<dyn Guest> {
            self.world.saw("start");
            Box::new(StandIn { name: format!("guest-{number}"), world: Arc::clone(&self.world) })
        };
        Ok((there..there + more).map(guest).collect())
    }

    fn sample(&mut self, plan: &SamplePlan, _: &[SampledGuest]) -> Result<Box<dyn Sampling>, String> {
        Ok(Box::new(StandInSamples(plan.clone())))
    }

    fn in_force(&mut self, _: &[&Level], _: &[SampledGuest]) -> InForce {
        InForce::default()
    }
}

#[derive(Default)]
struct Memory {
    folders: Vec<tempfile::TempDir>,
    kept: Rc<RefCell<Vec<Run>>>,
}

impl Sink for Memory {
    fn folder(&mut self) -> Result<PathBuf, StoreError> {
        self.folders.push(tempfile::tempdir().unwrap());
        Ok(self.folders.last().unwrap().path().to_owned())
    }

    fn keep(&mut self, run: &Run, folder: &Path) -> Result<(), StoreError> {
        assert!(folder.join("guest-0/command.out").is_file() || run.failure.is_some());
        assert_eq!(folder.join("host.parquet").is_file(), run.took > 0.0);
        if run.counted.is_some() {
            let repetition = folder.join("counted");
            assert!(
                ["host.parquet", "guest-0/command.out"].iter().all(|file| repetition.join(file).is_file())
            );
        }
        self.kept.borrow_mut().push(run.clone());
        Ok(())
    }

    fn progress(&mut self, progress: &StudyProgress) {
        assert!(progress.done <= progress.total);
    }
}

fn plan(more: &str) -> Plan {
    let text = include_str!("plan/small.toml").replace("repeats = 2", &format!("repeats = 2\n{more}"));
    Plan::read(&text, "small.toml").unwrap()
}

fn go(plan: &Plan, past: Past, world: World) -> (Conclusion, Vec<Run>, Arc<World>) {
    let world = Arc::new(world);
    let kept = Rc::default();
    let mut sink = Memory { kept: Rc::clone(&kept), ..Memory::default() };
    let mut rig = StandInRig { world: Arc::clone(&world) };
    let is_past = |taken: Duration, limit: Duration| taken > limit || world.is_late.load(Ordering::SeqCst);
    let conclusion = carry_out_within(plan, 5, past, &mut rig, &mut sink, &world.stop, &is_past).unwrap();
    let kept = kept.borrow().clone();
    (conclusion, kept, world)
}

#[test]
fn every_cell_is_run_once_with_its_figures_and_skew() {
    let plan = plan("");
    let (conclusion, kept, world) = go(&plan, Past::default(), World::default());
    assert_eq!((conclusion.made, conclusion.enough), (16, Some(Enough::Repeats)));
    let positions: Vec<u32> = kept.iter().map(|run| run.position).collect();
    assert_eq!(positions, (0..16).collect::<Vec<_>>());
    // Two arms in two blocks, two guests each.
    assert_eq!((world.seen("start"), world.seen("stop"), world.seen("apply")), (8, 8, 4));
    for run in &kept {
        let expected = if run.cell.workload == "first" { 1.0 } else { 2.0 };
        assert_eq!(run.guests.len(), run.cell.guests as usize);
        assert!(run.guests.iter().all(|metrics| metrics[0].value == expected), "{run:?}");
        assert!(run.guests.iter().all(|metrics| metrics.iter().any(|metric| metric.name == "guest.busy")));
        assert_eq!(run.guest_facts[0]["kernel"], "6.12");
        assert_eq!(run.start_skew.is_some(), run.cell.guests == 2);
        assert_eq!(run.warnings, ["nothing was sampled"]);
        assert_eq!((run.sampled, run.exits_counted), (Some(2.5), Some(2.75)));
    }
    assert_eq!(kept.iter().find_map(|run| run.start_skew), Some(0.001));
}

fn plan_with_exits_apart() -> Plan {
    let text = include_str!("plan/small.toml").replace("repeats = 2", "repeats = 2\nwarm_up = 0");
    Plan::read(&format!("{text}\n[samples]\nexits = \"apart\"\n"), "small.toml").unwrap()
}

#[test]
fn exits_that_are_counted_apart_are_those_of_a_repetition_and_nothing_else_is() {
    // The second step of the first run, which has one guest, is its repetition.
    let world = World { sevens: vec![1], ..World::default() };
    let (conclusion, kept, world) = go(&plan_with_exits_apart(), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (16, 0));
    assert_eq!((world.runs.load(Ordering::SeqCst), world.seen("start")), (2 * 24, 8));
    for run in &kept {
        let names: Vec<&str> = run.host.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["cpu.busy", "sampling.cpu", "exits.total"]);
        // Both samplers say it.
        assert_eq!(run.warnings, ["nothing was sampled"]);
        assert_eq!((run.sampled, run.exits_counted), (Some(2.5), Some(2.75)));
        assert_eq!((run.host_seconds("exits.total"), run.host_seconds("cpu.context-switches")), (2.75, 2.5));
        let counted = run.counted.as_ref().unwrap();
        assert_eq!((counted.guests.len(), counted.took), (run.guests.len(), run.took));
        let expected = if run.cell.workload == "first" { 1.0 } else { 2.0 };
        assert!(run.guests.iter().all(|metrics| metrics[0].value == expected), "{run:?}");
        let expected = if run.position == 0 { 7.0 } else { expected };
        assert!(counted.guests.iter().all(|metrics| metrics[0].value == expected), "{run:?}");
    }
    let usual = go(&plan("warm_up = 0"), Past::default(), World::default()).1;
    assert!(usual.iter().all(|run| run.counted.is_none() && run.host.len() == 3));
}

#[test]
fn a_run_whose_exits_could_not_be_counted_apart_has_failed() {
    let world = World { bad: vec![1], ..World::default() };
    let (conclusion, kept, _) = go(&plan_with_exits_apart(), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (16, 0));
    let why = kept[0].failure.as_ref().unwrap();
    assert!(why.starts_with("in the repetition that counts exits: ") && why.contains("nonsense"), "{why}");
    assert!(kept[1..].iter().all(|run| run.failure.is_none()));
}

#[test]
fn warm_up_runs_are_made_each_time_guests_were_added_and_thrown_away() {
    let runs = |plan: &Plan| go(plan, Past::default(), World::default()).2.runs.load(Ordering::SeqCst);
    // In a block, an arm has 1 + 2 guests and two workloads: 6 steps, and as many in each warm-up.
    assert_eq!(runs(&plan("warm_up = 0")), 24);
    assert_eq!(runs(&plan("warm_up = 2")), 72);
}

#[test]
fn a_failed_run_is_kept_apart_and_tried_again_with_new_guests() {
    // The first run's first attempt fails in its measured step, the second in its warm-up.
    let world = World { bad: vec![1, 2], ..World::default() };
    let (conclusion, kept, world) = go(&plan("warm_up = 0"), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (16, 0));
    let failed: Vec<_> = kept.iter().filter(|run| run.failure.is_some()).collect();
    assert_eq!(failed.iter().map(|run| (run.position, run.attempt)).collect::<Vec<_>>(), [(1, 0), (1, 1)]);
    assert!(failed[0].failure.as_ref().unwrap().contains("nonsense"), "{:?}", failed[0].failure);
    assert!(world.seen("start") > 8);
}

#[test]
fn a_run_that_fails_as_often_as_the_plan_allows_has_failed_and_the_others_go_on() {
    let world = World { bad: vec![0, 1], ..World::default() };
    let (conclusion, kept, _) = go(&plan("warm_up = 0\nattempts = 2"), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (15, 1));
    assert_eq!(conclusion.failed[0].position, 0);
    assert_eq!(kept.len(), 17);
}

#[test]
fn a_run_that_never_ends_fails_by_its_limit_and_is_made_again() {
    // Endless steps in the warm-up of the first run and in the measured step of the second.
    let world = World { endless: vec![0, 4], ..World::default() };
    let (conclusion, kept, world) = go(&plan("run_limit = \"1h\""), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (16, 0));
    let failed: Vec<_> = kept.iter().filter(|run| run.failure.is_some()).collect();
    let why = |run: &Run| run.failure.clone().unwrap();
    assert!(why(failed[0]).starts_with("the warm-up was still running at"), "{}", why(failed[0]));
    assert!(failed.iter().any(|run| why(run).starts_with("the measured step was still running at")));
    assert!(failed.len() == 2 && why(failed[1]).ends_with("(order.run_limit)"), "{failed:?}");
    assert_eq!(world.seen("start"), world.seen("stop"));
}

#[test]
fn a_server_that_fails_before_its_clients_fails_the_run_and_one_that_was_told_to_end_does_not() {
    let served = |how: &str| {
        let mut plan = plan("attempts = 1");
        let Tool::Command(command) = &mut plan.workloads[0].tool else { panic!("it is a command") };
        command.serve = Some(format!("serve-{how}"));
        go(&plan, Past::default(), World::default())
    };
    let (conclusion, kept, _) = served("badly");
    assert_eq!((conclusion.made, conclusion.failed.len()), (8, 8));
    let why = kept.iter().find_map(|run| run.failure.as_deref()).unwrap();
    let expected = "a server ended before its clients: the step \"serve\" of guest 0 ended with status 1: ";
    assert!(why.starts_with(expected), "{why}");
    for how in ["aside", "on"] {
        assert_eq!(served(how).0.made, 16, "{how}");
    }
}

#[test]
fn attempts_before_a_lost_link_count_and_keep_their_numbers() {
    let world = World { bad: vec![0, 1, 2], ..World::default() };
    let tried = BTreeMap::from([(0, Tried { ever: 5, now: 2 })]);
    let past = Past { tried, ..Past::default() };
    let (conclusion, kept, _) = go(&plan("warm_up = 0"), past, world);
    assert_eq!((kept[0].position, kept[0].attempt), (0, 5));
    assert_eq!(conclusion.failed.iter().map(|failed| failed.position).collect::<Vec<_>>(), [0]);
}

#[test]
fn guests_that_do_not_start_cost_their_runs_and_no_others() {
    let world = World { most_guests: Some(1), ..World::default() };
    let (conclusion, kept, world) = go(&plan("attempts = 2"), Past::default(), world);
    assert_eq!(conclusion.made, 8);
    assert_eq!(conclusion.failed.len(), 8);
    assert!(
        conclusion.failed.iter().all(|failed| failed.cell.guests == 2 && failed.why.contains("no memory"))
    );
    let told = |why: &str| why.matches("did not start before").count();
    assert!(conclusion.failed.iter().all(|failed| told(&failed.why) <= 1), "{:?}", conclusion.failed);
    // Two attempts for each arm; the following runs are not tried, and their reason says so.
    assert_eq!(kept.iter().filter(|run| run.failure.is_some()).count(), 2 * 2 + 6);
    assert_eq!(world.seen("start"), world.seen("stop"));
}

#[test]
fn a_signal_ends_the_run_in_progress_and_everything_is_taken_back() {
    let world = World { signal_at: Some(7), ..World::default() };
    let (conclusion, kept, world) = go(&plan("warm_up = 0"), Past::default(), world);
    assert_eq!(conclusion.enough, None);
    assert!(kept.iter().all(|run| run.failure.is_none()) && kept.len() < 16);
    assert_eq!(world.seen("start"), world.seen("stop"));
    assert_eq!(world.seen.lock().unwrap().last().unwrap(), "undo");
}

#[test]
fn guests_that_start_are_not_waited_for_after_a_signal_or_the_limit_of_the_run() {
    let world = World { signal_at_start: true, ..World::default() };
    let (conclusion, kept, _) = go(&plan(""), Past::default(), world);
    assert_eq!((conclusion.enough, kept.len()), (None, 0));
    let world = World { endless_start: true, ..World::default() };
    let (conclusion, kept, _) = go(&plan("run_limit = \"100ms\"\nattempts = 1"), Past::default(), world);
    assert_eq!((conclusion.made, conclusion.failed.len()), (0, 16));
    let why = kept[0].failure.as_ref().unwrap();
    assert!(why.starts_with("the guests' start was still running at"), "{why}");
}

#[test]
fn a_study_that_goes_on_makes_a_block_that_lacks_a_run_again_and_keeps_the_others() {
    let plan = plan("");
    let (_, all, _) = go(&plan, Past::default(), World::default());
    let made_again = |there: &[Run]| {
        let (conclusion, made, _) = go(&plan, Past::new(&plan, there, &[]), World::default());
        assert_eq!(conclusion.enough, Some(Enough::Repeats));
        made.iter().map(|run| run.position).collect::<Vec<_>>()
    };
    assert_eq!(made_again(&all), Vec::<u32>::new());
    let lacking: Vec<Run> = all.iter().filter(|run| run.position != 12).cloned().collect();
    assert_eq!(made_again(&lacking), (8..16).collect::<Vec<_>>());
    // The arms of this block ran in different states of the host.
    let mut split = all;
    split[3].session = 1;
    assert_eq!(made_again(&split), (0..8).collect::<Vec<_>>());
}

#[test]
fn blocks_are_not_made_again_for_runs_that_fail_once_more() {
    let mut plan = plan("attempts = 1");
    plan.order.repeats = 4;
    let (_, all, _) = go(&plan, Past::default(), World::default());
    let is_on = |run: &Run| run.cell.arm["switch"] == "on";
    let (on, off): (Vec<Run>, Vec<Run>) = all.into_iter().partition(is_on);
    // The blocks in which runs were made, the number of these, and the conclusion.
    let resumed = |there: &[Run], no_guests_with| {
        let world = World { no_guests_with, ..World::default() };
        let (conclusion, kept, _) = go(&plan, Past::new(&plan, there, &[]), world);
        let made: Vec<u32> =
            kept.iter().filter(|run| run.failure.is_none()).map(|run| run.cell.block).collect();
        assert_eq!(conclusion.enough, Some(Enough::Repeats));
        (BTreeSet::from_iter(made.clone()), made.len(), conclusion)
    };
    // The first block shows that guests still do not start.
    let (blocks, made, conclusion) = resumed(&off, Some("on"));
    assert_eq!((blocks, made, conclusion.failed.len()), (BTreeSet::from([0]), 4, 4 * 4));
    let reasons = by_reason(&conclusion.failed);
    assert_eq!((reasons.len(), reasons[0].runs.len()), (1, 4 * 4), "{reasons:?}");
    // A block that lacks another run as well is made again.
    let lacking: Vec<Run> = off.iter().filter(|run| run.position != off[9].position).cloned().collect();
    let (blocks, made, _) = resumed(&lacking, Some("on"));
    assert_eq!((blocks, made), (BTreeSet::from([0, off[9].cell.block]), 8));
    // One whose failing runs are of an earlier session stays, too.
    let later = off.iter().map(|run| Run { session: 1, ..run.clone() });
    let split: Vec<Run> = later.chain(on.into_iter().filter(|run| run.cell.block == 3)).collect();
    assert_eq!(resumed(&split, Some("on")).1, 4);
    // All are made again once guests start.
    assert_eq!((resumed(&off, None).1, resumed(&split, None).1), (32, 32));
}

#[test]
fn an_arm_that_cannot_be_taken_back_is_the_last_one() {
    let world = World { not_undone: Some("change 7"), ..World::default() };
    let (conclusion, kept, world) = go(&plan(""), Past::default(), world);
    assert_eq!((conclusion.enough, conclusion.made, kept.len()), (None, 4, 4));
    assert!(!conclusion.not_undone.is_empty() && conclusion.not_undone.iter().all(|what| what == "change 7"));
    assert_eq!((world.seen("apply"), world.seen("start"), world.seen("stop")), (1, 2, 2));
}

#[test]
fn an_arm_that_can_be_neither_applied_nor_taken_back_names_both() {
    let world = World { not_applied: Some("no such file"), not_undone: Some("change 7"), ..World::default() };
    let world = Arc::new(world);
    let mut rig = StandInRig { world: Arc::clone(&world) };
    let ended = carry_out(&plan(""), 5, Past::default(), &mut rig, &mut Memory::default(), &world.stop);
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("could not be applied: no such file") && error.contains("change 7"), "{error}");
}

#[test]
fn changes_of_an_earlier_session_are_refused_with_the_next_step() {
    let world = World { left_over: Some("change 7"), ..World::default() };
    let mut rig = StandInRig { world: Arc::new(world) };
    let refused = refuse_left_over(&mut rig).unwrap_err().to_string();
    assert!(
        refused.contains("change 7; run `exitless restore` on the target, then the same command"),
        "{refused}"
    );
    refuse_left_over(&mut StandInRig { world: Arc::default() }).unwrap();
}

#[test]
fn a_block_that_was_begun_is_completed_before_the_stop_rule_counts() {
    let plan = plan("until = { budget = \"1h\" }");
    let schedule = Schedule::new(&plan, 5);
    let run = |slot: &Slot| Run { spent: 7200.0, ..Run::begun(slot.cell.clone(), slot.position, 0) };
    let slots: Vec<Slot> = (0..3).flat_map(|block| schedule.block(block)).flat_map(|arm| arm.slots).collect();
    // Two blocks and a half, and a failed attempt at the next run.
    let runs: Vec<Run> = slots[..20].iter().map(run).collect();
    let positions = |kept: &[Run]| kept.iter().map(|run| run.position).collect::<Vec<_>>();
    for (there, failed, made) in [(20, 0, 16..24), (16, 1, 16..24), (16, 0, 16..16)] {
        let past = Past::new(&plan, &runs[..there], &runs[16..16 + failed]);
        assert_eq!(past.is_complete(&plan, 5), made.is_empty(), "{there} {failed}");
        let (conclusion, kept, _) = go(&plan, past, World::default());
        assert_eq!(positions(&kept), made.collect::<Vec<_>>());
        assert_eq!(conclusion.enough, Some(Enough::Budget));
    }
}

#[test]
fn a_study_whose_stop_rule_is_not_met_after_its_repeats_is_not_complete() {
    let run = |slot: Slot| Run::begun(slot.cell, slot.position, 0);
    for (until, is_complete) in [("", true), ("until = { interval_percent = 1.0, blocks = 9 }", false)] {
        let plan = plan(until);
        let blocks = (0..2).flat_map(|block| Schedule::new(&plan, 5).block(block));
        let runs: Vec<Run> = blocks.flat_map(|arm| arm.slots).map(run).collect();
        assert_eq!(Past::new(&plan, &runs, &[]).is_complete(&plan, 5), is_complete, "{until}");
        assert!(!Past::new(&plan, &runs[1..], &[]).is_complete(&plan, 5), "{until}");
    }
}
