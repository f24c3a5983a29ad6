//! The agent's systemd unit.

use std::process::Command;

#[test]
fn the_unit_leaves_doctor_the_modules_files_and_the_commands_their_threads_and_system_calls() {
    let unit = include_str!("../../../packaging/fleet/exitless-fleet-agent.service");
    assert!(!unit.contains("\nProtectKernelModules="));
    let tasks = unit.lines().find_map(|line| line.strip_prefix("TasksMax=")).unwrap();
    // Each of the four commands inspects processes with up to 128 threads, and the files that these name with as many.
    assert!(tasks.parse::<u32>().unwrap() > 4 * 2 * 128);
    // For KVM's statistics without eBPF. @system-service lacks it.
    let calls = unit.lines().find_map(|line| line.strip_prefix("SystemCallFilter=@system-service ")).unwrap();
    assert!(calls.split(' ').any(|call| call == "pidfd_getfd"), "{calls}");
}

#[test]
fn systemd_understands_the_unit() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/fleet/exitless-fleet-agent.service");
    // The programs that the unit names are not installed here.
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(unit).unwrap().replace("/usr/bin/exitless-fleet", "/bin/true");
    let path = folder.path().join("exitless-fleet-agent.service");
    std::fs::write(&path, text).unwrap();
    let verify = Command::new("systemd-analyze").arg("verify").arg("--man=no").arg(&path).output();
    let Ok(verify) = verify else { return println!("not tested: there is no systemd-analyze here") };
    let said = String::from_utf8_lossy(&verify.stderr);
    // The output also mentions other units of this machine.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("exitless-fleet-agent")).collect();
    assert!(verify.status.success() && ours.is_empty(), "{said}");
}
