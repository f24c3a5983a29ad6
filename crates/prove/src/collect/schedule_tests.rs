//! Tests of the order of operations, with a mock machine that logs them.

use exits::InhibitReason;

use super::*;

/// A machine that logs each call and fails on request.
struct Logging {
    log: Vec<String>,
    arm: Arm,
    /// The runs that fail with the arm on: those of this measure with this number of samples.
    broken: Option<(Measure, u32)>,
    traces: bool,
    renews: bool,
}

impl Logging {
    fn new() -> Self {
        Self { log: Vec::new(), arm: Arm::Off, broken: None, traces: true, renews: true }
    }
}

impl Machine for Logging {
    fn switch(&mut self, arm: Arm) -> Result<(), String> {
        self.arm = arm;
        Ok(())
    }

    fn run(
        &mut self,
        measure: Measure,
        warm_up: u32,
        samples: u32,
        target: Option<u16>,
    ) -> Result<Run, String> {
        if self.broken == Some((measure, samples)) && self.arm == Arm::On {
            return Err("the guest shut down".to_owned());
        }
        let to = target.map(|target| format!(" to {target}")).unwrap_or_default();
        self.log.push(format!("{measure} {:?} x{samples}{to}", self.arm));
        let cycles = vec![1; samples as usize];
        Ok(Run { measure, arm: self.arm, target, warm_up, cycles, statistics: BTreeMap::new() })
    }

    fn renew(&mut self) -> Result<(), String> {
        self.log.push("renew".to_owned());
        if self.renews { Ok(()) } else { Err("no memory".to_owned()) }
    }

    fn start(&mut self) -> Result<bool, String> {
        if self.traces {
            self.log.push("trace".to_owned());
        }
        Ok(self.traces)
    }

    fn take(&mut self) -> Result<Seen, String> {
        let exits = [(ExitReason::vmx(32), 4)].into_iter().collect();
        let change = InhibitChange {
            time_ns: 0,
            thread: 1,
            set: self.arm == Arm::Off,
            number: 3,
            reason: Some(InhibitReason::BlockIrq),
            mask: None,
        };
        Ok(Seen { exits, handling: BTreeMap::new(), inhibits: vec![change] })
    }

    fn stop(&mut self) {
        self.log.push("quiet".to_owned());
    }
}

fn plan(measures: &[Measure]) -> Plan {
    Plan { measures: measures.to_vec(), vcpus: 4, blocks: 2, samples: 5, counted_samples: 9, ..Plan::quick() }
}

fn carried_out(plan: &Plan, arms: &'static [Arm], machine: &mut Logging) -> (Runs, Vec<Progress>) {
    let mut seen = Vec::new();
    let mut progress = |progress| seen.push(progress);
    let runs = Schedule::new(plan, arms, machine, &mut progress).carry_out();
    (runs, seen)
}

const BOTH: &[Arm] = &[Arm::Off, Arm::On];

#[test]
fn blocks_are_off_on_on_off_and_tracing_waits_until_they_are_over() {
    let mut machine = Logging::new();
    let (runs, _) = carried_out(&plan(&[Measure::IpiRunning]), BOTH, &mut machine);
    assert_eq!(
        machine.log,
        [
            "ipi-running Off x5 to 1",
            "ipi-running On x5 to 1",
            "ipi-running On x5 to 2",
            "ipi-running Off x5 to 2",
            "ipi-running Off x5 to 3",
            "ipi-running On x5 to 3",
            "ipi-running On x5 to 1",
            "ipi-running Off x5 to 1",
            "trace",
            "ipi-running On x9 to 1",
            "ipi-running Off x9 to 1",
            "quiet",
        ]
    );
    let positions: Vec<u32> = runs.timed.iter().map(|timed| timed.position).collect();
    assert_eq!(positions, (0..8).collect::<Vec<_>>());
    assert_eq!(runs.counted[1].position, 9);
    assert_eq!(runs.counted[0].inhibits.len(), 2);
    assert_eq!(runs.counted[0].exits.as_ref().map(ExitCounts::total), Some(4));
}

#[test]
fn a_measure_that_fails_is_noted_and_the_others_go_on_with_a_fresh_machine() {
    let mut machine = Logging { broken: Some((Measure::Hlt, 5)), ..Logging::new() };
    let (runs, progress) = carried_out(&plan(&[Measure::Hlt, Measure::Eoi]), BOTH, &mut machine);
    assert_eq!(
        runs.failures,
        [Failure {
            measure: Measure::Hlt,
            arm: Arm::On,
            why: "the guest shut down".to_owned(),
            counted: false
        }]
    );
    assert_eq!(machine.log[..3], ["hlt Off x5", "renew", "eoi Off x5"]);
    assert!(!machine.log.iter().any(|line| line.starts_with("hlt Off x9")));
    let last = progress.last().unwrap();
    assert_eq!((last.done, last.total), (17, 20));
}

#[test]
fn a_failure_while_tracing_still_ends_the_tracing() {
    let mut machine = Logging { broken: Some((Measure::Eoi, 9)), ..Logging::new() };
    let (runs, _) = carried_out(&plan(&[Measure::Eoi]), BOTH, &mut machine);
    assert_eq!(runs.failures.len(), 1);
    assert!(runs.failures[0].counted && runs.timed.len() == 8);
    assert_eq!(machine.log[8..], ["trace", "quiet", "renew", "trace", "quiet"]);
}

#[test]
fn the_tracepoints_are_attached_once_for_all_measures() {
    let mut machine = Logging::new();
    let (runs, _) = carried_out(&plan(&[Measure::Floor, Measure::Eoi]), BOTH, &mut machine);
    let attached = machine.log.iter().position(|line| line == "trace").unwrap();
    assert_eq!(
        machine.log[attached..],
        ["trace", "floor On x9", "floor Off x9", "eoi On x9", "eoi Off x9", "quiet"]
    );
    let positions: Vec<u32> = runs.counted.iter().map(|counted| counted.position).collect();
    assert_eq!(positions, [16, 17, 18, 19]);
}

#[test]
fn without_a_fresh_machine_the_rest_fails_by_name() {
    let mut machine = Logging { broken: Some((Measure::Hlt, 5)), renews: false, ..Logging::new() };
    let (runs, _) = carried_out(&plan(&[Measure::Floor, Measure::Hlt, Measure::Eoi]), BOTH, &mut machine);
    let failed: Vec<Measure> = runs.failures.iter().map(|failure| failure.measure).collect();
    assert_eq!(failed, [Measure::Hlt, Measure::Eoi]);
    assert!(runs.failures[1].why.ends_with("no memory"));
}

#[test]
fn one_arm_alone_has_two_runs_a_block() {
    let mut machine = Logging::new();
    let (runs, _) = carried_out(&plan(&[Measure::Eoi]), &[Arm::Off], &mut machine);
    assert_eq!(runs.timed.len(), 4);
    assert!(machine.log.iter().all(|line| !line.contains("On")));
}

#[test]
fn without_tracepoints_runs_are_counted_by_kvm_alone() {
    let mut machine = Logging { traces: false, ..Logging::new() };
    let (runs, _) = carried_out(&plan(&[Measure::Eoi]), BOTH, &mut machine);
    assert_eq!(runs.counted.len(), 2);
    assert!(runs.counted.iter().all(|counted| counted.exits.is_none() && counted.inhibits.is_empty()));
}
