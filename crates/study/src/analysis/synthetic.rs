//! Synthetic studies from a seeded generator, for tests. Nothing here was measured.

use std::collections::BTreeMap;
use std::path::Path;

use host::Fingerprint;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{Collected, FactorFacts, LevelFacts, StoredRun, StudyFacts, WorkloadFacts};
use crate::plan::Plan;
use crate::store::{Store, StoreError};
use crate::{Better, Cell, Combine, Metric, Run, Unit};

/// The parameters of a synthetic study.
#[derive(Debug, Clone, PartialEq)]
pub struct Made {
    /// The number of blocks.
    pub blocks: u32,
    /// The numbers of guests.
    pub counts: Vec<u32>,
    /// IOzone's tests.
    pub workloads: Vec<&'static str>,
    /// The effect of APICv on throughput, in percent; latency changes the other way.
    pub percent: f64,
    /// The relative standard deviation of a run.
    pub scatter: f64,
    /// The relative standard deviation that all runs of a block share.
    pub shared: f64,
    /// Both levels have the same settings.
    pub is_aa: bool,
    /// The seed.
    pub seed: u64,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            blocks: 8,
            counts: vec![1, 2, 4],
            workloads: vec!["random-read", "random-write", "pread"],
            percent: 3.0,
            scatter: 0.01,
            shared: 0.03,
            is_aa: false,
            seed: 1,
        }
    }
}

/// Seconds between the starts of two runs.
const STEP: u64 = 14;
/// VM exits a second of one guest by reason, with APICv off and on.
const EXITS: [(&str, f64, f64); 7] = [
    ("MSR_WRITE", 21_400.0, 3_900.0),
    ("EXTERNAL_INTERRUPT", 8_200.0, 1_100.0),
    ("INTERRUPT_WINDOW", 3_100.0, 0.0),
    ("EPT_MISCONFIG", 2_600.0, 2_650.0),
    ("HLT", 1_900.0, 1_950.0),
    ("PAUSE_INSTRUCTION", 240.0, 230.0),
    ("CPUID", 3.0, 3.0),
];

/// A study as read from a result folder; always the same for the same `made`.
pub fn study(made: &Made) -> Collected {
    let mut random = ChaCha8Rng::seed_from_u64(made.seed);
    let mut runs = Vec::new();
    for block in 0..made.blocks {
        let together = 1.0 + made.shared * bell(&mut random);
        let mut arms = ["off", "on"];
        if random.random_bool(0.5) {
            arms.reverse();
        }
        for level in arms {
            for &guests in &made.counts {
                for &workload in &made.workloads {
                    let position = runs.len() as u32;
                    let arm = BTreeMap::from([("apicv".to_owned(), level.to_owned())]);
                    let cell = Cell { block, arm, guests, workload: workload.to_owned() };
                    let run = run(made, cell, position, together, &mut random);
                    runs.push(StoredRun { folder: format!("runs/{position:04}"), run });
                }
            }
        }
    }
    Collected { facts: facts(made), planned: runs.len(), runs, failed: Vec::new(), damage: Vec::new() }
}

fn facts(made: &Made) -> StudyFacts {
    let level = |name: &str| LevelFacts {
        name: name.to_owned(),
        settings: if made.is_aa {
            "{}".to_owned()
        } else {
            format!(r#"{{"kvm_intel":{{"enable_apicv":"{name}"}}}}"#)
        },
    };
    let workload = |name: &&str| WorkloadFacts {
        name: (*name).to_owned(),
        tool: "iozone".to_owned(),
        settings: format!(r#"{{"file":"100M","record":"64K","test":"{name}"}}"#),
    };
    StudyFacts {
        name: "iozone-apicv".to_owned(),
        title: "APICv and file I/O".to_owned(),
        question:
            "Does APICv raise the throughput of file I/O in VMs, and what does it do to the host's CPU time?"
                .to_owned(),
        factors: vec![FactorFacts {
            name: "apicv".to_owned(),
            baseline: "off".to_owned(),
            levels: vec![level("off"), level("on")],
        }],
        counts: made.counts.clone(),
        are_vms: true,
        guests: r#"{"disk":{"bus":"virtio-blk"},"kind":"qemu","memory":"1G","vcpus":2}"#.to_owned(),
        workloads: made.workloads.iter().map(workload).collect(),
        samples: String::new(),
        repeats: made.blocks,
        warm_up: 1,
        seed: made.seed,
        target: "local".to_owned(),
        emulated: None,
        version: "0.1.0".to_owned(),
    }
}

fn run(made: &Made, cell: Cell, position: u32, together: f64, random: &mut ChaCha8Rng) -> Run {
    let on = cell.arm["apicv"] == "on" && !made.is_aa;
    let count = f64::from(cell.guests);
    let gain = if on { 1.0 + made.percent / 100.0 } else { 1.0 };
    let speed = 1.0 + 0.15 * (cell.workload.len() % 5) as f64;
    // Guests share one disk, so each gets less than it would alone.
    let each = 410e6 * speed * gain * together * count.powf(-0.35);
    let guests = (0..cell.guests)
        .map(|_| {
            let throughput = each * (1.0 + made.scatter * count.sqrt() * bell(random));
            vec![
                metric("throughput", Unit::BytesPerSecond, Better::Higher, Combine::Sum, throughput),
                metric(
                    "latency.p99",
                    Unit::Seconds,
                    Better::Lower,
                    Combine::Worst,
                    65_536.0 * 3.0 / throughput,
                ),
                metric("cpu", Unit::Percent, Better::Neither, Combine::Mean, 41.0 + bell(random)),
            ]
        })
        .collect();
    let busy = (4.1 * count * if on { 1.05 } else { 1.0 } + 0.15 * bell(random)).clamp(0.1, 100.0);
    let waiting = (1.7 * count * if on { 0.9 } else { 1.0 } + 0.08 * bell(random)).clamp(0.0, 100.0);
    let host = |name: &str, value: f64| metric(name, Unit::Percent, Better::Neither, Combine::Single, value);
    let mut host = vec![
        host("cpu.busy", busy),
        host("cpu.guest", busy * 0.6),
        host("cpu.system", busy * 0.3),
        host("cpu.user", busy * 0.1),
        host("cpu.iowait", waiting),
    ];
    let mut total = 0.0;
    for (reason, off, with) in EXITS {
        let rate = if on { with } else { off } * count * together * (1.0 + made.scatter * bell(random));
        total += rate;
        if rate > 0.0 {
            host.push(metric(
                &format!("exits.{reason}"),
                Unit::PerSecond,
                Better::Lower,
                Combine::Single,
                rate,
            ));
        }
    }
    host.push(metric("exits.total", Unit::PerSecond, Better::Lower, Combine::Single, total));
    Run {
        started: 1_750_000_000 + u64::from(position) * STEP,
        took: 11.0 + random.random_range(0.0..0.5),
        sampled: None,
        exits_counted: None,
        counted: None,
        spent: f64::from(position + 1) * STEP as f64,
        start_skew: (cell.guests > 1).then(|| random.random_range(0.0002..0.004)),
        guest_facts: (0..cell.guests).map(|_| guest()).collect(),
        fingerprint: fingerprint(on),
        cell,
        position,
        attempt: 0,
        session: 0,
        guests,
        host,
        failure: None,
        warnings: Vec::new(),
    }
}

fn metric(name: &str, unit: Unit, better: Better, combine: Combine, value: f64) -> Metric {
    Metric { name: name.to_owned(), unit, better, combine, value }
}

fn guest() -> BTreeMap<String, String> {
    let facts = [("kernel", "6.12.0-example"), ("iozone", "3.489"), ("cpu", "Example Processor")];
    facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn fingerprint(on: bool) -> Fingerprint {
    let apicv = Some(if on { "Y" } else { "N" }.to_owned());
    Fingerprint {
        kernel_release: Some("6.12.0-example".to_owned()),
        kernel_version: Some("#1 SMP PREEMPT_DYNAMIC".to_owned()),
        architecture: Some("x86_64".to_owned()),
        online_cpus: Some(48),
        memory_mib: Some(65_536),
        modules: BTreeMap::from([(
            "kvm_intel".to_owned(),
            BTreeMap::from([("enable_apicv".to_owned(), apicv)]),
        )]),
        cmdline: Some("root=/dev/sda1 ro quiet".to_owned()),
        clocksource: Some("tsc".to_owned()),
        ..Fingerprint::default()
    }
}

/// A sum of uniform numbers, which approximates a normal distribution with standard deviation 1.
fn bell(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// A study whose levels set the number of guests: one large guest, or six small ones.
#[must_use]
pub fn of_two_kinds() -> Collected {
    let mut collected = study(&Made { counts: vec![1, 6], ..Made::default() });
    let level = |name: &str| LevelFacts { name: name.to_owned(), settings: format!("{{\"{name}\":1}}") };
    collected.facts.factors.push(FactorFacts {
        name: "guests".to_owned(),
        baseline: "large".to_owned(),
        levels: vec![level("large"), level("small")],
    });
    for stored in &mut collected.runs {
        let kind = if stored.run.cell.guests == 1 { "large" } else { "small" };
        stored.run.cell.arm.insert("guests".to_owned(), kind.to_owned());
    }
    collected
}

/// Writes the study as `exitless experiment run` does, with a plan of commands that print nothing.
///
/// # Errors
/// If the folder cannot be written.
pub fn write(folder: &Path, made: &Made) -> Result<(), StoreError> {
    let text = plan(made);
    let plan = Plan::read(&text, "plan.toml").map_err(|error| StoreError::File {
        what: "Could not read",
        path: folder.join("plan.toml"),
        source: std::io::Error::other(error),
    })?;
    let mut store = Store::open(folder, &plan, &text, "local", made.seed)?;
    let collected = study(made);
    store.begin(&fingerprint(false), None, false)?;
    for stored in collected.runs.into_iter().chain(collected.failed) {
        let unfinished = store.unfinished()?;
        store.keep(&stored.run, &unfinished)?;
    }
    Ok(())
}

fn plan(made: &Made) -> String {
    let facts = facts(made);
    let level = |name: &str| {
        let set =
            if made.is_aa { "" } else { "module_parameters = { kvm_intel = { enable_apicv = \"N\" } }\n" };
        let set = if name == "on" { set.replace("\"N\"", "\"Y\"") } else { set.to_owned() };
        format!("[[factors.levels]]\nname = \"{name}\"\n{set}")
    };
    let workload = |name: &&str| {
        format!(
            "[[workloads]]\nname = \"{name}\"\ntool = \"command\"\nscript = \"true\"\nmetrics = [{{ name = \"throughput\", \
             unit = \"bytes-per-second\", better = \"higher\", combine = \"sum\", regex = \"([0-9]+)\" }}]\n"
        )
    };
    format!(
        "name = \"{}\"\ntitle = \"{}\"\nquestion = \"{}\"\n[order]\nrepeats = {}\nwarm_up = 1\nseed = {}\n[guests]\nkind = \"qemu\"\n\
         counts = {:?}\n[[factors]]\nname = \"apicv\"\nbaseline = \"off\"\n{}{}{}",
        facts.name,
        facts.title,
        facts.question,
        made.blocks,
        made.seed,
        made.counts,
        level("off"),
        level("on"),
        made.workloads.iter().map(workload).collect::<String>()
    )
}
