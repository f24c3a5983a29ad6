use super::super::entry::LOOKED_AT_NS;
use super::*;
use crate::device::block::{BlockDevice, BlockOptions};
use crate::queue::{Handler, Notifiers, QueueState, Submitter, Token, Virtqueue, WorkDone};
use crate::ring::{Chain, RingFeatures};
use crate::testing::{BlockDriver, DATA, Driver};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, fallocate};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// A worker is about to end, has not submitted a request yet, and the kernel refuses it a thousand times more. The
/// request completes all the same, its guest is called, and the queue comes back.
#[test]
fn a_worker_ends_however_often_the_kernel_refuses_its_last_requests() {
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let options = BlockOptions { path: Some(disk.path().to_owned()), ..BlockOptions::default() };
    let device = BlockDevice::open(options).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let mut driver = BlockDriver::new(64, features);
    let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let notifiers = Notifiers { call: Some(call.try_clone().unwrap()), ..Notifiers::default() };
    let ring = driver.driver.ring().unwrap();
    let queue = Queue::new(ring, notifiers, Box::new(device.queue(64)), Arc::<QueueState>::default());
    driver.driver.enable_calls(true);
    driver.submit(1, 0, &[5; 4096], 0).unwrap();
    let (reply, queues) = channel();
    let worker = std::thread::spawn(move || {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let options = WorkerOptions::default();
        let mut run = Run::new(&options, Arc::clone(&mailbox), Arc::default(), Routes::new()).unwrap();
        run.add(queue);
        run.uring.refusals = 1000;
        assert_eq!(run.sweep(now_ns()), 1);
        mailbox.send(Command::Stop { reply });
        run.until_stopped();
    });
    let queues = queues.recv_timeout(Duration::from_secs(20)).expect("the worker ends");
    worker.join().unwrap();
    assert_eq!((queues.len(), queues[0].in_flight()), (1, 0));
    assert_eq!(driver.ended().map(|(_, status, _)| status), Some(0));
    assert!(rustix::io::read(&call, &mut [0; 8]).is_ok(), "the guest is called");
}

/// A queue of this device with a kick eventfd; the driver, and the state of the queue.
fn queue_of(device: &Arc<BlockDevice>, features: RingFeatures) -> (Queue, BlockDriver, Arc<QueueState>) {
    let driver = BlockDriver::new(64, features);
    let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let notifiers = Notifiers { kick: Some(kick), ..Notifiers::default() };
    let (ring, state) = (driver.driver.ring().unwrap(), Arc::<QueueState>::default());
    let queue = Queue::new(ring, notifiers, Box::new(device.queue(64)), Arc::clone(&state));
    (queue, driver, state)
}

/// A worker's thread with a queue of this device, which it polls; the driver, and the state of the queue.
fn polling(
    device: &Arc<BlockDevice>,
    features: RingFeatures,
    weight: u32,
) -> (Run, BlockDriver, Arc<QueueState>) {
    let (mut queue, driver, state) = queue_of(device, features);
    queue.weight = weight;
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let mut run = Run::new(&WorkerOptions::default(), mailbox, Arc::default(), Routes::new()).unwrap();
    run.add(queue);
    (run, driver, state)
}

/// A nap may last long, and its thread may then wait for a CPU.
#[test]
fn a_nap_is_counted_while_it_lasts() {
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let counters = Arc::<WorkerCounters>::default();
    let (its_mailbox, its_counters) = (Arc::clone(&mailbox), Arc::clone(&counters));
    let device = BlockDevice::open(BlockOptions::default()).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let (queue, _driver, state) = queue_of(&device, features);
    let worker = std::thread::spawn(move || {
        let mut run = Run::new(&WorkerOptions::default(), its_mailbox, its_counters, Routes::new()).unwrap();
        run.add(queue);
        run.counters.awake_ticks.start(ticks());
        run.nap(3_600_000_000_000)
    });
    let end = Instant::now() + Duration::from_secs(20);
    // That of the queue starts last.
    while state.counters.read().napped_ticks == 0 {
        assert!(Instant::now() < end, "the nap is not counted: {:?}", counters.read());
        std::thread::sleep(Duration::from_millis(1));
    }
    let [first, second] = [counters.read(), counters.read()];
    assert!(second.napped_ticks > first.napped_ticks, "{first:?} {second:?}");
    assert_eq!(second.awake_ticks, first.awake_ticks, "it is not awake meanwhile");
    // For a queue that is polled it is part of the time without kicks.
    let [first, second] =
        [0; 2].map(|_| (state.counters.napped_ticks.get(), state.counters.unkicked_ticks.get()));
    assert!(second.0 > first.0 && second.0 <= second.1, "{first:?} {second:?}");
    mailbox.send(Command::Polling(Polling::Always));
    assert!(worker.join().unwrap(), "the command ends the nap");
    let [first, second] = [counters.read(), counters.read()];
    assert!(second.awake_ticks > first.awake_ticks, "{first:?} {second:?}");
    assert_eq!(second.napped_ticks, first.napped_ticks, "it is over");
    let [first, second] = [0; 2].map(|_| state.counters.napped_ticks.get());
    assert!(first == second && first > 0, "{first} {second}");
}

/// A request comes just before the worker sleeps, so the queue stays polled.
#[test]
fn a_driver_need_not_kick_a_queue_that_stays_polled() {
    let device = BlockDevice::open(BlockOptions::default()).unwrap();
    for packed in [false, true] {
        let features = RingFeatures { packed, event_index: false, indirect: true };
        let (mut run, mut driver, _state) = polling(&device, features, crate::queue::DEFAULT_WEIGHT);
        driver.submit(0, 0, &[], 512).unwrap();
        assert_eq!(run.stop_polling_all(now_ns(), ticks()), NextLook::Now);
        let before = driver.driver.offered();
        driver.submit(0, 0, &[], 512).unwrap();
        assert!(!driver.driver.must_kick(before), "packed {packed}");
        assert_eq!(run.sweep(now_ns()), 2);
        assert_eq!(run.stop_polling_all(now_ns(), ticks()), NextLook::Kicked);
        let before = driver.driver.offered();
        driver.submit(0, 0, &[], 512).unwrap();
        assert!(driver.driver.must_kick(before), "packed {packed}");
    }
}

/// A worker reads tmpfs itself. A large read takes two turns, and no request is taken in the second.
#[test]
fn a_request_that_ends_in_a_later_turn_is_no_longer_in_flight() {
    if rustix::system::sysinfo().totalswap > 0 {
        return println!("not tested: this host has swap space, so that io_uring reads tmpfs");
    }
    let disk = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let options = BlockOptions { path: Some(disk.path().to_owned()), ..BlockOptions::default() };
    let device = BlockDevice::open(options).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let (mut run, mut driver, state) = polling(&device, features, crate::queue::DEFAULT_WEIGHT);
    driver.driver.write(DATA, &[0; 16]);
    let read = [(DATA, 16, false), (DATA + 0x1000, 1 << 20, true), (DATA + 0x100, 1, true)];
    driver.driver.add(&read).unwrap();
    let now = now_ns();
    assert_eq!((run.sweep(now), state.counters.in_flight.get()), (1, 1));
    assert_eq!((run.sweep(now), state.counters.in_flight.get()), (0, 0));
    assert_eq!((state.counters.requests.get(), driver.driver.read(DATA + 0x100, 1)), (1, vec![0]));
}

/// Zeroes on a file system that cannot zero ranges itself are written in steps. No step takes a turn from another queue.
#[test]
fn zeroes_that_are_written_leave_each_turn_to_the_other_queues() {
    const SIZE: u64 = 16 << 20;
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    if fallocate(file.as_file(), zero, 0, SIZE).is_ok() {
        return println!("not tested: /dev/shm zeroes ranges itself");
    }
    let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
    let (disk, null) =
        (BlockDevice::open(options).unwrap(), BlockDevice::open(BlockOptions::default()).unwrap());
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let (mut run, mut zeroing, state) = polling(&disk, features, crate::queue::DEFAULT_WEIGHT);
    let (queue, mut reading, _) = queue_of(&null, features);
    run.add(queue);
    let range = [&0_u64.to_le_bytes()[..], &((SIZE / 512) as u32).to_le_bytes(), &[0; 4]].concat();
    zeroing.submit(13, 0, &range, 0).unwrap();
    let (now, end) = (now_ns(), Instant::now() + Duration::from_secs(60));
    let (mut turns, mut answered, mut found) = (0, 0, 0);
    let status = loop {
        reading.submit(0, 0, &[], 512).unwrap();
        found += run.round(now).0;
        turns += 1;
        answered += u64::from(reading.ended().is_some_and(|(_, status, _)| status == 0));
        if let Some((_, status, _)) = zeroing.ended() {
            break status;
        }
        assert!(Instant::now() < end, "the zeroes do not end: {:?}", state.counters.read());
        if run.uring.in_flight > 0 {
            // Until the step has ended.
            run.wait(Some(1_000_000));
        }
    };
    assert_eq!((status, answered), (0, turns), "each turn answers the read that came before it");
    // What is neither a read nor the request itself is the end of a step of at most 512 KiB.
    let steps = found - turns - 1;
    assert!(turns >= SIZE / (512 << 10) && steps >= SIZE / (512 << 10), "{steps} steps in {turns} turns");
}

/// With this weight a turn has one unit, a read of 32 KiB is three, and the next turn pays that back.
#[test]
fn requests_wait_for_their_turn_while_a_deficit_is_paid_back_but_not_while_there_are_none() {
    const READ: u32 = 32 << 10;
    let device = BlockDevice::open(BlockOptions::default()).unwrap();
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let (mut run, mut driver, state) = polling(&device, features, 5);
    driver.submit(0, 0, &[], READ).unwrap();
    driver.submit(0, 0, &[], READ).unwrap();
    let now = now_ns();
    let found = [0, 1_000_000_000, 3_000_000_000].map(|later| run.sweep(now + later));
    assert_eq!((found, state.counters.stuck_ns.get()), ([1, 0, 1], 3_000_000_000));
    // From 2^31 ns on.
    assert_eq!(state.delays.counts()[31], 1);
    assert_eq!(state.counters.polls_empty.get(), 0, "it did not look");

    let (mut run, mut driver, state) = polling(&device, features, 5);
    driver.submit(0, 0, &[], READ).unwrap();
    let now = now_ns();
    assert_eq!((run.sweep(now), run.sweep(now + 1000)), (1, 0));
    assert_eq!(run.stop_polling_all(now + 2000, ticks()), NextLook::Kicked);
    driver.submit(0, 0, &[], READ).unwrap();
    run.entries[0].kicked = true;
    assert_eq!(run.sweep(now + 1_000_000_000), 1);
    assert_eq!(state.counters.stuck_ns.get(), 0, "there was no request");
}

/// A worker that other queues keep awake asks for kicks every 50 us only.
#[test]
fn a_request_of_a_queue_that_had_one_lately_is_found_before_its_kick() {
    let device = BlockDevice::open(BlockOptions::default()).unwrap();
    for packed in [false, true] {
        let features = RingFeatures { packed, event_index: true, indirect: true };
        let (mut run, mut driver, state) = polling(&device, features, crate::queue::DEFAULT_WEIGHT);
        driver.submit(0, 0, &[], 512).unwrap();
        let now = now_ns();
        assert_eq!(run.sweep(now), 1);
        assert_eq!(run.stop_polling_all(now, ticks()), NextLook::Kicked);
        assert_eq!(run.sweep(now + 10_000_000), 0);
        let before = driver.driver.offered();
        driver.submit(0, 0, &[], 512).unwrap();
        assert!(driver.driver.must_kick(before));
        let delays = state.delays.counts();
        assert_eq!(run.sweep(now + 10_000_000 + LOOK_NS - 1), 0, "it is looked at less often");
        assert_eq!(run.sweep(now + 10_000_000 + LOOK_NS), 1);
        let bucket = LOOK_NS.ilog2() as usize;
        assert_eq!(
            state.delays.counts()[bucket],
            delays[bucket] + 1,
            "the delay is that since the last look"
        );
        // The kick is seen when the worker waits next.
        run.entries[0].kicked = true;
        assert_eq!(run.sweep(now + 10_010_000), 0);
        let figures = state.counters.read();
        assert_eq!((figures.kicks_asked, figures.kicks_saved, figures.requests), (1, 2, 2));

        assert_eq!(run.stop_polling_all(now, ticks()), NextLook::Kicked);
        driver.submit(0, 0, &[], 512).unwrap();
        assert_eq!(run.sweep(now + 10_000_000 + LOOK_NS + LOOKED_AT_NS), 0, "it had none for long");
        run.entries[0].kicked = true;
        assert_eq!(run.sweep(now + 40_000_000), 1);
    }
}

#[test]
fn a_queue_is_beside_others_while_another_had_requests_a_moment_ago() {
    let [a, b, c] = [1, 2, 3].map(QueueKey);
    let mut recent = Recent::default();
    assert!(!recent.others(a, 0));
    recent.found(a, 1_000);
    assert!(!recent.others(a, 2_000) && recent.others(b, 2_000));
    recent.found(b, 3_000);
    recent.found(b, 4_000);
    assert!(recent.others(a, 5_000) && recent.others(b, 5_000), "a is still known");
    recent.found(c, 6_000);
    assert!(recent.others(b, 7_000) && recent.others(c, 7_000));
    assert!(!recent.others(a, 6_000 + RECENT_NS), "it is over");
    recent.found(c, 2 * RECENT_NS);
    assert!(!recent.others(c, 2 * RECENT_NS) && recent.others(a, 2 * RECENT_NS));
}

/// A handler that answers all requests, and counts its turns.
struct Turns(Arc<AtomicU32>);

impl Handler for Turns {
    fn serve(&mut self, queue: &mut Virtqueue, _: &mut Submitter<'_>, _: u32) -> WorkDone {
        self.0.fetch_add(1, Ordering::Relaxed);
        let (mut chain, mut requests) = (Chain::new(), 0);
        while queue.pop(&mut chain) {
            queue.push(chain.id, 0, 0);
            requests += 1;
        }
        WorkDone { requests, ..WorkDone::default() }
    }

    fn has_work(&self, queue: &Virtqueue) -> Option<bool> {
        Some(queue.has_more())
    }

    fn complete(&mut self, _: &mut Virtqueue, _: Token, _: i32) {}

    fn in_flight(&self) -> usize {
        0
    }
}

#[test]
fn a_queue_that_has_nothing_gets_no_turn_until_it_is_left_to_its_kicks() {
    let turns = Arc::<AtomicU32>::default();
    let features = RingFeatures { packed: false, event_index: false, indirect: true };
    let mut driver = Driver::new(64, features);
    let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let notifiers = Notifiers { kick: Some(kick), ..Notifiers::default() };
    let (handler, state) = (Box::new(Turns(Arc::clone(&turns))), Arc::<QueueState>::default());
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let mut run = Run::new(&WorkerOptions::default(), mailbox, Arc::default(), Routes::new()).unwrap();
    run.add(Queue::new(driver.ring().unwrap(), notifiers, handler, Arc::clone(&state)));
    let taken = || turns.load(Ordering::Relaxed);
    let now = now_ns();
    driver.add(&[(DATA, 16, false)]).unwrap();
    assert_eq!((run.sweep(now), taken()), (1, 1));
    for poll in 0..100 {
        assert_eq!(run.sweep(now + poll), 0);
    }
    assert_eq!((taken(), state.counters.polls_empty.get()), (1, 100));
    driver.add(&[(DATA, 16, false)]).unwrap();
    let delays = state.delays.counts()[12];
    assert_eq!((run.sweep(now + 5000), taken()), (1, 2));
    // From 2^12 ns on.
    assert_eq!(state.delays.counts()[12], delays + 1, "the delay is that since the last poll");
    for poll in 0..100 {
        run.sweep(now + 5000 + poll);
    }
    assert_eq!((run.sweep(now + 1_000_000), taken()), (0, 3));
    assert!(!run.entries[0].polling_now);
    run.entries[0].kicked = true;
    assert_eq!((run.sweep(now + 1_000_001), taken()), (0, 4));
    run.entries[0].start_polling(ticks());
    run.entries[0].starved_since = Some(now);
    assert_eq!((run.sweep(now + 1_000_002), taken()), (0, 5), "it had no budget in its last turn");
    run.entries[0].queue.virtqueue.lose_memory();
    assert_eq!((run.sweep(now + 1_000_003), taken()), (0, 5));
    assert!(state.broken.load(Ordering::Relaxed), "a broken ring is reported in a turn");
}

#[test]
fn the_time_limit_of_signals_wakes_a_worker_once() {
    let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let call = crate::queue::Eventfd::new(call, &QueueState::default());
    let mailbox = Arc::new(Mailbox::new().unwrap());
    let mut run = Run::new(&WorkerOptions::default(), mailbox, Arc::default(), Routes::new()).unwrap();
    let now = now_ns();
    for _ in 0..100 {
        run.signals.add(&call);
        assert!(run.signals.flush(now));
    }
    assert!(run.signals.has_limit());
    run.wait(Some(10_000_000_000));
    assert!(!run.signals.has_limit());
    let began = now_ns();
    run.wait(Some(100_000_000));
    assert!(now_ns() - began >= 100_000_000, "it sleeps undisturbed");
}
