//! The tuning loop in the laboratory with emulated AMD.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use crate::command::run;

/// A VM with an old guest's disk, as libvirt's XML.
const XML: &str = "<domain type='kvm'>
  <name>old</name>
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
  </os>
  <cpu mode='host-passthrough'/>
  <devices>
    <!-- the disk of the nineties -->
    <disk type='file' device='disk'>
      <source file='/var/lib/libvirt/images/old.img'/>
      <target dev='hda' bus='ide'/>
    </disk>
  </devices>
</domain>
";

/// The runs of a study, and the times at which they were written.
fn runs(folder: &Path) -> BTreeMap<OsString, SystemTime> {
    let written = |run: std::io::Result<DirEntry>| {
        let run = run.unwrap();
        (run.file_name(), run.path().join("run.json").metadata().unwrap().modified().unwrap())
    };
    std::fs::read_dir(folder).unwrap().map(written).collect()
}

/// Tunes the VM of `definition` with the small shipped plan, without its listed changes, into `result`.
fn tune(result: &Path, definition: &Path) -> Value {
    let (result, definition) = (result.to_str().unwrap(), definition.to_str().unwrap());
    let said = run(&[
        "tune",
        "tune-advised-lab",
        "--target",
        "lab:amd-svm",
        "--output",
        result,
        "--definition",
        definition,
        "--json",
    ]);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    said.json()
}

#[test]
fn a_tuning_finds_the_change_that_helps_by_itself_and_makes_it_in_a_copy_of_the_definition() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    let definition = folder.path().join("old.xml");
    std::fs::write(&definition, XML).unwrap();
    let tuning = tune(&result, &definition);
    assert_eq!(tuning["complete"], true, "{tuning:#}");
    assert_eq!(tuning["kept"], serde_json::json!(["ide-virtio-blk"]), "{tuning:#}");
    let step = &tuning["steps"][0];
    assert_eq!((step["ruling"].as_str(), step["advised"]["device"].as_str()), (Some("kept"), Some("ide")));
    assert!(step["advised"]["exits_per_second"].as_f64() > Some(10.0), "{step:#}");
    let read = |name: &str| std::fs::read_to_string(result.join(name)).unwrap();
    let difference = read("changes.diff");
    for line in ["--device ide-hd,bus=ide.0,drive=data", "+-device virtio-blk-pci,drive=data"] {
        assert!(difference.contains(&format!("\n{line}")), "{line} is not in\n{difference}");
    }
    // The original is unchanged. The tuned one is next to it and differs in this change only.
    assert_eq!(std::fs::read_to_string(&definition).unwrap(), XML);
    let tuned = XML.replace("<target dev='hda' bus='ide'/>", "<target dev='vda' bus='virtio'/>");
    assert_eq!(read("definition.tuned"), tuned);
    assert!(read("definition.diff").contains("\n+      <target dev='vda' bus='virtio'/>"));
    let page = read("report.md");
    assert!(page.contains("## 1. ide-virtio-blk: kept"), "{page}");
    assert!(result.join("steps/1-ide-virtio-blk/report.html").is_file());
    // All results exist, so nothing is run again.
    let measured = || runs(&result.join("steps/1-ide-virtio-blk/runs"));
    let before = measured();
    assert!(!before.is_empty());
    assert_eq!(tune(&result, &definition), tuning);
    assert_eq!(measured(), before);
}

#[test]
fn a_dry_run_shows_the_steps_and_makes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let result = folder.path().join("result");
    for (plan, parts) in [
        ("tune-old-guest", &["7. io-uring (16 runs)", "--device ide-hd", "+-device virtio-blk-pci"][..]),
        ("tune-advised", &["Then at most 6 changes by what is advised"]),
    ] {
        let said = run(&["tune", plan, "--dry-run", "--output", result.to_str().unwrap()]);
        assert_eq!(said.status, 0, "{}", said.err);
        for part in parts {
            assert!(said.out.contains(part), "{part} is not in\n{}", said.out);
        }
        assert!(!result.exists());
    }
}
