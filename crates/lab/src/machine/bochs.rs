//! Bochs's configuration, and its snapshots.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Machine;
use crate::assemble::{CYLINDER, TOOLS};
use crate::error::Error;
use crate::guest_image::GuestImage;
use crate::kernel;
use crate::multiboot::{self, Boot};
use crate::payload::{self, Contents};
use crate::process::{PowerOn, Process};
use crate::pvh;
use crate::rom;
use crate::tools::Invocation;
use crate::tree::write;
use crate::watch::Watch;
use crate::xen_disk;

/// The time at power-on, in seconds since 1970: 2026-01-01. Fixed, so that runs are reproducible.
const START: u64 = 1_767_225_600;
/// The limit on Bochs's time ([`EmulatorTime`](crate::EmulatorTime)) for saving itself.
const SAVE_LIMIT: Duration = Duration::from_secs(120);

// File names in the folder of a run, which is Bochs's working directory. Its configuration contains no paths:
// spaces, commas, `#` and `$` have a meaning in it, and a line is limited to 511 characters (Bochs 3.0,
// config.cc: parse_line_unformatted, read_config_file). Nor does its environment: the path of each file of a saved
// state has room for 511 (gui/siminterface.cc: save_state).
const CONSOLE: &str = "console";
const LOG: &str = "bochs.log";
const ROM: &str = "loader.rom";
const PAYLOAD: &str = "payload";
const BOOTED: &str = "bochsrc";
const RESTORED: &str = "state";
const SAVED: &str = "saved";
const BIOS: &str = "bios.rom";
const VGA_BIOS: &str = "vgabios.rom";
/// The file name of the configuration in a state that Bochs saved.
const CONFIGURATION: &str = "config";

impl Machine<'_> {
    pub(super) fn boot_bochs(
        &self,
        folder: &Path,
        initial_ram_disk: &[u8],
        saved: Option<&Path>,
    ) -> Result<PowerOn, Error> {
        let parameters = self.write_payload(&folder.join(PAYLOAD), initial_ram_disk)?;
        write(&folder.join(ROM), &rom::image(parameters))?;
        let mut configuration = self.bochs_configuration(folder)?;
        configuration += &format!("optramimage1: file={PAYLOAD}, address={:#x}\n", parameters.source);
        write(&folder.join(BOOTED), configuration.as_bytes())?;
        let mut power_on = self.bochs(folder);
        power_on.invocation.args(["-q", "-f", BOOTED]);
        if let Some(saved) = saved {
            save_to(saved, folder, &mut power_on.invocation)?;
        }
        Ok(power_on)
    }

    pub(super) fn restore_bochs(&self, folder: &Path, saved: &Path) -> Result<PowerOn, Error> {
        let state = folder.join(RESTORED);
        fs::create_dir(&state).map_err(Error::file("Could not make", &state))?;
        let entries = fs::read_dir(saved).map_err(Error::file("Could not read", saved))?;
        // Each run has a configuration of its own; all other files are only read.
        for entry in entries.flatten().filter(|entry| entry.file_name() != CONFIGURATION) {
            link(&entry.path(), &state.join(entry.file_name()))?;
        }
        link(&saved.join(ROM), &folder.join(ROM))?;
        let configuration = self.bochs_configuration(folder)?;
        write(&state.join(CONFIGURATION), configuration.as_bytes())?;
        let mut power_on = self.bochs(folder);
        power_on.invocation.args(["-q", "-r", RESTORED]);
        Ok(power_on)
    }

    fn bochs(&self, folder: &Path) -> PowerOn {
        let mut invocation =
            Invocation::of_host(self.emulator.program.as_deref().unwrap_or(Path::new("bochs")));
        // Bochs interprets the time at power-on as local time.
        invocation.env("TZ", "UTC0");
        PowerOn { invocation, console: folder.join(CONSOLE), log: Some(folder.join(LOG)) }
    }

    fn write_payload(&self, payload: &Path, initial_ram_disk: &[u8]) -> Result<rom::Parameters, Error> {
        let mut file = File::create(payload).map_err(Error::file("Could not write", payload))?;
        let mut write = |contents: &Contents<'_>| {
            payload::write(&mut file, self.memory_mib, contents)
                .map_err(Error::file("Could not write", payload))
        };
        let read = |path: &Path| fs::read(path).map_err(Error::file("Could not read", path));
        let Some(xen) = self.xen else {
            let path = self.kernel();
            let kernel = kernel::flatten(&path, &read(&path)?)?;
            return write(&pvh::contents(self.memory_mib, &kernel, &self.command_line(), initial_ram_disk));
        };
        let hypervisor = xen.path(xen_disk::HYPERVISOR);
        let boot = Boot {
            hypervisor: (&hypervisor, &read(&hypervisor)?),
            hypervisor_arguments: &self.hypervisor_arguments(),
            kernel: &read(&xen.path(xen_disk::KERNEL))?,
            kernel_arguments: &self.command_line(),
            initial_ram_disk,
        };
        write(&multiboot::contents(self.memory_mib, &boot)?)
    }

    /// The configuration that boots and restores share. Links the files that it names in `folder`.
    fn bochs_configuration(&self, folder: &Path) -> Result<String, Error> {
        let tools = self.image.path(TOOLS);
        link(&tools.join("usr/share/bochs/BIOS-bochs-latest"), &folder.join(BIOS))?;
        link(&tools.join("usr/share/vgabios/vgabios.bin"), &folder.join(VGA_BIOS))?;
        let mut text = format!(
            "plugin_ctrl: unmapped=1, biosdev=1, extfpuirq=1, serial=1, speaker=0, parallel=0\n\
             display_library: nogui\n\
             vga: extension=vbe, update_freq=1, realtime=0\n\
             memory: guest={memory}, host={memory}, block_size={block}\n\
             romimage: file={BIOS}\n\
             vgaromimage: file={VGA_BIOS}\n\
             optromimage1: file={ROM}, address={rom_address:#x}\n\
             cpu: model=corei7_skylake_x, count={cpus}, ips={ips}, reset_on_triple_fault=0, ignore_bad_msrs=1\n\
             com1: enabled=1, mode=file, dev={CONSOLE}\n\
             port_e9_hack: enabled=1, input=1\n\
             boot: disk\n\
             clock: sync=none, time0={START}\n\
             log: {LOG}\n\
             panic: action=fatal\n\
             error: action=ignore\n\
             info: action=ignore\n",
            memory = self.memory_mib,
            block = rom::CHUNK >> 10,
            rom_address = rom::ADDRESS,
            cpus = self.cpus,
            ips = self.speed.per_second(),
        );
        text += &match &self.terminal {
            Some(terminal) => format!("com2: enabled=1, mode=term, dev={}\n", terminal.display()),
            None => "com2: enabled=1, mode=null\n".to_owned(),
        };
        if self.with_disk {
            text += "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n";
            let guest = self.guest.as_ref().map(GuestImage::root);
            let disks = [("master", self.disk())].into_iter().chain(guest.map(|disk| ("slave", disk)));
            for (place, disk) in disks {
                let size = disk.metadata().map_err(Error::file("Could not look at", &disk))?.len();
                let name = format!("{place}.disk");
                link(&disk, &folder.join(&name))?;
                text += &format!(
                    "ata0-{place}: type=disk, path={name}, mode=volatile, journal={place}.redo, cylinders={}, heads=16, \
                     spt=63\n",
                    size / CYLINDER,
                );
            }
        }
        Ok(text)
    }
}

/// Makes Bochs save its state in a folder.
fn save_to(saved: &Path, folder: &Path, bochs: &mut Invocation) -> Result<(), Error> {
    link(saved, &folder.join(SAVED))?;
    bochs.env("BOCHS_SAVE", SAVED);
    Ok(())
}

fn link(target: &Path, link: &Path) -> Result<(), Error> {
    symlink(target, link).map_err(Error::file("Could not link", link))
}

/// A machine that saves itself when the agent waits for an order, and then exits.
#[derive(Debug)]
pub(crate) struct Saving {
    folder: PathBuf,
    saved: PathBuf,
}

impl Saving {
    pub(super) fn new(folder: &Path, saved: &Path) -> Self {
        Self { folder: folder.to_owned(), saved: saved.to_owned() }
    }

    pub(super) fn finish(self, process: &mut Process, watch: &Watch<'_>) -> Result<(), Error> {
        match process.wait_its_time(SAVE_LIMIT, watch.stop)? {
            Some(status) if status.success() => {
                // A saved state does not include the ROM's contents.
                let (from, to) = (self.folder.join(ROM), self.saved.join(ROM));
                fs::copy(from, &to).map(drop).map_err(Error::file("Could not keep", to))
            }
            Some(status) => Err(watch.died(process, status.to_string())),
            None => Err(watch.died(process, format!("it did not save itself within {SAVE_LIMIT:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::DISK;
    use crate::cache::Cache;
    use crate::definition::Lab;
    use crate::emulator::EmulatorProgram;
    use crate::image::{Host, Image};
    use crate::recorded::{self, Manifest};
    use crate::speed::Speed;

    #[test]
    fn the_configuration_names_no_path_that_bochs_would_misread() {
        let root = tempfile::Builder::new().prefix("a b,c#$d").tempdir().unwrap();
        let long = "x".repeat(250);
        let cache = Cache::at(root.path().join(&long).join(&long));
        let (place, folder) = (Image::place(&cache), cache.root().join("run"));
        for made in [&place, &folder] {
            fs::create_dir_all(made).unwrap();
        }
        fs::write(place.join(DISK), "disk").unwrap();
        let none = String::new;
        let manifest = Manifest::new(none(), none(), Host {}, (&place, []), &[]).unwrap();
        recorded::write_manifest(&place, &manifest).unwrap();
        let image = Image::find(&cache).unwrap().unwrap();
        let lab = Lab::find("intel-apicv").unwrap();
        let machine = Machine {
            lab,
            image: &image,
            xen: None,
            emulator: &EmulatorProgram::stock(&image),
            cpus: 2,
            speed: Speed::of(lab, None).unwrap(),
            memory_mib: 512,
            with_disk: true,
            guest: None,
            devices: &[],
            device_image: None,
            kernel: None,
            guest_agent: None,
            kernel_arguments: String::new(),
            hypervisor_arguments: String::new(),
            terminal: None,
            input: 0,
        };
        let mut bochs = Invocation::of_host("bochs");
        save_to(&cache.snapshots(), &folder, &mut bochs).unwrap();
        let [("BOCHS_SAVE", state)] = &bochs.environment[..] else { panic!("{bochs:?}") };
        assert!(state.is_relative() && fs::read_link(folder.join(state)).unwrap() == cache.snapshots());
        let text = machine.bochs_configuration(&folder).unwrap();
        let is_read = |line: &str| line.len() < 512 && !line.contains(['#', '$']) && !line.contains(&long);
        assert!(text.lines().all(is_read), "{text}");
        for name in [BIOS, VGA_BIOS, "master.disk"] {
            assert!(
                text.contains(name) && fs::read_link(folder.join(name)).unwrap().starts_with(&place),
                "{text}"
            );
        }
    }
}
