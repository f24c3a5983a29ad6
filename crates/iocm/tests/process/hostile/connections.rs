//! Connections that are too many.

use super::stage::{Neighbour, Stage, connect};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// CPU that a process has used, in ticks of a hundredth of a second.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// No descriptor is left for the next connection.
pub(crate) fn no_descriptor_left() {
    let mut stage = Stage::new(&["", "", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let process = rustix::process::Pid::from_raw(stage.daemon.0.id() as i32);
    let count = std::fs::read_dir(format!("/proc/{}/fd", stage.daemon.0.id())).unwrap().count() as u64;
    let limit = rustix::process::Rlimit { current: Some(count + 1), maximum: Some(4096) };
    rustix::process::prlimit(process, rustix::process::Resource::Nofile, limit).unwrap();
    // One takes the last descriptor, and the next one finds none.
    let _kept: Vec<UnixStream> = [0, 2].map(|disk| UnixStream::connect(stage.socket(disk)).unwrap()).into();
    std::thread::sleep(Duration::from_millis(200));
    let before = ticks(stage.daemon.0.id());
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks(stage.daemon.0.id()) - before;
    println!("a daemon without descriptors used {} % of a CPU", used);
    assert!(used < 20, "{used} % of a CPU");
    assert!(neighbour.read(Duration::from_secs(20)).is_some());
    let limit = rustix::process::Rlimit { current: Some(4096), maximum: Some(4096) };
    rustix::process::prlimit(process, rustix::process::Resource::Nofile, limit).unwrap();
    drop(_kept);
    let mut front = connect(&stage.socket(2));
    assert!(front.ask(1).unwrap() != 0, "it goes on when there are some again");
    assert!(stage.is_alive());
}
