//! A run: restore a snapshot or boot, run the command, copy files out, power off.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::archive::Archive;
use crate::assemble::{ATA_MODULES, BUSYBOX, KVM_MODULES, MODULES, VIRTIO_MODULES};
use crate::cache::Cache;
use crate::debian_kernel::KernelImage;
use crate::definition::{Emulator, Hypervisor, Lab};
use crate::device;
use crate::device_image::{self, DeviceImage};
use crate::emulator::EmulatorProgram;
use crate::error::Error;
use crate::frames::{Frame, LARGEST_PAYLOAD};
use crate::guest_agent::{GuestAgent, own_program};
use crate::guest_image::GuestImage;
use crate::image::Image;
use crate::input::Input;
use crate::job::{self, Order, PlacedFile, Root, Setup, TerminalSize};
use crate::machine::{Machine, room};
use crate::process::{PowerOn, Process};
use crate::progress::{OnProgress, Progress, Step};
use crate::recipe::key;
use crate::request::{Finished, Happening, Put, Request, Timings};
use crate::snapshot::{Shape, Snapshot, agent_identity};
use crate::speed::Speed;
use crate::terminal::Bridge;
use crate::watch::{FULL_MIB, Watch};
use crate::xen_image::XenImage;

/// The start of the clock in runs with a seed, in nanoseconds since 1970: 2026-01-01 00:00:00 UTC.
const SEEDED_CLOCK: u64 = 1_767_225_600_000_000_000;

/// The memory of an emulated host with a disk, in MiB.
pub(crate) const MEMORY_MIB: u64 = 2048;

/// A laboratory that is ready to run.
#[derive(Debug)]
pub struct Laboratory<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) lab: &'static Lab,
    pub(crate) image: &'a Image,
    /// The image of a Xen host; `None` for other laboratories.
    pub(crate) xen: Option<XenImage>,
    pub(crate) emulator: EmulatorProgram,
    /// Set by a signal handler to end the run.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Laboratory<'_> {
    /// Runs a command in the emulated host, which is restored from a snapshot unless the request demands a
    /// boot.
    ///
    /// # Errors
    /// Before anything starts: if the laboratory cannot do what is requested or a file to copy in is missing.
    /// Later: if the host does not come up, panics or takes too long, or if a signal asks to stop. The
    /// command's own failure is in [`Finished::ending`].
    pub fn run(
        &self,
        request: &Request,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Finished, Error> {
        self.start(request, None, on_happening)
    }

    /// Opens a shell in the emulated host on this process's terminal.
    ///
    /// # Errors
    /// Those of [`Laboratory::run`], and when standard input is not a terminal.
    pub fn shell(
        &self,
        request: &Request,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Finished, Error> {
        let bridge = Bridge::open()?;
        self.start(request, Some(bridge), on_happening)
    }

    /// Makes the snapshot for a request, unless it exists.
    ///
    /// # Errors
    /// Those of [`Laboratory::run`].
    pub fn save(&self, request: &Request, on_progress: OnProgress<'_>) -> Result<(), Error> {
        let mut on_boot = || on_progress(Progress { step: Step::Snapshot, done: 0, total: 0 });
        self.snapshot(request, &self.machine(request, None)?, &mut on_boot).map(drop)
    }

    fn start(
        &self,
        request: &Request,
        bridge: Option<Bridge>,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Finished, Error> {
        let begun = Instant::now();
        request.check(self.lab)?;
        if !self.emulator.patched && !request.devices.is_empty() {
            return Err(Error::DevicesInDebiansQemu { lab: self.lab.name });
        }
        if !self.emulator.patched {
            require_no_clock(self.lab.name, request)?;
        }
        let put = open_put(&request.put)?;
        let mut machine = self.machine(request, bridge.as_ref().map(|bridge| bridge.line().to_owned()))?;
        let snapshot = if request.boot { None } else { self.snapshot(request, &machine, &mut || ())? };
        let folder = self.cache.run_folder()?;
        let term = std::env::var("TERM").ok();
        let input = Input::new(order(request, &put, bridge.as_ref().map(Bridge::size), term), put);
        machine.input = input.length();
        let power_on = match &snapshot {
            Some(snapshot) => machine.restore(folder.path(), snapshot.folder())?,
            None => self.prepare_boot(request, &machine, folder.path(), None)?,
        };
        let files = folder.path().join("files.tar");
        let out = File::options().read(true).write(true).create_new(true).open(&files);
        let out = out.map_err(Error::file("Could not write", &files))?;
        let mut watch = self.watch(request, begun, out, folder.path());
        // Must be dropped after the emulator, which has the other end open.
        let mut connected = None;
        let mut process = Process::start(&power_on, folder.path())?;
        on_happening(Happening::PoweredOn(process.time()));
        let followed = match &snapshot {
            Some(_) => machine.resume(folder.path(), &mut process, &watch),
            None => Ok(()),
        }
        .and_then(|()| {
            process.send(input);
            let Some(bridge) = bridge else { return watch.follow(&mut process, on_happening) };
            // Input that is typed before the shell's terminal exists waits in the user's terminal.
            if let Some(ending) = watch.until(&mut process, "terminal", on_happening)? {
                return Ok(ending);
            }
            connected = Some(bridge.connect()?);
            watch.follow(&mut process, on_happening)
        });
        watch.look_for_space();
        if machine.with_disk && watch.full {
            tracing::warn!(
                "less than {FULL_MIB} MiB were free in {}, where the changes to the host's disk are kept during \
                 a run. If the host could not write, free some space and repeat the run",
                self.cache.root().display()
            );
        }
        let ending = match (followed, snapshot) {
            (Err(error), Some(snapshot)) => return Err(watch.restore_failed(error, snapshot)),
            (followed, _) => followed?,
        };
        drop(process);
        drop(connected);
        let brought = take_out(&mut watch.files, &request.output, &mut watch.warnings).map_err(|error| {
            let kept = keep(&mut watch.files, [&request.output, Path::new("."), &std::env::temp_dir()]);
            let (lab, status) = (self.lab.name, ending.code());
            Error::NotUnpacked { lab, status, kept, source: Box::new(error) }
        })?;
        watch.timings.total = begun.elapsed().as_secs_f64();
        Ok(Finished { ending, timings: watch.timings, warnings: watch.warnings, files: brought })
    }

    fn watch<'w>(&'w self, request: &'w Request, begun: Instant, files: File, folder: &'w Path) -> Watch<'w> {
        Watch {
            lab: self.lab.name,
            stop: &self.stop,
            request,
            boot_limit: request.boot_timeout.unwrap_or(self.lab.boot_limit),
            begun,
            powered_on: Instant::now(),
            last: Instant::now(),
            checked: Instant::now(),
            timings: Timings { prepare: begun.elapsed().as_secs_f64(), ..Timings::default() },
            running: false,
            overdue: false,
            awaited: "its user space",
            heard: Duration::ZERO,
            sent: 0,
            warnings: Vec::new(),
            files,
            folder,
            full: false,
        }
    }

    fn machine<'r>(&'r self, request: &'r Request, terminal: Option<PathBuf>) -> Result<Machine<'r>, Error> {
        Ok(Machine {
            lab: self.lab,
            image: self.image,
            xen: self.xen.as_ref(),
            emulator: &self.emulator,
            cpus: request.cpus,
            speed: Speed::of(self.lab, request.speed)?,
            memory_mib: request.memory_mib.unwrap_or(match (&self.xen, request.bare) {
                (None, true) => 512,
                _ => MEMORY_MIB,
            }),
            with_disk: !request.bare,
            guest: self.guest(request)?,
            devices: &request.devices,
            device_image: self.device_image(request)?,
            kernel: self.kernel(request)?,
            guest_agent: if request.guest_image { GuestAgent::beside_this_program().ok() } else { None },
            kernel_arguments: request.kernel_arguments.join(" "),
            hypervisor_arguments: request.hypervisor_arguments.join(" "),
            terminal,
            input: 0,
        })
    }

    fn shape(&self, machine: &Machine<'_>) -> Result<Shape, Error> {
        let images = [digest(self.image.manifest())].into_iter();
        let images = images.chain(self.xen.as_ref().map(|xen| digest(xen.manifest())));
        let images = images.chain(machine.guest.as_ref().map(|guest| digest(guest.manifest())));
        let images = images.chain(machine.kernel.as_ref().map(|kernel| digest(kernel.manifest())));
        let images =
            images.chain(machine.device_image.as_ref().map(|image| digest(image.manifest()))).collect();
        Ok(Shape {
            lab: self.lab.name,
            agent: agent_identity()?,
            guest_agent: machine.guest_agent.as_ref().map(|agent| agent.identity),
            emulator: self.emulator.identity.clone(),
            images,
            cpus: machine.cpus,
            speed: machine.speed,
            memory_mib: machine.memory_mib,
            with_disk: machine.with_disk,
            devices: machine.devices.iter().map(|device| device.name()).collect(),
            kernel_arguments: machine.kernel_arguments.clone(),
            hypervisor_arguments: machine.hypervisor_arguments.clone(),
        })
    }

    /// The snapshot for a request; `None` with an emulator that cannot save. Calls `on_boot` before making a
    /// new one.
    fn snapshot(
        &self,
        request: &Request,
        machine: &Machine<'_>,
        on_boot: &mut dyn FnMut(),
    ) -> Result<Option<Snapshot>, Error> {
        if !self.emulator.patched {
            return Ok(None);
        }
        let shape = self.shape(machine)?;
        Snapshot::find_or_make(self.cache, &shape, &self.stop, |saved| {
            on_boot();
            let begun = Instant::now();
            let folder = self.cache.run_folder()?;
            let power_on = self.prepare_boot(request, machine, folder.path(), Some(saved))?;
            let saving = machine.saving(folder.path(), saved);
            let none = File::open("/dev/null").map_err(Error::file("Could not open", "/dev/null"))?;
            let mut watch = self.watch(request, begun, none, folder.path());
            let mut process = Process::start(&power_on, folder.path())?;
            saving.begin(&mut process, &watch)?;
            watch.until(&mut process, "waiting", &mut |_| ())?;
            saving.finish(&mut process, &watch)
        })
        .map(Some)
    }

    fn prepare_boot(
        &self,
        request: &Request,
        machine: &Machine<'_>,
        folder: &Path,
        saved: Option<&Path>,
    ) -> Result<PowerOn, Error> {
        let initial_ram_disk = self.initial_ram_disk(&self.setup(request, machine), machine)?;
        if initial_ram_disk.len() as u64 > machine.room() {
            let needed = initial_ram_disk.len() as u64;
            return Err(Error::TooLarge {
                lab: self.lab.name,
                memory_mib: machine.memory_mib,
                needed_mib: (needed >> 20) + 1,
                room_mib: machine.room() >> 20,
                least_mib: least_memory(needed, self.lab.emulator),
            });
        }
        machine.prepare(folder, &initial_ram_disk, saved)
    }

    fn guest(&self, request: &Request) -> Result<Option<GuestImage>, Error> {
        if !request.guest_image {
            return Ok(None);
        }
        let missing = Error::GuestImage { problem: "it is not there; make it with `exitless guest build`" };
        GuestImage::find(self.cache)?.map(Some).ok_or(missing)
    }

    /// The image of a KVM host with devices. A Xen host needs none, because its own image has everything.
    fn device_image(&self, request: &Request) -> Result<Option<DeviceImage>, Error> {
        if request.devices.is_empty() || self.xen.is_some() {
            return Ok(None);
        }
        DeviceImage::find(self.cache)?.map(Some).ok_or(Error::NoDeviceImage)
    }

    /// The kernel to boot instead of the image's.
    fn kernel(&self, request: &Request) -> Result<Option<KernelImage>, Error> {
        let Some(kernel) = request.kernel else { return Ok(None) };
        let found = KernelImage::find_kernel(self.cache, kernel)?;
        found.map(Some).ok_or(Error::NoKernelImage { name: kernel.name })
    }

    fn setup(&self, request: &Request, machine: &Machine<'_>) -> Setup {
        Setup {
            root: if request.bare { Root::Bare } else { Root::Disk },
            guest_image: request.guest_image,
            own_modules: machine.device_image.is_some() || machine.kernel.is_some(),
            devices: machine.device_image.is_some(),
            xen: self.lab.is_xen(),
            channel_modules: machine.kernel.as_ref().map(KernelImage::channel_modules).unwrap_or_default(),
            modules: match (&machine.device_image, &machine.kernel) {
                (Some(image), _) => image.manifest().of_kind.modules.clone(),
                (None, Some(kernel)) => kernel.early_modules(self.lab, !request.bare),
                (None, None) => self.modules(request),
            },
            module_parameters: module_parameters(
                [self.lab.kernel_arguments]
                    .into_iter()
                    .chain(request.kernel_arguments.iter().map(String::as_str)),
            ),
        }
    }

    fn modules(&self, request: &Request) -> Vec<String> {
        let vendor_module = match self.lab.hypervisor {
            Hypervisor::Kvm { vendor_module } => vendor_module,
            Hypervisor::Xen => {
                // Without a disk only Xen's own modules are needed; their names start with `xen`.
                let wanted = |module: &&String| !request.bare || module.starts_with("xen");
                let needed = |xen: &XenImage| {
                    let modules = xen.manifest().of_kind.modules.needed(self.lab.emulator);
                    modules.filter(wanted).cloned().collect()
                };
                return self.xen.as_ref().map(needed).unwrap_or_default();
            }
        };
        let disk: &[&str] = match self.lab.emulator {
            _ if request.bare => &[],
            Emulator::Bochs => &ATA_MODULES,
            Emulator::Qemu => &VIRTIO_MODULES,
        };
        let vendor = format!("{vendor_module}.ko");
        disk.iter().chain(&KVM_MODULES).map(|&module| module.to_owned()).chain([vendor]).collect()
    }

    /// The names and contents of the files for the folder of modules.
    fn module_files(&self, setup: &Setup, machine: &Machine<'_>) -> Result<Vec<(String, Vec<u8>)>, Error> {
        if let Some(image) = &machine.device_image {
            return image.modules();
        }
        if let Some(kernel) = &machine.kernel {
            return kernel.modules();
        }
        let read = |module: &String| {
            let contents = match &self.xen {
                Some(xen) => xen.module(module)?,
                None => self.image.read(&format!("{MODULES}/{module}"))?,
            };
            Ok((module.clone(), contents))
        };
        setup.modules.iter().map(read).collect()
    }

    fn initial_ram_disk(&self, setup: &Setup, machine: &Machine<'_>) -> Result<Vec<u8>, Error> {
        let program = own_program()?;
        let in_memory = || Error::file("Could not make the", "initial RAM disk");
        let mut archive = Archive::default();
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run"] {
            archive.folder(folder).map_err(in_memory())?;
        }
        archive.file("/init", 0o755, &program).map_err(in_memory())?;
        if let Some(agent) = &machine.guest_agent {
            archive.file(job::GUEST_AGENT, 0o755, &agent.program).map_err(in_memory())?;
        }
        archive.file(job::BUSYBOX, 0o755, &self.image.read(BUSYBOX)?).map_err(in_memory())?;
        for (module, contents) in self.module_files(setup, machine)? {
            archive
                .file(&format!("{}/{module}", job::MODULE_FOLDER), 0o644, &contents)
                .map_err(in_memory())?;
        }
        if let Some(image) = &machine.device_image {
            for name in device_image::GUEST {
                let path = format!("{}/{name}", job::DEVICE_GUEST);
                archive.file(&path, 0o644, &image.read(name)?).map_err(in_memory())?;
            }
        }
        let text = serde_json::to_vec(setup).unwrap_or_default();
        archive.file(job::SETUP_PATH, 0o644, &text).map_err(in_memory())?;
        archive.finish().map_err(in_memory())
    }
}

/// Opens the files to copy in now, so that a missing file is reported before anything starts.
fn open_put(put: &[Put]) -> Result<Vec<(PlacedFile, File)>, Error> {
    if !put.is_empty() {
        files::allow_open_files();
    }
    put.iter()
        .map(|put| {
            if !put.from.exists() {
                return Err(Error::PutMissing { path: put.from.clone() });
            }
            if !put.from.is_file() {
                return Err(Error::PutNoFile { path: put.from.clone() });
            }
            let file = File::open(&put.from).map_err(Error::file("Could not open", &put.from))?;
            let metadata = file.metadata().map_err(Error::file("Could not look at", &put.from))?;
            let mode = metadata.permissions().mode() & 0o7777;
            Ok((PlacedFile { path: put.to.clone(), mode, bytes: metadata.len() }, file))
        })
        .collect()
}

/// Fails if a request needs the clock of our QEMU.
fn require_no_clock(lab: &'static str, request: &Request) -> Result<(), Error> {
    let options = [("--speed", request.speed.is_some()), ("--switch-cycles", request.switch_cycles != 0)];
    match options.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Error::ClockInDebiansQemu { lab, option }),
        None => Ok(()),
    }
}

/// The smallest memory, in MiB, into which a boot image of this size fits.
fn least_memory(needed: u64, emulator: Emulator) -> u64 {
    const STEP: u64 = 32;
    (1..).map(|steps| steps * STEP).find(|&memory| room(emulator, memory) >= needed).unwrap_or(u64::MAX)
}

/// The order for the agent; `term` is the user's TERM. With a seed, it is the same in every run.
fn order(
    request: &Request,
    put: &[(PlacedFile, File)],
    terminal: Option<TerminalSize>,
    term: Option<String>,
) -> Order {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    Order {
        command: request.command.clone(),
        put: put.iter().map(|(file, _)| file.clone()).collect(),
        get: request.get.clone(),
        terminal,
        terminal_kind: terminal.and(term).unwrap_or_else(|| "vt100".to_owned()),
        clock: request.seed.map_or(now, |_| SEEDED_CLOCK),
        seed: request.seed.unwrap_or(now),
        switch_cycles: request.switch_cycles,
    }
}

/// A digest of a manifest, which differs if images were made from different packages.
fn digest(manifest: &impl Serialize) -> String {
    key([serde_json::to_string(manifest).unwrap_or_default().as_str()].iter())
}

/// Collects the values of `module.parameter=value` arguments in a string for each module.
fn module_parameters<'a>(kernel_arguments: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let words = kernel_arguments.flat_map(str::split_whitespace);
    let parts = words.filter_map(|word| word.split_once('.')).filter(|(_, rest)| rest.contains('='));
    parts.fold(BTreeMap::new(), |mut all, (module, rest)| {
        let values = all.entry(module.replace('-', "_")).or_insert_with(String::new);
        if !values.is_empty() {
            values.push(' ');
        }
        values.push_str(rest);
        all
    })
}

impl Request {
    /// Checks what can be checked before anything is fetched, built or started.
    ///
    /// # Errors
    /// If the laboratory cannot do what is requested, a file to copy in is missing, or the folder for files
    /// that are copied out cannot be written.
    pub fn check(&self, lab: &Lab) -> Result<(), Error> {
        if !lab.is_xen() && !self.hypervisor_arguments.is_empty() {
            return Err(Error::NotXen { lab: lab.name });
        }
        device::require(lab, &self.devices)?;
        if let Some(kernel) = self.kernel {
            kernel.require(lab, &self.devices)?;
        }
        Speed::of(lab, self.speed)?;
        if self.guest_image && self.bare {
            return Err(Error::GuestImage { problem: "a lab without a disk has no place for it" });
        }
        let put = open_put(&self.put)?;
        // The agent would refuse it, and the snapshot would be blamed.
        let bytes = Frame::Order(Box::new(order(self, &put, None, None))).payload().len();
        if bytes > LARGEST_PAYLOAD {
            return Err(Error::OrderTooLarge { bytes, most: LARGEST_PAYLOAD });
        }
        if self.get.is_empty() {
            return Ok(());
        }
        let tried = fs::create_dir_all(&self.output).and_then(|()| tempfile::tempfile_in(&self.output));
        tried.map(drop).map_err(|source| Error::NoOutput { path: self.output.clone(), source })
    }
}

/// Unpacks the files that were copied out, and returns their paths. Skips entries that lead out of the
/// folder, with a warning.
pub(crate) fn take_out(
    archive: &mut File,
    output: &Path,
    warnings: &mut Vec<String>,
) -> Result<Vec<PathBuf>, Error> {
    let read = || Error::file("Could not read", "the files brought out");
    if archive.metadata().map_err(read())?.len() == 0 {
        return Ok(Vec::new());
    }
    archive.rewind().map_err(read())?;
    fs::create_dir_all(output).map_err(Error::file("Could not make", output))?;
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().map_err(read())?;
    let mut files = Vec::new();
    for entry in entries {
        let mut entry = entry.map_err(read())?;
        let path = entry.path().map(|path| output.join(path)).unwrap_or_else(|_| output.to_owned());
        match entry.unpack_in(output).map_err(Error::file("Could not write", &path))? {
            true => files.push(path),
            false => warnings.push(format!("{} leads out of its folder and was left out", path.display())),
        }
    }
    Ok(files)
}

/// Saves an archive that could not be unpacked, because the run may have taken hours. Tries the folders in
/// order.
fn keep(archive: &mut File, places: [&Path; 3]) -> Option<PathBuf> {
    places.into_iter().find_map(|place| {
        let mut kept =
            tempfile::Builder::new().prefix("exitless-files-").suffix(".tar").tempfile_in(place).ok()?;
        archive.rewind().and_then(|()| io::copy(archive, &mut kept)).ok()?;
        Some(kept.keep().ok()?.1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_found_before_anything_starts() {
        let put = Put { from: PathBuf::from("/nonexistent/file"), to: "file".to_owned() };
        assert!(matches!(open_put(&[put]), Err(Error::PutMissing { .. })));
    }

    #[test]
    fn more_files_than_the_soft_limit_can_be_copied_in() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let file = tempfile::NamedTempFile::new().unwrap();
        let put = vec![Put { from: file.path().to_owned(), to: "file".to_owned() }; 1200];
        let limit = getrlimit(Resource::Nofile);
        // The usual limit: other tests of this process run meanwhile.
        setrlimit(Resource::Nofile, Rlimit { current: Some(1024), ..limit }).unwrap();
        assert_eq!(open_put(&put).unwrap().len(), 1200);
    }

    #[test]
    fn what_is_no_file_is_found_before_anything_starts() {
        let put = Put { from: PathBuf::from("/proc"), to: "file".to_owned() };
        let refused = open_put(&[put]).unwrap_err().to_string();
        assert!(refused.starts_with("/proc is not a regular file"), "{refused}");
    }

    #[test]
    fn debians_qemu_is_asked_for_no_clock() {
        let refused = |request| require_no_clock("amd-svm", &request).map_err(|error| error.to_string());
        assert_eq!(refused(Request::new(["true"])), Ok(()));
        let refusal = refused(Request { switch_cycles: 1350, ..Request::new(["true"]) }).unwrap_err();
        assert!(refusal.starts_with("--switch-cycles needs the QEMU that is compiled"), "{refusal}");
        let refusal = refused(Request { speed: Some(500), ..Request::new(["true"]) }).unwrap_err();
        assert!(refusal.starts_with("--speed needs the QEMU that is compiled"), "{refusal}");
    }

    #[test]
    fn an_order_with_a_seed_does_not_depend_on_the_callers_terminal() {
        let request = Request { seed: Some(7), ..Request::new(["true"]) };
        let [one, other] = [Some("xterm-256color"), None].map(|term| term.map(str::to_owned));
        assert_eq!(order(&request, &[], None, one.clone()), order(&request, &[], None, other));
        let size = TerminalSize { rows: 24, columns: 80 };
        assert_eq!(order(&request, &[], Some(size), one).terminal_kind, "xterm-256color");
    }

    #[test]
    fn the_memory_that_is_named_has_room_and_less_has_not() {
        for emulator in [Emulator::Bochs, Emulator::Qemu] {
            let needed = 40 << 20;
            let least = least_memory(needed, emulator);
            assert!(room(emulator, least) >= needed && room(emulator, least - 32) < needed, "{least}");
        }
        assert!((257..=512).contains(&least_memory(40 << 20, Emulator::Bochs)));
    }

    #[test]
    fn files_come_out_though_the_folder_of_the_run_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        archive.append_data(&mut header, "result", &b"text"[..]).unwrap();
        let mut archive = archive.into_inner().unwrap();
        let brought = take_out(&mut archive, folder.path(), &mut Vec::new()).unwrap();
        assert_eq!(brought, [folder.path().join("result")]);
        assert_eq!(fs::read(&brought[0]).unwrap(), b"text");
        // If unpacking fails, the whole archive is kept.
        fs::remove_file(&brought[0]).unwrap();
        fs::create_dir(&brought[0]).unwrap();
        take_out(&mut archive, folder.path(), &mut Vec::new()).unwrap_err();
        let kept = keep(&mut archive, [&brought[0].join("gone"), folder.path(), Path::new(".")]).unwrap();
        assert!(kept.starts_with(folder.path()), "{}", kept.display());
        let other = tempfile::tempdir().unwrap();
        take_out(&mut File::open(&kept).unwrap(), other.path(), &mut Vec::new()).unwrap();
        assert_eq!(fs::read(other.path().join("result")).unwrap(), b"text");
    }

    #[test]
    fn what_leads_out_of_the_folder_is_left_out_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = tar::Builder::new(tempfile::tempfile().unwrap());
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..8].copy_from_slice(b"../other");
        header.set_size(0);
        header.set_cksum();
        archive.append(&header, &b""[..]).unwrap();
        let mut warnings = Vec::new();
        let brought = take_out(&mut archive.into_inner().unwrap(), folder.path(), &mut warnings).unwrap();
        assert!(brought.is_empty() && warnings[0].contains("../other"), "{warnings:?}");
    }

    #[test]
    fn what_a_laboratory_cannot_do_is_found_before_anything_is_fetched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        fs::write(&file, "").unwrap();
        let any = || Request::new(["true"]);
        let text = str::to_owned;
        let put = vec![Put { from: PathBuf::from("/nonexistent/file"), to: text("file") }];
        let asked = [
            (any(), None),
            (Request { hypervisor_arguments: vec![text("apicv=0")], ..any() }, Some("amd-svm has no Xen")),
            (Request { speed: Some(7), ..any() }, Some("amd-svm")),
            (
                Request { bare: true, guest_image: true, ..any() },
                Some("Could not give the lab the guest image"),
            ),
            (Request { put, ..any() }, Some("/nonexistent/file does not exist")),
            (Request { command: vec!["x".repeat(100 << 10); 10], ..any() }, None),
            (
                Request { command: vec!["\"".repeat(100 << 10); 10], ..any() },
                Some("The command and the names"),
            ),
            (Request { get: vec![text("x")], output: file, ..any() }, Some("Could not write to")),
            (Request { get: vec![text("x")], output: folder.path().join("a/b"), ..any() }, None),
        ];
        for (request, refused) in asked {
            let said = request.check(Lab::find("amd-svm").unwrap()).map_err(|error| error.to_string());
            match refused {
                Some(refused) => {
                    assert!(said.as_ref().is_err_and(|said| said.starts_with(refused)), "{said:?}")
                }
                None => assert_eq!(said, Ok(())),
            }
        }
    }

    #[test]
    fn module_parameters_come_from_dotted_kernel_arguments() {
        let arguments = ["kvm_intel.enable_apicv=N kvm-intel.nested=0", "quiet a.b"];
        let expected = BTreeMap::from([("kvm_intel".to_owned(), "enable_apicv=N nested=0".to_owned())]);
        assert_eq!(module_parameters(arguments.into_iter()), expected);
    }
}
