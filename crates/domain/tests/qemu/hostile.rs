//! Arbitrary bytes, and command lines that are too long.

use domain::qemu::{apply, read};
use domain::{CpuModel, DefinitionChange, FeatureState, Files, Irqchip, NoFiles, Text, TickPolicy};
use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

fn problem(text: impl Into<Vec<u8>>) -> String {
    read(&Text::new("run.sh", text), &NoFiles).expect_err("it is no command line").to_string()
}

#[test]
fn texts_without_a_command_are_errors() {
    for text in [
        "#!/bin/sh\necho qemu-system-x86_64\n",
        "<domain type='kvm'/>",
        "\0",
        "\0\0\0",
        "sleep\x0010\0",
        "- a\n- b",
    ] {
        assert!(problem(text).contains("QEMU command line"), "{text:?}: {}", problem(text));
    }
    assert!(problem(vec![0xff; 100]).starts_with("run.sh: "));
}

#[test]
fn a_text_of_another_kind_is_named_with_the_way_to_its_command() {
    let told = |name: &str, text: &str| read(&Text::new(name, text), &NoFiles).unwrap_err().to_string();
    let proxmox = "#web\nboot: order=scsi0\ncores: 4\nscsi0: local-lvm:vm-100-disk-0,iothread=1\n";
    let showcmd = "`qm showcmd 100 | exitless vm lint -`, or `exitless vm lint 100` while the VM runs";
    assert!(told("/etc/pve/qemu-server/100.conf", proxmox).contains(showcmd));
    assert!(told("standard input", proxmox).contains("qm showcmd VMID"));
    for kubevirt in
        ["apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n", "---\nkind: VirtualMachineInstance\n"]
    {
        assert!(told("vm.yaml", kubevirt).contains("exitless vm lint NAMESPACE/NAME"), "{kubevirt}");
    }
    for empty in ["", " \n"] {
        assert_eq!(told("web", empty), "web: it is empty. Name a file with a definition");
    }
    let other = told("notes.txt", "cores: 4\nbuy milk\n");
    assert!(other.contains("neither libvirt's XML, Xen's xl.cfg nor a QEMU command line"), "{other}");
}

#[test]
fn an_open_quotation_mark_is_named_with_its_line() {
    let text = "#!/bin/sh\n# don't\nqemu-system-x86_64 \\\n  -m 4G \\\n  -name 'web\n";
    assert!(problem(text).starts_with("run.sh, line 5: a quotation mark (')"), "{}", problem(text));
    assert!(problem("kvm -m 1 -name \"$(hostname\"").contains("substitution"));
    // Quotation marks on other lines do not affect the command.
    let text = "echo it\\'s 'fine\nqemu-kvm -m 4G\necho \"open\n";
    assert!(read(&Text::new("run.sh", text), &NoFiles).is_ok());
}

#[test]
fn unknown_options_and_broken_text_are_doubts() {
    let text = b"kvm\0-m\0\xff\xfe\0-future\0on\0-device\0{\"driver\":\0-smp\0many\0-global\0x\0-set\0y\0-readconfig\0f\0-cpu".to_vec();
    let vm = read(&Text::new("process 1", text), &NoFiles).expect("is a command line");
    let expected = [
        "UTF-8",
        "-future",
        "JSON",
        "many",
        "-m ",
        "driver.property",
        "group.id",
        "-readconfig f",
        "-cpu lacks",
    ];
    for part in expected {
        assert!(vm.doubts.iter().any(|doubt| doubt.contains(part)), "{part}: {:?}", vm.doubts);
    }
    assert!(vm.devices.iter().all(|device| device.source.is_none()), "the argument of -future is no disk");
}

#[test]
fn long_texts_take_little_time() {
    const SIZE: usize = 1 << 20;
    let repeated = |start: &str, part: &str| {
        let mut text = start.to_owned();
        text.push_str(&part.repeat(SIZE / part.len()));
        text
    };
    let texts = [
        repeated("kvm", "\0-device\0e1000,id=a"),
        repeated("kvm\0-m\x001\0-device\0{", "\"a\":{"),
        repeated("kvm -m 1 -cpu host", ",+x2apic"),
        repeated("kvm -m 1 -machine q35", ",a=b"),
        (0..SIZE / 10)
            .fold("kvm -m 1 -cpu host".to_owned(), |text, number| text + ",+a" + &number.to_string()),
        repeated("", "qemu '"),
        repeated("", "qemu \\\n"),
        repeated("", "qemu \"$(\n"),
        repeated("", "kvm -m 1\n"),
        repeated("kvm -m 1", "\n"),
        repeated("kvm -m 1 \"${a[@]}\"", "\na=( x"),
        repeated("kvm -m 1", " -drive if=none,id=d -device scsi-hd,drive=d -device virtio-scsi-pci"),
        repeated("kvm -m 1", " -blockdev file,node-name=a,file=a -device ide-hd,drive=a"),
        repeated("kvm -m 1", " -net nic -net tap"),
        repeated("kvm -m 1", " -net nic"),
        repeated("kvm -m 1", " -set drive.d.file=x"),
        repeated("kvm -m 1", " -device e1000,id=a -set device.b.c=d"),
        repeated("kvm -m 1 -M id=x", ",a=b") + " -set machine.x.c=d",
        repeated("kvm -m 1", " -device intel-iommu -global intel-iommu.eim=on"),
        repeated("kvm -m 1", " -audio a"),
        repeated("kvm -m 1", " $X"),
        repeated("kvm -m 1 -accel", " kvm -accel"),
    ];
    for text in texts {
        let start = Instant::now();
        let shown: String = text.chars().take(50).collect();
        let _ = read(&Text::new("long", text), &NoFiles);
        // Quadratic time would take many minutes; a slow machine takes a second.
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}: {:?}", start.elapsed());
    }
}

#[test]
fn the_devices_of_a_text_have_few_copies_of_it() {
    let members: String = (0..4_000).map(|number| format!("\"{number}\":1,")).collect();
    let name = "k".repeat(4_000);
    let json = format!("kvm\0-device\0{{\"driver\":\"e1000\",\"{name}\":{{{members}\"a\":1}}}}");
    let cards = format!("kvm\0-soundhw\0{}", "ac97,".repeat(4_000));
    for text in [json, cards] {
        let vm = read(&Text::new("long", text.as_str()), &NoFiles).expect("is a command line");
        let properties = vm.devices.iter().flat_map(|device| &device.properties);
        let length: usize = properties.map(|(key, value)| key.len() + value.len()).sum();
        assert!(length <= 4 * text.len(), "{length}");
        assert!(vm.devices.len() < 100, "{}", vm.devices.len());
    }
}

#[test]
fn a_long_backend_is_not_copied_for_each_of_many_devices() {
    let long = "k".repeat(64 << 10);
    for text in [
        format!("-netdev\0tap,id=n,ifname={long}{}", "\0-device\0e1000,netdev=n".repeat(4_000)),
        format!("-net\0tap,ifname={long}{}", "\0-net\0nic".repeat(4_000)),
        format!("-drive\0if=none,id=d,file={long}{}", "\0-device\0ide-hd,drive=d".repeat(4_000)),
        format!("-device\0virtio-scsi-pci,iothread={long}{}", "\0-device\0scsi-hd".repeat(4_000)),
    ] {
        let shown: String = text.chars().take(20).collect();
        let vm = read(&Text::new("long", format!("kvm\0{text}")), &NoFiles).expect("is a command line");
        let sources = vm.devices.iter().filter_map(|device| device.source.as_ref());
        let threads = vm.devices.iter().flat_map(|device| &device.iothreads);
        let lengths: Vec<usize> = sources.chain(threads).map(|set| set.value.len()).collect();
        assert_eq!(lengths.first(), Some(&long.len()), "{shown}");
        assert!(lengths.iter().sum::<usize>() <= 17 << 20, "{shown}: {} copies", lengths.len());
        let told = vm.doubts.iter().any(|doubt| doubt.contains("were not read"));
        assert_eq!(told, !text.starts_with("-device"), "{shown}: {:?}", vm.doubts);
    }
}

#[test]
fn ten_megabytes_are_read_or_refused() {
    let many = format!("kvm{}", "\0-m\x001".repeat((10 << 20) / 5));
    assert!(problem(many).contains("arguments, and no more than 131072 are read"));
    let many = format!("kvm{}", " \\\n -m 1".repeat((10 << 20) / 8));
    assert!(problem(many).contains("arguments or more"));
    let long = format!("kvm\0-m\x001\0-append\0{}", "x".repeat(10 << 20));
    let vm = read(&Text::new("long", long), &NoFiles).expect("is a command line");
    assert!(vm.other[0].place.text.len() < 500, "evidence is short");
}

/// Has each file, of this many bytes, and counts how often one is read.
struct Everything {
    bytes: usize,
    read: Cell<usize>,
}

impl Files for Everything {
    fn contents(&self, _: &Path) -> std::io::Result<Vec<u8>> {
        self.read.set(self.read.get() + 1);
        let mut text = b"[machine]\n".to_vec();
        text.resize(self.bytes, b'\n');
        Ok(text)
    }
}

#[test]
fn any_number_of_files_costs_no_more_than_some() {
    let line = format!("kvm\0-m\x001\0{}", "-readconfig\0f\0".repeat(1_000));
    let (few, large) = (100, 600 << 10);
    for (bytes, doubt) in [(few, "Of 1000 -readconfig, only the first 16"), (large, "more than 256 KiB")] {
        let files = Everything { bytes, read: Cell::new(0) };
        let vm = read(&Text::new("process 1", line.as_str()), &files).expect("is a command line");
        assert_eq!(files.read.get(), 16);
        assert!(vm.doubts.iter().any(|one| one.contains(doubt)) && vm.doubts.len() < 20, "{:?}", vm.doubts);
        assert_eq!(vm.unread_file.as_deref(), Some("f"));
    }
    let vm =
        read(&Text::new("process 1", "kvm\0-readconfig\0f\0"), &Everything { bytes: 9, read: Cell::new(0) });
    assert_eq!(vm.expect("is a command line").unread_file, None);
}

fn changes() -> impl Strategy<Value = DefinitionChange> {
    let device = 0_usize..6;
    prop_oneof![
        prop_oneof![Just(Irqchip::Kernel), Just(Irqchip::Split), Just(Irqchip::UserSpace)]
            .prop_map(DefinitionChange::Irqchip),
        prop_oneof![Just(TickPolicy::Delay), Just(TickPolicy::Discard)]
            .prop_map(DefinitionChange::PitTickPolicy),
        any::<bool>().prop_map(DefinitionChange::Hpet),
        Just(DefinitionChange::CpuModel(CpuModel::Host)),
        ("x2apic|svm|hv-time", any::<bool>()).prop_map(|(name, on)| {
            DefinitionChange::CpuFeature(name, if on { FeatureState::On } else { FeatureState::Off })
        }),
        ("synic|vpindex|stimer|avic|spinlocks", any::<bool>())
            .prop_map(|(name, on)| DefinitionChange::HyperV(name, on)),
        Just(DefinitionChange::InterruptRemapping),
        (device.clone(), "virtio-(blk|net)-pci|virtio-vga")
            .prop_map(|(device, model)| DefinitionChange::DeviceModel { device, model }),
        (device.clone(), any::<bool>()).prop_map(|(device, on)| DefinitionChange::Vhost { device, on }),
        (device.clone(), 1_u32..5).prop_map(|(device, queues)| DefinitionChange::Queues { device, queues }),
        (device.clone(), "io[01]")
            .prop_map(|(device, iothread)| DefinitionChange::IoThread { device, iothread }),
        (device, "threads|native|io_uring").prop_map(|(device, aio)| DefinitionChange::Aio { device, aio }),
    ]
}

/// Parts of command lines.
const PIECES: &str = "(-M q35|-machine pc,accel=kvm|-accel kvm|-cpu host,-x2apic|-cpu 'EPYC,hv_vpindex'|-hda x|-hdb \"a b\"|\
    -drive file=a,if=virtio|-drive if=none,id=d,file=[$]F|-device virtio-blk-pci,drive=d|-device ide-hd,drive=d|\
    -netdev tap,id=n|-device e1000,netdev=n|-device virtio-net-pci,netdev=n,mq=on|-nic tap,model=virtio|-nodefaults|\
    -vga std|-net nic -net user|-global kvm-pit[.]lost_tick_policy=delay|-no-hpet|-object iothread,id=io0|-enable-kvm|\
    -device '[{]\"driver\":\"intel-iommu\",\"eim\":\"off\"[}]'|-device virtio-scsi-pci,id=s|-device scsi-hd,drive=d|\
    -blockdev file,node-name=d,filename=f|old[.]img|-device vfio-pci,host=1:0[.]0|-unknown x|-smp 300)( | \\\\\n  )";

/// Tests whether a change is in effect.
fn holds(vm: &domain::Definition, change: &DefinitionChange) -> bool {
    match change {
        DefinitionChange::Irqchip(chip) => vm.irqchip_in_force() == *chip,
        DefinitionChange::PitTickPolicy(policy) => vm.kernel_pit_in_force() == Some(*policy),
        DefinitionChange::Hpet(on) => vm.has_hpet() == *on,
        DefinitionChange::CpuModel(model) => vm.cpu.model.as_ref().is_some_and(|set| set.value == *model),
        DefinitionChange::CpuFeature(name, state) if !name.starts_with("hv-") => {
            vm.cpu.feature(name) == Some(*state)
        }
        DefinitionChange::CpuFeature(name, state) => vm.hyperv(&name[3..]) == (*state == FeatureState::On),
        DefinitionChange::HyperV(name, on) => vm.hyperv(name) == *on,
        DefinitionChange::InterruptRemapping => vm.iommus.iter().any(|iommu| {
            iommu.interrupt_remapping.as_ref().is_some_and(|set| set.value)
                && iommu.extended_interrupt_mode.as_ref().is_some_and(|set| set.value)
        }),
        DefinitionChange::DeviceModel { model, .. } => vm.devices.iter().any(|device| device.model == *model),
        DefinitionChange::Vhost { device, on } => vm.devices[*device]
            .backend
            .as_ref()
            .is_some_and(|set| (set.value == domain::Backend::Vhost) == *on),
        DefinitionChange::Queues { device, queues } => {
            vm.devices[*device].queues.as_ref().map_or(1, |set| set.value) == *queues
        }
        DefinitionChange::IoThread { device, iothread } => {
            vm.devices[*device].iothreads.iter().any(|set| set.value == *iothread)
        }
        DefinitionChange::Aio { device, aio } => {
            vm.devices[*device].aio.as_ref().map_or("threads", |set| set.value.as_str()) == aio
        }
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&Text::new("any", &*bytes), &NoFiles);
        let _ = read(&Text::new("any", [b"kvm -m 1 -device ", &*bytes].concat()), &NoFiles);
        let _ = read(&Text::new("any", [b"kvm\0-m\0", &*bytes].concat()), &NoFiles);
    }

    #[test]
    fn any_text_is_changed_without_a_panic(text in "[a-z0-9 ,=.{}\"':\\\\\n\0ö$-]{0,80}", change in changes()) {
        for start in ["kvm -M q35 -device ", "kvm -m 1 -drive ", "kvm -m 1 -cpu ", "kvm\0-m\x001\0-netdev\0"] {
            let _ = apply(&Text::new("any", format!("{start}{text}")), std::slice::from_ref(&change));
        }
    }

    #[test]
    fn a_change_is_there_afterwards_and_all_else_is_as_before(
        pieces in proptest::collection::vec(PIECES, 1..8),
        process in any::<bool>(),
        change in changes(),
    ) {
        let mut bytes = format!("qemu-kvm -m 1 {}", pieces.concat()).trim_end_matches([' ', '\\', '\n']).as_bytes().to_vec();
        if process {
            bytes = String::from_utf8_lossy(&bytes).replace(" \\\n  ", "\0").replace(['\'', '"'], "").replace(' ', "\0").into_bytes();
            bytes.push(0);
        }
        let text = Text::new("made", bytes);
        let before = read(&text, &NoFiles).expect("is a command line");
        let edited = apply(&text, std::slice::from_ref(&change)).expect("is a command line");
        let new = Text::new("made", &*edited.bytes);
        let after = read(&new, &NoFiles).expect("is one still");
        let shown = format!("{}\n{}", String::from_utf8_lossy(&text.bytes), String::from_utf8_lossy(&new.bytes));
        if !edited.refused.is_empty() {
            prop_assert_eq!(&text, &new, "{:?}", edited.refused);
            return Ok(());
        }
        prop_assert!(holds(&after, &change), "{}", shown);
        // Bytes outside of the edits are unchanged.
        let mut rebuilt = text.bytes.clone();
        edited.edits.iter().rev().for_each(|edit| drop(rebuilt.splice(edit.start..edit.end, edit.new.iter().copied())));
        prop_assert_eq!(&rebuilt, &new.bytes);
        // Applying it again changes nothing, unless a default device of the machine was added to the text.
        let own = matches!(&change, DefinitionChange::DeviceModel { device, .. } if before.devices[*device].place.text.is_empty());
        if !own {
            let again = apply(&new, std::slice::from_ref(&change)).expect("is one still");
            prop_assert_eq!(&again.bytes, &new.bytes, "{}", shown);
        }
        // Other settings are unchanged.
        prop_assert_eq!(values(&before.vcpus.count), values(&after.vcpus.count));
        prop_assert_eq!(values(&before.machine.kind), values(&after.machine.kind));
        prop_assert_eq!(values(&before.machine.accelerator), values(&after.machine.accelerator));
        prop_assert_eq!(before.doubts.len(), after.doubts.len(), "{:?} {}", after.doubts, shown);
        let others = |vm: &domain::Definition| vm.devices.iter().filter(|one| !one.place.text.is_empty()).count();
        prop_assert!(own || others(&before) == others(&after), "{}", shown);
    }
}

fn values<T: Clone>(set: &Option<domain::Set<T>>) -> Option<T> {
    set.as_ref().map(|set| set.value.clone())
}
