//! `exitless doctor` on fake hosts: trees, and their archives.

use std::path::Path;
use std::process::{Command, Stdio};

use host::snapshot::Snapshot;
use host::{Root, fake};
use serde_json::Value;

struct Said {
    status: i32,
    out: String,
    err: String,
}

fn doctor(arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    let output = command.arg("doctor").args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { status: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
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
            let mut document: Value = serde_json::from_str(&doctor(&["--json", "--root", root]).out).unwrap();
            document["subject"] = Value::Null;
            document
        };
        assert_eq!(json(tree), json(archive), "{name}");
    }
}

/// The sentences of the findings: what time changes is in their evidence.
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
    let exitless = || Command::new(env!("CARGO_BIN_EXE_exitless"));
    let script = exitless().arg("collect-script").output().unwrap();
    assert!(
        script.status.success()
            && String::from_utf8_lossy(&script.stdout).contains(env!("CARGO_PKG_VERSION"))
    );
    std::fs::write(place("collect.sh"), script.stdout).unwrap();
    let tar = std::fs::File::create(place("host.tar")).unwrap();
    let said = Command::new("sh").arg(place("collect.sh")).stdout(tar).output().unwrap();
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    // 1: this user may not inspect all processes.
    assert!(matches!(said.status.code(), Some(0 | 1)), "{:?}: {told}", said.status);
    assert_eq!(
        said.status.code() == Some(1),
        told.contains("lacking: /") || told.contains("cannot inspect"),
        "{told}"
    );
    exitless().args(["snapshot", &place("host.tar.zst")]).output().unwrap();
    let without_registers = |root: String| {
        let found = sentences(&root).into_iter();
        found.filter(|line| !line.contains("MSR") && !line.contains("CPUID")).collect::<Vec<_>>()
    };
    assert_eq!(without_registers(place("host.tar")), without_registers(place("host.tar.zst")), "{told}");
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
    let uname = format!("Linux kvm3 {} #1 SMP x86_64 GNU/Linux\n", release.trim());
    std::fs::write(folder.path().join("sos_commands/kernel/uname_-a"), uname).unwrap();
    let said = doctor(&["--root", folder.path().to_str().unwrap()]);
    assert!(said.out.contains(release.trim()), "{}", said.out);
    let text = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("skip VMs on this host: a sosreport lacks the files of processes"), "{text}");
    assert!(text.contains("exitless collect-script"), "{text}");
    assert!(!text.contains("no VM runs"), "{text}");
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
            && said.out.ends_with("next: exitless enable --persist --reload --apply\n")
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
fn of_a_cut_archive_what_is_whole_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("host.tar.zst");
    Snapshot::take(fake::host("zen2").unwrap(), "test").unwrap().save(&archive).unwrap();
    let whole = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &whole[..whole.len() - 40]).unwrap();
    let said = doctor(&["--json", "--root", archive.to_str().unwrap()]);
    assert_eq!(said.status, 4, "{}", said.err);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert!(!document["warnings"].as_array().unwrap().is_empty(), "{}", said.out);
    assert!(document["summary"]["pass"].as_u64().unwrap() > 0, "{}", said.out);
}

#[test]
fn this_machine_is_examined_too() {
    let said = doctor(&["--json"]);
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert!(said.status == 0 || said.status == 1, "{}", said.err);
    assert!(document["conclusion"]["sentence"].as_str().unwrap().ends_with('.'), "{}", said.out);
}
