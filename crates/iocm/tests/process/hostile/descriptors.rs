//! Descriptors that block whoever writes to them.

use super::stage::{Attacker, Neighbour, PLACE, Stage};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

/// An eventfd that blocks, and is full: the next write to it waits.
fn full() -> OwnedFd {
    let file = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    file
}

/// Tests whether `act` returns in time; a thread that hangs is left behind.
pub(crate) fn ends(act: impl FnOnce() + Send + 'static) -> bool {
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        act();
        let _ = told.send(());
    });
    heard.recv_timeout(LIMIT).is_ok()
}

/// Checks that the daemon still works: another guest's reads, the control socket, a change of the attacked device, and
/// its end.
pub(crate) fn goes_on(stage: &mut Stage, neighbour: &mut Neighbour) {
    assert!(neighbour.read(LIMIT).is_some(), "another guest waits for the worker");
    let mut control = stage.control();
    assert!(ends(move || drop(control.set("vq.0.0/weight", "50"))), "the control socket hangs");
    let mut control = stage.control();
    assert!(ends(move || drop(control.create("workers", "{}").unwrap())), "no worker can be made");
    let mut control = stage.control();
    assert!(ends(move || drop(control.remove("d.0"))), "the device cannot be removed");
    let mut control = stage.control();
    assert!(ends(move || control.remove("w.0").unwrap()), "the worker cannot end");
    assert!(neighbour.read(LIMIT).is_some());
    assert!(stage.is_alive());
}

/// The number of times that the worker's thread has waited for anything.
fn waits(stage: &mut Stage) -> u64 {
    let thread = stage.control().get("w.0/pid").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/task/{thread}/status", stage.daemon.0.id()));
    let status = status.unwrap();
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    waits.trim().parse().unwrap()
}

/// A call eventfd that is full, and is set to block again after it was passed to the daemon.
pub(crate) fn a_full_call() {
    const SIGNALS: u64 = 300;
    for polling in ["adaptive", "always"] {
        let mut stage = Stage::new(&["", ""]);
        stage.control().set("w.0/pace/polling", polling).unwrap();
        let mut neighbour = Neighbour::new(&stage.socket(1));
        let mut attacker = Attacker::new(&stage.socket(0), 64, None);
        let call = full();
        let mine = call.try_clone().unwrap();
        attacker.front.call = call;
        let before = waits(&mut stage);
        let attack = std::thread::spawn(move || {
            attacker.start(64);
            // The front-end shares the flag.
            rustix::fs::fcntl_setfl(&mine, OFlags::RDWR).unwrap();
            for _ in 0..SIGNALS {
                attacker.request(0, 0, &[(PLACE, 512, true)]);
                assert_eq!(attacker.ended(LIMIT), Some(0));
            }
            attacker
        });
        let (mut reads, end) = (Vec::new(), Instant::now() + LIMIT);
        while !attack.is_finished() && Instant::now() < end {
            reads.push(neighbour.read(LIMIT).expect("another guest waits for the worker"));
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(attack.is_finished(), "the attacker waits for the worker");
        std::mem::forget(attack.join().unwrap());
        reads.sort_unstable();
        let (median, worst) = (reads[reads.len() / 2], reads[reads.len() - 1]);
        let waits = waits(&mut stage) - before;
        println!(
            "{polling}: {} reads of another guest: median {median:?}, worst {worst:?}; {waits} waits",
            reads.len()
        );
        // A worker that always polls waits only in signals: in one, 20 ms, and not in each. The others are for locks.
        assert!(polling != "always" || waits < SIGNALS / 10, "the worker has waited {waits} times");
        goes_on(&mut stage, &mut neighbour);
    }
}

/// The same, while the front-end switches blocking on and off as fast as it can: the flag may change between any two
/// looks of the kernel.
pub(crate) fn a_full_call_that_switches() {
    const SIGNALS: usize = 2000;
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    attacker.front.call = full();
    assert!(attacker.start(64));
    let mine = attacker.front.call.try_clone().unwrap();
    let stop = AtomicBool::new(false);
    let signalled = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for flags in [OFlags::RDWR, OFlags::RDWR | OFlags::NONBLOCK] {
                    rustix::fs::fcntl_setfl(&mine, flags).unwrap();
                }
            }
        });
        let is_signalled = |_: &usize| {
            attacker.request(0, 0, &[(PLACE, 512, true)]);
            attacker.ended(LIMIT) == Some(0)
        };
        let signalled = (0..SIGNALS).take_while(is_signalled).count();
        stop.store(true, Ordering::Relaxed);
        signalled
    });
    assert_eq!(signalled, SIGNALS, "the worker waits in a signal");
    goes_on(&mut stage, &mut neighbour);
}

/// The same for the error eventfd.
pub(crate) fn a_full_error() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    attacker.error = full();
    assert!(ends(move || {
        attacker.start(64);
        rustix::fs::fcntl_setfl(&attacker.error, OFlags::RDWR).unwrap();
        attacker.driver.offer(999);
        attacker.front.kick().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        std::mem::forget(attacker);
    }));
    goes_on(&mut stage, &mut neighbour);
}

/// Kicks that the front-end takes back before the worker sees them, from an eventfd that blocks: reading an empty one
/// waits.
pub(crate) fn kicks_taken_back() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    attacker.front.kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    assert!(attacker.start(64));
    assert!(ends(move || {
        for _ in 0..20_000 {
            attacker.front.kick().unwrap();
            rustix::io::read(&attacker.front.kick, &mut [0; 8]).unwrap();
        }
        std::mem::forget(attacker);
    }));
    goes_on(&mut stage, &mut neighbour);
}

/// Pipes, sockets and files are no eventfds.
pub(crate) fn no_eventfd() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    let (_reader, pipe) = std::io::pipe().unwrap();
    let number = 0_u64.to_ne_bytes();
    for (code, what) in [(12, "kick"), (13, "call"), (14, "error")] {
        for file in [pipe.as_fd(), attacker.driver.file.as_fd()] {
            assert!(!attacker.front.tell(code, &number, &[file]).unwrap(), "{what}");
        }
    }
    assert!(attacker.start(64));
    attacker.request(0, 0, &[(PLACE, 512, true)]);
    assert_eq!(attacker.ended(LIMIT), Some(0));
    drop(attacker);
    goes_on(&mut stage, &mut neighbour);
}

/// A front-end that does not read the back-end's requests.
pub(crate) fn a_full_socket() {
    let mut stage = Stage::new(&["", ""]);
    let mut neighbour = Neighbour::new(&stage.socket(1));
    let mut attacker = Attacker::new(&stage.socket(0), 64, None);
    assert!(attacker.start(64));
    let flags = SocketFlags::CLOEXEC;
    let (theirs, _mine) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let filler = theirs.try_clone().unwrap();
    assert!(attacker.front.tell(21, &[], &[theirs.as_fd()]).unwrap());
    while rustix::net::send(&filler, &[0; 4096], rustix::net::SendFlags::DONTWAIT).is_ok() {}
    while rustix::net::send(&filler, &[0], rustix::net::SendFlags::DONTWAIT).is_ok() {}
    let mut control = stage.control();
    let began = Instant::now();
    assert!(ends(move || drop(control.set("d.0/size", "2147483648"))), "a change of the size hangs");
    println!("the size was set in {:?}", began.elapsed());
    goes_on(&mut stage, &mut neighbour);
    drop(attacker);
}
