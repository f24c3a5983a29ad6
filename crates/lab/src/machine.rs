//! The emulators' command lines for one run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::assemble::{CYLINDER, EMULATORS};
use crate::definition::{BOCHS_INSTRUCTIONS_PER_SECOND, Emulator, Lab};
use crate::error::Error;
use crate::image::{COMPRESSED_KERNEL, DISK, Image, TOOLS};
use crate::job::{AGENT_ARGUMENT, PORT_NAME};
use crate::multiboot::{self, Boot};
use crate::payload::{self, Contents};
use crate::pvh;
use crate::rom;
use crate::tools::{Invocation, LIBRARIES};
use crate::xen_boot;
use crate::xen_image::{self, XenImage};

/// Arguments of every laboratory's kernel. Those on the second line and the third take work away that an emulated CPU
/// feels and that no measurement here needs: self-tests of ciphers, certificates, entropy collection, watchdogs. The
/// check of the timer (`no_timer_check`) goes by real time, and an emulator that has to wait for a CPU fails it. A
/// kernel that went on after an oops could stand still for ever with what the dead thread held.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr mitigations=off no_timer_check \
    cryptomgr.notests apparmor=0 audit=0 nowatchdog tsc=reliable rcupdate.rcu_expedited=1 \
    initcall_blacklist=load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init \
    rdinit=/init";

/// A machine about to be powered on.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) lab: &'static Lab,
    pub(crate) image: &'a Image,
    /// Set for a Xen host.
    pub(crate) xen: Option<&'a XenImage>,
    /// The emulator's program, where it is not the image's own.
    pub(crate) program: Option<PathBuf>,
    pub(crate) cpus: u16,
    pub(crate) memory_mib: u64,
    pub(crate) with_disk: bool,
    /// The guest image's root, for a second disk.
    pub(crate) guest_disk: Option<PathBuf>,
    pub(crate) kernel_arguments: &'a str,
    /// Of Xen.
    pub(crate) hypervisor_arguments: &'a str,
    /// The other end of the second serial line, for a shell.
    pub(crate) terminal: Option<PathBuf>,
}

/// How a machine is started, and where its console is written.
#[derive(Debug)]
pub(crate) struct PowerOn {
    pub(crate) invocation: Invocation,
    pub(crate) console: PathBuf,
    pub(crate) log: Option<PathBuf>,
}

impl Machine<'_> {
    /// Bytes that an initial RAM disk may have.
    pub(crate) fn room(&self) -> u64 {
        match self.lab.emulator {
            Emulator::Bochs => payload::room(self.memory_mib),
            Emulator::Qemu => (self.memory_mib << 20) / 2,
        }
    }

    /// Writes what the emulator reads into `folder` and returns its command.
    pub(crate) fn prepare(&self, folder: &Path, initial_ram_disk: &[u8]) -> Result<PowerOn, Error> {
        match self.lab.emulator {
            Emulator::Bochs => self.prepare_bochs(folder, initial_ram_disk),
            Emulator::Qemu => self.prepare_qemu(folder, initial_ram_disk),
        }
    }

    fn command_line(&self) -> String {
        format!(
            "{KERNEL_ARGUMENTS} {} {} -- {AGENT_ARGUMENT}",
            self.lab.kernel_arguments, self.kernel_arguments
        )
    }

    fn prepare_bochs(&self, folder: &Path, initial_ram_disk: &[u8]) -> Result<PowerOn, Error> {
        let payload = folder.join("payload");
        let parameters = self.write_payload(&payload, initial_ram_disk)?;
        let write = |name: &str, contents: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, contents).map_err(Error::file("Could not write", &path)).map(|()| path)
        };
        let rom_file = write("loader.rom", &rom::image(parameters))?;
        let (console, log) = (folder.join("console"), folder.join("bochs.log"));
        let tools = self.image.path(TOOLS);
        let configuration = self.bochs_configuration(&BochsFiles {
            tools: &tools,
            payload: &payload,
            payload_address: parameters.source,
            rom: &rom_file,
            console: &console,
            log: &log,
            journal: &folder.join("disk.redo"),
        })?;
        let configuration = write("bochsrc", configuration.as_bytes())?;
        let mut invocation = match &self.program {
            Some(program) => Invocation::of_host(program),
            None => {
                let mut own = Invocation::of_tree(&tools, EMULATORS[0]);
                own.env("LTDL_LIBRARY_PATH", tools.join(LIBRARIES).join("bochs/plugins"));
                own.env("BXSHARE", tools.join("usr/share/bochs"));
                own
            }
        };
        invocation.args(["-q", "-f"]).arg(configuration);
        Ok(PowerOn { invocation, console, log: Some(log) })
    }

    fn write_payload(&self, payload: &Path, initial_ram_disk: &[u8]) -> Result<rom::Parameters, Error> {
        let mut file = File::create(payload).map_err(Error::file("Could not write", payload))?;
        let mut write = |contents: &Contents<'_>| {
            payload::write(&mut file, self.memory_mib, contents)
                .map_err(Error::file("Could not write", payload))
        };
        let Some(xen) = self.xen else {
            let kernel = self.image.kernel()?;
            return write(&pvh::contents(self.memory_mib, &kernel, &self.command_line(), initial_ram_disk));
        };
        let read = |path: &Path| fs::read(path).map_err(Error::file("Could not read", path));
        let hypervisor = xen.path(xen_image::HYPERVISOR);
        let boot = Boot {
            hypervisor: (&hypervisor, &read(&hypervisor)?),
            hypervisor_arguments: &self.hypervisor_arguments(),
            kernel: &read(&xen.path(xen_image::KERNEL))?,
            kernel_arguments: &self.command_line(),
            initial_ram_disk,
        };
        write(&multiboot::contents(self.memory_mib, &boot)?)
    }

    fn hypervisor_arguments(&self) -> String {
        xen_boot::hypervisor_arguments(self.lab.emulator, self.memory_mib, self.hypervisor_arguments)
    }

    /// The file of the disk that the host begins with.
    fn disk(&self) -> PathBuf {
        self.xen.map_or_else(|| self.image.path(DISK), |xen| xen.path(DISK))
    }

    fn bochs_configuration(&self, files: &BochsFiles<'_>) -> Result<String, Error> {
        let mut text = format!(
            "display_library: rfb, options=\"timeout=0\"\n\
             memory: guest={memory}, host={memory}, block_size={block}\n\
             romimage: file={tools}/usr/share/bochs/BIOS-bochs-latest\n\
             vgaromimage: file={tools}/usr/share/vgabios/vgabios.bin\n\
             optromimage1: file={rom}, address={rom_address:#x}\n\
             optramimage1: file={payload}, address={payload_address:#x}\n\
             cpu: model=corei7_skylake_x, count={cpus}, ips={ips}, reset_on_triple_fault=0, ignore_bad_msrs=1\n\
             com1: enabled=1, mode=file, dev={console}\n\
             port_e9_hack: enabled=1\n\
             boot: disk\n\
             clock: sync=none\n\
             log: {log}\n\
             panic: action=fatal\n\
             error: action=ignore\n\
             info: action=ignore\n",
            memory = self.memory_mib,
            block = rom::CHUNK >> 10,
            tools = files.tools.display(),
            rom = files.rom.display(),
            rom_address = rom::ADDRESS,
            payload = files.payload.display(),
            payload_address = files.payload_address,
            cpus = self.cpus,
            ips = BOCHS_INSTRUCTIONS_PER_SECOND,
            console = files.console.display(),
            log = files.log.display(),
        );
        if let Some(terminal) = &self.terminal {
            text += &format!("com2: enabled=1, mode=term, dev={}\n", terminal.display());
        }
        if self.with_disk {
            let disk = self.disk();
            let size = disk.metadata().map_err(Error::file("Could not look at", &disk))?.len();
            text += &format!(
                "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14\n\
                 ata0-master: type=disk, path={}, mode=volatile, journal={}, cylinders={}, heads=16, spt=63\n",
                disk.display(),
                files.journal.display(),
                size / CYLINDER,
            );
            if let Some(disk) = &self.guest_disk {
                let size = disk.metadata().map_err(Error::file("Could not look at", disk))?.len();
                text += &format!(
                    "ata0-slave: type=disk, path={}, mode=volatile, journal={}.guest, cylinders={}, heads=16, spt=63\n",
                    disk.display(),
                    files.journal.display(),
                    size / CYLINDER,
                );
            }
        }
        Ok(text)
    }

    fn prepare_qemu(&self, folder: &Path, initial_ram_disk: &[u8]) -> Result<PowerOn, Error> {
        let tools = self.image.path(TOOLS);
        let initrd = folder.join("initrd");
        fs::write(&initrd, initial_ram_disk).map_err(Error::file("Could not write", &initrd))?;
        let console = folder.join("console");
        let mut invocation = match &self.program {
            Some(program) => Invocation::of_host(program),
            None => {
                let mut own = Invocation::of_tree(&tools, EMULATORS[1]);
                own.env("QEMU_MODULE_DIR", tools.join(LIBRARIES).join("qemu"));
                own.arg("-L")
                    .arg(tools.join("usr/share/qemu"))
                    .arg("-L")
                    .arg(tools.join("usr/share/seabios"));
                own
            }
        };
        invocation.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
        invocation.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
        invocation.arg("-smp").arg(self.cpus.to_string()).arg("-m").arg(self.memory_mib.to_string());
        let command_line = self.command_line();
        match self.xen {
            Some(xen) => {
                let arguments = self.hypervisor_arguments();
                xen_boot::arguments(&mut invocation, xen, folder, &arguments, &initrd, &command_line)?;
            }
            None => {
                invocation.args(["-cpu", "EPYC,+svm"]);
                invocation.arg("-kernel").arg(self.image.path(COMPRESSED_KERNEL)).arg("-initrd").arg(initrd);
                invocation.arg("-append").arg(command_line);
            }
        }
        invocation.arg("-serial").arg(format!("file:{}", console.display()));
        match &self.terminal {
            Some(terminal) => invocation.arg("-serial").arg(terminal),
            None => invocation.args(["-serial", "none"]),
        };
        invocation.args(["-chardev", "stdio,id=frames,signal=off", "-device", "virtio-serial-pci"]);
        invocation.arg("-device").arg(format!("virtserialport,chardev=frames,name={PORT_NAME}"));
        if self.with_disk {
            invocation
                .arg("-drive")
                .arg(format!("file={},if=none,id=disk,format=raw,snapshot=on", self.disk().display()));
            match &self.guest_disk {
                None => {
                    invocation.args(["-device", "nvme,drive=disk,serial=exitless"]);
                }
                // Namespaces are told apart by their numbers; controllers are found in any order.
                Some(guest) => {
                    let drive = format!("file={},if=none,id=guest,format=raw,readonly=on", guest.display());
                    invocation.arg("-drive").arg(drive);
                    invocation.args([
                        "-device",
                        "nvme,serial=exitless",
                        "-device",
                        "nvme-ns,drive=disk,nsid=1",
                    ]);
                    invocation.args(["-device", "nvme-ns,drive=guest,nsid=2"]);
                }
            }
            // QEMU keeps what a snapshot changes in a file of its own.
            invocation.env("TMPDIR", folder);
        }
        Ok(PowerOn { invocation, console, log: None })
    }
}

struct BochsFiles<'a> {
    tools: &'a Path,
    payload: &'a Path,
    payload_address: u32,
    rom: &'a Path,
    console: &'a Path,
    log: &'a Path,
    journal: &'a Path,
}
