//! Network interfaces.

use domain::{Backend, DefinitionChange, Device, DeviceKind, Form};

use super::disks::{few_queues, replaced};
use super::rule::{Rule, Verdict};
use super::subject::{Subject, called, listed};
use super::vhost_user;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "emulated-network",
        title: "Emulated network interfaces",
        why: "each packet takes several exits to the VMM: registers, masks and interrupts are emulated one by one",
        source: "QEMU docs, System Emulation: Network emulation; Virtio 1.2, 5.1 Network Device",
        guest_follows: true,
        needs_kvm: true,
        check: emulated,
    },
    Rule {
        name: "network-vhost",
        title: "vhost",
        why: "vhost moves packets in the kernel; otherwise each notification wakes a thread of the VMM",
        source: "Linux drivers/vhost/net.c; QEMU docs, invocation: -netdev tap,vhost=on",
        guest_follows: false,
        needs_kvm: true,
        check: vhost,
    },
    Rule {
        name: "network-queues",
        title: "Queues of network interfaces",
        why: "with one pair of queues one vCPU takes all interrupts, and one vhost thread moves all packets",
        source: "Virtio 1.2, 5.1.6.5.6 Automatic receive steering in multiqueue mode; QEMU -netdev tap,queues=",
        guest_follows: false,
        needs_kvm: true,
        check: queues,
    },
];

/// Emulated interfaces, by prefixes of their names.
const EMULATED: &[&str] =
    &["e1000", "rtl8139", "ne2k", "pcnet", "i825", "vmxnet3", "tulip", "igb", "usb-net"];

/// The number of vCPUs from which one queue pair is not enough.
const MANY: u32 = 4;

/// The number of queue pairs beyond which more rarely help: each needs a vhost thread on the host.
const PAIRS: u32 = 8;

fn emulated(subject: &Subject<'_>) -> Verdict {
    let bad: Vec<_> = subject
        .devices(DeviceKind::Network)
        .filter(|(_, device)| EMULATED.iter().any(|name| device.model.starts_with(name)))
        .collect();
    replaced(subject, &bad, "no interface is emulated", |_| "virtio-net-pci")
}

fn virtio<'a>(subject: &Subject<'a>) -> Vec<(usize, &'a Device)> {
    let devices = subject.devices(DeviceKind::Network);
    devices.filter(|(_, device)| device.model.starts_with("virtio-net")).collect()
}

/// Tests for QEMU's user-mode network, which has neither vhost nor several queues.
fn is_user_mode(device: &Device) -> bool {
    device.resource.as_deref() == Some("user")
}

/// Tests for an interface on a socket to another program, or on a hub: it has neither vhost nor several queues, and is a
/// deliberate choice.
fn is_socket(device: &Device) -> bool {
    const KINDS: &[&str] = &[
        "socket", "stream", "dgram", "hubport", "l2tpv3", "vde", "passt", "udp", "server", "client", "mcast",
        "null",
    ];
    device.resource.as_deref().is_some_and(|kind| KINDS.contains(&kind))
}

/// Tests for an interface whose device on the host decides the number of pairs: QEMU asks the device
/// (`vhost_vdpa_get_max_queue_pairs` in `net/vhost-vdpa.c`). libvirt needs the number to set `mq` and the vectors.
fn has_pairs_of_its_device(subject: &Subject<'_>, device: &Device) -> bool {
    let is_vdpa = device.backend.as_ref().is_some_and(|backend| backend.value == Backend::Vdpa);
    is_vdpa && subject.form() == Form::Qemu
}

fn vhost(subject: &Subject<'_>) -> Verdict {
    let form = subject.form();
    let bad: Vec<_> = virtio(subject)
        .into_iter()
        .filter(|(_, device)| !is_socket(device))
        .filter(|(_, device)| match &device.backend {
            Some(backend) => backend.value == Backend::Vmm,
            // libvirt uses vhost if the host has it; QEMU uses it only if told to.
            None => form == Form::Qemu,
        })
        .collect();
    if bad.is_empty() {
        return Verdict::pass("no virtio interface is served by the VMM");
    }
    let names: Vec<_> = bad.iter().map(|(_, device)| called(device)).collect();
    let (user, rest): (Vec<_>, Vec<_>) = bad.iter().partition(|(_, device)| is_user_mode(device));
    let verdict = Verdict::warn(format!("{}: served by the VMM", listed(&names)));
    let verdict = bad.iter().fold(verdict, |verdict, (_, device)| match &device.backend {
        Some(set) => verdict.said(form, &set.place),
        None => verdict.said(form, &device.place),
    });
    let changes = rest.iter().map(|&(device, _)| DefinitionChange::Vhost { device, on: true }).collect();
    let verdict = verdict.fix(changes);
    if user.is_empty() {
        return verdict;
    }
    verdict.advice("put interfaces of user-mode networks on a tap or bridge; the former have no vhost")
}

fn queues(subject: &Subject<'_>) -> Verdict {
    let vcpus = subject.vcpus();
    if vcpus < MANY {
        return Verdict::pass(format!("one pair is enough for fewer than {MANY} vCPUs"));
    }
    let few = |device: &Device| device.queues.as_ref().is_none_or(|set| set.value < 2);
    // vhost-user interfaces have rules of their own.
    let could = |device: &Device| {
        let has_one = is_user_mode(device) || is_socket(device);
        !has_one && !vhost_user::is_one(device) && !has_pairs_of_its_device(subject, device)
    };
    let bad: Vec<_> =
        virtio(subject).into_iter().filter(|(_, device)| few(device) && could(device)).collect();
    if bad.is_empty() {
        return Verdict::pass("no virtio interface could have more");
    }
    few_queues(subject, &bad, vcpus.min(PAIRS), "one pair")
}
