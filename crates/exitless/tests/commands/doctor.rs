//! `exitless doctor` on fake hosts: trees, and their archives.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use host::snapshot::Snapshot;
use host::{Root, fake};
use serde_json::Value;

use crate::command::{command, run};
use crate::said::{Said, said};

fn doctor(arguments: &[&str]) -> Said {
    said(&command(&["doctor"]).args(arguments).output().unwrap())
}

fn unpacked(name: &str, folder: &Path) {
    let (_, text) = fake::HOSTS.iter().find(|(known, _)| *known == name).unwrap();
    fake::unpack(text, folder).unwrap();
}

#[test]
fn an_archive_is_judged_as_the_tree_that_it_was_made_of() {
    for name in ["zen2", "sapphire-rapids", "ivy-bridge", "guest"] {
        let folder = tempfile::tempdir().unwrap();
        let (tree, archive) = (folder.path().join("tree"), folder.path().join("host.tar.zst"));
        unpacked(name, &tree);
        Snapshot::take(Root::directory(&tree), "test").unwrap().save(&archive).unwrap();
        let (tree, archive) = (tree.to_str().unwrap(), archive.to_str().unwrap());
        let (of_tree, of_archive) = (doctor(&["--root", tree]), doctor(&["--root", archive]));
        assert_eq!(of_tree.out, of_archive.out, "{name}");
        assert_eq!((of_tree.status, of_archive.status), (of_archive.status, of_tree.status), "{name}");
        let json = |root| {
            let mut document = doctor(&["--json", "--root", root]).json();
            document["subject"] = Value::Null;
            document
        };
        assert_eq!(json(tree), json(archive), "{name}");
    }
}

#[test]
fn an_archive_is_read_from_a_pipe_and_never_replaced_by_its_own_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, archive) = (folder.path().join("tree"), folder.path().join("host.tar.zst"));
    unpacked("zen2", &tree);
    Snapshot::take(Root::directory(&tree), "test").unwrap().save(&archive).unwrap();
    let bytes = std::fs::read(&archive).unwrap();
    let mut cat = Command::new("cat").arg(&archive).stdout(Stdio::piped()).spawn().unwrap();
    let piped = command(&["doctor", "--root", "-"]).stdin(cat.stdout.take().unwrap()).output().unwrap();
    cat.wait().unwrap();
    let of_file = doctor(&["--root", archive.to_str().unwrap()]);
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), of_file.out);
    assert_eq!(piped.status.code(), Some(of_file.status));

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&archive, &link).unwrap();
    let said = command(&["snapshot"]).arg(&archive).arg("--root").arg(&link).output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(std::fs::read(&archive).unwrap(), bytes);

    let cut = folder.path().join("cut.tar.zst");
    std::fs::write(&cut, &bytes[..60]).unwrap();
    let said = doctor(&["--root", cut.to_str().unwrap()]);
    assert_eq!(said.status, 125, "{}", said.err);
    assert!(
        said.err.contains("is cut off or damaged") && !said.err.contains("unpack this one"),
        "{}",
        said.err
    );
}

/// The texts of the findings, without their evidence, which varies over time.
fn sentences(root: &str) -> Vec<String> {
    let said = doctor(&["--root", root]);
    said.out
        .lines()
        .filter(|line| {
            ["ok ", "warn ", "FAIL ", "skip "].iter().any(|mark| line.trim_start().starts_with(mark))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_the_script_collects_is_judged_as_a_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let script = run(&["collect-script"]);
    assert!(
        script.status.success()
            && String::from_utf8_lossy(&script.stdout).contains(env!("CARGO_PKG_VERSION"))
    );
    // On a busy machine a limit of time passes although no process blocks its readers. Limits have their own tests.
    let said = collected_with("timeout", "shift; exec \"$@\"");
    std::fs::write(place("host.tar"), &said.stdout).unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    // The status is 1 if this user may not inspect all processes.
    assert!(matches!(said.status.code(), Some(0 | 1)), "{:?}: {told}", said.status);
    assert_eq!(
        said.status.code() == Some(1),
        told.contains("lacking: /") || told.contains("cannot inspect"),
        "{told}"
    );
    run(&["snapshot", &place("host.tar.zst")]);
    let without_registers = |root: String| {
        let found = sentences(&root).into_iter();
        let kept = found.filter(|line| !line.contains("MSR") && !line.contains("CPUID"));
        // The number of processes that this user may not inspect varies over time, too.
        let lasting = |line: String| match line.split_once("; ") {
            Some((lasting, closed)) if closed.contains("cannot be inspected") => lasting.to_owned(),
            _ => line,
        };
        kept.map(lasting).collect::<Vec<_>>()
    };
    assert_eq!(without_registers(place("host.tar")), without_registers(place("host.tar.zst")), "{told}");
}

/// The outcome of the script on this machine, with this shell script in the place of a program.
fn collected_with(program: &str, script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("collect.sh"), run(&["collect-script"]).stdout).unwrap();
    std::fs::write(place(program), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(place(program), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    Command::new("sh")
        .arg(place("collect.sh"))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .output()
        .unwrap()
}

#[test]
fn a_process_that_blocks_its_readers_does_not_stop_the_script() {
    if Command::new("timeout").args(["1", "true"]).status().is_err() {
        return println!("not tested: there is no timeout(1)");
    }
    // This process takes the place of one that waits for a FUSE server while it unmaps a file.
    let blocking = format!("/proc/{}/fd", std::process::id());
    let path = std::env::var("PATH").unwrap();
    let said = collected_with(
        "ls",
        &format!("[ \"$2\" != {blocking} ] || exec sleep 300\nPATH='{path}'; exec ls \"$@\""),
    );
    let told = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("lacking: {blocking}\n")), "{told}");
    assert!(!said.stdout.is_empty(), "{told}");
}

#[test]
fn a_file_with_the_name_of_kvms_within_its_own_costs_the_script_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [_one, _other] = ["x -> anon_inode:kvm-vm", "x 7 -> anon_inode:kvm-vm"]
        .map(|name| std::fs::File::create(folder.path().join(name)).unwrap());
    let log = folder.path().join("log");
    let path = std::env::var("PATH").unwrap();
    let script = format!("echo \"$*\" >>{}\nPATH='{path}'; exec readlink \"$@\"", log.display());
    let said = collected_with("readlink", &script);
    let ran = std::fs::read_to_string(&log).unwrap_or_default();
    let own = format!("/proc/{}/fd/", std::process::id());
    assert!(!ran.contains(&own), "{ran}{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn the_script_looks_at_processes_with_the_timeout_of_an_old_busybox() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let script =
        format!("[ \"$1\" = -t ] || exit 127\nshift 2\necho \"$*\" >>{}\nexec \"$@\"", log.path().display());
    let told = collected_with("timeout", &script).stderr;
    let ran = std::fs::read_to_string(log.path()).unwrap();
    let look = format!("ls -l /proc/{}/fd\n", std::process::id());
    assert!(ran.contains(&look), "{}", String::from_utf8_lossy(&told));
}

#[test]
fn a_sosreport_is_judged_by_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    unpacked("zen2", folder.path());
    let rename = |from: &str, to: &str| {
        let to = folder.path().join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::rename(folder.path().join(from), to).unwrap();
    };
    let release = std::fs::read_to_string(folder.path().join("proc/sys/kernel/osrelease")).unwrap();
    rename("exitless/dmesg", "sos_commands/kernel/dmesg");
    rename("exitless/cpuid", "sos_commands/processor/cpuid_-r");
    std::fs::remove_dir_all(folder.path().join("proc/sys/kernel")).unwrap();
    std::fs::remove_dir_all(folder.path().join("proc/4000")).unwrap();
    std::fs::remove_dir_all(folder.path().join("dev")).unwrap();
    let uname = format!("Linux kvm3 {} #1 SMP x86_64 GNU/Linux\n", release.trim());
    std::fs::write(folder.path().join("sos_commands/kernel/uname_-a"), uname).unwrap();
    let said = doctor(&["--root", folder.path().to_str().unwrap()]);
    assert!(said.out.contains(release.trim()), "{}", said.out);
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("skip VMs on this host: a sosreport lacks the files of processes"), "{text}");
    assert!(text.contains("exitless collect-script"), "{text}");
    assert!(!text.contains("no VM runs"), "{text}");
    assert!(text.contains("skip /dev/kvm: a copy of a host has no devices"), "{text}");
    let end = "AVIC is rightly off: this kernel does not handle the CPU's erratum 1235.";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn statuses_tell_what_was_found_and_what_was_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    unpacked("zen2", &tree);
    let tree = tree.to_str().unwrap();
    let said = doctor(&["--root", tree, "--vm", "web"]);
    assert_eq!(said.status, 1, "{}", said.err);
    assert!(
        said.out.contains("VM web (process 4000)")
            && said.out.ends_with("this kernel does not handle the CPU's erratum 1235.\n")
    );
    let said = doctor(&["--root", tree, "--vm", "none"]);
    assert_eq!((said.status, said.out.as_str()), (2, ""));
    assert!(said.err.contains("none") && said.err.contains("web"), "{}", said.err);
    let said = doctor(&["--root", "/nothing/here"]);
    assert_eq!(said.status, 2, "{}", said.err);
    assert!(said.err.contains("/nothing/here"), "{}", said.err);
    unpacked("ivy-bridge", &folder.path().join("clean"));
    assert_eq!(doctor(&["--root", folder.path().join("clean").to_str().unwrap()]).status, 0);
    let odd = folder.path().join("odd");
    std::fs::write(&odd, "no archive").unwrap();
    let said = doctor(&["--root", odd.to_str().unwrap()]);
    assert_eq!(said.status, 2, "{}", said.err);
}

#[test]
fn differences_from_a_saved_state_are_failures() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, archive) = (folder.path().join("tree"), folder.path().join("old.tar.zst"));
    unpacked("ivy-bridge", &tree);
    let arguments = tree.join("proc/cmdline");
    let before = std::fs::read_to_string(&arguments).unwrap();
    std::fs::write(&arguments, format!("{} rd.luks.key=/secret\n", before.trim())).unwrap();
    Snapshot::take(Root::directory(&tree), "test").unwrap().save(&archive).unwrap();
    let told = || doctor(&["--root", tree.to_str().unwrap(), "--baseline", archive.to_str().unwrap()]);
    let said = told();
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("ok    Baseline: no known fact differs from it"), "{}", said.out);
    std::fs::write(&arguments, format!("{} quiet\n", before.trim())).unwrap();
    let said = told();
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Differences from the baseline FAIL cmdline: "), "{text}");
    assert!(text.contains("1 failure, ") && !text.contains("/secret"), "{text}");
    let said = doctor(&["--root", tree.to_str().unwrap(), "--baseline", "/nothing/here"]);
    assert_eq!((said.status, said.out.as_str()), (2, ""), "{}", said.err);
}

#[test]
fn a_root_without_a_host_is_a_wrong_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let empty = place("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(place("host.tar.zst"), "an archive").unwrap();
    let (xml, made) = (place("web.xml"), place("made.tar.zst"));
    std::fs::write(&xml, "<domain type='kvm'/>\n").unwrap();
    let no_host = "has neither proc nor sys; give the directory that holds them";
    let commands: [&[&str]; 4] = [&["doctor"], &["snapshot", &made], &["enable"], &["vm", "lint", &xml]];
    for command in commands {
        let unpack: &[_] = if matches!(command[0], "enable" | "vm") {
            &[
                (place("host.tar.zst"), "host.tar.zst is not a directory"),
                (place("host.tar.zst"), "unpack the archive"),
            ]
        } else {
            &[]
        };
        let roots = [(empty.clone(), no_host), (place("none"), "/none")];
        for (root, expected) in roots.iter().chain(unpack) {
            let output = run(&[command, &["--root", root]].concat());
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{command:?}: {told}");
            assert!(told.contains(expected) && output.stdout.is_empty(), "{command:?}: {told}");
        }
    }
    assert!(!Path::new(&made).exists());
}

#[test]
fn of_a_cut_archive_what_is_whole_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("host.tar.zst");
    Snapshot::take(fake::host("zen2").unwrap(), "test").unwrap().save(&archive).unwrap();
    let whole = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() - 40]).unwrap();
    let said = doctor(&["--json", "--root", archive.to_str().unwrap()]);
    assert_eq!(said.status, 4, "{}", said.err);
    let document = said.json();
    assert!(!document["warnings"].as_array().unwrap().is_empty(), "{}", said.out);
    assert!(document["summary"]["pass"].as_u64().unwrap() > 0, "{}", said.out);
}

#[test]
fn this_machine_is_examined_too() {
    let said = doctor(&["--json"]);
    let document = said.json();
    assert!(said.status == 0 || said.status == 1, "{}", said.err);
    assert!(document["conclusion"]["sentence"].as_str().unwrap().ends_with('.'), "{}", said.out);
}

/// A VM process as a management program would start it.
fn vm(root: &Path, pid: u32, cgroup: &str, arguments: &[&str]) {
    let home = root.join(format!("proc/{pid}"));
    std::fs::create_dir_all(home.join("fd")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
    write("comm", "qemu-system-x86\n");
    write("cgroup", &format!("0::{cgroup}\n"));
    write("cmdline", &arguments.iter().map(|one| format!("{one}\0")).collect::<String>());
    write("stat", &format!("{pid} (qemu-system-x86) S 1{} 1234 5 6\n", " 0".repeat(17)));
    for (number, target) in ["/dev/kvm", "anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0"].iter().enumerate() {
        std::os::unix::fs::symlink(target, home.join(format!("fd/{number}"))).unwrap();
    }
}

/// The host zen2 with VMs of four management programs. The VMID of one is the process ID of the host's other
/// VM.
fn with_managers(root: &Path) {
    unpacked("zen2", root);
    let machine = ["-machine", "pc-q35-9.2,accel=kvm", "-cpu", "host"];
    let made = |pid, cgroup: &str, more: &[&str]| {
        vm(root, pid, cgroup, &[&["/usr/bin/qemu-system-x86_64"], more, &machine].concat());
    };
    made(4711, "/qemu.slice/4000.scope", &["-id", "4000", "-name", "db,debug-threads=on"]);
    let pod = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope";
    let smbios = "type=1,manufacturer=KubeVirt,product=None,family=KubeVirt";
    made(4712, pod, &["-name", "guest=prod_shop,debug-threads=on", "-smbios", smbios]);
    let nova = "type=1,manufacturer=OpenStack Foundation,product=OpenStack Nova";
    let uuid = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0";
    made(
        4713,
        "/machine.slice/machine-qemu\\x2d9\\x2dinstance\\x2d0000001a.scope",
        &["-name", "guest=instance-0000001a", "-uuid", uuid, "-smbios", nova],
    );
    made(
        4714,
        "/machine.slice/machine-qemu\\x2d10\\x2dold.scope",
        &["-name", "guest=old", "-smbios", "type=1,manufacturer=oVirt,product=RHEL"],
    );
}

#[test]
fn fixes_are_told_in_the_words_of_the_program_that_made_the_vm() {
    let folder = tempfile::tempdir().unwrap();
    with_managers(folder.path());
    let root = folder.path().to_str().unwrap();
    let told = |wanted: &str| {
        doctor(&["--root", root, "--vm", wanted])
            .out
            .replace('\n', " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let table = [
        // A VMID takes precedence over the process 4000, which is libvirt's VM `web`.
        (
            "4000",
            "VM db (Proxmox VE 4000, process 4711)",
            "qm set 4000 --args '-global kvm-pit.lost_tick_policy=discard'",
        ),
        ("4711", "VM db (Proxmox VE 4000, process 4711)", "qm set 4000 --args '-machine hpet=off'"),
        (
            "prod/shop",
            "VM prod_shop (KubeVirt, process 4712)",
            "VirtualMachine prod/shop: spec.template.spec.domain.clock.timer.pit.tickPolicy: discard",
        ),
        (
            "4DEA22B3-1d52-d8f3-2516-782e98ab3fa0",
            "VM instance-0000001a (OpenStack Nova, process 4713)",
            "OpenStack Nova has no setting for it: Nova writes tickpolicy='delay'",
        ),
        ("9", "process 4713", "flavor: hw:viommu_model=intel"),
        (
            "old",
            "VM old (oVirt, process 4714)",
            "custom property qemu_cmdline = [\"-global\",\"kvm-pit.lost_tick_policy=discard\"]",
        ),
        ("web", "VM web (process 4000)", ""),
    ];
    for (wanted, title, fix) in table {
        let told = told(wanted);
        assert!(told.contains(title) && told.contains(fix), "{wanted}: {told}");
        let others = table
            .iter()
            .filter(|(_, other, _)| other.starts_with("VM ") && *other != title && !other.contains(title));
        assert!(others.into_iter().all(|(_, other, _)| !told.contains(other)), "{wanted}: {told}");
    }
    let text = doctor(&["--json", "--root", root, "--vm", "4000"]).json().to_string();
    assert!(
        text.contains("\"managed\":{\"changes\":") && text.contains("\"definition\":"),
        "programs get both"
    );
}

#[test]
fn a_vm_whose_machine_is_in_another_file_is_judged_with_that_file() {
    let folder = tempfile::tempdir().unwrap();
    unpacked("zen2", folder.path());
    let config = folder.path().join("run/incus/web/qemu.conf");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "# Machine\n[machine]\ntype = \"q35\"\naccel = \"kvm\"\n").unwrap();
    let line = "/opt/incus/bin/qemu-system-x86_64 -S -name web -uuid 4dea22b3-1d52-d8f3-2516-782e98ab3fa0 -daemonize -cpu \
                host -nographic -nodefaults -no-user-config -readconfig /run/incus/web/qemu.conf -smbios type=2,product=Incus";
    vm(folder.path(), 4711, "/", &line.split_whitespace().collect::<Vec<_>>());
    let root = folder.path().to_str().unwrap();
    let finding = |rule: &str| {
        let document = doctor(&["--json", "--root", root, "--vm", "4711"]).json();
        let sections = document["sections"].as_array().unwrap();
        let mut all = sections.iter().flat_map(|section| section["findings"].as_array().unwrap());
        all.find(|one| one["rule"] == rule).map(Value::to_string)
    };
    let lint = || said(&command(&["vm", "lint", "4711", "--root", root]).output().unwrap());
    let ticks = finding("pit-lost-ticks").unwrap();
    assert!(ticks.contains("incus config set web raw.qemu="), "{ticks}");
    assert_eq!(finding("accelerator"), None);

    std::fs::remove_file(&config).unwrap();
    let skipped = finding("vm-definition").unwrap();
    let why = "/run/incus/web/qemu.conf, which was not read, may set the machine";
    assert!(skipped.contains(why) && skipped.contains("skip"), "{skipped}");
    assert_eq!(finding("accelerator"), None);
    let text = lint().out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(why) && !text.contains("QEMU uses TCG"), "{text}");

    // QEMU has its machine, or its accelerator, from elsewhere.
    vm(folder.path(), 4712, "/", &["/opt/emulator/qemu-system-x86_64-headless", "-avd", "phone"]);
    vm(folder.path(), 4713, "/", &["/opt/qemu/qemu-system-x86_64", "-machine", "q35", "-name", "db"]);
    for (pid, what) in [("4712", "from elsewhere than its command line"), ("4713", "rules found")] {
        let text =
            doctor(&["--root", root, "--vm", pid]).out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(what) && !text.contains("QEMU uses TCG"), "{text}");
    }
}

#[test]
fn definitions_of_vms_are_found_by_the_names_of_their_programs() {
    let folder = tempfile::tempdir().unwrap();
    with_managers(folder.path());
    let root = folder.path().to_str().unwrap();
    let run = |arguments: &[&str]| {
        let output =
            command(&["vm"]).args(arguments).args(["--for", "amd", "--root", root]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(run(&["lint", "4000"]).contains("fix Proxmox VE: qm set 4000"));
    assert!(run(&["lint", "prod/shop"]).contains("fix KubeVirt: VirtualMachine prod/shop"));
    let fixed = run(&["fix", "4000"]);
    assert!(
        fixed.contains("Proxmox VE starts this VM. `exitless vm lint 4711` says what to change there."),
        "{fixed}"
    );
    let next = "libvirt starts this VM. `exitless vm fix libvirt:web` changes its definition.";
    for command in ["lint", "fix"] {
        assert!(run(&[command, "web"]).contains(next), "{}", run(&[command, "web"]));
    }
    assert!(!run(&["lint", "libvirt:web"]).contains(next) && !run(&["lint", "4000"]).contains(next));
}
