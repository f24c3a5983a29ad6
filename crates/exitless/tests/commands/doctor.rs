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
