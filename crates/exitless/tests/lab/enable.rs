//! `exitless enable`, `disable` and `restore` on real KVM hosts, where a real module is loaded again with
//! another parameter.

use serde_json::Value;

use crate::command::{forced_avic, run};

/// Waits until the module is gone, so that the kill comes in the middle of the change; or until the process has ended, which
/// then is a zombie.
const CUT: &str = "while [ -e /sys/module/kvm_intel ] && read -r _ _ STATE _ </proc/$!/stat && [ $STATE != Z ]; do :; \
                   done; kill -9 $!";

fn lines(lab: &str, script: &str) -> Vec<String> {
    let said = run(&["lab", "run", lab, "--", "sh", "-c", script]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    said.out.lines().map(str::to_owned).collect()
}

#[test]
fn apicv_is_switched_on_by_loading_the_module_again_and_off_by_restore() {
    let value = "cat /sys/module/kvm_intel/parameters/enable_apicv";
    let script = format!(
        "rmmod kvm_intel; modprobe kvm_intel enable_apicv=0; {value}; \
         exitless enable --reload --apply >/dev/null; echo $?; {value}; \
         exitless enable --reload --apply | tail -n 1; \
         exitless restore >/dev/null; echo $?; {value}; exitless restore; \
         exitless enable --reload --apply >/dev/null & {CUT}; wait; \
         exitless restore >/dev/null; echo $?; {value}; exitless restore --dry-run"
    );
    let expected =
        ["N", "0", "Y", "Nothing to do.", "0", "N", "Nothing to restore.", "0", "N", "Nothing to restore."];
    assert_eq!(lines("intel-apicv", &script), expected);
}

#[test]
fn a_cpu_without_avic_is_refused_and_a_module_in_use_is_left_alone() {
    let script = "exitless enable --reload --apply --json; echo $?; \
        qemu-system-x86_64 -name busy -accel kvm -display none -nodefaults -S -m 64 </dev/null >/dev/null 2>&1 & \
        while [ $(cat /sys/module/kvm_amd/refcnt) = 0 ]; do sleep 0.1; done; sleep 1; \
        exitless disable --reload --apply --json; echo $?; kill $!; ls /run/exitless-journal 2>&1";
    let said = forced_avic(script);
    let mut documents = serde_json::Deserializer::from_str(&said.out).into_iter::<Value>();
    let refused = documents.next().unwrap().unwrap();
    assert_eq!(refused["refusals"][0]["name"], "contradiction", "{refused}");
    assert_eq!(refused["applied"], Value::Null);
    assert_eq!(documents.next().unwrap().unwrap(), 1);
    let blocked = documents.next().unwrap().unwrap();
    let steps = blocked["steps"].as_array().unwrap();
    let reload = steps.iter().find(|step| step["name"] == "reload").unwrap_or_else(|| panic!("{blocked}"));
    assert_eq!(reload["standing"], "blocked");
    assert!(reload["blocked_by"].as_str().is_some_and(|why| why.contains("busy (process")), "{reload}");
    assert_eq!(documents.next().unwrap().unwrap(), 1);
    // Nothing was changed, so no journal exists.
    assert!(
        said.out.contains("No such file") || said.err.contains("No such file"),
        "{}{}",
        said.out,
        said.err
    );
}
