use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::testing::{LONG, beyond_limits, ends};

fn host() -> (tempfile::TempDir, HostGuest) {
    let folder = tempfile::tempdir().unwrap();
    let guest = HostGuest::new(0, folder.path()).unwrap();
    (folder, guest)
}

#[test]
fn a_script_gives_its_outputs_and_its_status() {
    let (folder, mut guest) = host();
    let output = guest.run("echo \"it's\"; echo wrong >&2; pwd; exit 3", LONG).unwrap();
    assert_eq!(output.status, 3);
    assert_eq!(output.stdout, format!("it's\n{}\n", folder.path().join("host-0").display()));
    assert_eq!(output.stderr, "wrong\n");
    assert_eq!(guest.run("kill -9 $$", LONG).unwrap().status, 137);
}

#[test]
fn nothing_runs_before_the_release_and_the_time_is_that_of_its_beginning() {
    let (folder, mut guest) = host();
    let mut armed = guest.arm("touch began; sleep 0.05", LONG).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!folder.path().join("host-0/began").exists());
    let before = live::monotonic_ns();
    armed.release().unwrap();
    let finished = armed.finish(&AtomicBool::new(false)).unwrap();
    assert!(folder.path().join("host-0/began").exists());
    assert!((before..live::monotonic_ns()).contains(&finished.began_ns));
    assert!(finished.ended_ns - finished.began_ns >= 50_000_000);
}

#[test]
fn a_script_beyond_its_limit_is_ended_with_what_it_started() {
    let (folder, mut guest) = host();
    let pid = beyond_limits(&folder.path().join("host-0/pid"), |limit| {
        guest.run("sh -c 'echo $$ > pid; sleep 100'", limit).unwrap_err()
    });
    assert!(ends(&pid));
}

#[test]
fn what_a_script_started_is_ended_although_it_outlives_the_script() {
    let (folder, mut guest) = host();
    let script = "(trap '' TERM; exec sleep 1000) > /dev/null 2>&1 & echo $! > pid; wait";
    let pid = beyond_limits(&folder.path().join("host-0/pid"), |limit| guest.run(script, limit).unwrap_err());
    assert!(ends(&pid));
}

#[test]
fn a_server_is_ended_when_it_is_asked_to_stop() {
    let (folder, mut guest) = host();
    let script = "trap 'echo bye; exit 0' TERM; touch ready; while :; do sleep 0.01; done";
    let mut server = guest.arm(script, LONG).unwrap();
    server.release().unwrap();
    while !folder.path().join("host-0/ready").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let stop = AtomicBool::new(false);
    stop.store(true, Ordering::Relaxed);
    let finished = server.finish(&stop).unwrap();
    assert_eq!((finished.output.stdout.as_str(), finished.output.status), ("bye\n", 0));
}

#[test]
fn a_server_does_not_outlive_this_program() {
    let (_folder, mut guest) = host();
    let output = guest.run("exec setpriv --dump", LONG).unwrap();
    assert!(output.stdout.contains("Parent death signal: KILL"), "{output:?}");
}

#[test]
fn one_that_was_never_released_does_not_run() {
    let (folder, mut guest) = host();
    let armed = guest.arm("touch ran", LONG).unwrap();
    let finished = armed.finish(&AtomicBool::new(true)).unwrap();
    assert_eq!(finished.output.status, 143);
    drop(guest.arm("touch ran", LONG).unwrap());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!folder.path().join("host-0/ran").exists());
}

#[test]
fn what_a_script_leaves_in_the_background_holds_nobody_up() {
    let (_folder, mut guest) = host();
    let begun = Instant::now();
    assert_eq!(guest.run("sleep 30 & echo done", LONG).unwrap().stdout, "done\n");
    assert!(begun.elapsed() < Duration::from_secs(20));
}
