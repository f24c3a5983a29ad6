use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// The number of `getppid`.
const GETPPID: exits::ExitReason = exits::ExitReason::vmx(110);

#[test]
fn losses_are_told_once_also_if_they_could_not_be_read_in_between() {
    let mut told = Told::default();
    assert_eq!([5, 7, 0, 3, 7, 9].map(|sum| told.more(sum)), [5, 2, 0, 0, 0, 2]);
}

#[test]
fn the_last_exits_of_a_thread_that_ended_are_not_freed_before_they_are_read() {
    let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
    let mut collector = match Collector::attach_to_system_calls(&watch) {
        Ok(collector) => collector,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    let (go, wait) = channel::<()>();
    let caller = thread::spawn(move || {
        wait.recv().unwrap();
        for _ in 0..100 {
            // SAFETY: takes nothing and changes nothing.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    });
    // As in the midst of a reading: the next epoch has begun, and the thread counts in it and ends.
    let epoch = collector.epoch;
    collector.epoch += 1;
    collector.epoch_map.set(0, collector.epoch, 0).unwrap();
    waiting::wait_for_programs();
    go.send(()).unwrap();
    caller.join().unwrap();
    collector.cells.free(epoch, |_| false).unwrap();
    let profile = collector.finish().unwrap();
    let counted = profile.reasons().get(&GETPPID).map_or(0, |exits| exits.count);
    assert!(counted <= 100 && counted + profile.losses.lost_exits >= 100, "{counted}, {:?}", profile.losses);
}
