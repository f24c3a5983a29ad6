//! `exitless vm fix` on files and domains.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::command::{as_nobody, command, err, out};

const XML: &str = "<domain type='kvm'>\n  <vcpu>2</vcpu>\n  <os>\n    <type machine='pc-q35-9.2'>hvm</type>\n  </os>\n  \
                   <clock>\n    <timer name='hpet' present='no'/>\n  </clock>\n</domain>\n";

#[test]
fn without_root_the_old_text_is_kept_beside_whoever_made_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.xml");
    std::fs::write(&file, XML).unwrap();
    let mut fix = command(&["vm", "fix", file.to_str().unwrap(), "--for", "amd", "--apply"]);
    as_nobody(&mut fix, &[folder.path(), &file]);
    let output = fix.output().unwrap();
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    let kept = folder.path().join("web.xml.orig");
    let undo = format!("\n  mv {} {}\n", kept.display(), file.display());
    let said = out(&output);
    assert!(said.contains(&undo), "{said}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), XML);
    assert!(std::fs::read_to_string(&file).unwrap().contains("tickpolicy='discard'"));
}

/// Prints the file `next` beside it as the definition of the domain's next start, and `live` as that of the running one.
pub(crate) const TWO_DEFINITIONS: &str = "#!/bin/sh\n\
    case \" $* \" in\n\
    *' --inactive '*) cat \"${0%/*}/next\" ;;\n\
    *' dumpxml '*) cat \"${0%/*}/live\" ;;\n\
    esac\n";

/// The value of `PATH` with which `virsh` in this folder is found first.
pub(crate) fn with_virsh(folder: &Path, script: &str) -> String {
    let virsh = folder.join("virsh");
    std::fs::write(&virsh, script).unwrap();
    std::fs::set_permissions(&virsh, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

#[test]
fn a_domain_is_judged_by_the_definition_of_its_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_virsh(folder.path(), TWO_DEFINITIONS);
    // No rule is for containers.
    let clean = "<domain type='lxc'>\n  <name>web</name>\n</domain>\n";
    for (live, next, status) in [(clean, XML, 1), (XML, clean, 0)] {
        std::fs::write(folder.path().join("live"), live).unwrap();
        std::fs::write(folder.path().join("next"), next).unwrap();
        let mut fix = command(&["vm", "fix", "libvirt:web", "--for", "amd"]);
        let output = fix.env("PATH", &path).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}{}", out(&output), err(&output));
    }
}

#[test]
fn a_transient_domain_is_not_made_persistent() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{0}/ran\ncase \" $* \" in\n*' dumpxml '*) cat {0}/xml ;;\n\
         *' dominfo '*) printf 'Name:           web\\nPersistent:     no\\n' ;;\nesac\n",
        folder.path().display()
    );
    let path = with_virsh(folder.path(), &script);
    std::fs::write(folder.path().join("xml"), XML).unwrap();
    let mut fix = command(&["vm", "fix", "libvirt:web", "--for", "amd", "--apply"]);
    let output = fix.env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}{}", out(&output), err(&output));
    assert!(err(&output).contains("transient") && err(&output).contains("virsh create"), "{}", err(&output));
    let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
    assert!(ran.contains("dominfo") && !ran.contains("define"), "{ran}");
}

/// virsh finds the running domain with the ID 2 by `--domain 2`, not the domain with the name 2.
#[test]
fn a_domain_whose_name_is_a_number_is_not_taken_for_an_id() {
    let folder = tempfile::tempdir().unwrap();
    let uuid = "b47e2bb3-2f2f-4fd1-a4a2-09f7a1f7c0d5";
    let script = format!(
        "#!/bin/sh\necho \"$*\" >>{0}/ran\ncase \" $* \" in\n*' list '*) echo '{uuid} 2' ;;\n\
         *' --domain {uuid} '*) [ $1 = dominfo ] && echo 'Persistent: no' || cat {0}/xml ;;\n\
         *) echo '<domain type=\"lxc\"/>' ;;\nesac\n",
        folder.path().display()
    );
    let path = with_virsh(folder.path(), &script);
    std::fs::write(folder.path().join("xml"), XML).unwrap();
    let fix = |subject: &str, option: &str| {
        let mut fix = command(&["vm", "fix", subject, "--for", "amd", option]);
        fix.env("PATH", &path).output().unwrap()
    };
    let output = fix("libvirt:2", "--all");
    assert_eq!(output.status.code(), Some(1), "{}{}", out(&output), err(&output));
    // It asks whether the right domain is transient.
    let output = fix("libvirt:2", "--apply");
    assert!(err(&output).contains("transient"), "{}{}", out(&output), err(&output));
    let output = fix("libvirt:7", "--all");
    assert!(out(&output).is_empty(), "{}{}", out(&output), err(&output));
    let ran = std::fs::read_to_string(folder.path().join("ran")).unwrap();
    assert!(ran.contains(&format!("dominfo --domain {uuid}")), "{ran}");
    assert!(!ran.contains("--domain 2") && !ran.contains("--domain 7"), "{ran}");
}
