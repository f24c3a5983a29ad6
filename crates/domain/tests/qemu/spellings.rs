//! Equivalent spellings, and rules for repeated settings.

use domain::qemu::read;
use domain::{Accelerator, Backend, Definition, FeatureState, Irqchip, NoFiles, Text, TickPolicy};

fn vm(arguments: &str) -> Definition {
    let text = Text::new("test", format!("qemu-system-x86_64 {arguments}"));
    read(&text, &NoFiles).expect("it is a command line")
}

fn all<T: PartialEq + std::fmt::Debug>(lines: &[&str], of: impl Fn(&Definition) -> T, expected: &T) {
    for line in lines {
        let vm = vm(line);
        assert_eq!(&of(&vm), expected, "{line}");
        assert_eq!(vm.doubts, [] as [String; 0], "{line}");
    }
}

#[test]
fn the_machine() {
    let kind = |vm: &Definition| vm.machine.kind.as_ref().map(|set| set.value.clone());
    let lines =
        ["-M q35", "-machine q35", "--machine type=q35", "-M pc -M q35", "-machine q35 -machine usb=off"];
    all(&lines, kind, &Some("q35".to_owned()));
    let irqchip = |vm: &Definition| vm.machine.irqchip.as_ref().map(|set| set.value);
    let lines = [
        "-M q35,kernel-irqchip=split",
        "-M kernel_irqchip=split",
        "-accel kvm,kernel-irqchip=split",
        "-M kernel-irqchip=on -M kernel-irqchip=split",
        "-accel kvm,kernel-irqchip=split -M q35,kernel-irqchip=on",
        "-M q35,kernel-irqchip=on -accel kvm,kernel-irqchip=split",
        "-accel kvm,kernel-irqchip=split -no-kvm-irqchip",
    ];
    all(&lines, irqchip, &Some(Irqchip::Split));
    all(&["-no-kvm-irqchip", "-M kernel-irqchip=off"], irqchip, &Some(Irqchip::UserSpace));
    let lines = [
        "-enable-kvm",
        "-accel kvm",
        "-M accel=kvm:tcg",
        "-accel kvm -accel tcg",
        "-M q35,accel=kvm",
        "-accel accel=kvm",
    ];
    all(&lines, |vm| vm.accelerator_in_force(), &Accelerator::Kvm);
    let pit = |vm: &Definition| vm.timers.pit.as_ref().map(|set| set.value);
    let lines = [
        "-global kvm-pit.lost_tick_policy=discard",
        "-global driver=kvm-pit,property=lost_tick_policy,value=discard",
        "-no-kvm-pit-reinjection",
    ];
    all(&lines, pit, &Some(TickPolicy::Discard));
    let rtc = |vm: &Definition| vm.timers.rtc.as_ref().map(|set| set.value);
    all(
        &["-rtc base=utc,driftfix=slew", "-global mc146818rtc.lost_tick_policy=slew"],
        rtc,
        &Some(TickPolicy::CatchUp),
    );
}

#[test]
fn memory() {
    let memory = |vm: &Definition| vm.memory_mib.as_ref().map(|set| set.value);
    let lines = [
        "-m 4096",
        "-m 4G",
        "-m 4g",
        "-m size=4G",
        "-m 4096M,slots=2,maxmem=8G",
        "-m 4194304k",
        "-m 1 -m 4G",
        "-M memory-backend=r -object memory-backend-ram,id=r,size=4G",
    ];
    all(&lines, memory, &Some(4096));
    all(&["-m 1.5G"], memory, &Some(1536));
    for wrong in ["-m lots", "-m 99999999999999999999G", "-m 1.99999999999999999999999999999999999999999G"] {
        assert_eq!((memory(&vm(wrong)), vm(wrong).doubts.len()), (None, 1), "{wrong}");
    }
}

#[test]
fn huge_pages() {
    let huge = |vm: &Definition| vm.huge_pages.as_ref().map(|set| set.value);
    let lines = [
        "-M memory-backend=m -object memory-backend-memfd,id=m,size=1G,hugetlb=on",
        "-M memory-backend=m -object '{\"qom-type\":\"memory-backend-file\",\"id\":\"m\",\"mem-path\":\"/dev/hugepages/a\",\"size\":1073741824}'",
        "-numa node,memdev=m -object memory-backend-file,id=m,mem-path=/dev/hugepages,size=1G",
        "-m 1G -mem-path /dev/hugepages",
    ];
    all(&lines, huge, &Some(true));
    let lines = [
        "-M memory-backend=m -object memory-backend-memfd,id=m,size=1G",
        "-m 1G -mem-path /dev/shm",
        "-numa node,memdev=a -numa node,memdev=b -object memory-backend-memfd,id=a,size=1G,hugetlb=on \
         -object memory-backend-ram,id=b,size=1G",
    ];
    all(&lines, huge, &Some(false));
    all(&["-m 1G"], huge, &None);
}

#[test]
fn signs_win_over_values_and_minus_over_plus() {
    let x2apic = |vm: &Definition| vm.cpu.feature("x2apic");
    let on = [
        "-cpu host,+x2apic",
        "-cpu host,x2apic",
        "-cpu host,x2apic=on",
        "-cpu host,+x2apic,x2apic=off",
        "-cpu host,x2apic=off,x2apic=on",
    ];
    all(&on, x2apic, &Some(FeatureState::On));
    let off = [
        "-cpu host,-x2apic",
        "-cpu host,-x2apic,+x2apic",
        "-cpu host,-x2apic,x2apic=on",
        "-cpu host,x2apic=on,x2apic=off",
        "-global cpu.x2apic=off",
    ];
    all(&off, x2apic, &Some(FeatureState::Off));
    all(&["-cpu a,+x2apic -cpu host,-pcid", "-cpu host"], x2apic, &None);
    let names = [
        "-cpu host,+kvm_pv_eoi",
        "-cpu host,kvm-pv-eoi=on",
        "-cpu host,kvm-pv-eoi",
        "-global host-x86_64-cpu.kvm-pv-eoi=on",
    ];
    all(&names, |vm| vm.cpu.feature("kvm-pv-eoi"), &Some(FeatureState::On));
    all(&["-cpu host,hv_avic", "-cpu host,hv-apicv=on", "-cpu host,+hv-avic"], |vm| vm.hyperv("avic"), &true);
}

#[test]
fn a_value_may_be_set_afterwards() {
    let vm = vm(
        "-netdev tap,id=n -device virtio-net-pci,id=d,netdev=n -set netdev.n.vhost=on -set device.d.mq=on",
    );
    assert_eq!(vm.devices[0].backend.as_ref().map(|set| set.value), Some(Backend::Vhost));
    assert_eq!(vm.devices[0].backend.as_ref().map(|set| &*set.place.text), Some("-set netdev.n.vhost=on"));
    assert!(vm.devices[0].properties.contains(&("mq".to_owned(), "on".to_owned())));
}

#[test]
fn every_way_to_a_network_interface() {
    let first = |vm: &Definition| {
        let device = vm.devices.iter().find(|device| device.kind == domain::DeviceKind::Network)?;
        Some((
            device.model.clone(),
            device.backend.as_ref()?.value,
            device.queues.as_ref().map_or(1, |set| set.value),
        ))
    };
    let expected = |backend, queues| Some(("virtio-net-pci".to_owned(), backend, queues));
    let lines = [
        "-netdev tap,id=n,vhost=on -device virtio-net-pci,netdev=n",
        "-netdev tap,id=n,vhost=on,queues=4 -device virtio-net,netdev=n",
        "-net nic,model=virtio -net tap,vhost=on",
        "-nic tap,model=virtio-net-pci,vhost=on",
        "-netdev '{\"type\":\"tap\",\"id\":\"n\",\"vhost\":true}' -device '{\"driver\":\"virtio-net-pci\",\"netdev\":\"n\"}'",
    ];
    all(&lines, first, &expected(Backend::Vhost, 1));
    let lines = [
        "-netdev tap,id=n,queues=4,vhost=on -device virtio-net-pci,netdev=n,mq=on",
        "-netdev tap,id=n,fds=3:4:5:6,vhost=on,vhostfds=7:8:9:10 -device virtio-net-pci,netdev=n,mq=on",
    ];
    all(&lines, first, &expected(Backend::Vhost, 4));
    all(
        &["-netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n"],
        first,
        &expected(Backend::VhostUser, 1),
    );
    all(
        &["-netdev vhost-vdpa,id=n,vhostdev=/dev/vhost-vdpa-0 -device virtio-net-pci,netdev=n"],
        first,
        &expected(Backend::Vdpa, 1),
    );
    all(
        &["-netdev bridge,id=n -device virtio-net-pci,netdev=n", "-nic user,model=virtio"],
        first,
        &expected(Backend::Vmm, 1),
    );
    all(&["-nic none", "-net none", "-nodefaults"], first, &None);
}

#[test]
fn what_the_machine_brings_along_is_what_qemu_7_2_shows() {
    // The relevant models that `info qtree` lists.
    let own = |vm: &Definition| {
        let own = vm.devices.iter().filter(|device| device.place.text.is_empty());
        let mut own: Vec<_> = own.map(|device| device.model.clone()).collect();
        own.sort();
        own.join(" ")
    };
    let cases = [
        ("-M pc", "VGA e1000 floppy ide-cd isa-parallel isa-serial"),
        ("-M q35", "VGA e1000e ide-cd isa-parallel isa-serial"),
        ("-M q35 -hdc /dev/null", "VGA e1000e isa-parallel isa-serial"),
        ("-M q35 -hdb /dev/null", "VGA e1000e ide-cd isa-parallel isa-serial"),
        ("-M pc -netdev user,id=a", "VGA floppy ide-cd isa-parallel isa-serial"),
        ("-M pc -device e1000", "VGA e1000 floppy ide-cd isa-parallel isa-serial"),
        ("-M pc -device ide-cd", "VGA e1000 floppy isa-parallel isa-serial"),
        ("-M pc -vga none", "e1000 floppy ide-cd isa-parallel isa-serial"),
        ("-M pc -fda /dev/zero", "VGA e1000 ide-cd isa-parallel isa-serial"),
        ("-M pc -device virtio-scsi-pci -device scsi-hd,drive=a", "VGA e1000 floppy isa-parallel isa-serial"),
        ("-M microvm", "isa-serial"),
        ("-M pc -nodefaults", ""),
    ];
    for (arguments, expected) in cases {
        assert_eq!(own(&vm(arguments)), expected, "{arguments}");
    }
}

#[test]
fn encryption_is_the_type_of_its_object_and_a_disk_has_the_driver_of_its_node() {
    let encrypted = vm("-machine q35,confidential-guest-support=lsec0 -object sev-snp-guest,id=lsec0 \
         -blockdev driver=rbd,node-name=s,pool=p,image=i -blockdev driver=raw,node-name=f,file=s \
         -device virtio-blk-pci,drive=f");
    assert_eq!(encrypted.machine.encryption.unwrap().value, "sev-snp");
    let disk = encrypted.devices.iter().find(|device| device.model == "virtio-blk-pci").unwrap();
    assert_eq!((disk.resource.as_deref(), &disk.source), (Some("rbd"), &None));
    let vdpa = vm("-blockdev driver=virtio-blk-vhost-vdpa,node-name=v,path=/dev/vhost-vdpa-0 \
         -device virtio-blk-pci,drive=v");
    assert_eq!(vdpa.devices[0].backend.as_ref().unwrap().value, Backend::Vdpa);
}

#[test]
fn a_property_that_is_given_twice_has_the_last_value() {
    let pairs = |vm: &Definition| vm.devices[0].properties[1..].to_vec();
    let expected = [("max_ports".to_owned(), "2".to_owned())];
    for first in ["max_ports=4", "max-ports=4", "max_ports=4,max_ports=31"] {
        let line = format!("-nodefaults -device virtio-serial-pci,{first},max_ports=2");
        assert_eq!(pairs(&vm(&line)), expected, "{line}");
    }
}

#[test]
fn the_program_is_no_argument_of_an_option_and_no_user() {
    let kind = |text: &str| {
        let vm = read(&Text::new("test", text), &NoFiles).map_err(|error| error.to_string())?;
        assert_eq!(vm.doubts, [] as [String; 0], "{text}");
        Ok::<_, String>(vm.machine.kind.map(|set| set.value))
    };
    for text in [
        "-machine q35 -accel kvm -cpu host -m 4G",
        "-machine q35\n-accel kvm\n-cpu host\n-m 4G\n",
        "-machine\nq35\n-accel\nkvm\n-cpu\nhost\n",
        "vmm\0-machine\0q35\0-accel\0kvm\0-m\x004G\0",
        "sudo -u qemu qemu-system-x86_64 -machine q35 -m 4G",
        "runuser -u qemu -- qemu-kvm -machine q35 -m 4G",
        "sudo\0-u\0qemu\0qemu-kvm\0-machine\0q35\0",
        "perf record -g qemu-system-x86_64 -machine q35 -m 4G",
        "perf record -g /usr/libexec/qemu-kvm -machine q35 -m 4G",
        "sudo -u qemu -g kvm qemu-system-x86_64 -machine q35 -m 4G",
        "-bash\nqemu-system-x86_64 -machine q35 -m 4G\n",
        "qemu-system-x86_64\0disk.img\0-machine\0q35\0-pidfile\0/run/qemu-system-x86_64.pid\0-daemonize\0",
        "vmm\0-machine\0q35\0-pidfile\0/run/qemu-system-a.pid\0-m\x004G\0",
    ] {
        assert_eq!(kind(text), Ok(Some("q35".to_owned())), "{text}");
    }
    // The shell alone knows the program, and what it is.
    let unknown = kind("\"$VMM\" -machine q35 -accel kvm -m 4G").unwrap_err();
    assert!(unknown.contains("nor a QEMU command line"), "{unknown}");
}
