//! Changes that a text cannot express, each with a reason and an alternative.

use crate::changing::edited;
use domain::{CpuModel, DefinitionChange, FeatureState, Irqchip, TickPolicy};

fn reason(text: &str, change: DefinitionChange) -> String {
    let edited = edited(text, &[change]);
    assert_eq!(String::from_utf8_lossy(&edited.bytes), text, "what is refused changes nothing");
    let [refusal] = &*edited.refused else { panic!("not refused: {edited:?}") };
    refusal.reason.clone()
}

#[test]
fn every_refusal_says_what_to_do() {
    let model = |device, model: &str| DefinitionChange::DeviceModel { device, model: model.to_owned() };
    let thread = || DefinitionChange::IoThread { device: 0, iothread: "io0".into() };
    let net = "kvm -nodefaults -netdev user,id=n -device virtio-net-pci,netdev=n";
    let passed = "kvm -netdev tap,id=n,fds=3:4 -device virtio-net-pci,netdev=n";
    let helped =
        "kvm -netdev tap,id=n,helper=/usr/lib/qemu/qemu-bridge-helper -device virtio-net-pci,netdev=n";
    let ready = "kvm -netdev tap,id=n,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n";
    let several = "kvm -netdev tap,id=n,ifname=tap0,script=no,queues=2 -device virtio-net-pci,netdev=n,mq=on";
    let socket = |machine: &str| {
        format!("kvm -M {machine} -chardev socket,id=c,path=/c -device vhost-user-blk-pci,chardev=c")
    };
    let (any, old) = (socket("q35"), socket("pc-q35-9.1"));
    let cases = [
        ("qemu-system-x86_64 -M q35", DefinitionChange::Irqchip(Irqchip::Split), "-accel kvm"),
        (
            "kvm -M q35,kernel-irqchip=split -device intel-iommu,intremap=on",
            DefinitionChange::Irqchip(Irqchip::Kernel),
            "intremap=off",
        ),
        ("kvm -M pc", DefinitionChange::InterruptRemapping, "q35"),
        ("kvm -M q35 -device amd-iommu", DefinitionChange::InterruptRemapping, "Remove it"),
        ("kvm -M pc", DefinitionChange::PitTickPolicy(TickPolicy::CatchUp), "Choose"),
        (
            "kvm -M q35,kernel-irqchip=split",
            DefinitionChange::PitTickPolicy(TickPolicy::Discard),
            "no PIT in the kernel",
        ),
        ("kvm -M microvm", DefinitionChange::Hpet(true), "q35"),
        ("kvm -cpu host", DefinitionChange::CpuModel(CpuModel::HostModel), "host"),
        ("kvm -cpu host", DefinitionChange::CpuFeature("x2apic".into(), FeatureState::Optional), "on or off"),
        ("kvm -cpu host,hv-vpindex,hv-synic", DefinitionChange::HyperV("vpindex".into(), false), "hv-synic"),
        ("kvm -device ide-cd", model(0, "virtio-blk-pci"), "scsi-cd"),
        ("kvm -device ide-hd", model(0, "virtio-net-pci"), "another model"),
        ("kvm -device ide-hd", model(0, "scsi-hd"), "virtio-blk-pci"),
        ("kvm -device ide-hd", model(77, "virtio-blk-pci"), "Read it again"),
        ("kvm -hda a -drive file=b,if=virtio,index=0", model(0, "virtio-blk-pci"), "index="),
        (net, DefinitionChange::Vhost { device: 0, on: true }, "tap"),
        (
            "kvm -netdev tap,id=n -device e1000,netdev=n",
            DefinitionChange::Vhost { device: 0, on: true },
            "virtio-net-pci first",
        ),
        (passed, DefinitionChange::Queues { device: 0, queues: 8 }, "fds="),
        (helped, DefinitionChange::Queues { device: 0, queues: 4 }, "helper="),
        (ready, DefinitionChange::Queues { device: 0, queues: 4 }, "with multi_queue"),
        (several, DefinitionChange::Queues { device: 0, queues: 1 }, "without multi_queue"),
        ("kvm -nic tap,model=virtio", DefinitionChange::Queues { device: 0, queues: 8 }, "-netdev"),
        (any.as_str(), DefinitionChange::Reconnect { device: 0 }, "reconnect-ms=1000"),
        (old.as_str(), DefinitionChange::Reconnect { device: 0 }, "reconnect=1"),
        ("kvm -device ide-hd", thread(), "virtio-blk-pci first"),
        (
            "kvm -object iothread,id=a -drive if=none,id=d,file=f \
             -device '{\"driver\":\"virtio-blk-pci\",\"drive\":\"d\",\"iothread-vq-mapping\":[{\"iothread\":\"a\"}]}'",
            thread(),
            "iothread-vq-mapping",
        ),
        ("kvm -drive if=none,id=d -device virtio-blk-pci,drive=d,ioeventfd=off", thread(), "ioeventfd=off"),
        (
            "kvm -device virtio-scsi-pci,id=s,ioeventfd=off -device scsi-hd,bus=s.0",
            DefinitionChange::IoThread { device: 1, iothread: "io0".into() },
            "ioeventfd=off",
        ),
        ("kvm -hda x", DefinitionChange::Queues { device: 0, queues: 3 }, "virtio"),
        ("kvm -drive file=a,if=ide", DefinitionChange::Aio { device: 0, aio: "fast".into() }, "io_uring"),
        (
            "kvm -blockdev nbd,node-name=d -device ide-hd,drive=d",
            DefinitionChange::Aio { device: 0, aio: "native".into() },
            "nbd",
        ),
    ];
    for (text, change, part) in cases {
        let reason = reason(text, change);
        assert!(reason.contains(part), "{text}: {reason}");
        assert!(reason.ends_with('.') && reason.contains(". ") | reason.contains(": "), "{reason}");
    }
}

#[test]
fn what_a_configuration_file_says_is_changed_there() {
    let text = crate::summary::text("windows.service");
    let change = DefinitionChange::Queues { device: 1, queues: 2 };
    let edited =
        domain::qemu::apply_with(&text, &crate::summary::fixtures(), &[change]).expect("is a command line");
    assert_eq!(edited.bytes, text.bytes);
    assert!(edited.refused[0].reason.contains("accounting.cfg, line 11"), "{:?}", edited.refused);
    let changes = [DefinitionChange::Queues { device: 1, queues: 2 }, DefinitionChange::Hpet(false)];
    let blind = domain::qemu::apply(&text, &changes).expect("is a command line");
    assert!(blind.refused[0].reason.contains("accounting.cfg was not read"), "{:?}", blind.refused);
    assert_eq!((blind.refused.len(), blind.edits.len()), (1, 1), "changes of no device are made");
}
