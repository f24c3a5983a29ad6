//! Disks and their controllers.

use std::collections::BTreeSet;

use domain::{Backend, DefinitionChange, Device, DeviceKind, Form};

use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};
use super::virtio::lacks_ioeventfd;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "emulated-disk",
        title: "Emulated disks",
        why: "each request to an emulated controller takes several exits to the VMM, one to virtio takes one or none",
        source: "QEMU docs, System Emulation: Device Emulation, virtio; Virtio 1.2, 2.9 Driver Notifications",
        guest_follows: true,
        needs_kvm: true,
        check: emulated,
    },
    Rule {
        name: "disk-iothread",
        title: "I/O threads",
        why: "without one the VMM's main loop serves the disk, along with monitor, timers and all other devices",
        source: "QEMU docs/devel/multiple-iothreads.rst",
        guest_follows: false,
        needs_kvm: true,
        check: iothread,
    },
    Rule {
        name: "disk-queues",
        title: "Queues of disks",
        why: "with one queue all vCPUs share a lock and an interrupt, which takes IPIs between them",
        source: "QEMU hw/core/machine.c, hw_compat_5_1 (num-queues is 1 for machine types before 5.2)",
        guest_follows: false,
        needs_kvm: true,
        check: queues,
    },
    Rule {
        name: "vhost-workers",
        title: "Threads of vhost-scsi",
        why: "one host thread serves all queues of such a device unless each has its own, and is the bottleneck from three queues on",
        source: "QEMU hw/scsi/vhost-scsi.c, vhost_scsi_set_workers (9.0); Linux drivers/vhost/vhost.c, c1ecd8e95007 (6.5)",
        guest_follows: false,
        needs_kvm: true,
        check: vhost_workers,
    },
    Rule {
        name: "disk-aio",
        title: "Asynchronous I/O",
        why: "without the page cache, the kernel's AIO or io_uring needs no thread switches; with it, aio=native fails",
        source: "QEMU block/file-posix.c, aio=native and cache.direct; QEMU docs, Disk image options",
        guest_follows: false,
        needs_kvm: true,
        check: aio,
    },
];

/// Disks on emulated controllers.
const EMULATED_DISKS: &[&str] = &["ide-hd", "ide-drive", "usb-storage", "usb-uas", "sd-card"];

/// Emulated SCSI controllers, by prefixes of their names.
const EMULATED_CONTROLLERS: &[&str] = &["lsi", "am53c974", "dc390", "megasas", "mptsas", "pvscsi"];

/// The number of vCPUs from which one queue is not enough.
const MANY: u32 = 4;

/// The number of queues for which one thread of vhost-scsi is enough (Mike Christie, vhost-scsi: Support worker ioctls,
/// qemu-devel, December 2023).
const MOST_OF_A_WORKER: u32 = 2;

fn is_virtio_disk(device: &Device) -> bool {
    device.model.starts_with("virtio-blk") || device.model.starts_with("virtio-scsi")
}

fn served_by_vmm(device: &Device) -> bool {
    device.backend.as_ref().is_none_or(|backend| backend.value == Backend::Vmm)
}

/// Disks and the controllers that serve disks.
fn disks<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (usize, &'a Device)> {
    let kinds = [DeviceKind::Disk, DeviceKind::Controller];
    let devices = subject.vm.devices.iter().enumerate();
    devices.filter(move |(_, device)| kinds.contains(&device.kind))
}

fn emulated(subject: &Subject<'_>) -> Verdict {
    let is_bad = |device: &Device| match device.kind {
        DeviceKind::Controller => EMULATED_CONTROLLERS.iter().any(|name| device.model.starts_with(name)),
        _ => EMULATED_DISKS.contains(&device.model.as_str()),
    };
    let bad: Vec<_> = disks(subject).filter(|(_, device)| is_bad(device)).collect();
    replaced(subject, &bad, "no disk needs an emulated controller", |device| {
        if device.kind == DeviceKind::Controller { "virtio-scsi-pci" } else { "virtio-blk-pci" }
    })
}

/// The verdict on devices that should have another model.
pub(super) fn replaced(
    subject: &Subject<'_>,
    bad: &[(usize, &Device)],
    none: &str,
    better: impl Fn(&Device) -> &'static str,
) -> Verdict {
    if bad.is_empty() {
        return Verdict::pass(none);
    }
    let names: Vec<_> = bad.iter().map(|(_, device)| called(device)).collect();
    let changes = bad.iter().map(|&(position, device)| DefinitionChange::DeviceModel {
        device: position,
        model: better(device).to_owned(),
    });
    let verdict = Verdict::warn(listed(&names)).fix(changes.collect());
    bad.iter().fold(verdict, |verdict, (_, device)| verdict.said_of_device(subject.form(), device))
}

fn iothread(subject: &Subject<'_>) -> Verdict {
    let virtio: Vec<_> =
        disks(subject).filter(|(_, device)| is_virtio_disk(device) && served_by_vmm(device)).collect();
    if virtio.is_empty() {
        return Verdict::pass("the VMM serves no virtio disk");
    }
    let bad: Vec<_> = virtio.iter().filter(|(_, device)| device.iothreads.is_empty()).collect();
    if bad.is_empty() {
        return Verdict::pass("every virtio disk has one");
    }
    // QEMU refuses an I/O thread without an ioeventfd.
    let ready: Vec<_> = bad.iter().filter(|(_, device)| !lacks_ioeventfd(device)).collect();
    let threads = threads_for(subject, ready.len());
    let changes = ready.iter().zip(threads.iter().cycle());
    let changes = changes
        .map(|(&&&(device, _), thread)| DefinitionChange::IoThread { device, iothread: thread.clone() });
    let changes = changes.collect();
    let names: Vec<_> = bad.iter().map(|(_, device)| called(device)).collect();
    let verdict = Verdict::warn(format!("{}: served by the main loop", listed(&names))).fix(changes);
    let verdict = if ready.is_empty() {
        verdict.advice("remove ioeventfd=off first: QEMU refuses an I/O thread beside it")
    } else {
        verdict
    };
    bad.iter().fold(verdict, |verdict, (_, device)| verdict.said(subject.form(), &device.place))
}

/// I/O threads for this many more disks: first the idle ones, then new ones up to the number of vCPUs. If these are too
/// few, the disks share them; existing busy threads are shared only if there is no other.
fn threads_for(subject: &Subject<'_>, wanted: usize) -> Vec<String> {
    let used = subject.vm.devices.iter().flat_map(|device| &device.iothreads);
    let used: BTreeSet<&str> = used.map(|thread| thread.value.as_str()).collect();
    let taken: BTreeSet<String> = subject.vm.iothreads.iter().map(|thread| thread.id.clone()).collect();
    let own = subject.vm.iothreads.iter().filter(|thread| !thread.unknown_to_libvirt);
    let ids = own.map(|thread| thread.id.clone());
    let (busy, mut threads): (Vec<_>, Vec<_>) = ids.partition(|id| used.contains(id.as_str()));
    let most = usize::try_from(subject.vcpus()).unwrap_or(usize::MAX).max(1);
    let free = (1..).map(|number| format!("iothread{number}")).filter(|name| !taken.contains(name));
    let new = wanted.saturating_sub(threads.len()).min(most.saturating_sub(busy.len() + threads.len()));
    threads.extend(free.take(new));
    threads.truncate(wanted.max(1));
    if threads.is_empty() { busy } else { threads }
}

fn queues(subject: &Subject<'_>) -> Verdict {
    let vcpus = subject.vcpus();
    if vcpus < MANY {
        return Verdict::pass(format!("one is enough for fewer than {MANY} vCPUs"));
    }
    let has_one = |device: &Device| is_virtio_disk(device) && queues_in_force(subject, device) < 2;
    let bad: Vec<_> = disks(subject).filter(|(_, device)| has_one(device)).collect();
    if bad.is_empty() {
        return Verdict::pass("no virtio disk has only one queue");
    }
    few_queues(subject, &bad, vcpus, "one queue")
}

/// The number of a disk's queues: by default one for each vCPU, but one for machine types before 5.2.
fn queues_in_force(subject: &Subject<'_>, device: &Device) -> u32 {
    let by_default = if subject.machine_is_older((5, 2)) { 1 } else { subject.vcpus() };
    device.queues.as_ref().map_or(by_default, |set| set.value)
}

fn vhost_workers(subject: &Subject<'_>) -> Verdict {
    let has_workers = |device: &Device| {
        device.properties.iter().any(|(name, value)| {
            // libvirt has it in <qemu:override>.
            let name = name.strip_prefix("override@").unwrap_or(name);
            name == "worker_per_virtqueue" && matches!(value.as_str(), "on" | "true" | "yes")
        })
    };
    let is_bad = |device: &Device| {
        let many = queues_in_force(subject, device) > MOST_OF_A_WORKER;
        device.model.starts_with("vhost-scsi") && many && !has_workers(device)
    };
    let bad: Vec<_> = disks(subject).map(|(_, device)| device).filter(|device| is_bad(device)).collect();
    if bad.is_empty() {
        return Verdict::pass("no thread of vhost-scsi serves many queues");
    }
    let names: Vec<_> = bad.iter().map(|device| called(device)).collect();
    let most = bad.iter().map(|device| queues_in_force(subject, device)).max().unwrap_or_default();
    let verdict = Verdict::warn(format!("{}: one thread for {most} queues", listed(&names)));
    bad.iter().fold(verdict, |verdict, device| verdict.said(subject.form(), &device.place)).advice(
        match subject.form() {
            Form::Libvirt => "<qemu:override>: worker_per_virtqueue=true for its alias (QEMU 9.0, Linux 6.5)",
            _ => "worker_per_virtqueue=on (QEMU 9.0, Linux 6.5)",
        },
    )
}

/// Warns of devices that have only `present`, and gives them more queues.
pub(super) fn few_queues(
    subject: &Subject<'_>,
    bad: &[(usize, &Device)],
    queues: u32,
    present: &str,
) -> Verdict {
    let names: Vec<_> = bad.iter().map(|(_, device)| called(device)).collect();
    let changes = bad.iter().map(|&(device, _)| DefinitionChange::Queues { device, queues }).collect();
    let vcpus = subject.vcpus();
    let verdict = Verdict::warn(format!("{}: {present} for {vcpus} vCPUs", listed(&names))).fix(changes);
    bad.iter().fold(verdict, |verdict, (_, device)| match &device.queues {
        Some(set) => verdict.said(subject.form(), &set.place),
        None => verdict.said(subject.form(), &device.place),
    })
}

fn aio(subject: &Subject<'_>) -> Verdict {
    let mut bad = Vec::new();
    for (position, device) in subject.devices(DeviceKind::Disk) {
        let Some(cache) = &device.cache else { continue };
        let direct = matches!(cache.value.as_str(), "none" | "directsync");
        let way = device.aio.as_ref().map_or("threads", |set| set.value.as_str());
        let (starts, better) = match (direct, way) {
            _ if !is_local(device) => continue,
            (true, "threads") => (true, "native"),
            // QEMU refuses to start with this combination. Not every kernel and build of QEMU has io_uring.
            (false, "native") => (false, "threads"),
            _ => continue,
        };
        let words = format!("{}: aio={way} with cache={}", called(device), cache.value);
        let place = device.aio.as_ref().map_or(&cache.place, |set| &set.place);
        let change = DefinitionChange::Aio { device: position, aio: better.to_owned() };
        bad.push((starts, words, place, change));
    }
    // The worst first.
    bad.sort_by_key(|&(starts, ..)| starts);
    let words: Vec<_> = bad.iter().map(|(_, words, ..)| words.clone()).collect();
    let verdict = match bad.first() {
        None => return Verdict::pass("no disk that bypasses the page cache uses threads"),
        Some((true, ..)) => Verdict::warn(listed(&words)),
        Some((false, ..)) => Verdict::fail(listed(&words)),
    };
    let verdict = bad.iter().fold(verdict, |verdict, (_, _, place, _)| verdict.said(subject.form(), place));
    verdict.fix(bad.into_iter().map(|(.., change)| change).collect())
}

/// Tests for a file or block device of the host: only these have a choice of I/O methods.
fn is_local(device: &Device) -> bool {
    const LOCAL: &[&str] = &["file", "block", "host_device", "raw", "qcow2"];
    let is_empty_drive = matches!(device.model.as_str(), "ide-cd" | "scsi-cd" | "floppy");
    let remote = device.source.as_ref().is_none_or(|set| {
        let source = set.value.as_str();
        !source.starts_with('/') && source.split_once(':').is_some_and(|(kind, _)| kind != "file")
    });
    !is_empty_drive && !remote && device.resource.as_deref().is_none_or(|kind| LOCAL.contains(&kind))
}

#[cfg(test)]
mod tests {
    use domain::{Place, Set};

    use super::*;
    use crate::lint::cases::{device, quiet};
    use crate::lint::{HostSide, lint};
    use crate::{Fix, State};

    #[test]
    fn the_worst_disk_decides_and_all_are_named() {
        let said = |value: &str| {
            let place = Place { start: 0, end: value.len(), line: 1, text: value.to_owned() };
            Some(Set::new(value.to_owned(), place))
        };
        let disk = |id: &str, cache: &str, aio: &str| {
            let mut disk = device(DeviceKind::Disk, "virtio-blk-pci");
            (disk.id, disk.cache, disk.aio) = (Some(id.to_owned()), said(cache), said(aio));
            disk.source = said("/images/web.img");
            disk
        };
        let disks = [disk("slow", "none", "threads"), disk("bad", "writeback", "native")];
        for order in [[0, 1], [1, 0]] {
            let mut vm = quiet();
            vm.devices = order.map(|at: usize| disks[at].clone()).into();
            let found = lint(&vm, &HostSide::default());
            let found = found.iter().find(|finding| finding.rule == "disk-aio").unwrap();
            assert_eq!(found.state, State::Fail);
            let [bad, slow] = ["bad): aio=native with cache=writeback", "slow): aio=threads with cache=none"];
            assert_eq!(found.found, format!("virtio-blk-pci ({bad} and virtio-blk-pci ({slow}"));
            assert_eq!(found.evidence.len(), 2);
            let to = |aio: &str| DefinitionChange::Aio {
                device: order.iter().position(|&at| at == usize::from(aio == "threads")).unwrap(),
                aio: aio.to_owned(),
            };
            assert_eq!(found.fixes, [Fix::Definition(vec![to("threads"), to("native")])]);
        }
    }
}
