//! `exitless lab`: list, kernels, build, run, shell, clean.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use lab::{
    BUILD_EFFORT, BuiltEmulator, Cache, DEVICE_BUILD_EFFORT, DebianKernel, Device, DeviceImage, Effort,
    Emulator, Finished, Happening, Image, KERNEL_BUILD_EFFORT, KERNELS, KernelImage, LABS, Lab, Laboratory,
    Put, Request, Timings, XEN_BUILD_EFFORT, XenImage,
};
use serde::Serialize;

use super::quantity;
use crate::console::{self, BuildProgress, Waiting};
use crate::interrupt;
use crate::status::Usage;

/// Operations on labs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the labs.
    ///
    /// Exit status: 0; 2 for a wrong command line; 125 when the cache of labs cannot be read.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the kernels that `--kernel` takes.
    ///
    /// Exit status: as for `lab list`.
    Kernels {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Prepare labs: download packages, build their image and the guest image, test the emulator, save a snapshot of each.
    ///
    /// Exit status: 0 when all are ready; 2 for a wrong command line or an unknown lab; 125 when something could not be
    /// built; 130 when interrupted.
    Build {
        /// The labs' names.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Boot a lab, run a command in it, and return its exit status.
    ///
    /// Exit status: that of the command (128 and the signal's number if a signal ended it); 2 for a wrong command line;
    /// 125 when the lab failed; 130 when interrupted.
    Run(RunArguments),
    /// Boot a lab and open a shell in it.
    ///
    /// Exit status: that of the shell; 2 for a wrong command line; 125 when the lab failed; 130 when interrupted.
    Shell {
        /// The lab's name.
        name: String,
        #[command(flatten)]
        machine: MachineArguments,
    },
    /// Inside a lab: print or set the cost of a VM exit and the entry after it, as the time of this many instructions.
    ///
    /// As a factor of a study: commands = [{ before = "exitless lab switch-cycles 1350", after = "exitless
    /// lab switch-cycles 0" }]. Needs root. Exit status: 0; 125 on a machine that is not a lab with a clock.
    SwitchCycles {
        /// The new cost, in addition to the instructions that handle the exit.
        #[arg(value_name = "INSTRUCTIONS", value_parser = |given: &str| within(given, SWITCH_CYCLES))]
        cycles: Option<u32>,
    },
    /// Remove every lab from the cache: images, emulators, snapshots and packages.
    ///
    /// Exit status: 0; 2 for a wrong command line; 125 when something could not be removed.
    Clean,
}

/// The number of CPUs that an emulated host can have.
pub(super) const CPUS: RangeInclusive<u16> = 1..=8;
/// The memory that an emulated host can have, in MiB.
pub(super) const MEMORY_MIB: RangeInclusive<u64> = 256..=2048;

/// The costs of a world switch that can be set, in instructions.
pub(super) const SWITCH_CYCLES: RangeInclusive<u32> = 0..=lab::switch_cost::LARGEST;

/// The settings of the emulated machine.
#[derive(Debug, Args)]
pub(crate) struct MachineArguments {
    /// Boot without Debian's disk: only busybox and exitless, which is faster.
    #[arg(long)]
    bare: bool,
    /// Give the emulated host the image of `guest build`, so that studies inside can start guests from it.
    #[arg(long)]
    guest_image: bool,
    /// Give the emulated host a device that it can assign to guests: nvme, or igb with virtual functions.
    /// Only in amd-avic, amd-svm and xen. The host then has an IOMMU.
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    device: Vec<Device>,
    /// Boot this kernel of Debian's instead of that of the lab's image; `lab kernels` lists them. Not in xen and
    /// xen-apicv, and not with --device.
    #[arg(long, value_name = "VERSION", value_parser = parse_kernel)]
    kernel: Option<&'static DebianKernel>,
    /// The number of CPUs of the emulated host.
    #[arg(long, default_value_t = 2, value_parser = |given: &str| within(given, CPUS))]
    cpus: u16,
    /// Millions of instructions that a CPU executes in a second of emulated time: 10 to 1000 in intel-apicv and xen-apicv
    /// [default: 50]; 125, 250, 500 or 1000 in the others [default: 125].
    #[arg(long, value_name = "MIPS")]
    speed: Option<u32>,
    /// The memory of the emulated host in MiB [default: 2048, bare: 512].
    #[arg(long, value_parser = |given: &str| within(given, MEMORY_MIB))]
    memory: Option<u64>,
    /// The time limit for the emulated host to reach its user space, and for each later part of the run but the command, in
    /// CPU time of the emulator: 600, 10min; a number alone is in seconds [default: 600].
    #[arg(long, value_name = "TIME", value_parser = quantity::limit)]
    boot_timeout: Option<Duration>,
    /// Another argument for the emulated host's kernel; MODULE.PARAMETER=VALUE also sets parameters of
    /// modules.
    #[arg(long, value_name = "ARGUMENT")]
    kernel_argument: Vec<String>,
    /// Another argument for Xen, in labs with Xen: apicv=0.
    #[arg(long, value_name = "ARGUMENT")]
    hypervisor_argument: Vec<String>,
    /// The cost of a VM exit and the entry after it, in addition to the instructions that handle it, as the
    /// time of this many instructions.
    #[arg(long, value_name = "INSTRUCTIONS", default_value_t = 0,
        value_parser = |given: &str| within(given, SWITCH_CYCLES))]
    switch_cycles: u32,
    /// Let clock and random numbers inside start as in all other runs with this seed; except in xen, the whole run
    /// is then reproducible, to the last byte.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Boot instead of restoring the lab's snapshot.
    #[arg(long)]
    boot: bool,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The lab's name.
    name: String,
    #[command(flatten)]
    machine: MachineArguments,
    /// The time limit of the command: 90s, 15min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::limit)]
    timeout: Option<Duration>,
    /// Copy a file into root's home, or to FILE:PATH.
    #[arg(long, value_name = "FILE[:PATH]", num_args = 1..)]
    put: Vec<String>,
    /// Copy a file or folder out after the command.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    get: Vec<String>,
    /// The folder for files that are copied out.
    #[arg(short, long, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
    /// Print the time of each part on standard error.
    #[arg(long)]
    timings: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: &'static str,
    summary: &'static str,
    emulator: &'static str,
    built: bool,
    disk_usage_bytes: u64,
    emulator_bytes: u64,
    device_image_bytes: u64,
    snapshot_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ListedKernel {
    name: &'static str,
    suites: &'static [&'static str],
    tested: &'static str,
    /// The version in the cache.
    here: Option<String>,
    disk_usage_bytes: u64,
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { json } => list(json),
        Command::Kernels { json } => list_kernels(json),
        Command::Build { names } => build(&names),
        Command::Run(arguments) => run_command(arguments),
        Command::Shell { name, machine } => shell(&name, machine),
        Command::SwitchCycles { cycles } => switch_cycles(cycles),
        Command::Clean => clean(),
    }
}

fn list(json: bool) -> anyhow::Result<ExitCode> {
    let cache = Cache::of_user()?;
    let shared = Image::find(&cache).ok().flatten().map(|image| image.disk_usage());
    let xen = XenImage::find(&cache).ok().flatten().map(|image| image.disk_usage());
    let devices = DeviceImage::find(&cache).ok().flatten().map(|image| image.disk_usage());
    let emulator = |kind| BuiltEmulator::find(&cache, kind).ok().flatten().map(|built| built.disk_usage());
    let listed = LABS.map(|lab| {
        let own = if lab.is_xen() { xen } else { Some(0) };
        let emulator = emulator(lab.emulator);
        let emulated = emulator.is_some() || lab.runs_in_debians_qemu();
        Listed {
            name: lab.name,
            summary: lab.summary,
            emulator: lab.emulator.name(),
            built: shared.is_some() && own.is_some() && emulated,
            disk_usage_bytes: shared.unwrap_or(0) + own.unwrap_or(0),
            emulator_bytes: emulator.unwrap_or(0),
            device_image_bytes: devices.filter(|_| lab.can_have_devices() && !lab.is_xen()).unwrap_or(0),
            snapshot_bytes: lab::snapshots_size(&cache, &lab),
        }
    });
    let mut out = std::io::stdout().lock();
    if json {
        crate::json::write_pretty(&mut out, &listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    for lab in &listed {
        writeln!(out, "{:12} {:9} {}", lab.name, if lab.built { "built" } else { "not built" }, lab.summary)?;
    }
    if let Some(shared) = shared {
        let more = xen.map_or_else(String::new, |bytes| format!(", {} MiB more for xen,", bytes >> 20));
        writeln!(out, "One image serves all: {} MiB{more} in {}", shared >> 20, cache.root().display())?;
    }
    if let Some(bytes) = devices {
        writeln!(out, "Kernel of hosts with devices: {} MiB", bytes >> 20)?;
    }
    for kind in [Emulator::Bochs, Emulator::Qemu] {
        if let Some(bytes) = emulator(kind) {
            writeln!(out, "{}, compiled here: {} MiB", kind.name(), bytes >> 20)?;
        }
    }
    for lab in listed.iter().filter(|lab| lab.snapshot_bytes > 0) {
        writeln!(out, "Snapshots of {}: {} MiB", lab.name, lab.snapshot_bytes >> 20)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list_kernels(json: bool) -> anyhow::Result<ExitCode> {
    let cache = Cache::of_user()?;
    let listed = KERNELS.each_ref().map(|kernel| {
        let image = KernelImage::find_kernel(&cache, kernel).ok().flatten();
        ListedKernel {
            name: kernel.name,
            suites: kernel.suites,
            tested: kernel.proven,
            here: image.as_ref().and_then(KernelImage::version).map(str::to_owned),
            disk_usage_bytes: image.map_or(0, |image| image.disk_usage()),
        }
    });
    let mut out = std::io::stdout().lock();
    if json {
        crate::json::write_pretty(&mut out, &listed)?;
        return Ok(ExitCode::SUCCESS);
    }
    for kernel in &listed {
        let here = match &kernel.here {
            Some(version) => format!("{version}, {} MiB", kernel.disk_usage_bytes >> 20),
            None => "not here".to_owned(),
        };
        writeln!(out, "{:12} {:20} {here}", kernel.name, kernel.suites[0])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn build(names: &[String]) -> anyhow::Result<ExitCode> {
    let labs: Vec<&'static Lab> = names.iter().map(|name| Lab::find(name)).collect::<Result<_, _>>()?;
    let stop = interrupt::flag()?;
    let cache = Cache::of_user()?.stopped_by(Arc::clone(&stop));
    let mut verified = BTreeSet::new();
    for lab in labs {
        build_lab(&cache, lab, &mut verified, &stop)?;
    }
    let mut progress = BuildProgress::new();
    let guest_image = super::guest::image(&mut progress, &stop)?;
    guest_image.verify(&mut |step| progress.show(step))?;
    drop(progress);
    writeln!(std::io::stdout(), "{}", super::guest::ready(&guest_image))?;
    Ok(ExitCode::SUCCESS)
}

/// Builds a lab. Verifies its images and its emulator unless `verified` names them: labs share them, and an image has a
/// gigabyte.
fn build_lab(
    cache: &Cache,
    lab: &'static Lab,
    verified: &mut BTreeSet<&'static str>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let mut progress = BuildProgress::new();
    let image = image(cache, lab, &mut progress, stop)?;
    if verified.insert("image") {
        image.verify(&mut |step| progress.show(step))?;
    }
    let laboratory = open(cache, lab, &image, &mut progress, Arc::clone(stop))?;
    if let Some(xen) = laboratory.xen_image().filter(|_| verified.insert("image of Xen")) {
        xen.verify(&mut |step| progress.show(step))?;
    }
    let emulator = BuiltEmulator::find(cache, lab.emulator)?;
    if let Some(emulator) = emulator.filter(|_| verified.insert(lab.emulator.name())) {
        emulator.verify(&mut |step| progress.show(step))?;
    }
    laboratory.save(&Request::new([""; 0]), &mut |step| progress.show(step))?;
    drop(progress);
    let of_xen = laboratory.xen_image().map(XenImage::drift).unwrap_or_default();
    for (package, here, proven) in image.drift().into_iter().chain(of_xen).chain(laboratory.emulator_drift())
    {
        console::say(format_args!("Note: {package} is {here}; the labs were tested with {proven}"));
    }
    writeln!(
        std::io::stdout(),
        "{} is ready: Linux {}, {}, {} packages, {} MiB",
        lab.name,
        image.manifest().kernel_release,
        laboratory.emulator_name(),
        image.manifest().packages.len(),
        image.disk_usage() >> 20
    )?;
    if let Some(xen) = laboratory.xen_image() {
        writeln!(
            std::io::stdout(),
            "Xen {}, Linux {} in dom0, {} packages, {} MiB",
            xen.hypervisor_version().unwrap_or("of an unknown version"),
            xen.manifest().kernel_release,
            xen.manifest().packages.len(),
            xen.disk_usage() >> 20
        )?;
    }
    Ok(())
}

fn run_command(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::find(&arguments.name)?;
    let put: Vec<Put> = arguments.put.iter().map(|given| parse_put(given)).collect::<Result<_, _>>()?;
    refuse_equal("--put", put.iter().map(|put| (inside(&put.to), put.from.display().to_string())))?;
    refuse_equal("--get", arguments.get.iter().map(|path| (brought_out_as(path), path.clone())))?;
    let request = Request {
        put,
        get: arguments.get,
        output: arguments.output,
        timeout: arguments.timeout,
        ..machine_request(arguments.machine, arguments.command)
    };
    let stop = interrupt::flag()?;
    prepare_kernel_and_devices(lab, &request, &stop)?;
    let mut written = Ok(());
    let finished = with_laboratory(lab, stop, |laboratory| {
        let mut starting = Some(starting(lab));
        let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
        Ok(laboratory.run(&request, &mut |happening| {
            starting.take_if(|_| has_started(&happening));
            // Let the command finish; report the first error then.
            let passed = pass_on(&happening, &mut out, &mut err);
            if written.is_ok() {
                written = passed;
            }
        })?)
    })?;
    if arguments.timings {
        print_timings(&finished.timings);
    }
    let code = exit_code(&finished);
    written.with_context(|| {
        format!(
            "Could not write all output of the command, which ended with status {}",
            finished.ending.code()
        )
    })?;
    Ok(code)
}

fn shell(name: &str, machine: MachineArguments) -> anyhow::Result<ExitCode> {
    let lab = Lab::find(name)?;
    let request = machine_request(machine, Vec::new());
    lab::require_terminal()?;
    let stop = interrupt::flag()?;
    prepare_kernel_and_devices(lab, &request, &stop)?;
    let finished = with_laboratory(lab, stop, |laboratory| {
        let mut starting = Some(starting(lab));
        Ok(laboratory.shell(&request, &mut |happening| {
            starting.take_if(|_| has_started(&happening));
        })?)
    })?;
    Ok(exit_code(&finished))
}

/// Says that a lab is starting, until the value is dropped.
fn starting(lab: &Lab) -> Waiting {
    Waiting::new(format!("Starting the emulated host {}", lab.name))
}

/// Tests whether the command is running or about to: everything but early boot events comes from it.
fn has_started(happening: &Happening<'_>) -> bool {
    match happening {
        Happening::PoweredOn(_) => false,
        Happening::Reached(moment) => matches!(moment.reached.as_str(), "root" | "terminal"),
        Happening::Stdout(_) | Happening::Stderr(_) => true,
    }
}

fn switch_cycles(cycles: Option<u32>) -> anyhow::Result<ExitCode> {
    if let Some(cycles) = cycles {
        lab::switch_cost::set(cycles).context("Could not set the cost of a switch")?;
    }
    let cost = lab::switch_cost::get().context("Could not read the cost of a switch")?;
    writeln!(std::io::stdout(), "{}", cost.context("This machine is not a lab with a clock")?)?;
    Ok(ExitCode::SUCCESS)
}

fn clean() -> anyhow::Result<ExitCode> {
    let cache = Cache::of_user()?;
    let freed = lab::clean(&cache)?;
    writeln!(
        std::io::stdout(),
        "Removed {} MiB of images, emulators, snapshots and packages from {}",
        freed >> 20,
        cache.root().display()
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Opens a laboratory and passes it to `use_it`. If parts of it must be built, says first what that costs.
pub(crate) fn with_laboratory<T>(
    lab: &'static Lab,
    stop: Arc<AtomicBool>,
    use_it: impl FnOnce(&Laboratory<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let cache = Cache::of_user()?.stopped_by(Arc::clone(&stop));
    let mut progress = BuildProgress::new();
    let image = image(&cache, lab, &mut progress, &stop)?;
    let laboratory = open(&cache, lab, &image, &mut progress, stop)?;
    drop(progress);
    use_it(&laboratory)
}

/// Opens a laboratory. Xen's has an image of its own; before it is built, says what that costs.
fn open<'a>(
    cache: &'a Cache,
    lab: &'static Lab,
    image: &'a Image,
    progress: &mut BuildProgress,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Laboratory<'a>> {
    if lab.is_xen() && XenImage::find(cache)?.is_none() {
        say_effort("the image of the Xen host", &XEN_BUILD_EFFORT, cache);
    }
    let opened = Laboratory::open(cache, lab, image, Arc::clone(&stop), &mut |step| progress.show(step));
    Ok(unless_stopped(opened, &stop)?)
}

/// Checks a request, and prepares the boot files of a host with another kernel or with devices.
pub(super) fn prepare_kernel_and_devices(
    lab: &Lab,
    request: &Request,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    request.check(lab)?;
    if let Some(kernel) = request.kernel {
        prepare_kernel(kernel, stop)?;
    }
    if request.devices.is_empty() { Ok(()) } else { prepare_devices(lab, stop) }
}

/// Prepares a kernel to boot.
fn prepare_kernel(kernel: &'static DebianKernel, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let cache = Cache::of_user()?.stopped_by(Arc::clone(stop));
    if KernelImage::find_kernel(&cache, kernel)?.is_some() {
        return Ok(());
    }
    say_effort(&format!("the kernel {}", kernel.name), &KERNEL_BUILD_EFFORT, &cache);
    let mut progress = BuildProgress::new();
    let built = KernelImage::find_or_build_kernel(&cache, kernel, &mut |step| progress.show(step));
    let built = unless_stopped(built, stop)?;
    drop(progress);
    if let Some(here) = built.version().filter(|&here| here != kernel.proven) {
        console::say(format_args!(
            "Note: Linux {} is {here}; the labs were tested with {}",
            kernel.name, kernel.proven
        ));
    }
    Ok(())
}

/// Builds the boot files of a host with devices.
fn prepare_devices(lab: &Lab, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    if lab.is_xen() {
        return Ok(());
    }
    let cache = Cache::of_user()?.stopped_by(Arc::clone(stop));
    if DeviceImage::find(&cache)?.is_none() {
        say_effort("the kernel of hosts with devices", &DEVICE_BUILD_EFFORT, &cache);
    }
    let mut progress = BuildProgress::new();
    let built = DeviceImage::find_or_build(&cache, &mut |step| progress.show(step));
    let built = unless_stopped(built, stop)?;
    drop(progress);
    // Takes 50 ms; a damaged kernel would fail without saying why.
    built.verify(&mut |_| ())?;
    for (package, here, proven) in built.drift() {
        console::say(format_args!("Note: {package} is {here}; devices were tested with {proven}"));
    }
    Ok(())
}

fn say_effort(what: &str, effort: &Effort, cache: &Cache) {
    console::say(format_args!(
        "Building {what}: {} MiB to download, {} MiB on disk, about {} s plus the download. It is kept in {}.",
        effort.download_mib,
        effort.disk_mib,
        effort.time.as_secs(),
        cache.root().display()
    ));
}

/// The labs' image. It and the lab's emulator are built in parallel where they are missing.
fn image(cache: &Cache, lab: &Lab, progress: &mut BuildProgress, stop: &AtomicBool) -> anyhow::Result<Image> {
    if Image::find(cache)?.is_none() {
        say_effort("the labs' image", &BUILD_EFFORT, cache);
    }
    if BuiltEmulator::find(cache, lab.emulator)?.is_none() {
        say_effort(lab.emulator.name(), &lab.emulator.effort(), cache);
    }
    let built = lab::build(cache, lab, &mut |step| progress.show(step));
    Ok(unless_stopped(built, stop)?)
}

/// Reports an interruption as such: Ctrl-C also ends the child processes of a build, which then fails.
pub(super) fn unless_stopped<T>(built: Result<T, lab::Error>, stop: &AtomicBool) -> Result<T, lab::Error> {
    built.map_err(|error| if stop.load(Ordering::Relaxed) { lab::Error::Interrupted } else { error })
}

fn machine_request(machine: MachineArguments, command: Vec<String>) -> Request {
    Request {
        bare: machine.bare,
        guest_image: machine.guest_image,
        devices: machine.device,
        kernel: machine.kernel,
        cpus: machine.cpus,
        speed: machine.speed,
        memory_mib: machine.memory,
        boot_timeout: machine.boot_timeout,
        kernel_arguments: machine.kernel_argument,
        hypervisor_arguments: machine.hypervisor_argument,
        switch_cycles: machine.switch_cycles,
        seed: machine.seed,
        boot: machine.boot,
        ..Request::new(command)
    }
}

/// The number in `given`, which the range has to contain.
pub(super) fn within<N: FromStr + PartialOrd + Display>(
    given: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let number = given.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

pub(super) fn parse_device(given: &str) -> Result<Device, String> {
    let known = || Device::ALL.map(Device::name).join(", ");
    Device::ALL
        .into_iter()
        .find(|device| device.name() == given)
        .ok_or_else(|| format!("no such device; known: {}", known()))
}

pub(super) fn parse_kernel(given: &str) -> Result<&'static DebianKernel, String> {
    DebianKernel::find(given).map_err(|error| error.to_string())
}

fn parse_put(given: &str) -> Result<Put, Usage> {
    let (from, to) = given.split_once(':').unwrap_or((given, ""));
    let from = PathBuf::from(from);
    let to = match to {
        "" => {
            let none = || Usage(format!("--put {given:?} names no file to copy"));
            let name = from.file_name().ok_or_else(none)?;
            name.to_string_lossy().into_owned()
        }
        to => to.to_owned(),
    };
    Ok(Put { from, to })
}

/// The normalized path to which a file is copied inside, so that equal paths compare equal.
fn inside(to: &str) -> PathBuf {
    Path::new("/root").join(to).components().collect()
}

/// The file name under which a path is copied out.
fn brought_out_as(path: &str) -> PathBuf {
    Path::new(path).file_name().map_or_else(|| "root".into(), PathBuf::from)
}

/// Refuses files that would overwrite each other. `files` are destinations, each with the argument as given.
fn refuse_equal(option: &str, files: impl Iterator<Item = (PathBuf, String)>) -> Result<(), Usage> {
    let mut known: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (to, given) in files {
        if let Some(first) = known.insert(to.clone(), given.clone()) {
            let to = to.display();
            return Err(Usage(format!("{option} {first} and {given}: both would be copied to {to}")));
        }
    }
    Ok(())
}

/// Writes what the command printed. A closed pipe is no error, and must not stop the command before it is done.
fn pass_on(happening: &Happening<'_>, out: &mut dyn Write, err: &mut dyn Write) -> std::io::Result<()> {
    let written = match happening {
        Happening::Stdout(bytes) => out.write_all(bytes).and_then(|()| out.flush()),
        Happening::Stderr(bytes) => err.write_all(bytes),
        Happening::PoweredOn(_) | Happening::Reached(_) => Ok(()),
    };
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints the time of each part of a run.
pub(crate) fn print_timings(timings: &Timings) {
    let parts = [
        ("image or snapshot", timings.prepare),
        ("boot or restore", timings.boot),
        ("kernel modules", timings.modules),
        ("root file system", timings.root),
        ("command", timings.command),
        ("files out", timings.files),
        ("in all", timings.total),
    ];
    for (part, seconds) in parts {
        console::say(format_args!("{part:20} {seconds:7.2} s"));
    }
    console::say(format_args!("{:20} {:7.2} s by the emulated clock", "kernel start to end", timings.inside));
}

fn exit_code(finished: &Finished) -> ExitCode {
    for warning in &finished.warnings {
        console::say(format_args!("exitless: {warning}"));
    }
    let code = u8::try_from(finished.ending.code()).unwrap_or(u8::MAX);
    match code {
        0 if !finished.warnings.is_empty() => ExitCode::from(crate::status::FAILED),
        code => ExitCode::from(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(std::io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn output_that_cannot_be_written_is_an_error_unless_its_reader_has_gone() {
        use std::io::ErrorKind::{BrokenPipe, StorageFull};
        for (kind, told) in [(StorageFull, Err(StorageFull)), (BrokenPipe, Ok(()))] {
            for happening in [Happening::Stdout(b"x"), Happening::Stderr(b"x")] {
                let written = pass_on(&happening, &mut Broken(kind), &mut Broken(kind));
                assert_eq!(written.map_err(|error| error.kind()), told);
            }
        }
    }

    #[test]
    fn two_files_with_one_destination_are_refused() {
        let get = |paths: &[&str]| {
            let files = paths.iter().map(|path| (brought_out_as(path), (*path).to_owned()));
            refuse_equal("--get", files).map_err(|Usage(why)| why)
        };
        assert_eq!(get(&["run1/result.json", "run1/log", "/tmp", ".."]), Ok(()));
        assert_eq!(
            get(&["run1/result.json", "run2/result.json"]).unwrap_err(),
            "--get run1/result.json and run2/result.json: both would be copied to result.json"
        );
        let put = |files: &[&str]| {
            let files: Vec<Put> = files.iter().map(|file| parse_put(file).unwrap()).collect();
            let files = files.iter().map(|put| (inside(&put.to), put.from.display().to_string()));
            refuse_equal("--put", files).map_err(|Usage(why)| why)
        };
        assert_eq!(put(&["a/x", "b/x:y"]), Ok(()));
        assert_eq!(
            put(&["a/x", "b/y:/root/./x"]).unwrap_err(),
            "--put a/x and b/y: both would be copied to /root/x"
        );
    }
}
