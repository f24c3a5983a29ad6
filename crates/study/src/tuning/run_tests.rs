use std::collections::VecDeque;

use super::super::recorded::tests::profile;
use super::*;
use crate::analysis::analyse;
use crate::analysis::synthetic::{Made, study};

/// Returns scripted results, and records the requests.
struct Script {
    gives: VecDeque<Option<f64>>,
    asked: Vec<String>,
    /// Ports with exits a second, each handled in 0.1 ms, by the folder and arm of the run.
    exits: Vec<(&'static str, u16, u64)>,
    told: usize,
}

impl Script {
    fn new(gives: &[Option<f64>]) -> Self {
        Self { gives: gives.iter().copied().collect(), asked: Vec::new(), exits: Vec::new(), told: 0 }
    }
}

impl Measuring for Script {
    type Error = std::convert::Infallible;

    fn measure(&mut self, folder: &str, _: &Plan) -> Result<Measured, Self::Error> {
        self.asked.push(folder.to_owned());
        Ok(match self.gives.pop_front() {
            None => Measured::Interrupted,
            Some(None) => Measured::Failed("no guest started".to_owned()),
            Some(Some(percent)) => {
                let made = Made { percent, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
                Measured::Findings(Box::new(analyse(&study(&made), false).unwrap()))
            }
        })
    }

    fn exits(&mut self, folder: &str, study: &Plan, level: &str) -> Result<Seen, Self::Error> {
        assert!(study.check().is_empty(), "{:?}", study.check());
        let place = format!("{folder}:{level}");
        self.asked.push(place.clone());
        let mut all = Recorded::default();
        for &(_, port, count) in self.exits.iter().filter(|(at, ..)| *at == place) {
            all.add(&profile(1, port, count, 100_000));
        }
        all.observed_ns = 1_000_000_000;
        Ok(match all.profile.is_empty() {
            true => Seen::Nothing("no exits".to_owned()),
            false => Seen::Exits(Box::new(all)),
        })
    }

    fn tried(&mut self, so_far: &Tuning) {
        self.told = so_far.steps.len();
    }
}

fn plan() -> TuningPlan {
    let change = |name: &str, guests: &str| {
        format!("[[changes]]\nname = \"{name}\"\nwhy = \"So.\"\nguests = {guests}\n")
    };
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\nquestion = \"What helps?\"\n[guests]\nkind = \"qemu\"\nmachine = \"pc\"\n\
         disk = {{ bus = \"ide\" }}\n[[workloads]]\nname = \"compute\"\ntool = \"sysbench\"\ntest = \"cpu\"\n{}{}{}",
        change("virtio", "{ disk = { bus = \"virtio-blk\" } }"),
        change("split", "{ irqchip = \"split\" }"),
        change("thread", "{ disk = { bus = \"virtio-blk\", iothread = true } }"),
    );
    TuningPlan::read(&text, "small").unwrap()
}

fn rulings(tuning: &Tuning) -> Vec<Ruling> {
    tuning.steps.iter().map(|step| step.ruling).collect()
}

#[test]
fn what_helps_stays_and_is_confirmed_and_the_rest_is_taken_back() {
    let mut script = Script::new(&[Some(10.0), Some(-10.0), Some(10.0), Some(20.0)]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!(rulings(&tuning), [Ruling::Kept, Ruling::Worse, Ruling::Kept, Ruling::Confirmed]);
    assert_eq!(tuning.kept, ["virtio", "thread"]);
    assert!(tuning.complete && script.told == 4);
    assert_eq!(script.asked, ["steps/1-virtio", "steps/2-split", "steps/3-thread", "steps/4-tuned"]);
    let holds = |lines: &[String], part: &str| lines.iter().any(|line| line.contains(part));
    assert!(holds(&tuning.before, "-device ide-hd") && !holds(&tuning.after, "ide-hd"));
    assert!(holds(&tuning.after, "iothread=io") && !holds(&tuning.after, "kernel-irqchip=split"));
    assert_eq!(tuning.before[0], "qemu-system-x86_64");
}

#[test]
fn a_step_that_fails_costs_itself_alone() {
    let mut script = Script::new(&[None, Some(0.0), Some(10.0), Some(10.0)]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!(rulings(&tuning), [Ruling::Failed, Ruling::NoDifference, Ruling::Kept, Ruling::Confirmed]);
    assert_eq!(tuning.steps[0].sentence, "no guest started");
    assert!(tuning.complete);
}

#[test]
fn one_change_kept_of_several_is_measured_again() {
    for (again, ruling) in [(10.0, Ruling::Confirmed), (0.0, Ruling::NotConfirmed), (-10.0, Ruling::Worse)] {
        let mut script = Script::new(&[Some(0.0), Some(10.0), Some(-10.0), Some(again)]);
        let Ok(tuning) = tune(&plan(), "local", &mut script);
        assert_eq!((rulings(&tuning)[3], tuning.kept.len(), tuning.complete), (ruling, 1, true));
        assert!(tuning.steps[3].is_confirmation());
    }
    let mut only = plan();
    only.changes.truncate(1);
    let Ok(tuning) = tune(&only, "local", &mut Script::new(&[Some(10.0)]));
    assert_eq!((rulings(&tuning), tuning.complete), (vec![Ruling::Kept], true));
}

#[test]
fn a_confirmation_that_fails_is_no_change() {
    let mut script = Script::new(&[Some(10.0), Some(-10.0), Some(10.0), None]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!(rulings(&tuning)[3], Ruling::Failed);
    let are: Vec<bool> = tuning.steps.iter().map(Step::is_confirmation).collect();
    assert_eq!((are, tuning.kept.len()), (vec![false, false, false, true], 2));
}

#[test]
fn an_interrupted_tuning_is_not_complete_and_tells_what_it_has() {
    let mut script = Script::new(&[Some(10.0)]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!((rulings(&tuning), tuning.complete), (vec![Ruling::Kept], false));
}

fn advised(steps: u32) -> TuningPlan {
    let text = format!(
        "name = \"small\"\ntitle = \"Small\"\nquestion = \"What helps?\"\n[guests]\nkind = \"qemu\"\nmachine = \"pc\"\n\
         irqchip = \"split\"\ndisk = {{ bus = \"ide\" }}\n[[workloads]]\nname = \"compute\"\ntool = \"sysbench\"\n\
         test = \"cpu\"\n[samples]\naccesses = true\n[tune.advised]\nsteps = {steps}\n"
    );
    TuningPlan::read(&text, "small").unwrap()
}

#[test]
fn advised_changes_follow_from_the_exits_of_the_best_so_far() {
    let mut script = Script::new(&[Some(10.0), Some(-10.0), Some(10.0)]);
    script.exits = vec![
        ("steps/0-baseline:before", 0x1f7, 2000),
        ("steps/0-baseline:before", 0x20, 300),
        ("steps/1-ide-virtio-blk:ide-virtio-blk", 0x20, 300),
        ("steps/2-pic-irqchip-on:before", 0x20, 300),
    ];
    let Ok(tuning) = tune(&advised(6), "local", &mut script);
    assert_eq!(rulings(&tuning), [Ruling::Kept, Ruling::Worse, Ruling::Confirmed]);
    assert_eq!(tuning.kept, ["ide-virtio-blk"]);
    let asked = [
        "steps/0-baseline:before",
        "steps/1-ide-virtio-blk",
        "steps/1-ide-virtio-blk:ide-virtio-blk",
        "steps/2-pic-irqchip-on",
        "steps/2-pic-irqchip-on:before",
        "steps/3-tuned",
    ];
    assert_eq!(script.asked, asked);
    assert_eq!(tuning.steps[0].advised.as_ref().unwrap().device, "ide");
    assert!(tuning.complete && tuning.notes.is_empty(), "{:?}", tuning.notes);
    assert_eq!(tuning.left[0].advised.cure, "apic-in-guest");
}

#[test]
fn advice_ends_with_the_steps_allowed_or_without_exits_and_says_so() {
    let mut script = Script::new(&[Some(0.0)]);
    script.exits =
        vec![("steps/0-baseline:before", 0x1f7, 2000), ("steps/1-ide-virtio-blk:before", 0x20, 300)];
    let Ok(tuning) = tune(&advised(1), "local", &mut script);
    assert_eq!(rulings(&tuning), [Ruling::NoDifference]);
    assert!(tuning.notes[0].starts_with("pic-irqchip-on is advised too"), "{:?}", tuning.notes);
    let Ok(none) = tune(&advised(1), "local", &mut Script::new(&[]));
    assert_eq!((none.steps.len(), none.complete), (0, true));
    assert_eq!(none.notes, ["Nothing more was advised: no exits"]);
}
