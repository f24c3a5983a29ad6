use super::*;
use crate::device::Device as _;
use crate::device::block::{BlockDevice, BlockOptions};
use crate::queue::inflight::InflightMemory;
use crate::queue::{Notifiers, QueueState, Submitter};
use crate::ring::{RingError, RingFeatures};
use crate::testing::BlockDriver;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

#[path = "bad_disk_tests.rs"]
mod bad_disk;
#[path = "failing_disk_tests.rs"]
mod failing_disk;
#[path = "times_tests.rs"]
mod times;

/// A driver with its eventfds.
struct Guest {
    driver: BlockDriver,
    kick: OwnedFd,
    call: OwnedFd,
    error: OwnedFd,
    state: Arc<QueueState>,
}

const FEATURES: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };

fn file() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl Guest {
    fn new(device: &Arc<BlockDevice>, features: RingFeatures) -> (Self, Queue) {
        let driver = BlockDriver::new(64, features);
        let (kick, call, error) = (file(), file(), file());
        let notifiers = Notifiers {
            kick: Some(kick.try_clone().unwrap()),
            call: Some(call.try_clone().unwrap()),
            error: Some(error.try_clone().unwrap()),
        };
        let state = Arc::<QueueState>::default();
        let ring = driver.driver.ring().unwrap();
        let queue = Queue::new(ring, notifiers, Box::new(device.queue(64)), Arc::clone(&state));
        driver.driver.enable_calls(true);
        (Self { driver, kick, call, error, state }, queue)
    }

    fn submit(&mut self, kind: u32, sector: u64, write: &[u8], read: u32) -> Option<u16> {
        let before = self.driver.driver.offered();
        let id = self.driver.submit(kind, sector, write, read)?;
        if self.driver.driver.must_kick(before) {
            rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
        }
        Some(id)
    }

    /// Waits for the next completed request, by a call, as a guest does.
    fn ended(&mut self) -> (u16, u8, Vec<u8>) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(ended) = self.driver.ended() {
                return ended;
            }
            self.driver.driver.enable_calls(true);
            if let Some(ended) = self.driver.ended() {
                return ended;
            }
            assert!(Instant::now() < end, "a request is lost: {:?}", self.state.counters.read());
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&self.call, PollFlags::IN)], Some(&second));
            let _ = rustix::io::read(&self.call, &mut [0; 8]);
        }
    }
}

fn null() -> Arc<BlockDevice> {
    BlockDevice::open(BlockOptions::default()).unwrap()
}

fn disk(size: u64) -> (tempfile::NamedTempFile, Arc<BlockDevice>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
    let device = BlockDevice::open(options).unwrap();
    (file, device)
}

fn worker(routes: &Arc<Routes>, polling: Polling) -> Worker {
    Worker::start(0, &WorkerOptions { polling, ..WorkerOptions::default() }, routes).unwrap()
}

#[test]
fn a_queue_whose_kicks_cannot_be_waited_for_is_polled() {
    for polling in [Polling::default(), Polling::Never] {
        let routes = Routes::new();
        let worker = worker(&routes, polling);
        let (mut guest, mut queue) = Guest::new(&null(), FEATURES);
        // epoll_ctl(2) takes no regular file.
        queue.kick = Some(tempfile::tempfile().unwrap().into());
        worker.add(queue);
        for sector in 0..5 {
            guest.submit(0, sector, &[], 4096).unwrap();
            guest.ended();
            std::thread::sleep(Duration::from_millis(3));
        }
        assert_eq!(guest.state.counters.read().kicks_asked, 0, "{polling:?}");
    }
}

/// The number of times that a thread of this process has gone to sleep.
fn sleeps(thread: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap().trim().parse().unwrap()
}

#[test]
fn a_front_end_that_gives_no_kicks_does_not_get_a_core_for_it() {
    for polling in [Polling::default(), Polling::Never] {
        let routes = Routes::new();
        let worker = worker(&routes, polling);
        let (mut guest, mut queue) = Guest::new(&null(), FEATURES);
        queue.kick = None;
        worker.add(queue);
        guest.submit(0, 0, &[], 4096).unwrap();
        guest.ended();
        // A worker that polls without pause never sleeps.
        let before = sleeps(worker.thread_id());
        let limit = Instant::now() + Duration::from_secs(60);
        while sleeps(worker.thread_id()) < before + 100 {
            assert!(Instant::now() < limit, "{polling:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        guest.submit(0, 0, &[], 4096).unwrap();
        guest.ended();
        let figures = guest.state.counters.read();
        assert_eq!((figures.requests, figures.kicks_asked), (2, 0), "{polling:?}");
    }
}

#[test]
fn every_way_of_waiting_serves_every_layout() {
    for polling in [Polling::default(), Polling::Always, Polling::Never] {
        for packed in [false, true] {
            for event_index in [false, true] {
                let features = RingFeatures { packed, event_index, indirect: true };
                let routes = Routes::new();
                let worker = worker(&routes, polling);
                let (mut guest, queue) = Guest::new(&null(), features);
                worker.add(queue);
                for sector in 0..200 {
                    let id = guest.submit(0, sector, &[], 4096).unwrap();
                    assert_eq!(guest.ended().0, id);
                }
                let figures = guest.state.counters.read();
                assert_eq!((figures.requests, figures.bytes), (200, 200 * 4096), "{polling:?} {features:?}");
                assert_eq!(worker.stop().unwrap().len(), 1);
            }
        }
    }
}

/// The previous back-end was killed after it published a buffer, and before it called the driver.
#[test]
fn a_driver_is_called_when_its_queue_begins_because_the_last_call_may_be_lost() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::Never);
    let (guest, queue) = Guest::new(&null(), FEATURES);
    worker.add(queue);
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&guest.call, PollFlags::IN)], Some(&limit)), Ok(1));
    assert_eq!(worker.stop().unwrap().len(), 1);
}

#[test]
fn a_worker_that_always_looks_waits_for_no_kick() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::Always);
    let (mut busy, first) = Guest::new(&null(), FEATURES);
    let (mut seldom, second) = Guest::new(&null(), FEATURES);
    worker.add(first);
    worker.add(second);
    for _ in 0..3 {
        // Far longer than a queue is polled before it is left to its kicks, while the worker is busy with another one.
        let end = Instant::now() + Duration::from_millis(5);
        while Instant::now() < end {
            busy.submit(0, 0, &[], 512).unwrap();
            assert_eq!(busy.ended().1, 0);
        }
        // There is no kick.
        let id = seldom.driver.submit(0, 8, &[], 512).unwrap();
        assert_eq!(seldom.ended().0, id);
    }
    assert_eq!(seldom.state.counters.read().kicks, 0);
    assert_eq!(worker.stop().unwrap().len(), 2);
}

#[test]
fn what_is_written_is_read_back_with_io_uring_and_without() {
    for without_uring in [false, true] {
        let (file, device) = disk(1 << 20);
        let routes = Routes::new();
        let options = WorkerOptions { without_uring, ..WorkerOptions::default() };
        let worker = Worker::start(0, &options, &routes).unwrap();
        let (mut guest, queue) = Guest::new(&device, FEATURES);
        worker.add(queue);
        let data: Vec<u8> = (0..8192_u32).map(|byte| (byte % 251) as u8).collect();
        guest.submit(1, 64, &data, 0).unwrap();
        assert_eq!(guest.ended().1, 0);
        guest.submit(4, 0, &[], 0).unwrap();
        assert_eq!(guest.ended().1, 0);
        guest.submit(0, 64, &[], 8192).unwrap();
        let (_, status, read) = guest.ended();
        assert_eq!((status, read == data), (0, true));
        let stored = std::fs::read(file.path()).unwrap();
        assert_eq!(stored[64 * 512..64 * 512 + 8192], data);
        assert_eq!(worker.stop().unwrap().len(), 1);
    }
}

#[test]
fn a_worker_answers_while_it_runs() {
    let worker = Worker::start(0, &WorkerOptions::default(), &Routes::new()).unwrap();
    assert!(worker.answers(Duration::from_secs(30)));
    assert_eq!(worker.stop().unwrap().len(), 0);
}

#[test]
fn what_cannot_be_done_is_answered_with_an_error() {
    let (file, device) = disk(1 << 20);
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    worker.add(queue);
    let mut answer = |kind, sector, write: &[u8], read| {
        guest.submit(kind, sector, write, read).unwrap();
        guest.ended().1
    };
    assert_eq!(answer(0, 2048, &[], 512), 1, "beyond the end");
    assert_eq!(answer(0, u64::MAX, &[], 512), 1);
    assert_eq!(answer(1, 0, &[1; 100], 0), 1, "no sector");
    assert_eq!(answer(99, 0, &[], 0), 2, "no such request");
    file.as_file().set_len(4096).unwrap();
    assert_eq!(answer(0, 16, &[], 4096), 1, "the file was cut");
    assert_eq!(answer(0, 4, &[], 4096), 1, "a part of it was");
    assert_eq!(answer(0, 0, &[], 4096), 0);
    assert_eq!(guest.state.counters.read().errors, 6);
}

#[test]
fn a_disk_that_may_only_be_read_says_so_and_takes_no_change() {
    const RO: u64 = 1 << 5;
    const DISCARD_AND_WRITE_ZEROES: u64 = 1 << 13 | 1 << 14;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [7_u8; 4096]).unwrap();
    // A change of the file would be refused by the kernel too, and one of a null disk by nobody else.
    for path in [Some(file.path().to_owned()), None] {
        let options = BlockOptions { path, read_only: true, ..BlockOptions::default() };
        let device = BlockDevice::open(options).unwrap();
        assert_eq!(device.features() & (RO | DISCARD_AND_WRITE_ZEROES), RO);
        let routes = Routes::new();
        let worker = worker(&routes, Polling::default());
        let (mut guest, queue) = Guest::new(&device, FEATURES);
        worker.add(queue);
        let range = [&0_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 4]].concat();
        for (kind, data) in [(1, &[1; 512][..]), (11, &range[..]), (13, &range[..])] {
            guest.submit(kind, 0, data, 0).unwrap();
            assert_eq!(guest.ended().1, 1, "{kind}");
        }
        guest.submit(0, 0, &[], 512).unwrap();
        assert_eq!(guest.ended().1, 0);
    }
    assert_eq!(std::fs::read(file.path()).unwrap(), [7; 4096]);
}

#[test]
fn parts_are_given_up_and_made_zero() {
    let (file, device) = disk(1 << 20);
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    worker.add(queue);
    let range = |sector: u64, sectors: u32, flags: u32| {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    guest.submit(1, 0, &[7; 0x4000], 0).unwrap();
    assert_eq!(guest.ended().1, 0);
    let two = [range(0, 8, 0), range(16, 1, 1)].concat();
    let mut answer = |kind, write: &[u8]| {
        guest.submit(kind, 0, write, 0).unwrap();
        guest.ended().1
    };
    assert_eq!(answer(13, &two), 0);
    let stored = std::fs::read(file.path()).unwrap();
    assert!(stored[..4096].iter().all(|byte| *byte == 0) && stored[4096..8192].iter().all(|byte| *byte == 7));
    assert!(
        stored[8192..8704].iter().all(|byte| *byte == 0)
            && stored[8704..0x4000].iter().all(|byte| *byte == 7)
    );
    assert_eq!(answer(11, &range(8, 8, 1)), 2, "a flag that only zeroes may have");
    assert_eq!(std::fs::read(file.path()).unwrap(), stored);
    assert_eq!(answer(11, &range(8, 8, 0)), 0);
    assert_eq!(answer(11, &range(2048, 1, 0)), 1, "beyond the end");
    assert_eq!(answer(13, &range(0, 1, 2)), 2, "a flag that means nothing");
    assert_eq!(answer(11, &[0; 15]), 1);
}

#[test]
fn queues_move_while_they_work() {
    let (_file, device) = disk(8 << 20);
    let routes = Routes::new();
    let workers = [worker(&routes, Polling::default()), worker(&routes, Polling::Never)];
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    let key = queue.key;
    workers[0].add(queue);
    let mut at = 0;
    let mut longest = Duration::ZERO;
    for turn in 0..300_u32 {
        let mut wanted = Vec::new();
        for number in 0..8 {
            let sector = u64::from(turn * 8 + number) % 2000 * 8;
            wanted.push(guest.submit(1, sector, &[turn as u8; 4096], 0).unwrap());
        }
        let began = Instant::now();
        assert_eq!(workers[at].hand_over([(key, &workers[1 - at])]).unwrap(), []);
        at = 1 - at;
        longest = longest.max(began.elapsed());
        for _ in 0..8 {
            let (id, status, _) = guest.ended();
            assert_eq!(status, 0);
            let index = wanted.iter().position(|one| *one == id).expect("each once");
            wanted.swap_remove(index);
        }
    }
    assert_eq!(workers[1 - at].hand_over([(key, &workers[at])]).unwrap(), [key]);
    assert_eq!(guest.state.counters.read().requests, 2400);
    let queue = workers[at].take_drained(key).unwrap().unwrap();
    assert_eq!(queue.in_flight(), 0);
    assert!(longest < Duration::from_secs(5));
}

#[test]
fn a_queue_that_is_switched_off_rests() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&null(), FEATURES);
    let key = queue.key;
    worker.add(queue);
    worker.with(key, |queue| queue.enabled = false).unwrap().ok().unwrap();
    guest.submit(0, 0, &[], 512).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(guest.state.counters.read().requests, 0);
    worker.with(key, |queue| queue.enabled = true).unwrap().ok().unwrap();
    guest.ended();
    assert!(worker.with(QueueKey::fresh(), |_| ()).unwrap().is_err());
}

#[test]
fn a_hostile_queue_is_given_up_and_others_go_on() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut hostile, first) = Guest::new(&null(), FEATURES);
    let (mut guest, second) = Guest::new(&null(), FEATURES);
    let key = first.key;
    worker.add(first);
    worker.add(second);
    hostile.driver.driver.offer(999);
    rustix::io::write(&hostile.kick, &1_u64.to_ne_bytes()).unwrap();
    let second = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&hostile.error, PollFlags::IN)], Some(&second)).unwrap(), 1);
    let broken = worker.with(key, |queue| queue.virtqueue.broken()).unwrap().ok().unwrap();
    assert_eq!(broken, Some(RingError::Index(999)));
    guest.submit(0, 0, &[], 512).unwrap();
    assert_eq!(guest.ended().1, 0);
}

#[test]
fn a_worker_without_work_does_not_run() {
    let (_file, disk) = disk(1 << 20);
    for (device, without_uring) in [(null(), false), (disk, true)] {
        let routes = Routes::new();
        let options = WorkerOptions { without_uring, ..WorkerOptions::default() };
        let worker = Worker::start(0, &options, &routes).unwrap();
        let (mut guest, queue) = Guest::new(&device, FEATURES);
        worker.add(queue);
        for _ in 0..2000 {
            guest.submit(1, 0, &[1; 512], 0).unwrap();
            guest.ended();
        }
        let rests = || {
            let before = worker.counters().read().sweeps;
            std::thread::sleep(Duration::from_millis(200));
            worker.counters().read().sweeps == before
        };
        // On a busy machine it may take some time until it has stopped polling.
        let end = Instant::now() + Duration::from_secs(20);
        while !rests() {
            assert!(Instant::now() < end, "without io_uring: {without_uring}");
        }
    }
}

#[test]
fn a_limit_holds_a_device_back() {
    let options = BlockOptions { requests_a_second: 1000, ..BlockOptions::default() };
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&BlockDevice::open(options).unwrap(), FEATURES);
    worker.add(queue);
    let began = Instant::now();
    for _ in 0..200 {
        guest.submit(0, 0, &[], 512).unwrap();
        guest.ended();
    }
    // 20 ms of credit are there at first.
    assert!(began.elapsed() > Duration::from_millis(150), "{:?}", began.elapsed());
}

/// A queue whose last back-end was killed with 60 requests in flight.
fn after_a_kill(device: &Arc<BlockDevice>, features: RingFeatures) -> (Guest, Queue) {
    let (mut guest, mut killed) = Guest::new(device, features);
    let records = crate::testing::memory_file(InflightMemory::bytes(1, 64));
    let records = || InflightMemory::map(&records, 0, 1, 64).unwrap().queue(0, 64, features.packed).unwrap();
    killed.track_inflight(records()).unwrap();
    for number in 0..60 {
        // A worker may carry out reads at once.
        guest.driver.submit(1, number * 64, &[1; 32 << 10], 0).unwrap();
    }
    let mut made = VecDeque::new();
    let key = killed.key;
    assert_eq!(killed.serve(&mut Submitter::new(&mut made, key), 1000).requests, 60);
    drop(killed);
    let notifiers = Notifiers {
        kick: Some(guest.kick.try_clone().unwrap()),
        call: Some(guest.call.try_clone().unwrap()),
        error: None,
    };
    let ring = guest.driver.driver.ring().unwrap();
    let mut next = Queue::new(ring, notifiers, Box::new(device.queue(64)), Arc::clone(&guest.state));
    next.track_inflight(records()).unwrap();
    (guest, next)
}

/// A back-end was killed with more in flight than a queue that shares its worker may have. Its driver does not kick for
/// that again.
#[test]
fn all_that_an_earlier_back_end_took_is_done_beside_others() {
    let (_file, device) = disk(8 << 20);
    let (mut guest, next) = after_a_kill(&device, FEATURES);
    let routes = Routes::new();
    // No request completes during its submission.
    let options = WorkerOptions { without_uring: true, polling: Polling::Never, ..WorkerOptions::default() };
    let worker = Worker::start(0, &options, &routes).unwrap();
    let (mut other, queue) = Guest::new(&null(), FEATURES);
    worker.add(queue);
    other.submit(0, 0, &[], 512).unwrap();
    other.ended();
    worker.add(next);
    for _ in 0..60 {
        assert_eq!(guest.ended().1, 0);
    }
    assert_eq!(worker.stop().unwrap().len(), 2);
}

/// A queue that stops says how many requests it has taken: nobody else will do those.
#[test]
fn what_an_earlier_back_end_took_is_done_before_a_queue_stops_whatever_holds_it_back() {
    for (packed, enabled) in [(false, true), (true, true), (false, false), (true, false)] {
        let (_file, device) = disk(8 << 20);
        let (mut guest, mut next) = after_a_kill(&device, RingFeatures { packed, ..FEATURES });
        device.limits()[0][1].set(1);
        device.limits()[0][1].take(1 << 40);
        next.enabled = enabled;
        let key = next.key;
        let routes = Routes::new();
        let worker = worker(&routes, Polling::default());
        worker.add(next);
        // A new one is left to the next back-end.
        guest.submit(0, 0, &[], 512).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(guest.driver.ended().is_none(), "it is held back");
        let base = worker.take_drained(key).unwrap().unwrap().virtqueue.base();
        assert_eq!(
            std::iter::from_fn(|| guest.driver.ended()).count(),
            60,
            "packed {packed}, enabled {enabled}"
        );
        let seen = u32::from(guest.driver.driver.given_back());
        assert_eq!(base, if packed { seen | seen << 16 } else { seen });
    }
}

#[test]
fn a_broken_queue_stops_without_what_an_earlier_back_end_took() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (_file, device) = disk(8 << 20);
    let (mut guest, mut next) = after_a_kill(&device, FEATURES);
    next.virtqueue.lose_memory();
    let key = next.key;
    worker.add(next);
    assert!(worker.take_drained(key).unwrap().is_some());
    assert!(guest.driver.ended().is_none());
}

#[test]
fn a_limit_may_hold_back_for_ever() {
    let options = BlockOptions { bytes_a_second: 1, ..BlockOptions::default() };
    let device = BlockDevice::open(options).unwrap();
    device.limits()[0][1].take(u64::MAX);
    let routes = Routes::new();
    let worker = worker(&routes, Polling::default());
    let (mut guest, queue) = Guest::new(&device, FEATURES);
    let key = queue.key;
    worker.add(queue);
    guest.submit(0, 0, &[], 512).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(guest.driver.ended().is_none());
    assert!(worker.take_drained(key).unwrap().is_some());
}

#[test]
fn no_command_is_left_unread_while_kicks_are_looked_for() {
    let routes = Routes::new();
    let worker = Arc::new(worker(&routes, Polling::default()));
    let (_guest, queue) = Guest::new(&null(), FEATURES);
    worker.add(queue);
    // The queue is left to its kicks, so the worker checks for them between its commands.
    std::thread::sleep(Duration::from_millis(20));
    let (told, heard) = mpsc::channel();
    let asked = Arc::clone(&worker);
    std::thread::spawn(move || {
        for _ in 0..20_000 {
            assert!(asked.with(QueueKey::fresh(), |_| ()).unwrap().is_err());
        }
        drop(asked);
        let _ = told.send(());
    });
    assert!(heard.recv_timeout(Duration::from_secs(30)).is_ok(), "a command was not read");
}

/// The thread gets the weight of three threads, if the user may give it that, and then loses it again.
#[test]
fn a_worker_has_the_weight_of_its_busy_devices() {
    if !scheduling::tests::may_lower() {
        return;
    }
    let worker = Worker::start(0, &WorkerOptions::default(), &Routes::new()).unwrap();
    let began = worker.nice().unwrap();
    let mut guests = [null(), null(), null()].map(|device| {
        let (guest, queue) = Guest::new(&device, FEATURES);
        worker.add(queue);
        guest
    });
    let end = Instant::now() + Duration::from_secs(20);
    let mut wait_for = |steps, busy: usize| {
        while worker.nice() != Some(began - steps) {
            assert!(Instant::now() < end, "{:?} instead of {}", worker.nice(), began - steps);
            for guest in &mut guests[..busy] {
                guest.submit(0, 0, &[], 512).unwrap();
                guest.ended();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(5, 3);
    wait_for(0, 1);
}
