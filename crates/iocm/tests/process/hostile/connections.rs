//! More connections than there are descriptors for.

use super::stage::{Neighbour, Stage, connect};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The CPU time of a process, in ticks of a hundredth of a second.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// No descriptor is left for the next connection, or for an eventfd that a front-end sends.
pub(crate) fn no_descriptor_left() {
    let mut stage = Stage::new(&["", "", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let process = rustix::process::Pid::from_raw(stage.daemon.0.id() as i32);
    let descriptors = |count| {
        let limit = rustix::process::Rlimit { current: Some(count), maximum: Some(4096) };
        rustix::process::prlimit(process, rustix::process::Resource::Nofile, limit).unwrap()
    };
    let limit = descriptors(3);
    assert_eq!(limit.current, limit.maximum, "the daemon has raised it");
    // The waiting thread already has a descriptor for the next connection; the one after that gets none.
    for disk in [0, 2] {
        drop(UnixStream::connect(stage.socket(disk)).unwrap());
    }
    std::thread::sleep(Duration::from_millis(200));
    let before = ticks(stage.daemon.0.id());
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(stage.daemon.0.id()) - before;
    println!("a daemon without descriptors used {} % of a CPU", used);
    assert!(used < 20, "{used} % of a CPU");
    assert!(neighbour.read(Duration::from_secs(20)).is_some());
    descriptors(4096);
    let mut front = connect(&stage.socket(2));
    assert!(front.ask(1).unwrap() != 0, "it goes on when there are some again");
    drop(front);
    let mut late = Neighbour::new(&stage.socket(2));
    descriptors(3);
    let call = late.front.call.try_clone().unwrap();
    let told = late.front.tell(13, &0_u64.to_ne_bytes(), &[call.as_fd()]);
    assert!(told.is_err(), "a queue without its call is not served on: {told:?}");
    descriptors(4096);
    let mut late = Neighbour::new(&stage.socket(2));
    assert!(late.read(Duration::from_secs(20)).is_some(), "it connects again");
    assert!(neighbour.read(Duration::from_secs(20)).is_some());
    assert!(stage.is_alive());
}
