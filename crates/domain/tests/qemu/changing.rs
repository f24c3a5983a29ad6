//! The effect of each change on the text: the change and nothing else.

use domain::qemu::{apply, apply_with, read};
use domain::{CpuModel, DefinitionChange, Edited, FeatureState, Irqchip, NoFiles, Text, TickPolicy};

/// Applies changes, and checks properties of every change: the edits give the new text, and applying it again
/// changes nothing.
pub(crate) fn edited(text: &str, changes: &[DefinitionChange]) -> Edited {
    let old = Text::new("test", text);
    let edited = apply(&old, changes).expect("the text is a command line");
    let mut rebuilt = text.as_bytes().to_vec();
    for edit in edited.edits.iter().rev() {
        rebuilt.splice(edit.start..edit.end, edit.new.iter().copied());
    }
    assert_eq!(rebuilt, edited.bytes, "{:?}", edited.edits);
    let again = apply(&Text::new("test", &*edited.bytes), changes).expect("it is one still");
    let (first, second) = (String::from_utf8_lossy(&edited.bytes), String::from_utf8_lossy(&again.bytes));
    // A default device of the machine has another index once the text contains it.
    let moves = changes
        .iter()
        .any(|change| matches!(change, DefinitionChange::DeviceModel { device, .. } if *device >= 90));
    assert!(moves || first == second, "applied twice:\n{first}\n{second}");
    edited
}

/// The text after one successful change.
fn after(text: &str, change: DefinitionChange) -> String {
    let edited = edited(text, &[change]);
    assert!(edited.refused.is_empty(), "{:?}", edited.refused);
    String::from_utf8(edited.bytes).expect("the text was UTF-8")
}

fn model(device: usize, model: &str) -> DefinitionChange {
    DefinitionChange::DeviceModel { device, model: model.to_owned() }
}

#[test]
fn the_irqchip_goes_where_the_machine_is_said() {
    let split = || DefinitionChange::Irqchip(Irqchip::Split);
    let cases = [
        ("qemu-kvm -M q35 -m 4G", "qemu-kvm -M q35,kernel-irqchip=split -m 4G"),
        (
            "qemu-kvm -machine 'q35,usb=off' -m 4G",
            "qemu-kvm -machine 'q35,usb=off,kernel-irqchip=split' -m 4G",
        ),
        ("qemu-kvm -machine q35,kernel_irqchip=on -m 1", "qemu-kvm -machine q35,kernel_irqchip=split -m 1"),
        ("qemu-kvm -accel kvm,kernel-irqchip=on -M q35", "qemu-kvm -accel kvm,kernel-irqchip=split -M q35"),
        (
            "qemu-kvm -accel kvm,kernel-irqchip=on -M q35,kernel-irqchip=off",
            "qemu-kvm -accel kvm,kernel-irqchip=split -M q35,kernel-irqchip=off",
        ),
        ("qemu-kvm -m 4G", "qemu-kvm -machine kernel-irqchip=split -m 4G"),
        (
            "qemu-kvm \\\n  -m 4G \\\n  -smp 2",
            "qemu-kvm \\\n  -machine kernel-irqchip=split \\\n  -m 4G \\\n  -smp 2",
        ),
        ("qemu-kvm -M \"$TYPE\" # don't", "qemu-kvm -M \"$TYPE,kernel-irqchip=split\" # don't"),
        ("kvm\0-M\0q35\0-m\x004G\0", "kvm\0-M\0q35,kernel-irqchip=split\0-m\x004G\0"),
        ("kvm\0-m\x004G\0", "kvm\0-machine\0kernel-irqchip=split\0-m\x004G\0"),
        ("qemu-kvm -no-kvm-irqchip -M q35", "qemu-kvm -M q35,kernel-irqchip=split"),
        ("qemu-kvm\n-M\nq35\n-m\n4G\n", "qemu-kvm\n-M\nq35,kernel-irqchip=split\n-m\n4G\n"),
        ("-m 4G -enable-kvm", "-machine kernel-irqchip=split -m 4G -enable-kvm"),
        ("qemu-kvm -M microvm", "qemu-kvm -M microvm"),
    ];
    for (before, expected) in cases {
        assert_eq!(after(before, split()), expected);
    }
    let kernel = after("kvm -M microvm,kernel-irqchip=split", DefinitionChange::Irqchip(Irqchip::Kernel));
    assert_eq!(kernel, "kvm -M microvm,kernel-irqchip=on");
}

#[test]
fn the_ticks_of_the_pit_are_a_global() {
    let discard = || DefinitionChange::PitTickPolicy(TickPolicy::Discard);
    let cases = [
        ("kvm -M q35 -m 4G", "kvm -M q35 -global kvm-pit.lost_tick_policy=discard -m 4G"),
        ("kvm -global kvm-pit.lost_tick_policy=delay", "kvm -global kvm-pit.lost_tick_policy=discard"),
        (
            "kvm -global driver=kvm-pit,property=lost_tick_policy,value=delay",
            "kvm -global driver=kvm-pit,property=lost_tick_policy,value=discard",
        ),
        ("kvm -M q35\n", "kvm -M q35 -global kvm-pit.lost_tick_policy=discard\n"),
    ];
    for (before, expected) in cases {
        assert_eq!(after(before, discard()), expected);
    }
    let delay = after("kvm -no-kvm-pit-reinjection -m 1", DefinitionChange::PitTickPolicy(TickPolicy::Delay));
    assert_eq!(delay, "kvm -m 1");
}

#[test]
fn the_hpet_is_a_property_of_the_machine() {
    assert_eq!(after("kvm -M q35", DefinitionChange::Hpet(false)), "kvm -M q35,hpet=off");
    assert_eq!(after("kvm -no-hpet -M q35", DefinitionChange::Hpet(true)), "kvm -M q35");
    assert_eq!(
        after("kvm -M q35,hpet=off,smm=on", DefinitionChange::Hpet(true)),
        "kvm -M q35,hpet=on,smm=on"
    );
    assert_eq!(after("kvm -m 1", DefinitionChange::Hpet(true)), "kvm -m 1");
}

#[test]
fn a_feature_is_written_as_its_neighbours_are() {
    let on = |name: &str| DefinitionChange::CpuFeature(name.to_owned(), FeatureState::On);
    let off = |name: &str| DefinitionChange::CpuFeature(name.to_owned(), FeatureState::Off);
    let cases = [
        ("kvm -cpu host", on("x2apic"), "kvm -cpu host,x2apic=on"),
        ("kvm -cpu host,+topoext", off("svm"), "kvm -cpu host,+topoext,-svm"),
        ("kvm -cpu host,-x2apic", on("x2apic"), "kvm -cpu host,+x2apic"),
        ("kvm -cpu host,-x2apic,pcid=on,-x2apic", on("x2apic"), "kvm -cpu host,pcid=on,+x2apic"),
        ("kvm -cpu host,x2apic", off("x2apic"), "kvm -cpu host,x2apic=off"),
        ("kvm -cpu host,x2apic=off,+x2apic", off("x2apic"), "kvm -cpu host,x2apic=off,-x2apic"),
        ("kvm -cpu host,kvm_pv_eoi=off", on("kvm-pv-eoi"), "kvm -cpu host,kvm_pv_eoi=on"),
        ("kvm -cpu host,+x2apic", on("x2apic"), "kvm -cpu host,+x2apic"),
        ("kvm -m 1", on("x2apic"), "kvm -cpu qemu64,x2apic=on -m 1"),
        ("kvm -cpu 'host'", on("invtsc"), "kvm -cpu 'host,invtsc=on'"),
    ];
    for (before, change, expected) in cases {
        assert_eq!(after(before, change), expected);
    }
}

#[test]
fn enlightenments_bring_what_they_need() {
    let on = |name: &str| DefinitionChange::HyperV(name.to_owned(), true);
    assert_eq!(
        after("kvm -cpu host,hv_relaxed", on("stimer")),
        "kvm -cpu host,hv_relaxed,hv_vpindex=on,hv_synic=on,hv_time=on,hv_stimer=on"
    );
    assert_eq!(after("kvm -cpu host,hv-avic=off", on("avic")), "kvm -cpu host,hv-avic=on");
    assert_eq!(after("kvm -cpu host,hv-apicv=off", on("avic")), "kvm -cpu host,hv-apicv=on");
    assert_eq!(after("kvm -cpu host,hv-passthrough", on("avic")), "kvm -cpu host,hv-passthrough");
    assert_eq!(after("kvm -cpu host", on("spinlocks")), "kvm -cpu host,hv-spinlocks=0x1fff");
    let off = DefinitionChange::HyperV("spinlocks".to_owned(), false);
    assert_eq!(after("kvm -cpu host,hv_spinlocks=0x1fff,+pcid", off), "kvm -cpu host,+pcid");
}

#[test]
fn the_cpu_model_keeps_its_features() {
    let host = || DefinitionChange::CpuModel(CpuModel::Host);
    assert_eq!(after("kvm -cpu qemu64,+x2apic", host()), "kvm -cpu host,+x2apic");
    assert_eq!(after("kvm -cpu EPYC -m 1", host()), "kvm -cpu host -m 1");
    assert_eq!(after("kvm -m 1", host()), "kvm -cpu host -m 1");
    assert_eq!(after("kvm -m 1", DefinitionChange::CpuModel(CpuModel::Named("qemu64".into()))), "kvm -m 1");
}

#[test]
fn interrupts_are_remapped_with_a_split_irqchip() {
    let change = || DefinitionChange::InterruptRemapping;
    assert_eq!(
        after("kvm -M q35 -device e1000e -device vfio-pci,host=1:0.0", change()),
        "kvm -M q35,kernel-irqchip=split -device intel-iommu,intremap=on,eim=on,caching-mode=on \
         -device e1000e -device vfio-pci,host=1:0.0"
    );
    assert_eq!(
        after("kvm -M q35,kernel-irqchip=split -device intel-iommu,eim=off", change()),
        "kvm -M q35,kernel-irqchip=split -device intel-iommu,eim=on,intremap=on"
    );
    assert_eq!(
        after("kvm -M q35,kernel-irqchip=split -device '{\"driver\":\"intel-iommu\"}'", change()),
        "kvm -M q35,kernel-irqchip=split -device '{\"driver\":\"intel-iommu\",\"intremap\":\"on\",\"eim\":\"on\"}'"
    );
    // An assigned device needs its caching mode too.
    let assigned =
        |iommu: &str| format!("kvm -M q35,kernel-irqchip=split -device {iommu} -device vfio-pci,host=1:0.0");
    assert_eq!(
        after(&assigned("intel-iommu,intremap=on,eim=on"), change()),
        assigned("intel-iommu,intremap=on,eim=on,caching-mode=on")
    );
    let json = |more: &str| {
        assigned(&format!("'{{\"driver\":\"intel-iommu\",\"intremap\":\"on\",\"eim\":\"on\"{more}}}'"))
    };
    assert_eq!(after(&json(""), change()), json(",\"caching-mode\":true"));
}

#[test]
fn a_network_interface_keeps_its_address() {
    let edited = edited(
        "kvm -nodefaults -netdev tap,id=n -device e1000,netdev=n,mac=52:54:00:00:00:01,mitigation=off,bus=pci.0,addr=3",
        &[model(0, "virtio-net-pci")],
    );
    assert_eq!(
        String::from_utf8_lossy(&edited.bytes),
        "kvm -nodefaults -netdev tap,id=n -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:01,bus=pci.0,addr=3"
    );
    assert!(edited.notes[0].contains("mitigation"), "{:?}", edited.notes);
    assert_eq!(
        after("kvm -nic tap,ifname=t0 -vga std", model(0, "virtio-net-pci")),
        "kvm -nic tap,ifname=t0,model=virtio-net-pci -vga std"
    );
    assert_eq!(after("kvm -nic user -vga std", model(1, "virtio-vga")), "kvm -nic user -vga virtio");
    assert_eq!(
        after(
            "kvm -device \"{'\" -device '{\"driver\":\"e1000e\",\"id\":\"n\"}'",
            model(1, "virtio-net-pci")
        ),
        "kvm -device \"{'\" -device '{\"driver\":\"virtio-net-pci\",\"id\":\"n\"}'"
    );
}

#[test]
fn properties_are_dropped_with_their_commas_wherever_they_stand() {
    let cases = [
        (
            "'{\"bus\":\"ide.0\", \"unit\":1, \"driver\":\"ide-hd\",\"drive\":\"d\"}'",
            "'{\"driver\":\"virtio-blk-pci\",\"drive\":\"d\"}'",
        ),
        (
            "'{\"driver\":\"ide-hd\", \"bus\":\"ide.0\" , \"drive\":\"d\",\"unit\":1 }'",
            "'{\"driver\":\"virtio-blk-pci\" , \"drive\":\"d\" }'",
        ),
        ("bus=ide.0,unit=1,driver=ide-hd,drive=d", "driver=virtio-blk-pci,drive=d"),
        ("ide-hd,bus=ide.0,unit=1,drive=d,ver=1", "virtio-blk-pci,drive=d"),
        ("ide-hd,bus=ide.0,unit=1", "virtio-blk-pci"),
    ];
    for (before, expected) in cases {
        let line = |device: &str| format!("kvm -m 1 -device {device} -smp 2");
        assert_eq!(after(&line(before), model(0, "virtio-blk-pci")), line(expected));
    }
}

#[test]
fn a_disk_of_ide_becomes_one_of_virtio_however_it_is_written() {
    let virtio = || model(0, "virtio-blk-pci");
    let cases = [
        (
            "kvm -nodefaults -drive if=none,id=d,file=a -device ide-hd,bus=ide.0,unit=1,drive=d,bootindex=1",
            "kvm -nodefaults -drive if=none,id=d,file=a -device virtio-blk-pci,drive=d,bootindex=1",
        ),
        ("kvm -drive file=a,if=ide,bus=0,unit=0", "kvm -drive file=a,if=virtio"),
        ("kvm -drive file=a", "kvm -drive file=a,if=virtio"),
        // The place at IDE could be another disk's at virtio.
        (
            "kvm -drive file=a,index=0 -drive file=b,if=virtio",
            "kvm -drive file=a,if=virtio -drive file=b,if=virtio",
        ),
        ("kvm -hda \"$D\" -m 1", "kvm -drive \"file=$D,media=disk,if=virtio\" -m 1"),
        ("kvm --hdb a,b.img", "kvm --drive file=a,,b.img,media=disk,if=virtio"),
        ("kvm -m 1 'my disk'", "kvm -m 1 -drive 'file=my disk,media=disk,if=virtio'"),
        ("kvm\0-m\x001\0d\0", "kvm\0-m\x001\0-drive\0file=d,media=disk,if=virtio\0"),
        ("kvm -hda ö,", "kvm -drive file=ö,,,media=disk,if=virtio"),
    ];
    for (before, expected) in cases {
        assert_eq!(after(before, virtio()), expected);
    }
    let expected = "kvm -drive file=b,media=disk,if=virtio -drive file=d,if=virtio";
    assert_eq!(after("kvm -hda b -drive file=d,if=virtio", model(0, "virtio-blk-pci")), expected);
}

#[test]
fn disks_that_move_together_keep_the_first_one_first() {
    let text = "kvm -hda a -hdb b";
    let edited = edited(text, &[model(0, "virtio-blk-pci"), model(1, "virtio-blk-pci")]);
    assert_eq!(edited.refused, []);
    assert_eq!(
        String::from_utf8_lossy(&edited.bytes),
        "kvm -drive file=a,media=disk,if=virtio -drive file=b,media=disk,if=virtio"
    );
    // The bus of a port comes after the first one.
    assert_eq!(
        after(
            "kvm -M q35 -device pcie-root-port,id=p -drive if=none,id=d,file=d -device virtio-blk-pci,drive=d,bus=p \
             -drive if=none,id=s,file=s -device ide-hd,drive=s,bus=ide.0",
            model(2, "virtio-blk-pci")
        ),
        "kvm -M q35 -device pcie-root-port,id=p -drive if=none,id=d,file=d -device virtio-blk-pci,drive=d,bus=p \
         -drive if=none,id=s,file=s -device virtio-blk-pci,drive=s"
    );
    // With bootindex the place does not matter.
    assert_eq!(
        after(
            "kvm -drive file=d,if=virtio -drive if=none,id=s,file=s -device ide-hd,drive=s,bootindex=0",
            model(1, "virtio-blk-pci")
        ),
        "kvm -drive file=d,if=virtio -drive if=none,id=s,file=s -device virtio-blk-pci,drive=s,bootindex=0"
    );
}

#[test]
fn a_guest_starts_from_the_same_disk_or_disks_stay() {
    let virtio = |device| model(device, "virtio-blk-pci");
    let thread = DefinitionChange::IoThread { device: 0, iothread: "io0".to_owned() };
    let cases = [
        ("kvm -drive file=data,if=virtio -hda system", vec![virtio(1)]),
        ("kvm -drive file=data,if=virtio system.img", vec![virtio(1)]),
        ("kvm -hdb data -hda system", vec![virtio(0), virtio(1)]),
        (
            "kvm -drive if=none,id=d,file=data -drive if=none,id=s,file=system \
             -device virtio-blk-pci,drive=d,addr=0x5 -device ide-hd,drive=s,bus=ide.0",
            vec![virtio(1)],
        ),
        // The slots below are taken.
        (
            "kvm -drive if=none,id=d,file=data -device virtio-blk-pci,drive=d,addr=0x3 -hda system",
            vec![virtio(1)],
        ),
        (
            "kvm -drive if=none,id=d,file=data -device lsi,id=c -device scsi-hd,drive=d,bus=c.0 \
             -drive file=system,if=virtio",
            vec![model(0, "virtio-scsi-pci")],
        ),
        // The disk becomes a -device, which QEMU makes before the other one.
        (
            "kvm -drive file=data,if=virtio -drive if=none,id=s,file=system -device virtio-blk-pci,drive=s",
            vec![thread],
        ),
    ];
    for (text, changes) in cases {
        let refused = edited(text, &changes);
        assert_eq!(String::from_utf8_lossy(&refused.bytes), text);
        let reasons: Vec<_> = refused.refused.iter().map(|refusal| refusal.reason.as_str()).collect();
        assert_eq!(reasons.len(), changes.len(), "{text}");
        assert!(reasons.iter().all(|reason| reason.contains("bootindex=1")), "{text}: {reasons:?}");
    }
    // The others are made.
    let changes = [virtio(1), DefinitionChange::Hpet(false)];
    let partly = edited("kvm -M q35 -drive file=data,if=virtio -hda system", &changes);
    assert_eq!(
        String::from_utf8_lossy(&partly.bytes),
        "kvm -M q35,hpet=off -drive file=data,if=virtio -hda system"
    );
    assert_eq!(partly.refused.len(), 1);
}

#[test]
fn what_the_machine_brings_along_can_be_named_too() {
    let text = "kvm -M q35 -hda a";
    let vm = read(&Text::new("test", text), &NoFiles).expect("it is a command line");
    let of =
        |name: &str| vm.devices.iter().position(|device| device.model == name).expect("is there by default");
    let changes =
        [model(of("VGA"), "virtio-vga"), model(of("e1000e"), "virtio-net-pci"), model(0, "virtio-blk-pci")];
    let edited = apply(&Text::new("test", text), &changes).expect("it is a command line");
    assert_eq!(edited.refused, []);
    assert_eq!(
        String::from_utf8_lossy(&edited.bytes),
        "kvm -M q35 -drive file=a,media=disk,if=virtio -vga virtio -nic user,model=virtio-net-pci"
    );
}

#[test]
fn vhost_and_queues_are_said_by_the_tap_and_the_interface() {
    let tap = "kvm -nodefaults -netdev tap,id=n,vhost=off -device virtio-net-pci,netdev=n,vectors=4";
    assert_eq!(
        after(tap, DefinitionChange::Vhost { device: 0, on: true }),
        "kvm -nodefaults -netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n,vectors=4"
    );
    assert_eq!(
        after(tap, DefinitionChange::Queues { device: 0, queues: 4 }),
        "kvm -nodefaults -netdev tap,id=n,vhost=off,queues=4 -device virtio-net-pci,netdev=n,vectors=10,mq=on"
    );
    // A tap that is there already stays one with several queues, and QEMU makes one that a script sets up.
    let more = DefinitionChange::Queues { device: 0, queues: 4 };
    let taps =
        [(",script=no", ",queues=2", ",mq=on"), (",script=no", ",queues=2", ""), (",script=/up", "", "")];
    for (tap, queues, rest) in taps {
        let before =
            format!("kvm -netdev tap,id=n,ifname=t{tap}{queues} -device virtio-net-pci,netdev=n{rest}");
        let expected =
            format!("kvm -netdev tap,id=n,ifname=t{tap},queues=4 -device virtio-net-pci,netdev=n,mq=on");
        assert_eq!(after(&before, more.clone()), expected);
    }
    let json = "kvm -netdev '{\"type\":\"tap\",\"id\":\"n\",\"vhost\":true,\"vhostfd\":\"3\"}' -device virtio-net-pci,netdev=n";
    assert_eq!(
        after(json, DefinitionChange::Vhost { device: 0, on: false }),
        "kvm -netdev '{\"type\":\"tap\",\"id\":\"n\",\"vhost\":false}' -device virtio-net-pci,netdev=n"
    );
    assert_eq!(
        after("kvm -nic tap,model=virtio -m 1", DefinitionChange::Vhost { device: 0, on: true }),
        "kvm -nic tap,model=virtio,vhost=on -m 1"
    );
    assert_eq!(
        after(
            "kvm -blockdev file,node-name=d,filename=f -device virtio-blk,drive=d",
            DefinitionChange::Queues { device: 0, queues: 2 }
        ),
        "kvm -blockdev file,node-name=d,filename=f -device virtio-blk,drive=d,num-queues=2"
    );
}

#[test]
fn an_io_thread_is_made_where_there_is_none() {
    let thread = |device| DefinitionChange::IoThread { device, iothread: "io0".to_owned() };
    let cases = [
        (
            "kvm \\\n  -drive if=none,id=d,file=a \\\n  -device virtio-blk-pci,drive=d\n",
            "kvm \\\n  -drive if=none,id=d,file=a \\\n  -object iothread,id=io0 \\\n  -device virtio-blk-pci,drive=d,iothread=io0\n",
        ),
        (
            "kvm -object iothread,id=io0 -device virtio-blk-pci,drive=d",
            "kvm -object iothread,id=io0 -device virtio-blk-pci,drive=d,iothread=io0",
        ),
        (
            "kvm -drive file=a,if=virtio",
            "kvm -drive file=a,if=none,id=drive0 -object iothread,id=io0 -device virtio-blk-pci,drive=drive0,iothread=io0",
        ),
    ];
    for (before, expected) in cases {
        assert_eq!(after(before, thread(0)), expected);
    }
    let scsi = "kvm -device virtio-scsi-pci,id=s -drive if=none,id=d,file=a -device scsi-hd,bus=s.0,drive=d";
    assert_eq!(
        after(scsi, thread(1)),
        "kvm -object iothread,id=io0 -device virtio-scsi-pci,id=s,iothread=io0 \
         -drive if=none,id=d,file=a -device scsi-hd,bus=s.0,drive=d"
    );
}

#[test]
fn native_reading_leaves_the_page_cache_out() {
    let aio = |aio: &str| DefinitionChange::Aio { device: 0, aio: aio.to_owned() };
    assert_eq!(
        after("kvm -drive file=a,if=virtio,cache=writeback", aio("native")),
        "kvm -drive file=a,if=virtio,cache=none,aio=native"
    );
    assert_eq!(after("kvm -hda a", aio("io_uring")), "kvm -drive file=a,index=0,media=disk,aio=io_uring");
    assert_eq!(
        after(
            "kvm -blockdev qcow2,node-name=d,file.driver=file,file.filename=f -device virtio-blk-pci,drive=d",
            aio("io_uring")
        ),
        "kvm -blockdev qcow2,node-name=d,file.driver=file,file.filename=f,file.aio=io_uring -device virtio-blk-pci,drive=d"
    );
    let chain = "kvm -blockdev '{\"driver\":\"file\",\"filename\":\"f\",\"node-name\":\"s\",\"aio\":\"threads\"}' \
                 -blockdev qcow2,node-name=d,file=s -device virtio-blk-pci,drive=d";
    assert_eq!(after(chain, aio("io_uring")), chain.replace("threads", "io_uring"));
    // Nested as by Proxmox 9.
    let nested = r#"kvm -blockdev '{"driver":"throttle","file":{"driver":"raw","file":{"driver":"host_device","filename":"/dev/x"}},"node-name":"d"}' -device virtio-blk-pci,drive=d"#;
    let file = r#""filename":"/dev/x""#;
    let with = |more: &str| nested.replace(file, &format!("{file}{more}"));
    assert_eq!(after(nested, aio("io_uring")), with(r#","aio":"io_uring""#));
    assert_eq!(after(nested, aio("native")), with(r#","aio":"native","cache":{"direct":true}"#));
    let cached = with(r#","cache":{"no-flush":false}"#);
    let expected = with(r#","aio":"native","cache":{"no-flush":false,"direct":true}"#);
    assert_eq!(after(&cached, aio("native")), expected);
}

#[test]
fn all_at_once_in_a_script_with_comments_and_arrays() {
    let text = crate::summary::text("array.sh");
    let changes = [
        DefinitionChange::Irqchip(Irqchip::Split),
        DefinitionChange::CpuFeature("x2apic".into(), FeatureState::On),
        model(1, "virtio-blk-pci"),
        model(2, "virtio-net-pci"),
        DefinitionChange::IoThread { device: 1, iothread: "io9".into() },
        DefinitionChange::Hpet(false),
    ];
    let edited = apply_with(&text, &crate::summary::fixtures(), &changes).expect("it is a command line");
    assert_eq!(edited.refused, []);
    insta::assert_snapshot!(String::from_utf8_lossy(&edited.bytes));
}

#[test]
fn a_disk_that_moves_to_pci_takes_no_slot_that_another_device_names() {
    let disk = |rest: &str| format!("kvm -drive if=none,id=d,file=a -device ide-hd,drive=d{rest}");
    // Without an address QEMU would give the disk slot 2, and then refuse the balloon.
    let named = disk(" -device virtio-balloon-pci,bus=pci.0,addr=0x2 -device edu,addr=1e.0");
    let new = after(&named, model(0, "virtio-blk-pci"));
    assert!(new.contains("-device virtio-blk-pci,drive=d,addr=0x1c "), "{new}");
    // If no device names its slot, QEMU assigns all slots.
    let new = after(&disk(" -device virtio-balloon-pci"), model(0, "virtio-blk-pci"));
    assert!(new.contains("-device virtio-blk-pci,drive=d -device"), "{new}");
}

#[test]
fn qemu_connects_again_by_the_property_that_its_version_has() {
    let line = |machine: &str, more: &str| {
        format!("kvm -M {machine} -chardev socket,id=c,path=/c{more} -device vhost-user-blk-pci,chardev=c")
    };
    let change = || DefinitionChange::Reconnect { device: 0 };
    let new = line("pc-q35-9.2", ",reconnect-ms=1000");
    for off in ["", ",reconnect=0", ",reconnect-ms=0"] {
        assert_eq!(after(&line("pc-q35-9.2", off), change()), new);
    }
    let old = line("pc-q35-7.2", ",reconnect=1");
    assert_eq!(after(&old, change()), old);
}

#[test]
fn memory_becomes_shared_in_the_object_that_it_is() {
    let cases = [
        (
            "kvm -M q35 -m 1G",
            "kvm -M q35,memory-backend=mem0 -m 1G -object memory-backend-memfd,id=mem0,size=1024M,share=on",
        ),
        (
            "kvm -M q35,memory-backend=m -object memory-backend-ram,id=m,size=1G",
            "kvm -M q35,memory-backend=m -object memory-backend-memfd,id=m,size=1G,share=on",
        ),
        (
            "kvm -object memory-backend-file,id=m,mem-path=/a,share=off,size=1G -numa node,memdev=m",
            "kvm -object memory-backend-file,id=m,mem-path=/a,share=on,size=1G -numa node,memdev=m",
        ),
    ];
    for (before, expected) in cases {
        assert_eq!(after(before, DefinitionChange::SharedMemory), expected);
    }
    let refused = edited("kvm -m 1G -mem-path /dev/hugepages", &[DefinitionChange::SharedMemory]).refused;
    assert!(refused[0].reason.contains("share=on"), "{refused:?}");
}
