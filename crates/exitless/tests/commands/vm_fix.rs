//! `exitless vm fix` on files.

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
    let undo = format!("`mv {} {}`", kept.display(), file.display());
    let said = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&undo), "{said}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), XML);
    assert!(std::fs::read_to_string(&file).unwrap().contains("tickpolicy='discard'"));
}
