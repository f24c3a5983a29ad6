use super::*;
use knobs::{Changes, Outcome, Restore, restore};
use machine::{Host, Machine};
use std::fmt::Write as _;

#[path = "cures_tests.rs"]
mod cures;
#[path = "machine_tests.rs"]
mod machine;

const ALL: Wish = Wish { arm: Arm::On, part: Part::Whole, persist: true, reload: true };
const OFF: Wish = Wish { arm: Arm::Off, ..ALL };
/// Kernel arguments that make a change of the boot loader necessary.
const ARGUMENTS: (&str, &str) = ("/proc/cmdline", "root=/dev/sda1 ro kvm_amd.avic=0 amd_iommu=off quiet\n");

/// The files of each distribution.
fn distributions() -> Vec<(&'static str, Host)> {
    let grub = "# If you change this file\nGRUB_TIMEOUT=5\n\
        GRUB_CMDLINE_LINUX_DEFAULT=\"quiet kvm_amd.avic=0 amd_iommu=off\"\nGRUB_CMDLINE_LINUX=\"\"\n";
    let cloud = "GRUB_CMDLINE_LINUX_DEFAULT=\"console=ttyS0 kvm_amd.avic=0 amd_iommu=off\"\n";
    let entry = "title Linux\nversion 6.12\nlinux /vmlinuz\n\
        options root=/dev/sda1 ro amd_iommu=off kvm_amd.avic=0\n";
    let zfs = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX root=ZFS=rpool/ROOT/pve-1\"\n";
    let words = "root=/dev/sda1 ro kvm_amd.avic=0 amd_iommu=off quiet";
    let stub = r#"{"default":{},"user":{"kernel_options":["quiet","amd_iommu=off","kvm_amd.avic=0"]}}"#;
    let program = |path| (path, "");
    vec![
        (
            "debian",
            Host::amd(&[
                ("/proc/cmdline", "root=/dev/sda1 ro amd_iommu=off quiet\n"),
                program("/usr/sbin/update-grub"),
                ("/etc/default/grub", grub),
                ("/boot/grub/grub.cfg", grub),
                ("/etc/modprobe.d/kvm.conf", "# nested guests\noptions kvm-amd nested=1 avic=0\n"),
                ("/etc/initramfs-tools/modules", "# early\nkvm_amd\n"),
            ]),
        ),
        (
            "ubuntu-cloud",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/sbin/update-grub"),
                (
                    "/etc/default/grub",
                    "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n",
                ),
                ("/etc/default/grub.d/50-cloudimg-settings.cfg", cloud),
                (
                    "/boot/grub/grub.cfg",
                    &format!("GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n{cloud}"),
                ),
            ]),
        ),
        (
            "fedora",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/sbin/grubby"),
                ("/etc/default/grub", "GRUB_ENABLE_BLSCFG=true\n"),
                ("/boot/loader/entries/a-6.12.conf", entry),
                ("/boot/loader/entries/a-0-rescue.conf", entry),
            ]),
        ),
        (
            "coreos",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/bin/rpm-ostree"),
                program("/run/ostree-booted"),
                // The deployment before does not have the arguments.
                (
                    "/boot/loader/entries/ostree-1.conf",
                    "version 1\nlinux /vmlinuz\noptions root=/dev/sda1 rw\n",
                ),
                ("/boot/loader/entries/ostree-2.conf", &entry.replace("6.12", "2")),
            ]),
        ),
        (
            "suse",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/sbin/grub2-mkconfig"),
                ("/etc/default/grub", grub),
                ("/boot/grub2/grub.cfg", grub),
            ]),
        ),
        (
            "pop",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/bin/kernelstub"),
                ("/etc/kernelstub/configuration", stub),
                ("/boot/efi/loader/entries/Pop_OS-current.conf", entry),
            ]),
        ),
        (
            "arch",
            Host::amd(&[
                ARGUMENTS,
                ("/boot/loader/entries/arch.conf", entry),
                ("/etc/mkinitcpio.conf", "MODULES=()\n"),
            ]),
        ),
        (
            "proxmox",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/sbin/proxmox-boot-tool"),
                program("/usr/sbin/update-grub"),
                ("/etc/kernel/proxmox-boot-uuids", "AAAA-BBBB\n"),
                ("/etc/kernel/cmdline", words),
                ("/boot/efi/cmdline", words),
                ("/boot/efi/grub.cfg", ""),
            ]),
        ),
        (
            "proxmox-grub",
            Host::amd(&[
                ("/proc/cmdline", &format!("BOOT_IMAGE=/vmlinuz {words}\n")),
                program("/usr/sbin/proxmox-boot-tool"),
                program("/usr/sbin/update-grub"),
                ("/etc/kernel/proxmox-boot-uuids", "AAAA-BBBB\n"),
                ("/etc/kernel/cmdline", "root=ZFS=rpool/ROOT/pve-1\n"),
                ("/boot/efi/cmdline", "root=ZFS=rpool/ROOT/pve-1\n"),
                ("/etc/default/grub", grub),
                ("/etc/default/grub.d/zfs.cfg", zfs),
                ("/boot/efi/grub.cfg", &format!("{grub}{zfs}")),
            ]),
        ),
        (
            "rocky8",
            Host::amd(&[
                ARGUMENTS,
                program("/usr/sbin/grubby"),
                ("/etc/default/grub", "GRUB_ENABLE_BLSCFG=true\n"),
                ("/boot/grub2/grubenv", &format!("# GRUB Environment Block\nkernelopts={words}\n####")),
                ("/boot/loader/entries/a-4.18.conf", "linux /vmlinuz\noptions $kernelopts $tuned_params\n"),
            ]),
        ),
        ("debian-systemd-boot", debian_with_systemd_boot(words)),
    ]
}

fn debian_with_systemd_boot(words: &str) -> Host {
    let host = Host::amd(&[
        ARGUMENTS,
        ("/usr/bin/kernel-install", ""),
        ("/etc/kernel/cmdline", words),
        ("/boot/vmlinuz-6.12.107", ""),
        ("/usr/lib/modules/6.12.107/modules.builtin", ""),
    ]);
    host.kernel("6.12.107", words);
    host
}

fn plan(host: &Host, wish: Wish) -> Plan {
    Plan::new(host.root(), &host.inspection(), wish)
}

/// The name of the first refusal, if there is one. The page for users explains each name.
fn refusal(host: &Host, wish: Wish) -> Option<String> {
    let name = plan(host, wish).refusals.first()?.name.clone();
    let page = include_str!("../../../../docs/enable.md");
    let item = format!("\n- `{name}`");
    assert!(page.contains(&item), "docs/enable.md, When it refuses: there is no item {name}");
    Some(name)
}

fn make(host: &Host, wish: Wish) -> Applied {
    let mut changes = Changes::begin(host.root(), Machine::new(host), vec!["exitless".to_owned()]).unwrap();
    apply(&plan(host, wish), &mut changes, &|| false)
}

fn told(plan: &Plan) -> String {
    let mut text = format!("{} {:?}, {:?}\n", plan.technology, plan.arm, plan.now);
    for refusal in &plan.refusals {
        writeln!(text, "refused, {}: {}\n    {}", refusal.name, refusal.why, refusal.next).unwrap();
    }
    for step in &plan.steps {
        writeln!(
            text,
            "\n{} ({:?}, {:?})\n    {}\n    {}",
            step.name, step.standing, step.effect, step.title, step.why
        )
        .unwrap();
        step.commands.iter().for_each(|command| writeln!(text, "    $ {command}").unwrap());
        step.files.iter().for_each(|file| text.push_str(&file.diff));
    }
    plan.notes.iter().for_each(|note| writeln!(text, "\n{note}").unwrap());
    text
}

/// The words of all files, sorted: a distribution's program may change their order.
fn sorted(
    tree: std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>,
) -> Vec<(std::path::PathBuf, Vec<String>)> {
    let words = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        let mut words: Vec<String> = text.split([' ', '\n', ',', '[', ']']).map(str::to_owned).collect();
        words.sort();
        words
    };
    tree.into_iter().map(|(path, bytes)| (path, words(bytes))).collect()
}

#[test]
fn each_distribution_is_changed_in_its_own_way() {
    for (name, host) in distributions() {
        insta::assert_snapshot!(name, told(&plan(&host, ALL)));
    }
}

#[test]
fn made_twice_it_changes_nothing_and_restored_all_is_as_it_was() {
    for (name, host) in distributions() {
        let before = host.tree();
        let applied = make(&host, ALL);
        assert!(applied.is_whole(), "{name}: {applied:?}");
        assert_eq!(applied.reads.as_deref(), Some("Y"), "{name}");
        let made = host.tree();
        assert_ne!(made, before, "{name}");

        let again = plan(&host, ALL);
        let left: Vec<_> = again.ready().map(|step| &step.name).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        assert!(again.so_already && make(&host, ALL).steps.is_empty(), "{name}");
        assert_eq!(host.tree(), made, "{name}");

        let restored = restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
        assert!(!restored.incomplete(), "{name}: {:?}", restored.changes);
        // These programs append a word that they restore.
        if ["coreos", "fedora", "pop", "rocky8"].contains(&name) {
            assert_eq!(sorted(host.tree()), sorted(before), "{name}");
        } else {
            assert_eq!(host.tree(), before, "{name}");
        }
    }
}

#[test]
fn a_kernel_that_came_since_gets_its_old_arguments_back() {
    let words = "root=/dev/sda1 ro kvm_amd.avic=0 quiet\n";
    let host = debian_with_systemd_boot(words);
    assert!(make(&host, ALL).is_whole());
    for old in ["/boot/vmlinuz-6.12.107", "/boot/efi/loader/entries/m-6.12.107.conf"] {
        std::fs::remove_file(host.path(old)).unwrap();
    }
    std::fs::remove_dir_all(host.path("/usr/lib/modules/6.12.107")).unwrap();
    host.write("/usr/lib/modules/6.12.110/modules.builtin", "");
    host.write("/boot/vmlinuz-6.12.110", "");
    host.kernel("6.12.110", &host.text("/etc/kernel/cmdline"));
    let entry = "/boot/efi/loader/entries/m-6.12.110.conf";
    assert!(host.text(entry).contains("kvm_amd.avic=1"));

    let restored = restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
    assert!(!restored.incomplete(), "{:?}", restored.changes);
    assert_eq!(host.text("/etc/kernel/cmdline"), words);
    assert!(host.text(entry).contains("kvm_amd.avic=0"), "{}", host.text(entry));
}

#[test]
fn kernel_install_is_not_left_to_take_what_this_boot_was_given() {
    let words = "root=/dev/sda1 ro kvm_amd.avic=0 quiet";
    let host = debian_with_systemd_boot(words);
    std::fs::remove_file(host.path("/etc/kernel/cmdline")).unwrap();
    host.write("/proc/cmdline", &format!("{words}\n"));
    let blocked = plan(&host, ALL);
    let Standing::Blocked { why, .. } = &blocked.steps[0].standing else { panic!("{blocked:?}") };
    assert!(why.contains("there is no /etc/kernel/cmdline"), "{why}");

    // The vendor's file is read if the administrator has none.
    host.write("/usr/lib/kernel/cmdline", words);
    let before = host.tree();
    assert!(make(&host, Wish { reload: false, ..ALL }).is_whole());
    let on = words.replace("avic=0", "avic=1");
    assert_eq!(host.text("/etc/kernel/cmdline"), on);
    host.write("/proc/cmdline", &format!("{on}\n"));
    host.add_kernel("6.12.110");
    let entry = "/boot/efi/loader/entries/m-6.12.110.conf";
    assert!(host.text(entry).contains("kvm_amd.avic=1"));
    restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
    host.add_kernel("6.12.110");
    assert!(host.text(entry).contains("kvm_amd.avic=0"));
    std::fs::remove_file(host.path(entry)).unwrap();
    host.write("/proc/cmdline", &format!("{words}\n"));
    assert_eq!(host.tree(), before);
}

#[test]
fn entries_of_other_systems_beside_kernel_images_change_nothing() {
    let arch = |entry: &[(&str, &str)]| {
        let files = [ARGUMENTS, ("/usr/bin/mkinitcpio", ""), ("/etc/kernel/cmdline", ARGUMENTS.1)];
        told(&plan(&Host::amd(&[&files, entry].concat()), ALL))
    };
    let alone = arch(&[]);
    assert!(alone.contains("$ mkinitcpio -P"), "{alone}");
    assert_eq!(arch(&[("/boot/loader/entries/memtest.conf", "title Test\nefi /EFI/memtest.efi\n")]), alone);
}

#[test]
fn entries_of_another_boot_loader_than_grub_change_nothing() {
    let words = "root=/dev/sda1 ro amd_iommu=off";
    let grub = |entry: &[(&str, &str)]| {
        let line = format!("BOOT_IMAGE=/vmlinuz {words}\n");
        let settings = "GRUB_CMDLINE_LINUX_DEFAULT=\"amd_iommu=off\"\n";
        let files = [
            ("/proc/cmdline", &*line),
            ("/usr/sbin/update-grub", ""),
            ("/usr/bin/kernel-install", ""),
            ("/etc/default/grub", settings),
        ];
        told(&plan(&Host::amd(&[&files, entry].concat()), ALL))
    };
    let alone = grub(&[]);
    assert!(alone.contains("-GRUB_CMDLINE_LINUX_DEFAULT=\"amd_iommu=off\""), "{alone}");
    let other = format!("title Arch\nlinux /vmlinuz-linux\noptions {words}\n");
    assert_eq!(grub(&[("/boot/efi/loader/entries/arch.conf", &other)]), alone);

    // They are GRUB's own if it is told to read them.
    let own = Host::amd(&[
        ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro amd_iommu=off\n"),
        ("/usr/sbin/grub2-mkconfig", ""),
        ("/etc/default/grub", "GRUB_ENABLE_BLSCFG=true\nGRUB_CMDLINE_LINUX=\"amd_iommu=off\"\n"),
        ("/boot/loader/entries/m-6.12.107.conf", &other),
    ]);
    let told = told(&plan(&own, ALL));
    assert!(told.contains("+++ b/boot/loader/entries/m-6.12.107.conf"), "{told}");
}

#[test]
fn an_argument_from_where_nobody_looks_is_told() {
    let host = Host::amd(&[
        ("/proc/cmdline", "ro amd_iommu=off\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet $MINE\"\n"),
    ]);
    for (seen, line) in [
        ("amd_iommu=off", "quiet $MINE"),
        ("amd_iommu=off kvm_amd.avic=0", "quiet kvm_amd.avic=0 $MINE"),
        ("intremap=nosid,off", "quiet $MINE"),
    ] {
        host.write("/proc/cmdline", &format!("ro {seen}\n"));
        host.write("/etc/default/grub", &format!("GRUB_CMDLINE_LINUX_DEFAULT=\"{line}\"\n"));
        let plan = plan(&host, Wish { reload: false, ..ALL });
        let step = plan.steps.iter().find(|step| step.name == "kernel-arguments").unwrap();
        assert!(matches!(step.standing, Standing::Blocked { .. }) && plan.is_refused(), "{seen}: {step:?}");
    }
    host.write("/proc/cmdline", "ro kvm_amd.avic=0\n");
    let last_counts = plan(&host, Wish { reload: false, ..ALL });
    assert!(!last_counts.is_refused(), "{last_counts:?}");
}

#[test]
fn a_word_typed_for_one_boot_does_not_come_to_last() {
    let host = Host::amd(&[
        ("/proc/cmdline", "ro quiet kvm_amd.avic=0 intremap=nosid,off\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n"),
    ]);
    let whole = plan(&host, Wish { reload: false, ..ALL });
    let names: Vec<_> = whole.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["modprobe-options", "reload"]);
    let note = "No setting of the boot loader has kvm_amd.avic=0 intremap=nosid,off of /proc/cmdline. ";
    assert!(matches!(&whole.notes[..], [only] if only.starts_with(note)), "{whole:?}");
    let part = plan(&host, Wish { part: Part::DeviceInterrupts, reload: false, ..ALL });
    assert!(part.steps.is_empty(), "{part:?}");
    assert!(part.notes[1].contains("intremap=nosid,off"), "{part:?}");
}

#[test]
fn what_kvm_keeps_cleared_is_set_again_by_the_reload() {
    for (host, module, switch) in
        [(Host::amd(&[]), "kvm_amd", "avic"), (Host::intel(&[]), "kvm_intel", "enable_apicv")]
    {
        let kept = ::host::kvm::KEPT_BY_KVM;
        for name in kept {
            host.module(module, &[(name, "N")]);
            host.write(&machine::kept(name), "N");
        }
        let value = |name: &str| host.text(&format!("/sys/module/{module}/parameters/{name}"));
        let before = host.tree();
        let reload = Wish { persist: false, ..ALL };
        assert!(make(&host, reload).is_whole());
        assert_eq!([switch, kept[0], kept[1]].map(value), ["Y\n"; 3], "{module}");
        assert!(plan(&host, reload).so_already);
        restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
        assert_eq!(host.tree(), before, "{module}");

        // A plan is needed if IPIs exit, but not if only posting is off: that may be beyond the IOMMU.
        host.module(module, &[(switch, "Y"), (kept[0], "N"), (kept[1], "N")]);
        assert!(!plan(&host, reload).so_already);
        host.module(module, &[(kept[0], "Y")]);
        assert!(plan(&host, reload).so_already);
    }
    let zen2 = Host::amd(&[("/proc/cpuinfo", &machine::AMD.replace("family : 25", "family : 23"))]);
    zen2.module("kvm_amd", &[("avic", "Y"), ("enable_ipiv", "N")]);
    assert!(plan(&zen2, ALL).so_already, "{:?}", plan(&zen2, ALL));
}

#[test]
fn avic_is_not_enabled_where_it_could_hang_guests() {
    let zen2 = Host::amd(&[("/proc/cpuinfo", &machine::AMD.replace("family : 25", "family : 23"))]);
    assert_eq!(refusal(&zen2, ALL).as_deref(), Some("erratum"));
    assert_eq!(refusal(&zen2, OFF), None);
    zen2.module("kvm_amd", &[("enable_ipiv", "N")]);
    assert_eq!(refusal(&zen2, ALL), None);
    // A vendor's kernel with only the parameter.
    zen2.module("kvm_amd", &[("enable_ipiv", "Y")]);
    let found = plan(&zen2, ALL);
    assert_eq!(found.steps[0].name, "modprobe-options");
    assert!(found.steps[0].files[0].diff.contains("enable_ipiv=0"), "{found:?}");
    zen2.write("/proc/sys/kernel/osrelease", "6.17.3\n");
    std::fs::remove_dir_all(zen2.path("/sys/module/kvm_amd")).unwrap();
    assert_eq!(refusal(&zen2, ALL), None);

    // Kernels of before the fix for Hygon have the parameter, and send IPIs unless they are told not to.
    let hygon = machine::AMD.replace("AuthenticAMD", "HygonGenuine").replace("family : 25", "family : 24");
    let hygon = Host::amd(&[("/proc/cpuinfo", &hygon)]);
    assert_eq!(refusal(&hygon, ALL).as_deref(), Some("erratum"));
    // It reads N as long as AVIC is off.
    hygon.module("kvm_amd", &[("enable_ipiv", "N")]);
    hygon.write(&machine::kept("enable_ipiv"), "Y");
    assert!(make(&hygon, ALL).is_whole());
    assert_eq!(hygon.text("/sys/module/kvm_amd/parameters/enable_ipiv"), "N\n");
    let options = hygon.text("/etc/modprobe.d/exitless.conf");
    assert!(options.contains("avic=1") && options.contains("enable_ipiv=0"), "{options}");
}

#[test]
fn avic_is_not_enabled_where_sev_snp_rules_it_out() {
    let host = Host::amd(&[("/proc/cpuinfo", &machine::AMD.replace(" avic", " avic sev_snp"))]);
    // This kernel leaves AVIC off by itself if it has to, and CPUID was not read.
    assert_eq!(refusal(&host, ALL), None);
    host.write("/proc/sys/kernel/osrelease", "6.12.9\n");
    assert_eq!(refusal(&host, ALL).as_deref(), Some("snp"));
    // KVM offers no such guests, and the host enforces SNP all the same.
    host.module("kvm_amd", &[("sev_snp", "N")]);
    assert_eq!(refusal(&host, ALL).as_deref(), Some("snp"));
    assert_eq!(refusal(&host, OFF), None);
    host.write("/proc/cpuinfo", machine::AMD);
    assert_eq!(refusal(&host, ALL), None);
}

#[test]
fn a_file_that_cannot_be_read_blocks_what_it_may_overrule() {
    let host = Host::amd(&[]);
    std::fs::create_dir_all(host.path("/etc/modprobe.d")).unwrap();
    std::os::unix::fs::symlink("kvm.conf", host.path("/etc/modprobe.d/kvm.conf")).unwrap();
    let found = plan(&host, ALL);
    let Standing::Blocked { why, .. } = &found.steps[0].standing else { panic!("{found:?}") };
    assert!(why.starts_with("/etc/modprobe.d/kvm.conf cannot be read"), "{why}");

    let host = Host::amd(&[ARGUMENTS, ("/usr/sbin/update-grub", "")]);
    host.write("/etc/default/grub", "");
    std::fs::write(host.path("/etc/default/grub"), b"# f\xfcr\nGRUB_CMDLINE_LINUX=\"kvm_amd.avic=0\"\n")
        .unwrap();
    let found = plan(&host, ALL);
    let Standing::Blocked { why, .. } = &found.steps[0].standing else { panic!("{found:?}") };
    assert_eq!(why, "/etc/default/grub is not UTF-8 text");
}

#[test]
fn the_initramfs_of_whatever_kernel_boots_next_is_to_be_built() {
    let (drivers, ostree) = ("add_drivers+=\" kvm_amd \"\n", ("/run/ostree-booted", ""));
    for (files, command) in [
        (vec![("/etc/initramfs-tools/modules", "kvm-amd\n")], "update-initramfs -u -k all"),
        (vec![("/etc/dracut.conf.d/kvm.conf", drivers)], "dracut --force --regenerate-all"),
        (vec![("/etc/dracut.conf", drivers), ostree], "rpm-ostree initramfs --enable"),
        (vec![("/etc/mkinitcpio.conf", "MODULES=(kvm_amd)\n")], "mkinitcpio -P"),
    ] {
        let steps = plan(&Host::amd(&files), ALL).steps;
        let step = steps.iter().find(|step| step.name == "initramfs").unwrap();
        assert_eq!(step.commands, [command], "{files:?}");
    }
}

#[test]
fn what_nixos_makes_is_left_to_its_configuration() {
    let host = Host::amd(&[
        ARGUMENTS,
        ("/etc/os-release", "NAME=NixOS\nID=nixos\n"),
        (
            "/boot/loader/entries/nixos-generation-7.conf",
            "linux /vmlinuz\noptions ro amd_iommu_intr=legacy\n",
        ),
    ]);
    std::fs::create_dir_all(host.path("/etc/modprobe.d")).unwrap();
    std::os::unix::fs::symlink("/etc/static/nixos.conf", host.path("/etc/modprobe.d/nixos.conf")).unwrap();
    host.write("/etc/static/nixos.conf", "options kvm_amd avic=0\n");
    let found = plan(&host, Wish { reload: false, ..ALL });
    let next: Vec<_> = found
        .steps
        .iter()
        .filter_map(|step| match &step.standing {
            Standing::Blocked { next, .. } => Some(next.as_str()),
            _ => None,
        })
        .collect();
    assert!(
        next[0].contains("boot.extraModprobeConfig") && next[1].contains("boot.kernelParams"),
        "{next:?}"
    );

    host.write("/proc/cmdline", "ro\n");
    let done = plan(&host, Wish { reload: false, ..ALL });
    assert!(
        done.steps.iter().all(|step| step.name != "kernel-arguments"),
        "an old generation keeps it: {done:?}"
    );

    std::fs::remove_file(host.path("/etc/os-release")).unwrap();
    let linked = plan(&host, Wish { reload: false, ..ALL });
    let Standing::Blocked { why, .. } = &linked.steps[0].standing else { panic!("{linked:?}") };
    assert_eq!(why, "/etc/modprobe.d/nixos.conf is a symbolic link to /etc/static/nixos.conf");
}

#[test]
fn links_of_a_copy_lead_nowhere_else() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "options kvm_amd avic=0 # kvm_amd.avic=0 SECRET\n").unwrap();
    let entry = "version 6.12.107\nlinux /vmlinuz\noptions ro\n";
    let host = Host::amd(&[
        ("/usr/bin/kernel-install", ""),
        ("/boot/vmlinuz-6.12.107", ""),
        ("/usr/lib/modules/6.12.107/modules.builtin", ""),
        ("/boot/loader/entries/a.conf", entry),
    ]);
    for (link, target) in [
        ("/etc/kernel/cmdline", &*secret),
        ("/etc/modprobe.d/a.conf", &*secret),
        ("/etc/default/grub", &*secret),
        ("/boot/loader/entries/b.conf", &*secret),
        ("/boot/efi", outside.path()),
    ] {
        let link = host.path(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let entries = outside.path().join("loader/entries");
    std::fs::create_dir_all(&entries).unwrap();
    std::fs::write(entries.join("c.conf"), format!("{entry}options kvm_amd.avic=0 SECRET\n")).unwrap();
    let told = told(&plan(&host, Wish { arm: Arm::On, ..ALL }));
    assert!(!told.contains("SECRET") && !told.contains("kvm_amd.avic=0"), "{told}");
}

#[test]
fn an_argument_that_the_block_of_grub_has_is_not_added_to_it() {
    let off = Wish { part: Part::DeviceInterrupts, reload: false, ..OFF };
    for (block, blocked) in [
        ("kernelopts=ro amd_iommu_intr=legacy\n", false),
        ("kernelopts=ro\ntuned_params=amd_iommu_intr=legacy\n", true),
    ] {
        let host = Host::amd(&[
            ("/usr/sbin/grubby", ""),
            ("/boot/grub2/grubenv", block),
            ("/boot/loader/entries/a.conf", "linux /vmlinuz\noptions $kernelopts $tuned_params\n"),
        ]);
        assert!(plan(&host, off).steps.is_empty(), "{block}: {:?}", plan(&host, off).steps);
        assert_eq!(plan(&host, Wish { arm: Arm::On, ..off }).is_refused(), blocked, "{block}");
    }
}

#[test]
fn remapping_that_is_off_is_switched_on_again() {
    let grub = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet intremap=off\"\n";
    let files = [
        ("/proc/cmdline", "ro quiet intremap=off\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", grub),
    ];
    for host in [Host::amd(&files), Host::intel(&files)] {
        let on = plan(&host, Wish { part: Part::DeviceInterrupts, reload: false, arm: Arm::On, ..OFF });
        assert_eq!(on.steps.len(), 1, "{on:?}");
        assert!(on.steps[0].title.contains("intremap=off"), "{on:?}");
    }
}

#[test]
fn an_argument_of_this_boot_alone_does_not_last() {
    let grub = [("/usr/sbin/update-grub", ""), ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n")];
    let typed = ("/proc/cmdline", "ro kvm_amd.avic=1\n");
    let entry = |words| format!("linux /vmlinuz\noptions {words}\n");
    let (one, other) = (entry("ro kvm_amd.avic=1"), entry("ro"));
    let entries = |other| [("/boot/loader/entries/a.conf", &*one), ("/boot/loader/entries/b.conf", other)];
    for (files, lasts) in [
        (grub, false),
        (entries(&other), false),
        (entries(&one), true),
        (entries("title Windows\nefi /x.efi\n"), true),
    ] {
        let host = Host::amd(&files);
        host.write(typed.0, typed.1);
        host.module("kvm_amd", &[("avic", "Y")]);
        let steps = plan(&host, ALL).steps;
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        let expected: &[&str] = if lasts { &[] } else { &["modprobe-options"] };
        assert_eq!(names, expected, "{files:?}");
    }
}

#[test]
fn a_parameter_that_the_module_lacks_is_not_given_to_it() {
    let host = Host::intel(&[("/proc/sys/kernel/osrelease", "5.15.0\n")]);
    std::fs::remove_dir_all(host.path("/sys/module/kvm_intel")).unwrap();
    host.module("kvm_intel", &[("enable_apicv", "Y"), ("nested", "Y")]);
    let plan = plan(&host, ALL);
    assert!(plan.so_already && plan.steps.is_empty(), "{plan:?}");
}

#[test]
fn the_other_arm_is_a_plan_too() {
    let host = Host::intel(&[]);
    host.module("kvm_intel", &[("enable_apicv", "Y"), ("enable_ipiv", "Y"), ("nested", "Y")]);
    insta::assert_snapshot!("intel-off", told(&plan(&host, OFF)));
    let before = host.tree();
    assert!(make(&host, OFF).is_whole());
    assert_eq!(host.text("/sys/module/kvm_intel/parameters/enable_apicv"), "N\n");
    // Switching on again only changes the line that switching off wrote.
    insta::assert_snapshot!("intel-on-again", told(&plan(&host, ALL)));
    assert!(make(&host, ALL).is_whole());
    let mut machine = Machine::new(&host);
    let restored = restore(host.root(), &mut machine, Restore::default()).unwrap();
    assert!(restored.changes.iter().all(|one| one.outcome == Outcome::Undone), "{:?}", restored.changes);
    assert_eq!(host.tree(), before);
}

#[test]
fn a_module_in_use_is_never_loaded_again() {
    let host = Host::amd(&[("/sys/module/kvm_amd/refcnt", "2\n")]);
    let plan = plan(&host, Wish { persist: false, ..ALL });
    assert!(plan.is_refused());
    let Standing::Blocked { why, .. } = &plan.steps.last().unwrap().standing else { panic!("{plan:?}") };
    assert_eq!(why, "kvm_amd is in use 2 times");
    assert!(make(&host, ALL).steps.iter().all(|step| step.name != "reload"));
    assert_eq!(host.text("/sys/module/kvm_amd/parameters/avic"), "N\n");
}

#[test]
fn what_is_not_asked_for_is_shown_and_not_made() {
    let host = Host::amd(&[]);
    let plan = plan(&host, Wish { persist: false, reload: false, ..ALL });
    assert!(plan.awaits_options() && !plan.is_refused());
    let standings: Vec<_> = plan.steps.iter().map(|step| &step.standing).collect();
    let asks = |option: &str| Standing::NotAsked { option: option.to_owned() };
    assert_eq!(standings, [&asks("--persist"), &asks("--reload")]);
}

#[test]
fn contradictions_are_refused_by_name() {
    let lacking = machine::AMD.replace(" avic", "");
    let host = Host::amd(&[("/proc/cpuinfo", &lacking)]);
    assert_eq!(refusal(&host, ALL).as_deref(), Some("cpu"));
    assert_eq!(refusal(&host, OFF), None);
    host.module("kvm_amd", &[("avic", "Y"), ("force_avic", "Y")]);
    assert_eq!(refusal(&host, ALL).as_deref(), Some("contradiction"));
    assert!(plan(&host, ALL).refusals[0].why.ends_with("force_avic overrules the CPU"));
    let host = Host::amd(&[("/run/.containerenv", "")]);
    assert_eq!(refusal(&host, ALL).as_deref(), Some("container"));
    assert_eq!(refusal(&host, OFF).as_deref(), Some("container"));
    let without_pi = machine::INTEL.replace(" posted_intr apicv", "");
    let host = Host::intel(&[("/proc/cpuinfo", &without_pi)]);
    assert!(
        plan(&host, ALL).refusals[0].why.contains("posted interrupts"),
        "{:?}",
        plan(&host, ALL).refusals
    );
    let host = Host::amd(&[("/proc/cpuinfo", "processor : 0\nflags : fpu hypervisor\n")]);
    std::fs::remove_dir_all(host.path("/sys/module/kvm_amd")).unwrap();
    assert!(plan(&host, ALL).refusals[0].next.contains("nested virtualization"));
}

#[test]
fn a_module_that_does_not_take_it_is_loaded_as_it_was() {
    let host = Host::amd(&[]);
    let before = host.tree();
    let machine = Machine { unable: &["avic"], ..Machine::new(&host) };
    let mut changes = Changes::begin(host.root(), machine, Vec::new()).unwrap();
    let applied = apply(&plan(&host, Wish { persist: false, ..ALL }), &mut changes, &|| false);
    let AppliedStep { name, outcome: StepOutcome::Failed { why } } = &applied.steps[0] else {
        panic!("{applied:?}")
    };
    assert!(name == "reload" && why.contains("reads avic N"), "{why}");
    assert_eq!(host.tree(), before);
}

#[test]
fn a_file_that_another_changed_since_the_plan_keeps_what_the_other_said() {
    let host = Host::amd(&[
        ("/lib/modules/6.12.107/modules.builtin", "kernel/arch/x86/kvm/kvm-amd.ko\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"),
    ]);
    let plan = plan(&host, Wish { reload: false, ..ALL });
    host.write("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=theirs\n");
    let mut changes = Changes::begin(host.root(), Machine::new(&host), Vec::new()).unwrap();
    let applied = apply(&plan, &mut changes, &|| false);
    let failed = |step: &AppliedStep| matches!(&step.outcome, StepOutcome::Failed { why } if why.contains("/etc/default/grub has changed since"));
    assert!(applied.steps.iter().any(failed), "{applied:?}");
    assert_eq!(host.text("/etc/default/grub"), "GRUB_CMDLINE_LINUX_DEFAULT=theirs\n");
}

#[test]
fn a_module_that_is_built_in_is_told_by_the_kernels_command_line() {
    let host = Host::amd(&[
        ("/lib/modules/6.12.107/modules.builtin", "kernel/arch/x86/kvm/kvm-amd.ko\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"),
    ]);
    insta::assert_snapshot!("built-in", told(&plan(&host, ALL)));
}

#[test]
fn a_boot_loader_that_is_not_known_leaves_it_to_people() {
    let host = Host::amd(&[ARGUMENTS]);
    let plan = plan(&host, ALL);
    let Standing::Blocked { next, .. } = &plan.steps[0].standing else { panic!("{plan:?}") };
    assert_eq!(next, "change the arguments by hand: kvm_amd.avic=0 to kvm_amd.avic=1, without amd_iommu=off");
}

#[test]
fn it_is_said_that_tdx_goes_with_apicv() {
    let host = Host::intel(&[]);
    let tells = |wish| plan(&host, wish).notes.iter().any(|note| note.contains("TDX"));
    host.module("kvm_intel", &[("enable_apicv", "Y"), ("tdx", "N")]);
    assert!(!tells(OFF));
    host.module("kvm_intel", &[("tdx", "Y")]);
    assert!(tells(OFF) && !tells(ALL));
}

#[test]
fn old_kernels_are_named_where_nesting_costs_avic() {
    let host = Host::amd(&[("/proc/sys/kernel/osrelease", "5.15.0\n")]);
    assert!(plan(&host, ALL).notes[0].contains("Linux 5.6 to 5.18"));
    let host = Host::amd(&[("/proc/sys/kernel/osrelease", "5.4.302\n")]);
    assert!(!plan(&host, ALL).notes.iter().any(|note| note.contains("offered SVM")));
    let host = Host::amd(&[("/proc/sys/kernel/osrelease", "6.18.1\n")]);
    // From Linux 6.18 AVIC may be on by default, so `off` must be written.
    assert_eq!(plan(&host, OFF).steps[0].name, "modprobe-options");
    assert!(plan(&Host::amd(&[]), OFF).steps.is_empty());
    // A vendor's kernel can have that at a lower number, and so can one on which AVIC is on although nothing sets it.
    for release in ["6.12.0-55.9.1.el10_0.x86_64\n", "6.12.107\n"] {
        let host = Host::amd(&[("/proc/sys/kernel/osrelease", release)]);
        host.module("kvm_amd", &[("avic", "Y")]);
        assert_eq!(plan(&host, OFF).steps[0].name, "modprobe-options", "{release}");
    }
}

#[test]
fn the_iommus_part_is_switched_alone_on_both_vendors_and_back() {
    let grub = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n";
    let files = [
        ("/proc/cmdline", "ro quiet\n"),
        ("/usr/sbin/update-grub", ""),
        ("/etc/default/grub", grub),
        ("/boot/grub/grub.cfg", grub),
    ];
    let off = Wish { part: Part::DeviceInterrupts, reload: false, ..OFF };
    let on = Wish { arm: Arm::On, ..off };
    for (host, word) in
        [(Host::amd(&files), "amd_iommu_intr=legacy"), (Host::intel(&files), "intremap=nopost")]
    {
        let before = host.tree();
        assert!(plan(&host, on).so_already && plan(&host, on).steps.is_empty());
        // The arguments alone do not show that the IOMMUs can post.
        assert_eq!(plan(&host, on).now.as_deref(), Some("free of arguments that disable it"));
        assert!(plan(&host, on).notes[0].contains("`exitless doctor` says whether the IOMMUs can post"));
        assert!(make(&host, off).is_whole());
        assert!(host.text("/etc/default/grub").contains(&format!("quiet {word}")), "{word}");
        assert!(host.text("/boot/grub/grub.cfg").contains(word), "{word}");
        // The CPU's part is unchanged, and a second plan changes nothing.
        let changed: Vec<_> = plan(&host, off).steps;
        assert!(changed.is_empty(), "{changed:?}");
        host.write("/proc/cmdline", &format!("ro quiet {word}\n"));
        assert!(plan(&host, off).so_already && !plan(&host, on).so_already);
        assert_eq!(plan(&host, off).now.as_deref(), Some("what disables it"));
        // `enable` without a part leaves the word, and names the command that removes it.
        let whole = plan(&host, ALL);
        assert!(whole.steps.iter().all(|step| step.name != "kernel-arguments"), "{whole:?}");
        let note = whole.notes.iter().find(|note| note.contains(word)).unwrap();
        assert!(note.contains("`exitless enable --device-interrupts --persist` ends it"), "{note}");
        assert!(make(&host, on).is_whole());
        assert!(!host.text("/boot/grub/grub.cfg").contains(word), "{word}");
        host.write("/proc/cmdline", "ro quiet\n");
        restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
        assert_eq!(host.tree(), before, "{word}");
    }
    let blocked = plan(&Host::amd(&files), Wish { reload: true, ..off });
    assert!(blocked.is_refused(), "{blocked:?}");
    let container = Host::amd(&[("/run/.containerenv", "")]);
    assert_eq!(plan(&container, off).refusals[0].name, "container");
}

#[test]
fn a_stop_leaves_what_was_not_reached() {
    let host = Host::amd(&[]);
    let mut changes = Changes::begin(host.root(), Machine::new(&host), Vec::new()).unwrap();
    let before = host.tree();
    let applied = apply(&plan(&host, ALL), &mut changes, &|| true);
    assert!(applied.steps.iter().all(|step| step.outcome == StepOutcome::NotReached));
    assert_eq!((applied.is_whole(), host.tree()), (false, before));
}

#[test]
fn below_xen_its_own_command_line_is_changed() {
    let dom0 = |line: &str, grub: &str| {
        Host::intel(&[
            ("/sys/hypervisor/type", "xen\n"),
            ("/proc/xen/capabilities", "control_d\n"),
            ("/exitless/commands/xl-info", &format!("xen_commandline        : dom0_mem=4G {line}\n")),
            ("/usr/sbin/update-grub", ""),
            ("/etc/default/grub", grub),
            ("/boot/grub/grub.cfg", grub),
        ])
    };
    let host = dom0("apicv=0", "GRUB_CMDLINE_XEN_DEFAULT=\"dom0_mem=4G apicv=0\"\n");
    insta::assert_snapshot!("xen-on", told(&plan(&host, ALL)));
    let before = host.tree();
    assert!(make(&host, ALL).is_whole());
    assert_eq!(host.text("/boot/grub/grub.cfg"), "GRUB_CMDLINE_XEN_DEFAULT=\"dom0_mem=4G\"\n");
    assert!(plan(&host, ALL).ready().next().is_none());
    restore(host.root(), &mut Machine::new(&host), Restore::default()).unwrap();
    assert_eq!(host.tree(), before);

    let host = dom0("", "GRUB_CMDLINE_XEN=\"dom0_mem=4G\"\n");
    assert!(plan(&host, ALL).so_already && plan(&host, ALL).steps.is_empty());
    let off = plan(&host, OFF);
    assert!(off.steps[0].files[0].diff.contains("+GRUB_CMDLINE_XEN=\"dom0_mem=4G apicv=0\""), "{off:?}");
    // The next boot reads the configuration, whatever this boot was given.
    let host = dom0("", "GRUB_CMDLINE_XEN_DEFAULT=\"dom0_mem=4G apicv=0\"\n");
    let pending = plan(&host, ALL);
    assert!(pending.so_already && pending.steps[0].title.contains("apicv=0"), "{pending:?}");
    assert!(make(&host, ALL).is_whole());
    assert_eq!(host.text("/boot/grub/grub.cfg"), "GRUB_CMDLINE_XEN_DEFAULT=\"dom0_mem=4G\"\n");
    let typed = plan(&dom0("apicv=0", "GRUB_CMDLINE_XEN=\"\"\n"), ALL);
    assert!(!typed.so_already && typed.steps.is_empty(), "{typed:?}");
    assert!(
        typed.notes[0].starts_with("No setting of the boot loader has apicv=0 of `xl info`."),
        "{typed:?}"
    );
    let unseen = plan(&dom0("apicv=0", "GRUB_CMDLINE_XEN=\"$MINE\"\n"), ALL);
    assert!(matches!(unseen.steps[0].standing, Standing::Blocked { .. }), "{unseen:?}");

    host.write("/proc/cpuinfo", machine::AMD);
    assert_eq!(refusal(&host, ALL).as_deref(), Some("xen"));
    assert_eq!(refusal(&host, OFF).as_deref(), Some("xen"), "`disable` too");
    assert!(plan(&host, ALL).refusals[0].why.contains("no AVIC"));
    host.write("/proc/cpuinfo", "processor : 0\n");
    assert!(plan(&host, ALL).refusals[0].why.starts_with("the processor's vendor is unknown"));
    host.write("/proc/xen/capabilities", "\n");
    assert!(plan(&host, ALL).refusals[0].next.contains("control domain"));
}
