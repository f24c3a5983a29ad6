//! The small guest on the Xen host's disk: initial RAM disks, and definitions for `xl create`.

use std::path::Path;

use crate::archive::Archive;
use crate::error::Error;
use crate::tree::write;

/// The folder of the guest's files on the disk.
pub(crate) const FOLDER: &str = "opt/exitless/guest";
/// Initial RAM disks in that folder; the second one is for a guest with drivers of assigned devices.
const RAM_DISK: &str = "initrd.img";
pub(crate) const DEVICE_RAM_DISK: &str = "device-initrd.img";

/// Reports that the guest is up, then does what `work=` on its command line says: `busy` sleeps, copies, and
/// reads the time stamp counter over and over; anything else waits; `power-off` ends at once. With `serial`,
/// it first reports on the serial port too.
const INIT: &str = "#!/bin/busybox sh\n\
    /bin/busybox --install -s /bin\n\
    mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
    read up rest < /proc/uptime; up=\"exitless guest up after $up s\"\n\
    case \" $(cat /proc/cmdline) \" in *' serial '*) echo \"$up\" > /dev/ttyS0;; esac; echo \"$up\"\n\
    [ -f /job.sh ] && sh /job.sh\n\
    case \" $(cat /proc/cmdline) \" in\n\
    *' work=busy '*)\n\
        rounds=0\n\
        while :; do\n\
            dd if=/dev/zero of=/dev/null bs=64k count=32 2>/dev/null\n\
            usleep 10000\n\
            rounds=$((rounds + 1)); [ $((rounds % 50)) = 0 ] && echo \"busy for $rounds rounds\"\n\
        done;;\n\
    *' work=power-off '*) poweroff -f;;\n\
    *) while :; do sleep 3600; done;;\n\
    esac\n";

/// The kernel arguments. None affects what a guest does, except that mitigations are off, because they take
/// an emulated CPU seconds.
const ARGUMENTS: &str = concat!(
    "console=hvc0 nokaslr mitigations=off loglevel=4 cryptomgr.notests apparmor=0 audit=0 initcall_blacklist=",
    guest::needless_initcalls!(),
    ",trace_eval_init panic=-1 work=busy"
);

/// Additional kernel arguments of an HVM guest. `pci=noearly`: on an AMD family 10h CPU, such as the emulated
/// one, Linux searches all 256 buses for an AGP bridge, twice. Each of the 16,384 accesses wakes the device
/// model, which takes minutes in total. The others turn off checks of the timer and the TSC, which compare
/// with real time and fail on a machine that waits for a CPU.
const HVM_ARGUMENTS: &str = " pci=noearly no_timer_check tsc=reliable serial";

/// The devices of an HVM guest: the minimum for QEMU, and a serial port whose output is stored next to that
/// of the consoles. VNC, xl's default, listens on 127.0.0.1, which fails once dom0 has another address,
/// because `lo` is down. `nographic` would make the firmware use the serial port too. Until Linux uses Xen's
/// timer, it has 250 ticks per second. Without this timer mode, ticks that came while the guest had no CPU
/// would all be delivered late and leave it no time for anything else.
const HVM_DEVICES: &str = "vga = \"none\"\nvnc = 0\nusb = 0\nxen_platform_pci = 1\n\
    timer_mode = \"one_missed_tick_pending\"\nserial = \"file:/var/log/xen/console/serial-hvm.log\"\n";

/// Writes the initial RAM disks and definitions below `root`. The kernel is already there, as `vmlinux` and
/// `bzImage`.
pub(crate) fn write_below(root: &Path, busybox: &[u8]) -> Result<(), Error> {
    let folder = root.join(FOLDER);
    let mut archive = Archive::default();
    let made = ["/proc", "/sys", "/dev", "/tmp"]
        .iter()
        .try_for_each(|folder| archive.folder(folder))
        .and_then(|()| archive.file("/bin/busybox", 0o755, busybox))
        .and_then(|()| archive.file("/init", 0o755, INIT.as_bytes()));
    let bytes =
        made.and_then(|()| archive.finish()).map_err(Error::file("Could not make the guest's", FOLDER))?;
    write(&folder.join(RAM_DISK), &bytes)?;
    let pvh = definition("pvh", "pvh", "vmlinux", RAM_DISK, "", "");
    write(&folder.join("pvh.cfg"), pvh.as_bytes())?;
    // The device model of an HVM guest loads only a bzImage.
    let hvm = definition("hvm", "hvm", "bzImage", RAM_DISK, HVM_ARGUMENTS, HVM_DEVICES);
    write(&folder.join("hvm.cfg"), hvm.as_bytes())?;
    let device = definition("device", "hvm", "bzImage", DEVICE_RAM_DISK, HVM_ARGUMENTS, HVM_DEVICES);
    write(&folder.join("device.cfg"), device.as_bytes())
}

fn definition(
    name: &str,
    kind: &str,
    kernel: &str,
    ram_disk: &str,
    arguments: &str,
    devices: &str,
) -> String {
    format!(
        "name = \"{name}\"\ntype = \"{kind}\"\nkernel = \"/{FOLDER}/{kernel}\"\nramdisk = \"/{FOLDER}/{ram_disk}\"\n\
         extra = \"{ARGUMENTS}{arguments}\"\nmemory = 256\nvcpus = 1\n\
         # Xen's emulation of RDTSCP needs what QEMU's SVM lacks.\ntsc_mode = \"native\"\n{devices}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_has_a_definition_of_each_type() {
        let root = tempfile::tempdir().unwrap();
        write_below(root.path(), b"busybox").unwrap();
        let text = |name: &str| std::fs::read_to_string(root.path().join(FOLDER).join(name)).unwrap();
        assert!(text("pvh.cfg").contains("type = \"pvh\"\nkernel = \"/opt/exitless/guest/vmlinux\"\n"));
        assert!(text("hvm.cfg").contains("vga = \"none\"") && !text("pvh.cfg").contains("vga"));
        assert!(
            text("device.cfg").contains("type = \"hvm\"\n") && text("device.cfg").contains(DEVICE_RAM_DISK)
        );
        assert!(
            text("hvm.cfg").contains("no_timer_check tsc=reliable serial\"\n")
                && !text("pvh.cfg").contains("serial")
        );
        assert!(text("hvm.cfg").lines().all(|line| !line.starts_with(' ')));
    }
}
