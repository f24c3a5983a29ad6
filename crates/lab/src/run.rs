//! One run: power on, boot, command, files out, power off.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::archive::Archive;
use crate::assemble::{ATA_MODULES, KVM_MODULES};
use crate::cache::Cache;
use crate::definition::{Emulator, Hypervisor, Lab};
use crate::elf::{PT_INTERP, program_headers};
use crate::error::Error;
use crate::guest_image::GuestImage;
use crate::image::{BUSYBOX, Image, MODULES};
use crate::job::{self, Job, PlacedFile, Root, TerminalSize};
use crate::machine::Machine;
use crate::process::Process;
use crate::request::{Finished, Happening, Put, Request, Timings};
use crate::terminal::Bridge;
use crate::watch::Watch;
use crate::xen_boot;
use crate::xen_image::XenImage;

/// A boot that hung is tried again, unless the limit was so short that it may only have been slow.
const WORTH_ANOTHER_TRY: Duration = Duration::from_secs(60);

/// A laboratory ready to be powered on.
#[derive(Debug)]
pub struct Laboratory<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) lab: &'static Lab,
    pub(crate) image: &'a Image,
    /// The image of a Xen host, for such a laboratory.
    pub(crate) xen: Option<XenImage>,
    /// The emulator, where it is not the image's own.
    pub(crate) program: Option<PathBuf>,
    /// Set by a signal handler to end the run.
    pub(crate) stop: Arc<AtomicBool>,
}

impl Laboratory<'_> {
    /// Runs a command in the emulated host.
    ///
    /// # Errors
    /// When a file to put is missing or arguments are for a Xen that is not there (before anything starts), when the
    /// emulated host does not come up, panics or takes too long (a boot that hung is tried once more), or when a signal
    /// asked to stop. The command's own failure is in [`Finished::ending`].
    pub fn run(
        &self,
        request: &Request,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Finished, Error> {
        match self.start(request, None, on_happening) {
            // An emulator that waits long for a CPU now and then loses a boot. Nothing of the command has run yet, so
            // a second try repeats nothing.
            Err(Error::BootHung { limit, .. }) if limit >= WORTH_ANOTHER_TRY => {
                tracing::warn!("{} did not come up within {limit:.0?}; trying once more", self.lab.name);
                self.start(request, None, on_happening)
            }
            other => other,
        }
    }

    /// Opens a shell in the emulated host, on this process's terminal.
    ///
    /// # Errors
    /// As [`Laboratory::run`], and when standard input is not a terminal.
    pub fn shell(&self, request: &Request) -> Result<Finished, Error> {
        let bridge = Bridge::open()?;
        self.start(request, Some(bridge), &mut |_| ())
    }

    fn start(
        &self,
        request: &Request,
        bridge: Option<Bridge>,
        on_happening: &mut dyn FnMut(Happening<'_>),
    ) -> Result<Finished, Error> {
        let begun = Instant::now();
        if !self.lab.is_xen() && !request.hypervisor_arguments.is_empty() {
            return Err(Error::NotXen { lab: self.lab.name });
        }
        let put = read_put(&request.put)?;
        let folder = self.cache.run_folder()?;
        let machine = Machine {
            lab: self.lab,
            image: self.image,
            xen: self.xen.as_ref(),
            program: self.program.clone(),
            cpus: request.cpus,
            memory_mib: request.memory_mib.unwrap_or(match (&self.xen, request.bare) {
                (Some(_), _) => xen_boot::MEMORY_MIB,
                (None, true) => 512,
                (None, false) => 1536,
            }),
            with_disk: !request.bare,
            guest_disk: self.guest_disk(request)?,
            kernel_arguments: &request.kernel_arguments.join(" "),
            hypervisor_arguments: &request.hypervisor_arguments.join(" "),
            terminal: bridge.as_ref().map(|bridge| bridge.line().to_owned()),
        };
        let job = self.job(request, &put, bridge.as_ref().map(Bridge::size));
        let initial_ram_disk = self.initial_ram_disk(&job, &put)?;
        if initial_ram_disk.len() as u64 > machine.room() {
            return Err(Error::TooLarge {
                needed_mib: (initial_ram_disk.len() as u64 >> 20) + 1,
                room_mib: machine.room() >> 20,
            });
        }
        let power_on = machine.prepare(folder.path(), &initial_ram_disk)?;
        drop((initial_ram_disk, put));
        let files = folder.path().join("files.tar");
        let mut watch = Watch {
            lab: self.lab.name,
            stop: &self.stop,
            request,
            boot_limit: request.boot_timeout.unwrap_or(self.lab.boot_limit),
            begun,
            powered_on: Instant::now(),
            last: Instant::now(),
            timings: Timings { prepare: begun.elapsed().as_secs_f64(), ..Timings::default() },
            running: false,
            warnings: Vec::new(),
            files: File::create(&files).map_err(Error::file("Could not write", &files))?,
        };
        let mut process = Process::start(&power_on, folder.path())?;
        let bridging = bridge.map(Bridge::connect).transpose()?;
        let ending = watch.follow(&mut process, on_happening)?;
        drop(bridging);
        drop(process);
        let brought = take_out(&files, &request.output)?;
        watch.timings.total = begun.elapsed().as_secs_f64();
        Ok(Finished { ending, timings: watch.timings, warnings: watch.warnings, files: brought })
    }

    fn guest_disk(&self, request: &Request) -> Result<Option<PathBuf>, Error> {
        match (request.guest_image, request.bare) {
            (false, _) => Ok(None),
            (true, true) => {
                Err(Error::GuestImage { problem: "a laboratory without a disk has no place for it" })
            }
            (true, false) => match GuestImage::find(self.cache)? {
                Some(image) => Ok(Some(image.root())),
                None => {
                    Err(Error::GuestImage { problem: "it is not there; make it with `exitless guest build`" })
                }
            },
        }
    }

    fn job(&self, request: &Request, put: &[(PlacedFile, Vec<u8>)], terminal: Option<TerminalSize>) -> Job {
        Job {
            root: if request.bare { Root::Bare } else { Root::Disk },
            guest_image: request.guest_image,
            xen: self.lab.is_xen(),
            modules: self.modules(request),
            module_parameters: module_parameters(&request.kernel_arguments),
            command: request.command.clone(),
            put: put.iter().map(|(file, _)| file.clone()).collect(),
            get: request.get.clone(),
            terminal,
            terminal_kind: std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned()),
        }
    }

    fn modules(&self, request: &Request) -> Vec<String> {
        let vendor_module = match self.lab.hypervisor {
            Hypervisor::Kvm { vendor_module } => vendor_module,
            Hypervisor::Xen => {
                // Without a disk those of Xen do, whose names tell them from the others.
                let wanted = |module: &&String| !request.bare || module.starts_with("xen");
                let needed = |xen: &XenImage| {
                    let modules = xen.manifest().modules.needed(self.lab.emulator);
                    modules.filter(wanted).cloned().collect()
                };
                return self.xen.as_ref().map(needed).unwrap_or_default();
            }
        };
        let disk: &[&str] = match self.lab.emulator {
            Emulator::Bochs if !request.bare => &ATA_MODULES,
            _ => &[],
        };
        let vendor = format!("{vendor_module}.ko");
        disk.iter().chain(&KVM_MODULES).map(|&module| module.to_owned()).chain([vendor]).collect()
    }

    fn initial_ram_disk(&self, job: &Job, put: &[(PlacedFile, Vec<u8>)]) -> Result<Vec<u8>, Error> {
        let program = own_program()?;
        let in_memory = || Error::file("Could not make the", "initial RAM disk");
        let mut archive = Archive::default();
        for folder in ["/proc", "/sys", "/dev", "/tmp", "/run"] {
            archive.folder(folder).map_err(in_memory())?;
        }
        archive.file("/init", 0o755, &program).map_err(in_memory())?;
        archive.file(job::BUSYBOX, 0o755, &self.image.read(BUSYBOX)?).map_err(in_memory())?;
        for module in &job.modules {
            let contents = match &self.xen {
                Some(xen) => xen.module(module)?,
                None => self.image.read(&format!("{MODULES}/{module}"))?,
            };
            archive
                .file(&format!("{}/{module}", job::MODULE_FOLDER), 0o644, &contents)
                .map_err(in_memory())?;
        }
        for (index, (_, contents)) in put.iter().enumerate() {
            archive.file(&format!("{}/{index}", job::PUT_FOLDER), 0o644, contents).map_err(in_memory())?;
        }
        let text = serde_json::to_vec(job).unwrap_or_default();
        archive.file(job::JOB_PATH, 0o644, &text).map_err(in_memory())?;
        archive.finish().map_err(in_memory())
    }
}

fn read_put(put: &[Put]) -> Result<Vec<(PlacedFile, Vec<u8>)>, Error> {
    put.iter()
        .map(|put| {
            if !put.from.is_file() {
                return Err(Error::PutMissing { path: put.from.clone() });
            }
            let contents = fs::read(&put.from).map_err(Error::file("Could not read", &put.from))?;
            let mode = put.from.metadata().map_or(0o644, |metadata| metadata.permissions().mode() & 0o7777);
            Ok((PlacedFile { path: put.to.clone(), mode }, contents))
        })
        .collect()
}

/// `module.parameter=value` arguments, by module, as one string for each.
fn module_parameters(kernel_arguments: &[String]) -> BTreeMap<String, String> {
    let words = kernel_arguments.iter().flat_map(|argument| argument.split_whitespace());
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

/// This program's own file, which must run without libraries.
fn own_program() -> Result<Vec<u8>, Error> {
    let path = PathBuf::from("/proc/self/exe");
    let program = fs::read(&path).map_err(Error::file("Could not read", &path))?;
    if program_headers(&program).any(|header| header.kind == PT_INTERP) {
        return Err(Error::NotStatic { path: fs::read_link(&path).unwrap_or(path) });
    }
    Ok(program)
}

fn take_out(archive: &Path, output: &Path) -> Result<Vec<PathBuf>, Error> {
    let length = archive.metadata().map_or(0, |metadata| metadata.len());
    if length == 0 {
        return Ok(Vec::new());
    }
    fs::create_dir_all(output).map_err(Error::file("Could not make", output))?;
    let file = File::open(archive).map_err(Error::file("Could not open", archive))?;
    let mut archive = tar::Archive::new(file);
    let entries = archive.entries().map_err(Error::file("Could not read", "the files brought out"))?;
    let mut files = Vec::new();
    for entry in entries {
        let mut entry = entry.map_err(Error::file("Could not read", "the files brought out"))?;
        let path = entry.path().map(|path| output.join(path)).unwrap_or_else(|_| output.to_owned());
        entry.unpack_in(output).map_err(Error::file("Could not write", &path))?;
        files.push(path);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_found_before_anything_starts() {
        let put = Put { from: PathBuf::from("/nonexistent/file"), to: "file".to_owned() };
        assert!(matches!(read_put(&[put]), Err(Error::PutMissing { .. })));
    }

    #[test]
    fn module_parameters_come_from_dotted_kernel_arguments() {
        let arguments = ["kvm_intel.enable_apicv=N kvm-intel.nested=0".to_owned(), "quiet a.b".to_owned()];
        let expected = BTreeMap::from([("kvm_intel".to_owned(), "enable_apicv=N nested=0".to_owned())]);
        assert_eq!(module_parameters(&arguments), expected);
    }
}
