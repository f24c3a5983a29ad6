use super::*;
use crate::clock::now_ns;
use crate::queue::QueueState;
use rustix::event::{EventfdFlags, eventfd};
use std::sync::atomic::AtomicBool;

/// An eventfd that blocks, of a device.
fn file_of(device: &QueueState) -> Arc<Eventfd> {
    Eventfd::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap(), device)
}

/// An eventfd that blocks, of a device of its own.
fn file() -> Arc<Eventfd> {
    file_of(&QueueState::default())
}

/// Writes to it until it is full.
fn fill(file: &Eventfd) {
    rustix::io::write(file, &(u64::MAX - 1).to_ne_bytes()).unwrap();
}

/// The number of signals since the last read.
fn count(file: impl AsFd) -> u64 {
    let file = file.as_fd();
    rustix::fs::fcntl_setfl(file, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
    let mut count = [0; 8];
    rustix::io::read(file, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

#[test]
fn each_is_signalled_once_however_many_there_are_and_whatever_the_ring_is_like() {
    let files: Vec<_> = (0..3 * BATCH + 1).map(|_| file()).collect();
    let mut signals = Signals::new().unwrap();
    for is_mapped in [true, false] {
        assert!(signals.is_mapped, "this kernel's ring is known");
        signals.is_mapped = is_mapped;
        for turn in 0..200 {
            files.iter().for_each(|file| signals.add(file));
            assert!(signals.flush(now_ns()));
            assert!(files.iter().all(|file| count(file) == 1), "turn {turn}, mapped: {is_mapped}");
        }
        signals.is_mapped = true;
    }
}

#[test]
fn a_full_eventfd_keeps_nobody_waiting_while_its_flag_is_switched() {
    let (full, other) = (file(), file());
    fill(&full);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for flags in [OFlags::RDWR, OFlags::RDWR | OFlags::NONBLOCK] {
                    rustix::fs::fcntl_setfl(&full, flags).unwrap();
                }
            }
        });
        let mut signals = Signals::new().unwrap();
        for turn in 0..100_000 {
            signals.add(&full);
            // Alone, an eventfd is written to.
            assert!(turn % 2 == 0 || signals.flush(now_ns()));
            signals.add(&other);
            assert!(signals.flush(now_ns()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((count(&full), count(&other)), (u64::MAX, 100_000));
}

/// Signals the eventfd alone. What the test waited for before is not taken for a wait of the signal.
fn signal(signals: &mut Signals, file: &Arc<Eventfd>, now: u64) {
    signals.slept();
    signals.add(file);
    assert!(signals.flush(now));
}

/// Signals that are about to write, at this time.
fn busy(now: u64) -> Signals {
    let (mut signals, file) = (Signals::new().unwrap(), file());
    (0..=OFTEN).for_each(|_| signal(&mut signals, &file, now));
    assert_eq!(signals.writes, 1);
    signals
}

#[test]
fn one_that_is_signalled_often_is_written_to() {
    let (file, others) = (file(), [file(), file()]);
    let mut now = now_ns();
    let mut signals = busy(now);
    signal(&mut signals, &file, now);
    assert_eq!(signals.writes, 2);
    others.iter().for_each(|other| signals.add(other));
    assert!(signals.flush(now));
    assert_eq!(signals.writes, 2, "several at once");
    now += LIMIT_NS / 2;
    (0..OFTEN).for_each(|_| signal(&mut signals, &file, now));
    assert_eq!(signals.writes, 2, "after a while");
    signal(&mut signals, &file, now);
    assert_eq!(signals.writes, 3);
    assert_eq!(count(&file), 2 + u64::from(OFTEN));
}

#[test]
fn a_device_whose_full_eventfds_block_makes_a_worker_wait_once() {
    let (hostile, other, now) = (QueueState::default(), file(), now_ns());
    let mut signals = busy(now);
    for turn in 0..50 {
        signals.writes = 0;
        // Its front-end replaces the eventfd.
        let full = file_of(&hostile);
        fill(&full);
        signal(&mut signals, &full, now);
        assert_eq!(signals.writes, u32::from(turn == 0), "turn {turn}");
        assert_eq!(full.no_writes_until(), u64::MAX);
        assert_eq!(count(&full), u64::MAX, "it is signalled nevertheless");
        signals.writes = 0;
        signal(&mut signals, &other, now);
        assert_eq!(signals.writes, u32::from(turn > 0), "after a pause, others are still written to");
        signals.no_writes_until = 0;
    }
}

#[test]
fn a_device_that_makes_a_worker_wait_for_less_than_the_limit_gets_little_of_it() {
    /// The time for which the front-end lets the worker wait.
    const WAIT: std::time::Duration = std::time::Duration::from_millis(5);
    let (full, state) = (eventfd(0, EventfdFlags::CLOEXEC).unwrap(), QueueState::default());
    let mine = full.try_clone().unwrap();
    let full = Eventfd::new(full, &state);
    let began = now_ns();
    let (mut signals, mut waited) = (busy(began), 0);
    for _ in 0..50 {
        // Reading it clears the flag for blocking.
        count(&full);
        fill(&full);
        rustix::fs::fcntl_setfl(&full, OFlags::RDWR).unwrap();
        let now = now_ns();
        // The worker's other signals, and its other devices.
        (signals.last, signals.in_a_row, signals.no_writes_until) = (now, OFTEN, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(WAIT);
                rustix::io::read(&mine, &mut [0; 8]).unwrap();
            });
            let before = waits();
            signal(&mut signals, &full, now);
            waited += u64::from(waits() != before);
        });
    }
    // Each wait is followed by more than a hundred times as long without.
    let most = 1 + (now_ns() - began) / (100 * WAIT.as_nanos() as u64);
    assert!((1..=most).contains(&waited), "{waited} waits, at most {most}");
}

#[test]
fn devices_that_take_turns_in_making_a_worker_wait_get_little_of_it() {
    let mut signals = busy(now_ns());
    let began = now_ns();
    let mut waited = 0;
    for _ in 0..300 {
        // Of another device each time.
        let full = file();
        fill(&full);
        let now = now_ns();
        (signals.last, signals.in_a_row) = (now, OFTEN);
        let before = waits();
        signal(&mut signals, &full, now);
        waited += u64::from(waits() != before);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let most = 1 + (now_ns() - began) / (PAUSE * LIMIT_NS / 2);
    assert!((1..=most).contains(&waited), "{waited} waits of 300, at most {most}");
}

#[test]
fn what_the_kernel_refuses_is_kept_once_and_signalled_later() {
    let files: Vec<_> = (0..2 * BATCH).map(|_| file()).collect();
    let mut signals = Signals::new().unwrap();
    signals.refusals = 2000;
    for _ in 0..10 {
        files.iter().for_each(|file| signals.add(file));
    }
    assert!(!signals.flush(now_ns()));
    assert!(signals.files.len() <= files.len() + BATCH, "{}", signals.files.len());
    signals.refusals = 0;
    assert!(signals.flush(now_ns()));
    assert!(files.iter().all(|file| count(file) > 0));
}

#[test]
fn what_cannot_be_signalled_is_left_out_and_the_others_are() {
    let pipe = || Eventfd::new(OwnedFd::from(std::io::pipe().unwrap().0), &QueueState::default());
    let files = [pipe(), file(), pipe(), pipe(), file(), pipe()];
    let mut signals = Signals::new().unwrap();
    files.iter().for_each(|file| signals.add(file));
    assert!(signals.flush(now_ns()));
    assert_eq!([1, 4].map(|at| count(&files[at])), [1, 1]);
}

#[test]
fn an_eventfd_that_its_queue_has_closed_is_signalled_and_no_other() {
    let closed = file();
    let same = closed.as_fd().try_clone_to_owned().unwrap();
    let mut signals = Signals::new().unwrap();
    signals.add(&closed);
    drop(closed);
    let next: Vec<_> = (0..64).map(|_| file()).collect();
    assert!(signals.flush(now_ns()));
    assert_eq!(count(&same), 1);
    assert!(next.iter().all(|file| count(file) == 0));
}

#[test]
fn a_host_without_room_for_a_context_is_told_what_to_raise() {
    let text = |number| no_context(io::Error::from_raw_os_error(number)).to_string();
    assert!(text(libc::EAGAIN).contains("fs.aio-max-nr"));
    assert!(text(libc::ENOSYS).contains("CONFIG_AIO"));
}
