use super::*;
use crate::{Accelerator, Backend, DeviceKind};
use exits::XenGuestType;
use proptest::prelude::*;

fn of(text: &str) -> Definition {
    read(&Text::new("web.cfg", text)).unwrap()
}

fn other<'a>(vm: &'a Definition, name: &str) -> Option<&'a str> {
    vm.other.iter().find(|set| set.value.0 == name).map(|set| set.value.1.as_str())
}

/// Every form of the grammar in one file.
const WHOLE: &str = "# a comment
name = 'web'; type=\"hvm\"
memory = 0x400
vcpus=2
disk = [ # one more
  '/dev/vg/web,,xvda',
  \"format=qcow2, vdev=hdb, target=/images/a,b.qcow2\", '/root/image.iso,,hdc,cdrom',
]
vif = ['bridge=xenbr0', 'type=vif,mac=00:16:3e:00:00:01', 'model=e1000']
vif += [ 'type=ioemu, model=rtl8139' ]
extra = \"a \\\"b\\\"\\t\"
extra += ' c'
cpus = [\"2\", \"3-8,^5\"]
viridian = [ 'all', [ '!freq' ] ]
pci = [ '0000:03:10.0,permissive=1', '03:10.2' ]
hpet = 0
vcpus = 4";

#[test]
fn every_form_of_the_grammar_is_read() {
    let vm = of(WHOLE);
    assert_eq!(vm.doubts, [""; 0]);
    assert_eq!((vm.form, vm.xen_type()), (Form::Xl, XenGuestType::Hvm));
    assert_eq!(vm.accelerator_in_force(), Accelerator::Xen);
    assert_eq!(vm.name.unwrap().value, "web");
    assert_eq!(vm.memory_mib.unwrap().value, 1024);
    let vcpus = vm.vcpus.count.unwrap();
    assert_eq!((vcpus.value, vcpus.place.line, vcpus.place.text.as_str()), (4, 17, "vcpus = 4"));
    assert!(!vm.timers.hpet.unwrap().value);
    let told: Vec<_> =
        vm.devices.iter().map(|one| (one.kind, one.model.as_str(), one.id.as_deref())).collect();
    let expected = [
        (DeviceKind::Disk, "xen-vbd", Some("xvda")),
        (DeviceKind::Disk, "ide-hd", Some("hdb")),
        (DeviceKind::Disk, "ide-cd", Some("hdc")),
        (DeviceKind::Network, "rtl8139", None),
        (DeviceKind::Network, "xen-netfront", None),
        (DeviceKind::Network, "e1000", None),
        (DeviceKind::Network, "rtl8139", None),
        (DeviceKind::Assigned, "xen-pci", None),
        (DeviceKind::Assigned, "xen-pci", None),
    ];
    assert_eq!(told, expected);
    let disks: Vec<_> = vm.devices[..2]
        .iter()
        .map(|disk| {
            (disk.source.as_ref().unwrap().value.as_str(), disk.backend.as_ref().map(|set| set.value))
        })
        .collect();
    assert_eq!(disks, [("/dev/vg/web", None), ("/images/a,b.qcow2", Some(Backend::Vmm))]);
    assert_eq!(vm.devices[1].place.line, 7);
    let pins: Vec<_> = vm.vcpu_pins.iter().map(|set| (set.value.0, set.value.1.as_str())).collect();
    assert_eq!(pins, [(0, "2"), (1, "3-8,^5")]);
}

#[test]
fn what_no_field_has_is_kept_by_its_name() {
    let vm = of(WHOLE);
    assert_eq!(other(&vm, "extra"), Some("a \"b\"\t c"));
    assert_eq!(other(&vm, "viridian"), Some("all, !freq"));
    assert_eq!(other(&vm, "hap"), None);
}

#[test]
fn the_type_is_pv_where_nothing_says_otherwise() {
    assert_eq!(of("name='a'").xen_type(), XenGuestType::Pv);
    assert_eq!(of("name='a'\nbuilder='hvm'").xen_type(), XenGuestType::Hvm);
    assert_eq!(of("builder='hvm'\ntype='pvh'\n").xen_type(), XenGuestType::Pvh);
    let wrong = of("type='hwm'\n");
    assert_eq!((wrong.xen_type(), wrong.doubts.len()), (XenGuestType::Pv, 1));
}

#[test]
fn prefixes_of_old_are_no_part_of_a_disks_path() {
    let vm = of(
        "name='a'; type='hvm'\ndisk=['phy:/dev/vg/a,xvda,w','tap:qcow2:/i/b.img,xvdb,w','nbd:host:1,xvdc,w']",
    );
    let told = vm.devices.iter().map(|disk| {
        let backend = disk.backend.as_ref().map(|set| set.value);
        (disk.source.as_ref().unwrap().value.as_str(), disk.id.as_deref().unwrap(), backend)
    });
    let expected =
        [("/dev/vg/a", "xvda", None), ("/i/b.img", "xvdb", Some(Backend::Vmm)), ("host:1", "xvdc", None)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(vm.devices[2].properties.contains(&("script".to_owned(), "block-nbd".to_owned())));
}

#[test]
fn a_device_without_an_address_is_doubted() {
    for good in
        ["03:10.0", "0000:3B:1f.*", "0000:03:10.2@1f", "03:10.0-3", "03:10.0,permissive=1", "name=web"]
    {
        assert_eq!(of(&format!("name='a'\npci=['{good}']")).doubts, [""; 0], "{good}");
    }
    for bad in [
        "not an address",
        "03:10",
        "3b:10.8",
        "0:0:0:0.0",
        "03:10.0@",
        "03:20.0",
        "0000:03:3f.0",
        "03:10.0@20",
        "",
    ] {
        let doubts = of(&format!("name='a'\npci=['{bad}']")).doubts;
        assert!(doubts.len() == 1 && doubts[0].starts_with("Line 2: "), "{bad}: {doubts:?}");
    }
}

#[test]
fn a_mistake_costs_its_own_line() {
    let vm = of("name = 'a'\nmemory = = 4\nvcpus = 2\nVNC = 1\nhap = 0 1\nimport os\nacpi = 1\nx = 'never\n");
    assert_eq!(vm.vcpus.count.as_ref().unwrap().value, 2);
    assert_eq!(other(&vm, "acpi"), Some("1"));
    assert!(vm.memory_mib.is_none() && other(&vm, "hap").is_none());
    let lines: Vec<_> = vm.doubts.iter().map(|doubt| doubt.split(',').next().unwrap()).collect();
    assert_eq!(lines, ["Line 2", "Line 4", "Line 5", "Line 6", "Line 8"], "{:?}", vm.doubts);
    assert!(vm.doubts[0].starts_with("Line 2, byte 20: a string, a number or a list"), "{}", vm.doubts[0]);
}

#[test]
fn a_text_is_told_from_command_lines() {
    for text in ["name = 'a'", "# b\n\n type=\"hvm\"\n", "vcpus=2;memory=1", "disk=[\n]\n", "name='a'\r\n"] {
        assert!(is(text.as_bytes()), "{text}");
    }
    for text in [
        "qemu-system-x86_64 -m 1G",
        "a=1 qemu-system-x86_64",
        "#!/bin/sh\nexec qemu-kvm",
        "",
        "<domain/>",
        "memory='4G'\nexec qemu-kvm -m $memory",
        "mem='4G'; cpus=2\nqemu-kvm",
    ] {
        assert!(!is(text.as_bytes()), "{text}");
    }
}

#[test]
fn a_text_without_a_setting_is_no_definition() {
    let error = read(&Text::new("web.cfg", "# nothing\n")).unwrap_err().to_string();
    assert!(error.starts_with("web.cfg: there is no setting"), "{error}");
    let error = read(&Text::new("web.cfg", "name='a'\r\n")).unwrap_err().to_string();
    assert!(error.contains("CR and LF"), "{error}");
}

#[test]
fn lists_in_lists_end_somewhere() {
    let deep = format!("name='a'\nx = {}", "[".repeat(100_000));
    let vm = of(&deep);
    assert_eq!((vm.name.unwrap().value.as_str(), vm.doubts.len()), ("a", 1));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (is(&bytes), read(&Text::new("bytes", bytes)));
    }

    #[test]
    fn damaged_definitions_keep_their_places_within_the_text(
        cut in 0..WHOLE.len(), length in 0_usize..20, piece in "[\\[\\]=,;'\"\\\\#a1\n \\+]{0,4}"
    ) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes.splice(cut..(cut + length).min(WHOLE.len()), piece.bytes());
        let Ok(vm) = read(&Text::new("damaged", bytes.clone())) else { return Ok(()) };
        let places = vm.devices.iter().map(|one| &one.place).chain(vm.other.iter().map(|set| &set.place));
        for place in places {
            prop_assert!(place.start < place.end && place.end <= bytes.len() && place.line >= 1);
        }
    }
}
