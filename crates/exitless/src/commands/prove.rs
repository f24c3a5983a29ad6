//! `exitless prove`: the effect of interrupt virtualization, with a table, a page and the raw samples.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use files::Replacement;
use host::kvm::Kvm;
use lab::{Happening, Lab, Laboratory, Request};
use prove::{EPYC_SWITCH_CYCLES, Judgement, Plan, Proof, Recording, analyse, collect, write_samples};

use probe::Arms;
use probe::measure::Measure;

use super::lab::{SWITCH_CYCLES, print_timings, with_laboratory, within};
use super::paths;
use super::plan::PlanArguments;
use super::recordings::write_page;
use crate::console::{self, StatusLine};
use crate::status::Usage;
use crate::{interrupt, status};

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Measure in this lab instead of on this host. Default on a host without KVM: intel-apicv.
    #[arg(long, value_name = "NAME", conflicts_with = "recording")]
    lab: Option<String>,
    /// Analyse this recording instead of measuring. Not with --lab, --measure, --vcpus, --irqchip, --apic, --samples,
    /// --warm-up, --blocks, --no-pin, --switch-cycles or --timings.
    #[arg(long, value_name = "FILE", value_parser = paths::input(),
        conflicts_with_all = ["measures", "vcpus", "irqchip", "apic", "samples", "warm_up",
        "blocks", "no_pin", "switch_cycles", "timings"])]
    recording: Option<PathBuf>,
    #[command(flatten)]
    plan: PlanArguments,
    /// Folder for report.html, result.json, recording.json and samples.parquet [default: exitless-report]. With
    /// --recording the default folder is not used if it has another recording.
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// In a lab: the cost of a VM exit and the entry after it, in addition to the instructions that handle it, as the
    /// time of this many instructions; 0 for none. The default was measured on an AMD EPYC, in cycles.
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = EPYC_SWITCH_CYCLES,
        value_parser = |given: &str| within(given, SWITCH_CYCLES))]
    switch_cycles: u32,
    /// Print the result as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Print the time of each part on standard error.
    #[arg(long)]
    timings: bool,
    /// Only record, into this file, by the plan in --plan: used inside a lab.
    #[arg(long, hide = true, value_name = "FILE", requires = "given_plan")]
    record: Option<PathBuf>,
    #[arg(long = "plan", hide = true, value_name = "JSON")]
    given_plan: Option<String>,
}

const RECORDING: &str = "recording.json";
const PAGE: &str = "report.html";
/// The folder of the results if none is named.
const OUTPUT: &str = "exitless-report";
/// The costs of a world switch, in instructions, for the curve of gains.
const CURVE: [u32; 5] = [0, 500, 1000, EPYC_SWITCH_CYCLES, 2000];

/// Few samples: emulated hosts are slow, but their cycle counts vary little.
fn laboratory_plan() -> Plan {
    Plan { samples: 40, warm_up: 5, blocks: 3, ..Plan::full() }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let (Some(file), Some(plan)) = (&arguments.record, &arguments.given_plan) {
        return record(file, plan);
    }
    let folder = arguments.output.clone().unwrap_or_else(|| PathBuf::from(OUTPUT));
    let recording = match &arguments.recording {
        Some(file) if !file.exists() || file.is_dir() => {
            return Err(Usage(format!("{}: no such recording to analyse", file.display())).into());
        }
        Some(file) => {
            let recording = read(file)?;
            if arguments.output.is_none() {
                refuse_others(&folder, &recording)?;
            }
            recording
        }
        None => measure(arguments, &folder)?,
    };
    let outcome = analyse(&recording).context("The recording cannot be analysed")?;
    let written = write_results(&folder, &recording, &outcome);
    // Also if they could not be written: measuring again would take minutes.
    let printed = print(&outcome, arguments.json);
    written.and(printed)?;
    console::say(format_args!("\nThe page: {}", folder.join(PAGE).display()));
    Ok(exit_code(outcome.judgement))
}

fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<Recording> {
    let chosen = match &arguments.lab {
        Some(name) => Some(Lab::find(name)?),
        None => lab_in_place_of(&host::kvm::usable(Path::new("/")))?,
    };
    let Some(lab) = chosen else {
        need_place(folder)?;
        return collect_here(&arguments.plan.plan(Plan::full()));
    };
    let plan = arguments.plan.plan(laboratory_plan());
    plan.check()?;
    need_place(folder)?;
    with_laboratory(lab, interrupt::flag()?, |laboratory| {
        let recording = collect_inside(laboratory, lab.name, &plan, arguments)?;
        Ok(as_emulated(
            recording,
            &laboratory.emulator_name(),
            arguments.switch_cycles,
            laboratory.has_clock(),
        ))
    })
}

/// Adds the facts about a laboratory that a recording made inside cannot contain.
fn as_emulated(mut recording: Recording, emulator: &str, switch_cycles: u32, has_clock: bool) -> Recording {
    recording.switch_cycles = charged(switch_cycles, has_clock);
    recording.emulated = Some(emulator.to_owned());
    for other in &mut recording.at_other_costs {
        other.emulated = Some(emulator.to_owned());
    }
    recording
}

/// The cost of a switch that the emulator charges; one without a clock charges nothing.
fn charged(switch_cycles: u32, has_clock: bool) -> Option<u32> {
    has_clock.then_some(switch_cycles)
}

/// A short plan for the curve, with the measures whose gain depends on the cost of a switch. A clock that
/// counts instructions varies little, so few samples suffice.
fn curve_plan(plan: &Plan) -> Plan {
    const MEASURES: [Measure; 5] =
        [Measure::IpiRunning, Measure::IpiHalted, Measure::SelfIpi, Measure::Eoi, Measure::TimerFire];
    let measures = plan.measures.iter().copied().filter(|measure| MEASURES.contains(measure)).collect();
    Plan { measures, warm_up: 2, samples: 16, counted_samples: 1, blocks: 2, ..plan.clone() }
}

/// The lab to measure in if this host has no hardware KVM. A KVM that this user may not open is an error: figures of an
/// emulator are not what was asked for.
fn lab_in_place_of(kvm: &Kvm) -> anyhow::Result<Option<&'static Lab>> {
    let lab = Lab::find("intel-apicv")?;
    let why = match (&kvm.access, kvm.vendor_module) {
        (Ok(()), Some(_)) => return Ok(None),
        (Err(obstacle), _) if kvm.is_missing => obstacle.to_string(),
        (Err(obstacle), Some(_)) => {
            bail!("Could not measure on this host: {obstacle}; or measure in a lab with --lab {}", lab.name)
        }
        (_, None) => format!(
            "{} is served by neither kvm_intel nor kvm_amd, so it says nothing about the hardware",
            kvm.device.display()
        ),
    };
    console::say(format_args!("This host has no KVM to measure ({why}). Measuring in the lab {}.", lab.name));
    Ok(Some(lab))
}

fn collect_here(plan: &Plan) -> anyhow::Result<Recording> {
    let line = StatusLine::new();
    Ok(collect(plan, &mut line.measurement("Measuring, "))?)
}

/// Measures inside a laboratory; then, if the machine has a settable cost of a switch and both arms, again
/// briefly at each other cost.
fn record(file: &Path, plan: &str) -> anyhow::Result<ExitCode> {
    let plan: Plan = serde_json::from_str(plan).context("Could not read the plan")?;
    let line = StatusLine::new();
    let mut recording = collect(&plan, &mut line.measurement("Measuring, "))?;
    let shorter = curve_plan(&plan);
    let cost = lab::switch_cost::get().context("Could not read the cost of a switch")?;
    if let (Some(own), Arms::Both { .. }, false) = (cost, &recording.arms, shorter.measures.is_empty()) {
        for cycles in CURVE.into_iter().filter(|&cycles| cycles != own) {
            lab::switch_cost::set(cycles).context("Could not set the cost of a switch")?;
            let other =
                collect(&shorter, &mut line.measurement(&format!("At {cycles} instructions a switch, ")))?;
            recording.at_other_costs.push(Recording { switch_cycles: Some(cycles), ..other });
        }
    }
    write_file(file, |out| Ok(recording.write(out)?))?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::disallowed_methods, reason = "the plan goes into a command line")]
fn collect_inside(
    laboratory: &Laboratory<'_>,
    name: &str,
    plan: &Plan,
    arguments: &Arguments,
) -> anyhow::Result<Recording> {
    let folder = tempfile::tempdir().context("Could not create a folder for the recording")?;
    let plan = serde_json::to_string(plan)?;
    let request = Request {
        bare: true,
        get: vec![RECORDING.to_owned()],
        output: folder.path().to_owned(),
        switch_cycles: charged(arguments.switch_cycles, laboratory.has_clock()).unwrap_or(0),
        ..Request::new(["exitless", "prove", "--record", RECORDING, "--plan", &plan])
    };
    let line = StatusLine::new();
    line.step(format!("Starting the emulated host {name}"));
    let mut messages = String::new();
    let finished = laboratory.run(&request, &mut |happening| {
        if let Happening::Stderr(bytes) = happening {
            let text = String::from_utf8_lossy(bytes);
            messages.push_str(&text);
            text.lines().for_each(|text| line.step(text));
        }
    })?;
    drop(line);
    if arguments.timings {
        print_timings(&finished.timings);
    }
    if finished.ending.code() != 0 {
        bail!("Measuring inside failed (status {}): {}", finished.ending.code(), messages.trim());
    }
    read(&folder.path().join(RECORDING))
}

fn read(file: &Path) -> anyhow::Result<Recording> {
    let reader = File::open(file).with_context(|| format!("Could not open {}", file.display()))?;
    Recording::read(BufReader::new(reader)).with_context(|| format!("Could not read {}", file.display()))
}

/// Refuses a folder that has the samples of another measurement.
fn refuse_others(folder: &Path, recording: &Recording) -> anyhow::Result<()> {
    let file = folder.join(RECORDING);
    if !file.exists() || read(&file).is_ok_and(|found| found == *recording) {
        return Ok(());
    }
    let what = "has another recording, which would be overwritten; name a folder with --output";
    Err(Usage(format!("{} {what}", folder.display())).into())
}

/// Makes the folder of the results. An error should not come after the measurement.
fn need_place(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Could not create {}", folder.display()))?;
    let file = folder.join(RECORDING);
    // Dropped, it leaves no file.
    let new = Replacement::begin(&file, 0o666);
    new.map(drop).with_context(|| format!("Could not write {}", file.display()))
}

fn write_results(folder: &Path, recording: &Recording, outcome: &Proof) -> anyhow::Result<()> {
    need_place(folder)?;
    write_file(&folder.join(RECORDING), |out| Ok(recording.write(out)?))?;
    write_file(&folder.join("samples.parquet"), |out| Ok(write_samples(recording, out)?))?;
    write_file(&folder.join("result.json"), |out| Ok(crate::json::write_pretty(out, outcome)?))?;
    write_page(&folder.join(PAGE), &report::prove::page(outcome, recording))
}

/// Writes a file atomically.
fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cannot = || format!("Could not write {}", path.display());
    let new = Replacement::begin(path, 0o666).with_context(cannot)?;
    let mut out = BufWriter::new(new.file());
    write(&mut out).and_then(|()| Ok(out.flush()?)).with_context(cannot)?;
    drop(out);
    new.finish().with_context(cannot)
}

fn print(outcome: &Proof, json: bool) -> anyhow::Result<()> {
    let text = || report::prove::terminal(outcome, console::width(), console::colour());
    Ok(crate::output::print_table(json, || outcome, text)?)
}

fn exit_code(judgement: Judgement) -> ExitCode {
    ExitCode::from(match judgement {
        Judgement::OneArm => status::ONE_ARM,
        Judgement::Contradicted => status::CONTRADICTED,
        // `Nothing` has samples, but only of measures that do not depend on interrupt virtualization. Without
        // any samples there is an error instead.
        Judgement::Nothing
        | Judgement::WorthIt
        | Judgement::Mixed
        | Judgement::Worse
        | Judgement::NoDifference
        | Judgement::TooFewRuns => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::kvm::{INTEL, Obstacle};

    #[test]
    fn only_a_host_without_kvm_is_measured_in_a_lab() {
        let device = PathBuf::from("/dev/kvm");
        let obstacle = Obstacle { why: "it cannot be opened".to_owned(), next: "become root".to_owned() };
        let open = |access, is_missing, vendor_module| Kvm {
            device: device.clone(),
            access,
            is_missing,
            vendor_module,
            interrupt_virtualization: None,
        };
        let lab = |kvm: &Kvm| lab_in_place_of(kvm).map(|lab| lab.map(|lab| lab.name));
        assert_eq!(lab(&open(Ok(()), false, Some(INTEL))).unwrap(), None);
        assert_eq!(lab(&open(Ok(()), false, None)).unwrap(), Some("intel-apicv"), "another hypervisor's");
        assert_eq!(lab(&open(Err(obstacle.clone()), true, None)).unwrap(), Some("intel-apicv"));
        assert_eq!(lab(&open(Err(obstacle.clone()), false, None)).unwrap(), Some("intel-apicv"), "no module");
        let denied = lab(&open(Err(obstacle), false, Some(INTEL))).unwrap_err().to_string();
        assert!(denied.contains("become root") && denied.contains("--lab intel-apicv"), "{denied}");
    }

    #[test]
    fn an_emulator_without_a_clock_is_charged_nothing() {
        assert_eq!(charged(EPYC_SWITCH_CYCLES, true), Some(EPYC_SWITCH_CYCLES));
        assert_eq!(charged(EPYC_SWITCH_CYCLES, false), None);
    }
}
