use super::*;
use crate::GuestPlan;
use crate::files::Keeper;

fn plan(text: &str) -> XenImagePlan {
    match toml::from_str(&format!("kind = \"xen-image\"\n{text}")).unwrap() {
        GuestPlan::XenImage(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn files() -> GuestFiles {
    GuestFiles {
        kernel: "/image/vmlinux".into(),
        compressed_kernel: "/image/vmlinuz".into(),
        initial_ram_disk: "/study/initrd".into(),
        root: "/dev/root".into(),
        without_agent: None,
        _kept_by: Keeper::default(),
    }
}

#[test]
fn a_plain_domain_is_pvh_with_the_root_and_the_console() {
    let text = definition(&plan(""), 0, "one", &files(), Path::new("/g/disk"), None);
    for line in [
        "name = \"one\"",
        "type = \"pvh\"",
        "kernel = \"/image/vmlinux\"",
        "memory = 512",
        "disk = [ \"format=raw,vdev=xvda,access=ro,backendtype=phy,script=/g/disk,target=/dev/root\" ]",
        "on_reboot = \"destroy\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("exitless.modules=overlay,xen_blkfront exitless.channel=xen-console"), "{text}");
    assert!(!text.contains("vif") && !text.contains("cpus = [") && !text.contains("vga"), "{text}");
}

#[test]
fn levels_pin_cap_and_connect_a_domain() {
    let plan = plan(
        "type = \"hvm\"\nvcpus = 2\npin = [1, 0, 1]\nnet = true\n\
         settings = { cap = 50, tsc_mode = \"native\", pci = [\"03:10.0\"], vnc = 1 }",
    );
    let text = definition(&plan, 1, "two", &files(), Path::new("/g/disk"), Some(Path::new("/g/network")));
    for line in [
        "kernel = \"/image/vmlinuz\"",
        "cpus = [ \"1\", \"1\" ]",
        "vif = [ \"mac=00:16:3e:18:00:01,type=vif,script=/g/network\" ]",
        "cap = 50",
        "tsc_mode = \"native\"",
        "pci = [ \"03:10.0\" ]",
        "vga = \"none\"",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(text.contains("exitless.network=198.18.0.6/30,198.18.0.5"), "{text}");
    assert!(text.rfind("vnc = 1") > text.rfind("vnc = 0"), "the plan's settings come last: {text}");
}

#[test]
fn scripts_say_where_the_root_is_and_which_address_the_host_has() {
    let folder = tempfile::tempdir().unwrap();
    let made = write(&plan("net = true"), 2, "three", &files(), folder.path()).unwrap();
    assert_eq!(made.host, Some([198, 18, 0, 9].into()));
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(text("disk").contains("root=/dev/root\n") && !text("disk").contains("{loop}"));
    assert!(text("network").contains("ip addr add 198.18.0.9/30"), "{}", text("network"));
    assert!(text("xl.cfg").contains(&format!("script={}", folder.path().join("network").display())));
    for script in ["disk", "network"] {
        assert!(is_a_script(&folder.path().join(script)), "{script}");
    }
}

fn is_a_script(path: &Path) -> bool {
    std::process::Command::new("sh").arg("-n").arg(path).status().unwrap().success()
}

#[test]
fn a_folder_is_quoted_for_the_shell_or_refused() {
    let above = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let folder = above.path().join(name);
        fs::create_dir(&folder).unwrap();
        write(&plan(""), 0, "four", &files(), &folder).map(|_| folder.join("disk"))
    };
    let script = made("o'neil; x").unwrap();
    assert!(is_a_script(&script));
    let text = fs::read_to_string(script).unwrap();
    assert_eq!(text.matches("/o'\\''neil; x/loop'").count(), 4, "{text}");
    for name in ["a,b", "a\"b", "a\\b", "a\nb"] {
        let refusal = made(name).unwrap_err();
        assert!(refusal.contains("use a folder without them"), "{refusal}");
    }
}

#[test]
fn a_domain_sends_at_most_at_its_rate() {
    let limited = plan("net = true\nnet_rate = \"5M\"");
    let text = definition(&limited, 0, "one", &files(), Path::new("/g/disk"), Some(Path::new("/g/network")));
    let vif = "vif = [ \"mac=00:16:3e:18:00:00,type=vif,script=/g/network,rate=5242880B/s\" ]";
    assert!(text.lines().any(|line| line == vif), "{text}");
    let problems = |text: &str| GuestPlan::XenImage(plan(text)).problems().join("\n");
    assert_eq!(problems("net = true\nnet_rate = \"64K\""), "");
    assert_eq!(problems("net_rate = \"5M\""), "guests.net_rate needs net = true");
    for rate in ["63K", "1T"] {
        let problems = problems(&format!("net = true\nnet_rate = \"{rate}\""));
        assert_eq!(problems, format!("guests.net_rate is {rate} a second; expected 64K to 64G"));
    }
}

#[test]
fn what_the_study_gives_or_xl_cannot_read_is_refused() {
    let problems = |settings: &str| {
        GuestPlan::XenImage(plan(&format!("settings = {{ {settings} }}"))).problems().join("\n")
    };
    assert_eq!(problems("cap = 50"), "");
    assert!(problems("kernel = \"/own\"").contains("guests.settings.kernel is set by the study"));
    assert!(problems("\"Cap = 1\\nname\" = 1").contains("is not a setting"));
    assert!(problems("uuid = 'a\"b'").contains("without quotation marks"));
    for argument in ["dyndbg=\"+p\"", "a\\b", "a\nname=1"] {
        let plan = XenImagePlan { kernel_arguments: vec![argument.to_owned()], ..plan("") };
        let problems = GuestPlan::XenImage(plan).problems().join("\n");
        assert!(
            problems.contains("guests.kernel_arguments: expected text without"),
            "{argument}: {problems}"
        );
    }
}
