//! QEMU's command line for one guest.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use guest::{PORT_NAME, Port, ROOT_SERIAL, Settings};

use super::super::GuestFiles;
use super::super::kernel::command_line;
use super::super::plan::{Accelerator, DiskBus, Irqchip, NetModel, Pit, QemuPlan};
use super::devices;
use super::network::Wiring;
use super::options::{escaped, virtio_suffix};
use crate::process;

/// The monitor's socket, in the guest's folder.
pub(super) const MONITOR: &str = "qmp.sock";

/// Kernel arguments of these guests. `no_timer_check` turns off the check of the timer against real time, which fails
/// when an emulator has to wait for a CPU. ACPI lists all of QEMU's host bridges, so the kernel need not search other
/// PCI buses (`lastbus`), which takes 8,000 exits. A microvm has no RTC, and the driver waits 2.7 s for one
/// (`cmos_init`).
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 loglevel=4 reboot=t no_timer_check pci=lastbus=0 initcall_blacklist=cmos_init";

/// The ports of the virtio-serial device: the agent's is number 1, because 0 is reserved for a console. QEMU's default
/// is 31, with two queues each: 0.15 s of setup on an emulated CPU, and an eventfd each in QEMU's main loop.
const PORTS: u32 = 2;

/// QEMU's program.
pub(super) fn program(plan: &QemuPlan) -> PathBuf {
    plan.program.clone().unwrap_or_else(|| PathBuf::from("qemu-system-x86_64"))
}

/// The command to run in the guest's folder.
pub(super) fn command(plan: &QemuPlan, index: u32, files: &GuestFiles, wiring: &Wiring) -> Command {
    let mut command = process::command(program(plan));
    command.args(arguments(plan, index, files, wiring));
    command
}

/// QEMU's arguments.
pub(super) fn arguments(plan: &QemuPlan, index: u32, files: &GuestFiles, wiring: &Wiring) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    add(&["-name", &format!("guest-{index},debug-threads=on")]);
    add(&["-machine", &machine(plan), "-accel", accelerator(plan.accel)]);
    let cpu = plan.cpu.as_deref().unwrap_or(match plan.accel {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    });
    add(&["-cpu", cpu, "-smp", &plan.vcpus.to_string()]);
    // In KiB, because a number without a unit means MiB.
    add(&["-m", &format!("{}k", plan.memory.bytes() >> 10)]);
    if plan.pit == Some(Pit::Discard) {
        add(&["-global", "kvm-pit.lost_tick_policy=discard"]);
    }
    add(&["-serial", "file:console", "-qmp", &format!("unix:{MONITOR},server=on,wait=off")]);
    add(&["-chardev", "stdio,id=agent,signal=off"]);
    let bus = virtio_suffix(plan);
    add(&["-device", &format!("virtio-serial-{bus},max_ports={PORTS}")]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={PORT_NAME}")]);
    add(&["-drive", &format!("if=none,id=root,format=raw,readonly=on,file={}", escaped(&files.root))]);
    add(&["-device", &format!("virtio-blk-{bus},drive=root,serial={ROOT_SERIAL}")]);
    for words in [devices::disk(plan, index), wiring.arguments.clone()] {
        add(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
    add(&["-append", &kernel_arguments(plan, wiring)]);
    let kernel = plan.kernel.as_ref().unwrap_or(&files.kernel);
    arguments.extend(["-kernel".into(), kernel.into(), "-initrd".into(), (&files.initial_ram_disk).into()]);
    arguments.extend(plan.arguments.iter().map(OsString::from));
    arguments
}

fn machine(plan: &QemuPlan) -> String {
    let mut machine = plan.machine.clone();
    match plan.irqchip {
        None => (),
        Some(Irqchip::Split) => machine += ",kernel-irqchip=split",
        Some(Irqchip::On) => machine += ",kernel-irqchip=on",
        Some(Irqchip::Off) => machine += ",kernel-irqchip=off",
    }
    match plan.pit {
        None | Some(Pit::Discard) => (),
        Some(Pit::On) => machine += ",pit=on",
        Some(Pit::Off) => machine += ",pit=off",
    }
    machine
}

fn accelerator(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "kvm",
        // With a thread for each vCPU, QEMU before 8.1 still executes breakpoints that Linux has removed ("Oops: int3";
        // fixed by its commit cb62bd15e14e).
        Accelerator::Tcg => "tcg,thread=single",
    }
}

fn kernel_arguments(plan: &QemuPlan, wiring: &Wiring) -> String {
    let mut modules = vec!["overlay", "virtio_blk"];
    if plan.is_microvm() {
        modules.insert(0, "virtio_mmio");
    }
    match plan.disk().map(|disk| disk.bus) {
        Some(DiskBus::VirtioScsi) => modules.extend(["virtio_scsi", "sd_mod"]),
        Some(DiskBus::Ide) => modules.extend(["ahci", "ata_piix", "sd_mod"]),
        // Debian's cloud kernel has NVMe built in.
        Some(DiskBus::Nvme | DiskBus::VirtioBlk | DiskBus::None) | None => (),
    }
    match plan.net().map(|net| net.model) {
        Some(NetModel::VirtioNet) => modules.push("virtio_net"),
        Some(NetModel::Vmxnet3) => modules.push("vmxnet3"),
        Some(NetModel::E1000 | NetModel::Rtl8139 | NetModel::None) | None => (),
    }
    let settings = Settings {
        modules: modules.into_iter().map(str::to_owned).collect(),
        port: Port::Virtio,
        data: plan.disk().is_some(),
        network: wiring.guest.clone(),
    };
    command_line(KERNEL_ARGUMENTS, &settings, &plan.kernel_arguments)
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
