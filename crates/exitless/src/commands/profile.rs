//! `exitless profile`: the functions in which the host spends its time on exits.

mod guests_code;
pub(super) mod kept;
pub(super) mod sampled;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exits::ExitReason;
use files::Replacement;
use hotspots::{Event, Recording, Selection, Summary, Weight, folded, tree};
use report::hot_spots::HotSpotsView;

use super::recordings::{check_file, check_outputs};
use super::watching::WatchArguments;
use super::{paths, quantity};
use crate::status::Usage;
use crate::{console, status};

/// Hot spots, and their source.
#[derive(Debug)]
pub(in crate::commands) struct Hot {
    pub(in crate::commands) name: String,
    pub(in crate::commands) recording: Recording,
    pub(in crate::commands) is_damaged: bool,
}

/// Arguments of `profile`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A file of `--output`; or a recording of exits (perf, trace-cmd, tracefs, xentrace, exitless), for
    /// which the guest's code at the exits is shown. Without any, this host is sampled.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArguments,
    #[command(flatten)]
    sampling: SamplingArguments,
    /// Only exits by this reason, as `kvm_exit` prints it: EPT_MISCONFIG, io; may be given more than once.
    #[arg(long = "reason", value_name = "REASON")]
    reasons: Vec<ExitReason>,
    /// Write the hot spots to this file, which `exitless profile FILE` shows again.
    #[arg(short, long, value_name = "FILE", value_parser = paths::output())]
    output: Option<PathBuf>,
    /// Draw a flame graph: an SVG file for a browser.
    #[arg(long, value_name = "FILE", value_parser = paths::output())]
    flame_graph: Option<PathBuf>,
    /// Write the stacks for other programs: one on each line, with functions separated by `;`, and a count. `-` is
    /// standard output, without the tables.
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// The weight in flame graph and stacks: samples on a CPU, or time off CPU.
    #[arg(long, value_name = "WHAT", default_value = "samples")]
    weigh: Weighing,
    /// Symbols of the guest for recordings of exits: its /proc/kallsyms or System.map, or the output of nm.
    #[arg(long, value_name = "FILE", value_parser = paths::input(), requires = "file")]
    guest_symbols: Option<PathBuf>,
    /// Show this many functions of each table.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    top: usize,
    /// Show the functions of this many reasons.
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    details: usize,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// The settings of sampling.
#[derive(Debug, Args)]
pub(crate) struct SamplingArguments {
    /// The time to sample: 10s, 2min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "10s", conflicts_with = "file")]
    pub(super) duration: u64,
    /// Samples a second on each CPU.
    #[arg(long, value_name = "HERTZ", value_parser = quantity::frequency, default_value = "997", conflicts_with = "file")]
    frequency: u64,
    /// Sample by this event. By default cycles, or the CPU clock if they cannot be counted.
    #[arg(long, value_name = "EVENT", conflicts_with = "file")]
    event: Option<EventName>,
    /// Do not follow threads that sleep or wait for a CPU within an exit, which has a cost at each context
    /// switch on this host.
    #[arg(long, conflicts_with = "file")]
    no_scheduler: bool,
}

/// The events by their names in perf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventName {
    Cycles,
    CpuClock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Weighing {
    Samples,
    Away,
}

impl Weighing {
    fn weight(self) -> Weight {
        match self {
            Self::Samples => Weight::Samples,
            Self::Away => Weight::Away,
        }
    }
}

impl SamplingArguments {
    pub(super) fn sampling(&self) -> live::Sampling {
        live::Sampling {
            frequency_hz: self.frequency,
            event: self.event.map(|event| match event {
                EventName::Cycles => Event::Cycles,
                EventName::CpuClock => Event::CpuClock,
            }),
            away: !self.no_scheduler,
        }
    }
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    arguments.file.iter().try_for_each(|file| check_file(file))?;
    if arguments.weigh == Weighing::Away && arguments.sampling.no_scheduler {
        let what =
            "--weigh away needs the time off CPU, which --no-scheduler leaves out; leave out one of them";
        return Err(Usage(what.to_owned()).into());
    }
    arguments.guest_symbols.iter().try_for_each(|file| check_symbols(file))?;
    let folded_only = arguments.folded.as_deref().is_some_and(paths::is_dash);
    if folded_only && arguments.json {
        let why = "The stacks and the JSON cannot both go to standard output; give --folded a file";
        return Err(Usage(why.to_owned()).into());
    }
    // Opens the outputs before sampling, so that errors are found early.
    let outputs = Outputs::create(arguments)?;
    let hot = match &arguments.file {
        Some(file) => read(file, arguments.guest_symbols.as_deref())?,
        None => sampled::of_this_host(&arguments.watch, &arguments.sampling)?,
    };
    // On this host the notes say why that time is not known, and its samples are not thrown away.
    if arguments.weigh == Weighing::Away && arguments.file.is_some() && !hot.recording.head.away {
        return Err(Usage(format!("{} has no time off CPU; leave out --weigh away", hot.name)).into());
    }
    let selection = selection(arguments, &hot.recording)?;
    outputs.write(&hot.recording, &selection, arguments)?;
    if folded_only {
        hot.recording.head.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let weight = arguments.weigh.weight();
        crate::output::write(|out| folded(&hot.recording, &selection, weight, out))?;
    } else {
        print(&hot, &selection, arguments)?;
    }
    Ok(ExitCode::from(if hot.is_damaged { status::DAMAGED } else { 0 }))
}

/// Reports missing symbols of a guest before a long recording is read.
fn check_symbols(file: &Path) -> Result<(), Usage> {
    let next = "name the guest's /proc/kallsyms or System.map, or the output of nm";
    match std::fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Usage(format!("{}: no such file of symbols; {next}", file.display())))
        }
        Ok(found) if found.is_dir() => Err(Usage(format!("{} is a directory; {next}", file.display()))),
        // The reader will report the error.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Reads a file of `--output`, or the guest's code from a recording of exits.
fn read(file: &Path, guest_symbols: Option<&Path>) -> anyhow::Result<Hot> {
    match kept::look(file)? {
        kept::Given::Kept(hot) => Ok(*hot),
        kept::Given::Stream(stream) => guests_code::read(file, Some(stream), guest_symbols),
        kept::Given::Path => guests_code::read(file, None, guest_symbols),
    }
}

fn selection(arguments: &Arguments, recording: &Recording) -> Result<Selection, Usage> {
    let mut vms = BTreeSet::new();
    // Without a file only the requested VMs were sampled, which `--vm` names by more than a file knows.
    let wanted = if arguments.file.is_some() { arguments.watch.wanted() } else { &[] };
    for wanted in wanted {
        let number = wanted.parse().ok();
        let there = recording.measured.keys().filter_map(|key| key.0);
        let is_it = |vm: &u32| Some(*vm) == number || recording.names.get(vm) == Some(wanted);
        let found: BTreeSet<u32> = there.filter(is_it).collect();
        if found.is_empty() {
            return Err(Usage(format!("The recording has no exit of a VM {wanted}")));
        }
        vms.extend(found);
    }
    Ok(Selection { vms, reasons: arguments.reasons.iter().map(|reason| reason.basic()).collect() })
}

/// The requested output files, open.
struct Outputs {
    kept: Option<Replacement>,
    flame_graph: Option<Replacement>,
    folded: Option<Replacement>,
}

impl Outputs {
    fn create(arguments: &Arguments) -> anyhow::Result<Self> {
        let Arguments { file, guest_symbols, output, flame_graph, folded, .. } = arguments;
        check_outputs(file.iter().chain(guest_symbols), [output, flame_graph, folded])?;
        let create = |path: &Option<PathBuf>| {
            let create =
                |path: &PathBuf| Replacement::begin(path, 0o666).with_context(|| could_not_write(path));
            path.as_ref().map(create).transpose()
        };
        let folded = if folded.as_deref().is_some_and(paths::is_dash) { &None } else { folded };
        Ok(Self { kept: create(output)?, flame_graph: create(flame_graph)?, folded: create(folded)? })
    }

    fn write(
        self,
        recording: &Recording,
        selection: &Selection,
        arguments: &Arguments,
    ) -> anyhow::Result<()> {
        let weight = arguments.weigh.weight();
        let put = |new: Option<Replacement>,
                   path: &Option<PathBuf>,
                   write: &dyn Fn(&File) -> anyhow::Result<()>| {
            let (Some(new), Some(path)) = (new, path) else { return Ok(()) };
            write(new.file()).with_context(|| could_not_write(path))?;
            new.finish().with_context(|| could_not_write(path))
        };
        put(self.kept, &arguments.output, &|file| {
            Ok(hotspots::write(recording, &mut BufWriter::new(file))?)
        })?;
        put(self.flame_graph, &arguments.flame_graph, &|mut file| {
            let root = tree(recording, selection, weight);
            Ok(file.write_all(report::hot_spots::flame_graph(recording, &root, weight).as_bytes())?)
        })?;
        put(self.folded, &arguments.folded, &|file| {
            Ok(folded(recording, selection, weight, &mut BufWriter::new(file))?)
        })
    }
}

fn could_not_write(path: &Path) -> String {
    format!("Could not write {}", path.display())
}

fn print(hot: &Hot, selection: &Selection, arguments: &Arguments) -> anyhow::Result<()> {
    let summary = Summary::of(&hot.recording, selection);
    let document = || report::hot_spots::json(&hot.name, &hot.recording, &summary);
    let view = HotSpotsView {
        width: console::width(),
        colour: console::colour(),
        top: arguments.top,
        reasons: arguments.details,
    };
    let text = || report::hot_spots::terminal(&hot.name, &hot.recording, &summary, view);
    Ok(crate::output::print_table(arguments.json, document, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use hotspots::{Head, Measured};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// The VMs whose exits are shown, of a recording of the processes 4242 (web) and 4243 (db).
    fn shown(line: &[&str]) -> Result<usize, String> {
        let head = Head {
            kernel: None,
            event: Event::Cycles,
            frequency_hz: 997,
            cpus: 1,
            duration_ns: 1,
            away: false,
            notes: Vec::new(),
        };
        let mut recording = Recording::new(head);
        for (vm, name, reason) in [(4242, "web", 12), (4243, "db", 30)] {
            recording.names.insert(vm, name.to_owned());
            let measured = Measured { exits: 1, ..Measured::default() };
            recording.measured.insert((Some(vm), ExitReason::vmx(reason)), measured);
        }
        let arguments = Line::try_parse_from([&["profile"], line].concat()).unwrap().arguments;
        let selection = selection(&arguments, &recording).map_err(|Usage(why)| why)?;
        Ok(Summary::of(&recording, &selection).reasons.len())
    }

    #[test]
    fn all_vms_that_were_sampled_are_shown_whatever_names_they_were_asked_for_by() {
        for vm in [&["--vm", "101"][..], &["--vm", "web", "--vm", "3f0c7e1e-6d4d-4c8e-9b1a-0d2f5a6b7c8d"]] {
            assert_eq!(shown(vm), Ok(2), "{vm:?}");
        }
    }

    #[test]
    fn of_a_file_only_the_vms_are_shown_that_were_asked_for() {
        assert_eq!(shown(&["x.hot", "--vm", "web"]), Ok(1));
        assert_eq!(shown(&["x.hot", "--vm", "web", "--vm", "4242"]), Ok(1));
        assert_eq!(shown(&["x.hot", "--vm", "web", "--vm", "4243"]), Ok(2));
        assert!(shown(&["x.hot", "--vm", "101"]).unwrap_err().ends_with("no exit of a VM 101"));
    }
}
