use super::*;

fn plan(text: &str) -> Result<GuestPlan, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn a_table_with_a_kind_alone_is_a_whole_plan_of_qemu_guests() {
    let GuestPlan::Qemu(qemu) = plan("kind = \"qemu\"").unwrap() else { panic!("not QEMU") };
    assert_eq!((qemu.vcpus, qemu.memory, qemu.machine.as_str()), (1, Size::mib(512), "q35"));
    assert_eq!(GuestPlan::Qemu(qemu).counts(), [1]);
}

#[test]
fn every_field_of_qemu_guests_is_read_and_written_back() {
    let text = r#"
        kind = "qemu"
        counts = [4, 1, 2]
        vcpus = 2
        memory = "768M"
        machine = "microvm"
        cpu = "Nehalem,+x2apic"
        accel = "kvm"
        irqchip = "split"
        pit = "off"
        pin = [2, 3]
        kernel_arguments = ["no-kvmapf"]
        arguments = ["-rtc", "base=utc"]
        program = "/opt/qemu"
        start_limit = "1m"
        [disk]
        bus = "virtio-scsi"
        size = "2G"
        aio = "io_uring"
        cache = "none"
        iothread = true
        queues = 2
        [net]
        model = "virtio-net"
        backend = "vhost-user"
        queues = 2
        socket = "/run/net-{guest}.sock"
    "#;
    let read = plan(text).unwrap();
    assert_eq!(read.counts(), [1, 2, 4]);
    assert_eq!(read.problems(), Vec::<String>::new());
    let again = toml::Table::try_from(&read).unwrap();
    assert_eq!(again.clone().try_into(), Ok(read));
    // A field that is missing from the serialized plan was not read.
    let given: toml::Table = text.parse().unwrap();
    for (key, value) in &given {
        assert_eq!(again.get(key), Some(value), "{key}");
    }
}

#[test]
fn a_misspelt_field_is_refused_by_name() {
    for (text, name) in [
        ("kind = \"qemu\"\nvcpu = 2", "vcpu"),
        ("kind = \"qemu\"\n[disk]\nbuss = \"ide\"", "buss"),
        ("kind = \"ssh\"\naddresses = [\"a\"]\nusr = \"root\"", "usr"),
        ("kind = \"none\"\ncounts = [1]", "counts"),
        ("kind = \"host\"\nvcpus = 1", "vcpus"),
    ] {
        let refusal = plan(text).unwrap_err();
        assert!(refusal.contains(name), "{refusal}");
    }
}

#[test]
fn guests_that_are_there_count_all_of_them_unless_told_otherwise() {
    let two = plan("kind = \"libvirt\"\ndomains = [\"a\", \"b\"]").unwrap();
    assert_eq!(two.counts(), [2]);
    let steps = plan("kind = \"xen\"\ndomains = [\"a\", \"b\"]\ncounts = [1, 2]\naddresses = [\"h\", \"i\"]")
        .unwrap();
    assert_eq!(steps.counts(), [1, 2]);
    assert_eq!(plan("kind = \"none\"").unwrap().counts(), [0]);
}

#[test]
fn more_guests_than_are_named_is_a_problem() {
    let asked = plan("kind = \"ssh\"\naddresses = [\"a\"]\ncounts = [1, 2]").unwrap();
    let problems = asked.problems();
    assert!(problems[0].contains("asks for 2 guests, but 1 is named"), "{problems:?}");
}

#[test]
fn what_qemu_would_refuse_is_found_before_it_starts() {
    for (text, part) in [
        ("[disk]\naio = \"native\"", "aio"),
        ("[disk]\nbus = \"nvme\"\niothread = true", "iothread"),
        ("machine = \"microvm\"\n[disk]\nbus = \"ide\"", "microvm"),
        ("[net]\nmodel = \"e1000\"", "e1000|kernel"),
        ("[net]\nmodel = \"vmxnet3\"\nbackend = \"vhost\"", "vhost"),
        ("machine = \"microvm\"\n[net]\nmodel = \"vmxnet3\"", "PCI"),
        ("[net]\nbackend = \"vhost-user\"", "socket"),
        ("[net]\nmodel = \"vmxnet3\"\nbackend = \"iocm\"", "iocm"),
        ("[net]\nbackend = \"tap\"\nworkers = { count = 2 }", "workers"),
        ("[net]\nbackend = \"iocm\"\nworkers = { count = 0 }", "workers.count"),
        ("[net]\nbackend = \"iocm\"\nworkers = { arrangement = \"monitor\", count = 2 }", "workers.count"),
        ("[net]\nqueues = 2", "queues"),
        ("kernel = \"vmlinux\"", "guests.kernel"),
        ("program = \"./qemu\"", "guests.program"),
        ("program = \"qemu/bin/qemu\"", "guests.program"),
        ("[disk]\npath = \"g{guest}.raw\"", "guests.disk.path"),
        ("[net]\nbackend = \"vhost-user\"\nsocket = \"net.sock\"", "guests.net.socket"),
        ("pit = \"discard\"\nirqchip = \"split\"", "pit"),
        ("machine = \"microvm\"\naccel = \"tcg\"", "accel"),
        ("memory = \"64M\"", "memory"),
        ("vcpus = 0", "vcpus"),
        ("counts = [0]", "counts"),
    ] {
        let problems = plan(&format!("kind = \"qemu\"\n{text}")).unwrap().problems();
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(part.split('|').any(|part| problems[0].contains(part)), "{problems:?}");
    }
    // It is looked up on the search path.
    let named = plan("kind = \"qemu\"\nprogram = \"qemu-kvm\"").unwrap();
    assert_eq!(named.problems(), Vec::<String>::new());
}

#[test]
fn a_level_lays_its_table_over_the_guests_and_is_refused_where_it_makes_none() {
    let base = plan("kind = \"qemu\"\nvcpus = 2\n[disk]\naio = \"threads\"").unwrap();
    let level = |text: &str| text.parse::<toml::Table>().unwrap();
    let split = base.with([&level("irqchip = \"split\"\ndisk = { bus = \"nvme\" }")]).unwrap();
    let GuestPlan::Qemu(split) = split else { panic!("not QEMU") };
    assert_eq!((split.irqchip, split.vcpus), (Some(Irqchip::Split), 2));
    assert_eq!(split.disk.map(|disk| (disk.bus, disk.aio)), Some((DiskBus::Nvme, Some(Aio::Threads))));
    assert_eq!(base.with([&level("kind = \"none\"")]).unwrap(), GuestPlan::None(NoPlan {}));
    let refusal = base.with([&level("irqchip = \"splitt\"")]).unwrap_err().to_string();
    assert!(refusal.contains("splitt"), "{refusal}");
}
