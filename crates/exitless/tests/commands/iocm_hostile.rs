//! A front-end that the running daemon refuses again and again.

use iocm::ring::RingFeatures;
use iocm::testing::{FrontEnd, NetDriver, connect_within};
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::command::command;
use crate::iocm_device::Ended;

const LIMIT: Duration = Duration::from_secs(60);
/// The size of each queue.
const SIZE: u16 = 64;

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

/// A guest of the switch whose two queues are served.
fn guest(socket: &Path) -> (FrontEnd, NetDriver) {
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let driver = NetDriver::new(SIZE, features);
    let mut front = FrontEnd::new(connect_within(LIMIT, socket).unwrap()).unwrap();
    front.negotiate(&driver.receive, 0).unwrap();
    assert!(front.start(0, &driver.receive.layout(), SIZE.into(), 0).unwrap());
    assert!(front.start(1, &driver.transmit.layout(), SIZE.into(), 0).unwrap());
    (front, driver)
}

/// Sends `SEND_RARP` for an address. Returns whether the daemon sent the announcement.
fn announce(front: &mut FrontEnd, [a, b, c, d, e, f]: [u8; 6]) -> bool {
    front.tell(19, &[a, b, c, d, e, f, 0, 0], &[]).unwrap()
}

#[test]
fn announcements_from_anothers_address_are_refused_and_the_log_stays_short() {
    const TIMES: usize = 2000;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let mut text = String::from("[control]\nsocket = \"\"\nmount = \"\"\n");
    for number in 1..=2 {
        text += &format!(
            "[[device]]\nname = \"n{number}\"\ntype = \"net\"\nsocket = {:?}\nmac = \"02:00:00:00:00:0{number}\"\n\
             backend = {{ switch = \"lan\", check-source = true }}\n",
            at(&format!("n{number}.sock"))
        );
    }
    std::fs::write(at("iocm.toml"), text).unwrap();
    let began = Instant::now();
    let mut command = command(&["iocm", "serve", "--config"]);
    command.arg(at("iocm.toml")).env("NO_COLOR", "1").stderr(Stdio::piped());
    let mut daemon = Ended(command.spawn().unwrap());
    let (mut attacker, _) = guest(&at("n1.sock"));
    let (front, mut other) = guest(&at("n2.sock"));
    for _ in 0..8 {
        other.offer(2048).unwrap();
    }
    front.kick().unwrap();
    for _ in 0..TIMES {
        assert!(!announce(&mut attacker, mac(2)), "it takes another port's address");
    }
    assert!(announce(&mut attacker, mac(1)), "its own");
    let end = Instant::now() + LIMIT;
    let (_, frame, _) = loop {
        match other.received() {
            Some(packet) => break packet,
            None => assert!(Instant::now() < end, "its own announcement does not come"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(frame[6..12], mac(1), "what came first is the only one that was sent");
    assert!(other.received().is_none());
    daemon.0.kill().unwrap();
    let mut said = String::new();
    daemon.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let lines = said.lines().filter(|line| line.contains("request 19 is refused")).count();
    println!("{TIMES} announcements that were refused left {lines} lines in the log");
    // At most ten lines in ten seconds.
    let most = 10 * (1 + began.elapsed().as_secs() as usize / 10);
    assert!((10..=most).contains(&lines), "{lines} lines:\n{said}");
}
