use std::collections::VecDeque;

use super::*;
use crate::study::analysis::analyse;
use crate::study::analysis::synthetic::{Made, study};

/// Gives what it was told to, and keeps what it was asked for.
struct Script {
    gives: VecDeque<Option<f64>>,
    asked: Vec<String>,
    told: usize,
}

impl Script {
    fn new(gives: &[Option<f64>]) -> Self {
        Self { gives: gives.iter().copied().collect(), asked: Vec::new(), told: 0 }
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
    let mut script = Script::new(&[None, Some(0.0), Some(10.0)]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!(rulings(&tuning), [Ruling::Failed, Ruling::NoDifference, Ruling::Kept]);
    assert_eq!(tuning.steps[0].sentence, "no guest started");
    assert!(tuning.complete, "one kept change was measured against the baseline already");
}

#[test]
fn an_interrupted_tuning_is_not_complete_and_tells_what_it_has() {
    let mut script = Script::new(&[Some(10.0)]);
    let Ok(tuning) = tune(&plan(), "local", &mut script);
    assert_eq!((rulings(&tuning), tuning.complete), (vec![Ruling::Kept], false));
}
