use super::*;
use proptest::prelude::*;

fn cleaned(text: &str) -> (String, u32) {
    let mut count = 0;
    (clean(text, &mut |_| count += 1), count)
}

fn of_process(line: &str) -> String {
    arguments(&line.replace(' ', "\0"), &mut |_| ()).replace('\0', " ")
}

#[test]
fn arguments_of_qemu() {
    let table = [
        ("-object secret,id=s0,data=hunter2,format=raw", "-object secret,id=s0,data=REMOVED,format=raw"),
        (
            r#"-object {"qom-type":"secret","id":"s0","data":"hun\"ter2","format":"raw"}"#,
            r#"-object {"qom-type":"secret","id":"s0","data":"REMOVED","format":"raw"}"#,
        ),
        ("-vnc :1,password=on", "-vnc :1,password=on"),
        ("-spice port=1,password=hunter2", "-spice port=1,password=REMOVED"),
        ("-spice port=1,password=hun,,ter2,tls=on", "-spice port=1,password=REMOVED,tls=on"),
        (
            "-drive file=rbd:p/i:id=a:key=AQBs==:x=y,format=raw",
            "-drive file=rbd:p/i:id=a:key=REMOVED,format=raw",
        ),
        ("-drive file=https://u:hunter2@h/x.iso", "-drive file=https://u:REMOVED@h/x.iso"),
        ("-drive file=https://h/x.iso", "-drive file=https://h/x.iso"),
        ("-iscsi user=u,password-secret=s0", "-iscsi user=u,password-secret=s0"),
        ("-k de -device usb-kbd,id=keyboard", "-k de -device usb-kbd,id=keyboard"),
        ("-fw_cfg name=opt/x,string=hunter2", "-fw_cfg name=opt/x,string=REMOVED"),
        ("-smbios type=11,value=io.systemd.credential:x=hunter2", "-smbios type=11,value=REMOVED"),
        ("--api-token hunter2 --name web", "--api-token REMOVED --name web"),
        ("--password=hunter2", "--password=REMOVED"),
        ("-netdev tap,id=n,vhost=on -device virtio-net-pci,mac=52:54:00:1:2:3", ""),
    ];
    for (line, expected) in table {
        assert_eq!(of_process(line), if expected.is_empty() { line } else { expected });
    }
}

#[test]
fn xml_and_kernel_arguments() {
    let table = [
        (
            "<graphics type='vnc' passwd='hunter2' port='1'/>",
            "<graphics type='vnc' passwd='REMOVED' port='1'/>",
        ),
        ("<graphics passwd=\"hunter2\"/>", "<graphics passwd=\"REMOVED\"/>"),
        ("<cookie name='a'>hunter2</cookie>", "<cookie name='a'>REMOVED</cookie>"),
        ("<password>hunter2</password><name>x</name>", "<password>REMOVED</password><name>x</name>"),
        (
            "<qemu:arg value='secret,id=a,password=hunter2'/>",
            "<qemu:arg value='secret,id=a,password=REMOVED'/>",
        ),
        ("<entry>io.systemd.credential:x=hunter2</entry>", "<entry>REMOVED</entry>"),
        ("<secret type='ceph' uuid='0b6f'/>", "<secret type='ceph' uuid='0b6f'/>"),
        (
            "ro rd.luks.key=/k grub.password=hunter2 vconsole.keymap=us",
            "ro rd.luks.key=REMOVED grub.password=REMOVED vconsole.keymap=us",
        ),
        (
            "ip=1.2.3.4::gw netroot=iscsi:u:p@h kvm_amd.avic=1",
            "ip=1.2.3.4::gw netroot=iscsi:u:p@h kvm_amd.avic=1",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(cleaned(text).0, expected);
        assert_eq!(cleaned(text).1 > 0, text != expected, "{text}");
        assert_eq!(cleaned(expected), (expected.to_owned(), 0), "what is clean stays");
    }
}

#[test]
fn only_files_that_can_hold_secrets_are_changed() {
    let mut tree = Tree::default();
    for path in
        ["/proc/7/cmdline", "/proc/cmdline", "/etc/libvirt/qemu/a.xml", "/boot/config-6", "/proc/7/comm"]
    {
        tree.make(path).kind = Kind::File(b"x password=hunter2".to_vec());
    }
    let removed = remove(&mut tree);
    let paths: Vec<&str> = removed.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/etc/libvirt/qemu/a.xml", "/proc/7/cmdline", "/proc/cmdline"]);
    assert_eq!((removed[0].what.as_str(), removed[0].count), ("password", 1));
    assert_eq!(tree.read("/proc/cmdline").unwrap(), b"x password=REMOVED");
    assert_eq!(tree.read("/boot/config-6").unwrap(), b"x password=hunter2");
}

proptest! {
    #[test]
    fn no_text_panics_and_nothing_is_cleaned_twice(text in "[a-z=:,'\"<>/@ é\\\\{}-]{0,60}|(password[=:>]\"?[a-zé,]{0,9}){0,4}") {
        let once = cleaned(&text).0;
        let _ = arguments(&text, &mut |_| ());
        prop_assert_eq!(cleaned(&once).1, 0, "{}", once);
    }

    #[test]
    fn no_password_stays(secret in "[A-Za-z0-9+/]{8,20}", before in "[a-z ,]{0,10}") {
        let text = format!("{before},password={secret},x=1");
        prop_assert!(!cleaned(&text).0.contains(&secret));
    }
}
