//! Devices that another process serves over vhost-user.

use domain::{Backend, DefinitionChange, Device, DeviceKind, Form};

use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "vhost-user-memory",
        title: "Memory for vhost-user",
        why: "the other process has to map the guest's memory, which only a shared file allows; no queue works otherwise",
        source: "QEMU docs/interop/vhost-user.rst, Communication; libvirt formatdomain, Memory Backing",
        guest_follows: false,
        needs_kvm: true,
        check: memory,
    },
    Rule {
        name: "vhost-user-queues",
        title: "Queues over vhost-user",
        why: "with one queue all vCPUs share a lock and an interrupt, and one thread of the other process serves them all",
        source: "QEMU hw/core/machine.c, hw_compat_5_1; QEMU docs/interop/vhost-user.rst, Multiple queue support",
        guest_follows: false,
        needs_kvm: true,
        check: queues,
    },
    Rule {
        name: "vhost-user-reconnect",
        title: "Connection to vhost-user",
        why: "if the other process restarts, the device is dead until the VM does, unless one side connects again",
        source: "QEMU docs, invocation: -chardev socket,reconnect-ms=; libvirt formatdomain, reconnect",
        guest_follows: false,
        needs_kvm: true,
        check: reconnect,
    },
];

/// The number of vCPUs from which one queue is not enough.
const MANY: u32 = 4;

const NONE: &str = "no device is served over vhost-user";

/// Tests for a device that another process serves.
pub(super) fn is_one(device: &Device) -> bool {
    device.backend.as_ref().is_some_and(|set| set.value == Backend::VhostUser)
}

fn devices<'a>(subject: &Subject<'a>) -> Vec<(usize, &'a Device)> {
    subject.vm.devices.iter().enumerate().filter(|(_, device)| is_one(device)).collect()
}

fn named(devices: &[(usize, &Device)]) -> String {
    listed(&devices.iter().map(|(_, device)| called(device)).collect::<Vec<_>>())
}

fn with_places(subject: &Subject<'_>, verdict: Verdict, devices: &[(usize, &Device)]) -> Verdict {
    devices.iter().fold(verdict, |verdict, (_, device)| verdict.said(subject.form(), &device.place))
}

fn memory(subject: &Subject<'_>) -> Verdict {
    let devices = devices(subject);
    let shared = subject.vm.shared_memory.as_ref();
    match shared {
        _ if devices.is_empty() => Verdict::pass(NONE),
        Some(set) if set.value => {
            Verdict::pass("the guest's memory is shared").said(subject.form(), &set.place)
        }
        _ => {
            let verdict = Verdict::fail(format!("{} cannot map the guest's memory", named(&devices)));
            let verdict = with_places(subject, verdict, &devices);
            let verdict = match shared {
                Some(set) => verdict.said(subject.form(), &set.place),
                None if subject.form() == Form::Libvirt => {
                    verdict.unsaid("<access mode='shared'/>", "libvirt's default is private memory")
                }
                None => verdict.unsaid("a shared memory backend", "private memory is the default"),
            };
            verdict.fix(vec![DefinitionChange::SharedMemory])
        }
    }
}

fn queues(subject: &Subject<'_>) -> Verdict {
    let vcpus = subject.vcpus();
    let mut bad = devices(subject);
    if bad.is_empty() {
        return Verdict::pass(NONE);
    }
    let auto = if subject.machine_is_older((5, 2)) { 1 } else { vcpus };
    bad.retain(|(_, device)| match device.kind {
        DeviceKind::Disk => device.queues.as_ref().map_or(auto, |set| set.value) < 2,
        DeviceKind::Network => device.queues.as_ref().is_none_or(|set| set.value < 2),
        _ => false,
    });
    if vcpus < MANY || bad.is_empty() {
        return Verdict::pass(format!("enough for {}", exits::counted(vcpus.into(), "vCPU")));
    }
    let verdict = Verdict::warn(format!("{}: one queue for {vcpus} vCPUs", named(&bad)));
    // QEMU does not start with more queues than the other process supports.
    with_places(subject, verdict, &bad).advice(format!(
        "give the device up to {vcpus} queues (queue pairs of an interface), after the process that serves it has as many"
    ))
}

fn reconnect(subject: &Subject<'_>) -> Verdict {
    let mut bad = devices(subject);
    if bad.is_empty() {
        return Verdict::pass(NONE);
    }
    bad.retain(|(_, device)| {
        matches!(device.kind, DeviceKind::Disk | DeviceKind::Network) && device.reconnects == Some(false)
    });
    if bad.is_empty() {
        return Verdict::pass("no disk or interface is lost with the process that serves it");
    }
    let changes = bad.iter().map(|&(device, _)| DefinitionChange::Reconnect { device }).collect();
    let verdict = Verdict::warn(format!("{}: QEMU connects once", named(&bad)));
    with_places(subject, verdict, &bad).fix(changes)
}
