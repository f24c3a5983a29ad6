use super::*;
use proptest::prelude::*;

/// The cleaned content of a file with this path, and the number of removed secrets.
fn of_file(path: &str, text: &str) -> (String, u32) {
    let mut count = 0;
    (super::cleaned(path, text, &mut |_| count += 1), count)
}

fn cleaned(text: &str) -> (String, u32) {
    let mut count = 0;
    (clean(text, &mut |_| count += 1), count)
}

fn of_process(line: &str) -> String {
    of_file("/proc/7/cmdline", &format!("qemu\0{}", line.replace(' ', "\0"))).0[5..].replace('\0', " ")
}

#[test]
fn an_argument_that_one_line_lacks_makes_no_difference() {
    let whole = "ro isolcpus=2-3 quiet new=5 dyndbg=\"file x +p\" url=http://u:p@h/";
    let cleaned = "ro isolcpus=2-3 quiet new=REMOVED dyndbg=REMOVED url=http://u:REMOVED@h/";
    for (one, other) in [(whole, cleaned), (cleaned, whole), (cleaned, cleaned), ("ro REMOVED", "ro odd!")] {
        assert!(are_alike(one, other), "{one} | {other}");
    }
    for other in
        ["ro isolcpus=2-3 quiet", "ro isolcpus=2 quiet new=REMOVED", "ro isolcpus=2-3 quiet old=REMOVED"]
    {
        assert!(!are_alike("ro isolcpus=2-3 quiet new=5", other), "{other}");
    }
}

#[test]
fn arguments_of_qemu() {
    let table = [
        ("-object secret,id=s0,data=hunter2,format=raw", "-object secret,id=s0,data=REMOVED,format=raw"),
        (
            r#"-object {"qom-type":"secret","id":"s0","data":"hun\"ter2","format":"raw"}"#,
            r#"-object {"data":"REMOVED","format":"raw","id":"s0","qom-type":"secret"}"#,
        ),
        ("-vnc :1,password=on", "-vnc :1,password=on"),
        ("-spice port=1,password=hunter2", "-spice port=1,password=REMOVED"),
        ("-spice port=1,password=hun,,ter2,tls=on", "-spice port=1,password=REMOVED,tls=on"),
        ("-drive file=rbd:p/i:id=a:key=AQBs==:x=y,format=raw", "-drive file=REMOVED,format=raw"),
        ("-drive file=https://u:hunter2@h/x.iso", "-drive file=REMOVED"),
        ("-iscsi user=u,password-secret=s0", "-iscsi user=REMOVED,password-secret=s0"),
        ("-k de -device usb-kbd,id=keyboard", "-k de -device usb-kbd,id=keyboard"),
        ("-fw_cfg name=opt/x,string=hunter2", "-fw_cfg name=opt/x,string=REMOVED"),
        (
            "-smbios type=1,manufacturer=KubeVirt,family=KubeVirt,serial=hunter2",
            "-smbios type=1,manufacturer=KubeVirt,family=KubeVirt,serial=REMOVED",
        ),
        ("-smbios type=11,value=io.systemd.credential:x=hunter2", "-smbios type=11,value=REMOVED"),
        ("--api-token hunter2 --name web", "--api-token REMOVED --name web"),
        ("--password=hunter2", "--password=REMOVED"),
        ("--password 12345678", "--password REMOVED"),
        ("-spice port=1,password=12345678", "-spice port=1,password=REMOVED"),
        ("-object secret,id=s0,data=12345678", "-object secret,id=s0,data=REMOVED"),
        (
            r#"-object {"qom-type":"secret","id":"s0","data":"0xdeadbeef"}"#,
            r#"-object {"data":"REMOVED","id":"s0","qom-type":"secret"}"#,
        ),
        ("-netdev tap,id=n,vhost=on -device virtio-net-pci,mac=52:54:00:1:2:3", ""),
    ];
    for (line, expected) in table {
        assert_eq!(of_process(line), if expected.is_empty() { line } else { expected });
    }
}

#[test]
fn xml_and_kernel_arguments() {
    let (xml, arguments) = ("/etc/libvirt/qemu/web.xml", "/proc/cmdline");
    let table = [
        (
            xml,
            "<graphics type='vnc' passwd='hunter2' port='1'/>",
            "<graphics type='vnc' passwd='REMOVED' port='1'/>",
        ),
        (xml, "<graphics passwd=\"hunter2\"/>", "<graphics passwd=\"REMOVED\"/>"),
        (xml, "<graphics passwd='12345678' port='1'/>", "<graphics passwd='REMOVED' port='1'/>"),
        (xml, "<password>4711</password><vcpu>2</vcpu>", "<password>REMOVED</password><vcpu>2</vcpu>"),
        (xml, "<cmdline>ro rootpw=4711</cmdline>", "<cmdline>ro rootpw=REMOVED</cmdline>"),
        (arguments, "rd.luks.pin=123456 dom0_vcpus_pin=1", "rd.luks.pin=REMOVED dom0_vcpus_pin=1"),
        (xml, "<cookie name='a'>hunter2</cookie>", "<cookie name='a'>REMOVED</cookie>"),
        (xml, "<password>hunter2</password><name>x y</name>", "<password>REMOVED</password><name>x y</name>"),
        (xml, "<qemu:env name='T' value='hunter2'/>", "<qemu:env name='T' value='REMOVED'/>"),
        (
            xml,
            "<qemu:arg value='-object'/><qemu:arg value='secret,id=a,data=hunter2'/>",
            "<qemu:arg value='-object'/><qemu:arg value='secret,id=a,data=REMOVED'/>",
        ),
        (xml, "<entry>io.systemd.credential:x=hunter2</entry>", "<entry>REMOVED</entry>"),
        (xml, "<a><!-- hunter2 --><b/></a>", "<a><b/></a>"),
        (xml, "<secret type='ceph' uuid='0b6f'/>", "<secret type='ceph' uuid='0b6f'/>"),
        (xml, "<cmdline>ro rootpw=hunter2</cmdline>", "<cmdline>ro rootpw=REMOVED</cmdline>"),
        (
            xml,
            "<disk type='file'>\n  <source file='/srv/a.img'/>\n  <target dev='vda' bus='virtio'/>\n</disk>",
            "<disk type='file'>\n  <source file='/srv/a.img'/>\n  <target dev='vda' bus='virtio'/>\n</disk>",
        ),
        (
            arguments,
            "ro rd.luks.key=/k grub.password=hunter2 vconsole.keymap=us",
            "ro rd.luks.key=REMOVED grub.password=REMOVED vconsole.keymap=REMOVED",
        ),
        (
            arguments,
            "rootpw=hunter2 x=\"hunter2 a\" kvm_amd.avic=1 iommu=pt isolcpus=managed_irq,1-3,7",
            "rootpw=REMOVED x=REMOVED kvm_amd.avic=1 iommu=pt isolcpus=managed_irq,1-3,7",
        ),
        (arguments, "netroot=iscsi:u:p@h init=/sbin/init", "netroot=REMOVED init=/sbin/init"),
        (
            "/exitless/dmesg",
            "[0.1] Kernel command line: ro rootpw=hunter2\n[0.2] x=1 y\n",
            "[0.1] Kernel command line: ro rootpw=REMOVED\n[0.2] x=1 y\n",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "options kvm_amd avic=1\noptions x y=hunter2\ninstall x /bin/sh hunter2\ninstall y /bin/true\n",
            "options kvm_amd avic=1\noptions x y=REMOVED\ninstall x REMOVED\ninstall y /bin/true\n",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "install kvm_amd /bin/sh \\\n  -c \"curl -u admin:hunter2 x; modprobe -i kvm_amd\"\noptions kvm avic=1",
            "install kvm_amd REMOVED \\\n\noptions kvm avic=1",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "# é\noptions x \\\n  license=hunter2 \\\n  debug\n",
            "# é\noptions x \\\n  license=REMOVED \\\n  debug\n",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "options x pass=\"correct horse=1 battery\" y=1\n",
            "options x pass=REMOVED REMOVED REMOVED y=1\n",
        ),
        (
            "/etc/modprobe.d/a.conf",
            "options x pass='correct horse \"battery' y=1 z=a\\\nb\noptions kvm avic=1\n",
            "options x pass=REMOVED REMOVED REMOVED y=1 z=REMOVED \\\n\noptions kvm avic=1\n",
        ),
        (
            "/exitless/commands/xl-list--l",
            r#"[{"domid":1,"config":{"c_info":{"type":"hvm","name":"web"},"vnc":{"passwd":"hunter2"}}}]"#,
            r#"[{"config":{"c_info":{"name":"web","type":"hvm"},"vnc":{"passwd":"REMOVED"}},"domid":1}]"#,
        ),
    ];
    for (path, text, expected) in table {
        let (found, count) = of_file(path, text);
        assert_eq!(found, expected);
        assert_eq!(count > 0, text != expected, "{text}");
        assert_eq!(of_file(path, expected), (expected.to_owned(), 0), "what is clean stays");
    }
}

const SECRET_WORD: &str = "hunter2Marker";
const SECRET_NUMBER: &str = "47114711";

/// Texts in which every value is tested. A value is the text between its first and its last delimiter.
const EVERYWHERE: &[(&str, &str)] = &[
    (
        "/proc/7/cmdline",
        "qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0-machine\0pc-q35-7.2,usb=off,kernel_irqchip=split\0-cpu\0\
         host,migratable=on\0-m\08192\0-object\0{\"qom-type\":\"iothread\",\"id\":\"io1\"}\0-object\0\
         secret,id=s,data=x,file=/f\0-blockdev\0{\"driver\":\"file\",\"filename\":\"/a\",\"cache\":{\"direct\":\"x\"}}\0\
         -drive\0file=iscsi://h/1,if=none,id=d,throttling.group=x\0-netdev\0user,id=n,smb=/x,smbpass=x,hostfwd=x,vhost=on\0\
         -device\0virtio-net-pci,netdev=n,mac=52:54:00:1:2:3,odd-property=x\0-vnc\0unix:/v,password=on\0-spice\0port=1,password=x\0\
         -fw_cfg\0name=opt/x,string=x\0-smbios\0type=11,value=x\0-append\0console=ttyS0 rootpw=x a=\"b c\"\0-kernel\0/k\0\
         --token=x\0--unknown\0x\0stray",
    ),
    (
        "/proc/cmdline",
        "BOOT_IMAGE=/vmlinuz root=UUID=1 ro rootpw=x rd.iscsi.password=x ip=1::2 odd=x a=\"b c\" kvm_amd.avic=1 m.p=x",
    ),
    (
        "/etc/libvirt/qemu/web.xml",
        "<domain type='kvm' id='1'><name>web</name><title>x</title><description>x</description><metadata><a b='x'>x</a></metadata>\
         <os><type arch='x86_64' machine='q35'>hvm</type><cmdline>ro rootpw=x</cmdline></os><sysinfo type='smbios'><entry name='a'>x\
         </entry></sysinfo><devices><disk type='network'><auth username='x'><secret type='iscsi' usage='x'/></auth><source protocol=\
         'iscsi' name='x'><host name='h' port='1'/></source></disk><graphics type='vnc' passwd='x'/><odd attribute='x'>x</odd>\
         </devices><qemu:commandline><qemu:arg value='-drive'/><qemu:arg value='file=x,cookie=x'/><qemu:env name='a' value='x'/>\
         </qemu:commandline><seclabel><label>x</label></seclabel></domain>",
    ),
    ("/etc/modprobe.d/x.conf", "options kvm_amd avic=1\noptions cfg80211 odd=x\ninstall m /bin/sh x\n"),
    ("/exitless/dmesg", "[0] Command line: root=1 rootpw=x odd=x\n"),
    (
        "/exitless/commands/xl-list--l",
        r#"[{"config":{"c_info":{"name":"web"},"odd":"x","b_info":{"cmdline":"x"}}}]"#,
    ),
];

/// The positions of a text's values, with their names.
fn values(text: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let begins = |at: usize, sign: char| match sign {
        '=' | '>' | '\0' => true,
        ':' => text[..at].ends_with('"'),
        _ => false,
    };
    for (at, _) in text.char_indices().filter(|&(at, sign)| begins(at, sign)) {
        let mut begin = at + 1;
        let open = text[begin..].chars().next().filter(|one| ['"', '\''].contains(one));
        begin += usize::from(open.is_some());
        let end = match open {
            Some(quote) => text[begin..].find(quote),
            None => text[begin..].find(['\0', ',', '<', ' ', '\n', '}', ']']),
        };
        let end = end.map_or(text.len(), |length| begin + length);
        let name = text[..at].trim_end_matches('"');
        let name = name.rsplit(|one: char| !(one.is_ascii_alphanumeric() || "._-:".contains(one))).next();
        if end > begin && !text[begin..end].starts_with(['-', '{', '[']) {
            found.push((begin, end, name.unwrap_or_default().to_owned()));
        }
    }
    found
}

#[test]
fn a_marker_in_any_value_is_found_nowhere() {
    // Tests whether a snapshot keeps any word as the value of this name.
    let words = |path: &str, name: &str| {
        let name = name.trim_start_matches('-');
        kept::property(name, "word")
            || path.ends_with(".xml") && (kept::attribute(name, "word") || name == "name")
            || kept::argument(name, "word")
            || name == "UUID"
            || path.contains("modprobe") && name == "avic"
    };
    let (mut tried, mut numbers) = (0, 0);
    for (path, text) in EVERYWHERE {
        for (begin, end, name) in values(text) {
            if kept::is_secret(name.trim_start_matches('-')) {
                numbers += 1;
                let forged = format!("{}{SECRET_NUMBER}{}", &text[..begin], &text[end..]);
                let (kept, _) = of_file(path, &forged);
                assert!(!kept.contains(SECRET_NUMBER), "{path}: {name}: {forged:?}\n{kept:?}");
            }
            for (form, is_word) in [
                (SECRET_WORD.to_owned(), true),
                (format!("iscsi://user%{SECRET_WORD}@host/1"), false),
                (format!("http://user:{SECRET_WORD}@host/1"), false),
                (format!("a={SECRET_WORD}"), false),
                (format!("/a?key={SECRET_WORD}&b"), false),
            ] {
                let forged = format!("{}{form}{}", &text[..begin], &text[end..]);
                let (kept, _) = of_file(path, &forged);
                let is_kind = *path == "/proc/7/cmdline" && text[..begin].ends_with('\0')
                    || path.ends_with(".xml") && text[..begin].ends_with('>');
                if is_word && (words(path, &name) || is_kind) {
                    continue;
                }
                tried += 1;
                assert!(!kept.contains(SECRET_WORD), "{path}: {name}: {forged:?}\n{kept:?}");
            }
        }
    }
    assert!(tried > 200 && numbers > 8, "{tried} {numbers}");
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
    assert_eq!((removed[0].what.as_str(), removed[0].count), ("text", 1));
    assert_eq!(tree.read("/proc/cmdline").unwrap(), b"x password=REMOVED");
    assert_eq!(tree.read("/boot/config-6").unwrap(), b"x password=hunter2");
}

proptest! {
    #[test]
    fn no_text_panics_and_nothing_is_cleaned_twice(text in "[a-z=:,'\"<>/@ é\\\\{}-]{0,60}|(password[=:>]\"?[a-zé,]{0,9}){0,4}") {
        let once = cleaned(&text).0;
        prop_assert_eq!(cleaned(&once).1, 0, "{}", once);
        for path in ["/proc/7/cmdline", "/proc/cmdline", "/x.xml", "/etc/modprobe.d/x", "/exitless/dmesg"] {
            let _ = of_file(path, &text);
        }
    }

    #[test]
    fn no_markup_panics(text in "[<>!?aé日-]{0,12}") {
        let _ = of_file("/x.xml", &text);
        let _ = of_file("/x.xml", &format!("<!{text}"));
        let _ = of_file("/x.xml", &format!("<?{text}"));
    }

    #[test]
    fn no_password_stays(secret in "[A-Za-z0-9+/]{8,20}", before in "[a-z ,]{0,10}") {
        let text = format!("{before},password={secret},x=1");
        prop_assert!(!cleaned(&text).0.contains(&secret));
    }
}
