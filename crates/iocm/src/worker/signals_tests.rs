use super::*;
use rustix::event::{EventfdFlags, eventfd};
use std::sync::atomic::AtomicBool;

/// An eventfd that blocks.
fn file() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap())
}

/// The number of signals since the last read.
fn count(file: &OwnedFd) -> u64 {
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
            assert!(signals.flush());
            assert!(files.iter().all(|file| count(file) == 1), "turn {turn}, mapped: {is_mapped}");
        }
        signals.is_mapped = true;
    }
}

#[test]
fn a_full_eventfd_keeps_nobody_waiting_while_its_flag_is_switched() {
    let full = file();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let other = file();
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
        for _ in 0..100_000 {
            signals.add(&full);
            signals.add(&other);
            assert!(signals.flush());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((count(&full), count(&other)), (u64::MAX, 100_000));
}

#[test]
fn what_the_kernel_refuses_is_kept_once_and_signalled_later() {
    let files: Vec<_> = (0..2 * BATCH).map(|_| file()).collect();
    let mut signals = Signals::new().unwrap();
    signals.refusals = 2000;
    for _ in 0..10 {
        files.iter().for_each(|file| signals.add(file));
    }
    assert!(!signals.flush());
    assert!(signals.files.len() <= files.len() + BATCH, "{}", signals.files.len());
    signals.refusals = 0;
    assert!(signals.flush());
    assert!(files.iter().all(|file| count(file) > 0));
}

#[test]
fn what_cannot_be_signalled_is_left_out_and_the_others_are() {
    let pipe = || Arc::new(OwnedFd::from(std::io::pipe().unwrap().0));
    let files = [pipe(), file(), pipe(), pipe(), file(), pipe()];
    let mut signals = Signals::new().unwrap();
    files.iter().for_each(|file| signals.add(file));
    assert!(signals.flush());
    assert_eq!([1, 4].map(|at| count(&files[at])), [1, 1]);
}

#[test]
fn an_eventfd_that_its_queue_has_closed_is_signalled_and_no_other() {
    let closed = file();
    let same = closed.try_clone().unwrap();
    let mut signals = Signals::new().unwrap();
    signals.add(&closed);
    drop(closed);
    let next: Vec<_> = (0..64).map(|_| file()).collect();
    assert!(signals.flush());
    assert_eq!(count(&same), 1);
    assert!(next.iter().all(|file| count(file) == 0));
}

#[test]
fn a_host_without_room_for_a_context_is_told_what_to_raise() {
    let text = |number| no_context(io::Error::from_raw_os_error(number)).to_string();
    assert!(text(libc::EAGAIN).contains("fs.aio-max-nr"));
    assert!(text(libc::ENOSYS).contains("CONFIG_AIO"));
}
