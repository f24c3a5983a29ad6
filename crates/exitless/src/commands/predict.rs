//! `exitless predict`: the exits of recordings, or of this host, that interrupt virtualization would avoid.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use conclusions::prediction::{Assumption, Avic, Prediction, predict};
use doctor::examination;
use exits::{Hypervisor, Isa, Selection};
use host::{Fingerprint, Root};
use live::{Collector, Watch};
use traces::{Recording, Recordings};

use super::quantity;
use super::recordings::{RecordingArguments, exit_code, hypervisor};
use super::watching::{HOST, LiveSource, VmNames, for_a_time, processes_of, wait_until};
use crate::console::StatusLine;
use crate::status::Usage;
use crate::{console, interrupt};

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    recordings: RecordingArguments,
    /// Observe this host for this time instead of reading a recording: 10s, 2min; a number alone is in seconds. --vm then
    /// also takes a VMID of Proxmox VE, an ID of libvirt, a UUID, or NAMESPACE/NAME.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait,
        conflicts_with_all = ["files", "from", "to", "tsc_hz", "isa"])]
    duration: Option<u64>,
    #[command(flatten)]
    assumed: AssumedArguments,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// The interrupt virtualization to predict for.
#[derive(Debug, Args)]
pub(crate) struct AssumedArguments {
    /// Predict for this technology; by default for APICv on Intel and x2AVIC on AMD.
    #[arg(long = "for", value_name = "WHAT")]
    technology: Option<Technology>,
    /// The processor sends IPIs itself: assumed for AVIC, not for APICv (Intel: Sapphire Rapids and later).
    #[arg(long)]
    ipi_virtualization: bool,
    /// The processor does not send IPIs itself (AMD: family 17h, Zen 1 and 2).
    #[arg(long, conflicts_with = "ipi_virtualization")]
    no_ipi_virtualization: bool,
    /// APICv without posted interrupts, which KVM does not support.
    #[arg(long)]
    no_posted_interrupts: bool,
    /// Timer ticks of the host in a second, CONFIG_HZ of its kernel; 0 if they are stopped. Affects only the
    /// expected number of the host's interrupts that are kicks; default 250. Xen has none.
    #[arg(long, value_name = "COUNT", value_parser = quantity::ticks)]
    host_hz: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Technology {
    /// Intel's.
    Apicv,
    /// AMD's for guests in xAPIC mode.
    Avic,
    /// AMD's for guests in either mode.
    X2avic,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let selection = arguments.recordings.selection(&[]);
    let recordings = match arguments.duration {
        Some(ns) => watched(Duration::from_nanos(ns), selection)?,
        None => {
            arguments.recordings.check([])?;
            arguments.recordings.read(&mut ())?.select(selection)?
        }
    };
    let hypervisor = hypervisor(&recordings)?;
    let build = arguments.duration.and_then(|_| Fingerprint::read(Path::new(HOST)).ok()?.kernel_version);
    let mut assumption = arguments.assumed.assumption(hypervisor)?;
    if hypervisor == Hypervisor::Kvm {
        let known = |test: KernelTest| known(&recordings, build.as_deref(), test);
        let lets_cr8_go = known(|release, build| Some(!examination::keeps_cr8_intercept(release, build)?));
        assumption.avic.keeps_cr8_intercept = lets_cr8_go.map(|lets| !lets);
        assumption.avic.passes_served_msrs = known(examination::passes_served_msrs);
    }
    let prediction = predict(&recordings.profile, recordings.observed_ns(), &assumption);
    arguments.assumed.check(&prediction.isas, hypervisor)?;
    print(&recordings, &prediction, arguments.json)?;
    Ok(exit_code(&recordings))
}

/// A question to a kernel's release and build.
type KernelTest = fn(&str, Option<&str>) -> Option<bool>;

/// Tests whether all recorded kernels pass the test. `None` if no kernel is known to fail and at least one is
/// unknown.
fn known(recordings: &Recordings, build: Option<&str>, test: KernelTest) -> Option<bool> {
    let one = |file: &Recording| test(file.origin.kernel.as_deref()?, build);
    let told: Vec<Option<bool>> = recordings.files.iter().map(one).collect();
    if told.contains(&Some(false)) {
        return Some(false);
    }
    (!told.is_empty() && !told.contains(&None)).then_some(true)
}

/// The exits of the selected VMs of this host during `duration`. Only running VMs have all the names by which users
/// may select them, so the selection comes first.
fn watched(duration: Duration, selection: Selection) -> anyhow::Result<Recordings> {
    super::xen::refuse_live(&Root::live(), "predict")?;
    let processes = processes_of(&selection.vms)?;
    let stop = interrupt::flag()?;
    // Predictions depend on the MSRs.
    let watch = Watch { processes, accesses: true, ..Watch::default() };
    let mut collector = Collector::attach(Path::new(HOST), &watch)?;
    let line = StatusLine::new();
    line.step(for_a_time("Watching", duration));
    // A signal ends the observation early; the exits until then are used.
    wait_until(Instant::now() + duration, &mut collector, &stop)?;
    drop(line);
    let source = LiveSource::of(&collector).with_lack();
    let mut profile = collector.finish()?;
    VmNames::default().name(&mut profile);
    Ok(Recordings { selection, ..source.recordings(profile) })
}

impl AssumedArguments {
    fn assumption(&self, hypervisor: Hypervisor) -> Result<Assumption, Usage> {
        let mut assumption = Assumption { hypervisor, ..Assumption::default() };
        if hypervisor == Hypervisor::Xen {
            self.check_for_xen()?;
            assumption.host_tick_hz = 0;
            assumption.avic = Avic { x2apic: false, ipi_virtualization: false, ..assumption.avic };
            assumption.apicv.posted_interrupts = !self.no_posted_interrupts;
            return Ok(assumption);
        }
        if self.ipi_virtualization {
            assumption.apicv.ipi_virtualization = true;
        }
        if self.no_ipi_virtualization {
            assumption.avic.ipi_virtualization = false;
        }
        assumption.apicv.posted_interrupts = !self.no_posted_interrupts;
        assumption.avic.x2apic = self.technology != Some(Technology::Avic);
        assumption.host_tick_hz = self.host_hz.unwrap_or(assumption.host_tick_hz);
        Ok(assumption)
    }

    /// Refuses options that do not apply to Xen, which uses neither AVIC nor IPI virtualization and has no
    /// host tick.
    fn check_for_xen(&self) -> Result<(), Usage> {
        let wrong = if self.ipi_virtualization || self.no_ipi_virtualization {
            "Xen has no IPI virtualization; leave the option out"
        } else if matches!(self.technology, Some(Technology::Avic | Technology::X2avic)) {
            "Xen uses neither AVIC nor x2AVIC; leave out --for"
        } else if self.host_hz.is_some() {
            "Xen has no tick; leave out --host-hz"
        } else {
            return Ok(());
        };
        Err(Usage(format!("The exits are those of a Xen host. {wrong}")))
    }

    /// Refuses a technology of one vendor, or an option of it, for exits of the other's processors.
    fn check(&self, isas: &[Isa], hypervisor: Hypervisor) -> Result<(), Usage> {
        if self.no_posted_interrupts && isas.contains(&Isa::Svm) && !isas.contains(&Isa::Vmx) {
            return Err(Usage(
                "--no-posted-interrupts is for APICv, and the exits are those of an AMD host; leave it out"
                    .to_owned(),
            ));
        }
        let wanted = match self.technology {
            None => return Ok(()),
            Some(Technology::Apicv) => Isa::Vmx,
            Some(Technology::Avic | Technology::X2avic) => Isa::Svm,
        };
        match isas.iter().find(|&&isa| isa != wanted) {
            None => Ok(()),
            Some(Isa::Svm) if hypervisor == Hypervisor::Xen => Err(Usage(
                "The exits are those of an AMD host, and Xen uses no AVIC; leave out --for".to_owned(),
            )),
            Some(Isa::Svm) => {
                Err(Usage("The exits are those of an AMD host; predict --for avic or x2avic".to_owned()))
            }
            Some(Isa::Vmx) => {
                Err(Usage("The exits are those of an Intel host; predict --for apicv".to_owned()))
            }
        }
    }
}

fn print(recordings: &Recordings, prediction: &Prediction, json: bool) -> anyhow::Result<()> {
    let document = || report::prediction::json(recordings, prediction);
    let text = || report::prediction::terminal(recordings, prediction, console::width(), console::colour());
    Ok(crate::output::print_table(json, document, text)?)
}
