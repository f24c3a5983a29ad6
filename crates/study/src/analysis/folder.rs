//! Conversion of a result folder to the input of the analysis.

use std::path::Path;

use serde_json::Value;

use super::facts::{Collected, FactorFacts, LevelFacts, StoredRun, StudyFacts, WorkloadFacts};
use crate::Study;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::store::{KeptRun, StudyFolder};

impl From<StudyFolder> for Collected {
    fn from(read: StudyFolder) -> Self {
        let planned = planned(&read);
        let stored = |kept: KeptRun| StoredRun { folder: below(&read.folder, &kept.folder), run: kept.run };
        Self {
            facts: facts(&read.study),
            runs: read.runs.into_iter().map(stored).collect(),
            failed: read.failed.into_iter().map(stored).collect(),
            planned,
            damage: read.warnings,
        }
    }
}

/// The number of runs in the plan's blocks, and in further blocks that were started because of a stop rule.
fn planned(read: &StudyFolder) -> usize {
    let plan = &read.study.plan;
    let begun = read.runs.iter().chain(&read.failed).map(|kept| kept.run.cell.block + 1).max().unwrap_or(0);
    let blocks = plan.order.repeats.max(begun) as usize;
    blocks * Schedule::new(plan, read.study.seed).runs_per_block() as usize
}

/// The run's path below the folder, with slashes as in links.
fn below(folder: &Path, run: &Path) -> String {
    let relative = run.strip_prefix(folder).unwrap_or(run);
    relative.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn facts(study: &Study) -> StudyFacts {
    let plan = &study.plan;
    let mut guests = serde_json::to_value(&plan.guests).unwrap_or_default();
    let kind = guests.get("kind").and_then(Value::as_str).unwrap_or_default();
    let are_vms = matches!(kind, "qemu" | "libvirt" | "xen" | "xen-image");
    if let Some(fields) = guests.as_object_mut() {
        fields.remove("counts");
    }
    StudyFacts {
        name: plan.name.clone(),
        title: plan.title.clone(),
        question: plan.question.clone(),
        factors: factors(plan),
        counts: plan.guests.counts(),
        are_vms,
        guests: guests.to_string(),
        samples: serde_json::to_value(&plan.samples).unwrap_or_default().to_string(),
        workloads: workloads(plan),
        repeats: plan.order.repeats,
        warm_up: plan.order.warm_up,
        seed: study.seed,
        target: study.target.clone(),
        emulated: study.emulated.clone(),
        version: study.version.clone(),
    }
}

fn factors(plan: &Plan) -> Vec<FactorFacts> {
    let factors = plan.factors.iter().map(|factor| FactorFacts {
        name: factor.name.clone(),
        baseline: factor.baseline.clone(),
        levels: factor
            .levels
            .iter()
            .map(|level| {
                let mut settings = serde_json::to_value(level).unwrap_or_default();
                if let Some(fields) = settings.as_object_mut() {
                    fields.remove("name");
                }
                LevelFacts { name: level.name.clone(), settings: settings.to_string() }
            })
            .collect(),
    });
    factors.collect()
}

fn workloads(plan: &Plan) -> Vec<WorkloadFacts> {
    let workloads = plan.workloads.iter().map(|workload| {
        let mut settings = serde_json::to_value(workload).unwrap_or_default();
        let tool = settings.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(fields) = settings.as_object_mut() {
            fields.retain(|name, _| name != "name" && name != "tool");
        }
        WorkloadFacts { name: workload.name.clone(), tool, settings: settings.to_string() }
    });
    workloads.collect()
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{Made, write};
    use super::super::{Finding, Warning, analyse};
    use super::*;

    fn read(folder: &Path) -> Collected {
        StudyFolder::open(folder).unwrap().into()
    }

    #[test]
    fn a_folder_comes_to_what_its_runs_do() {
        let folder = tempfile::tempdir().unwrap();
        let made = Made { counts: vec![1, 2], workloads: vec!["pread"], ..Made::default() };
        write(folder.path(), &made).unwrap();
        let collected = read(folder.path());
        let facts = &collected.facts;
        assert_eq!((facts.name.as_str(), facts.are_vms, facts.seed), ("iozone-apicv", true, 1));
        assert!(
            facts.guests.contains("\"kind\":\"qemu\"") && !facts.guests.contains("counts"),
            "{}",
            facts.guests
        );
        assert!(facts.samples.contains("\"exits\":true"), "{}", facts.samples);
        assert!(!facts.counts_exits_apart());
        let apart = facts.samples.replace("\"exits\":true", "\"exits\":\"apart\"");
        assert!(StudyFacts { samples: apart, ..facts.clone() }.counts_exits_apart());
        assert_eq!((facts.workloads[0].tool.as_str(), collected.planned), ("command", 8 * 2 * 2));
        assert!(collected.runs[0].folder.starts_with("runs/"), "{}", collected.runs[0].folder);
        let findings = analyse(&collected, false).unwrap();
        assert_eq!(findings.main()[0].overall[0].finding, Finding::Raised);
        assert!(!findings.arms[1].is_like_baseline);
        assert_eq!(findings.warnings, []);
    }

    #[test]
    fn levels_that_set_the_same_are_one_arm() {
        let folder = tempfile::tempdir().unwrap();
        let made = Made { is_aa: true, counts: vec![1], workloads: vec!["pread"], ..Made::default() };
        write(folder.path(), &made).unwrap();
        let findings = analyse(&read(folder.path()), false).unwrap();
        assert!(findings.arms[1].is_like_baseline && findings.false_alarms.is_some());
    }

    #[test]
    fn a_damaged_run_is_left_out_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let made = Made { counts: vec![1], workloads: vec!["pread"], ..Made::default() };
        write(folder.path(), &made).unwrap();
        let run = folder.path().join(&read(folder.path()).runs[3].folder).join("run.json");
        let text = std::fs::read_to_string(&run).unwrap();
        std::fs::write(&run, &text[..text.len() / 2]).unwrap();
        let findings = analyse(&read(folder.path()), false).unwrap();
        let named =
            |warning: &Warning| matches!(warning, Warning::Damaged { what } if what.contains("run.json"));
        assert!(findings.warnings.iter().any(named), "{:?}", findings.warnings);
        assert!(findings.warnings.contains(&Warning::Incomplete { runs: 15, planned: 16 }));
    }
}
