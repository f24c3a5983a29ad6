use super::*;
use crate::device::block::{BlockDevice, BlockOptions, disk_over};
use crate::device::net::switch::Switches;
use crate::device::net::{LinkOptions, NetDevice, NetOptions};
use crate::queue::Eventfd;
use crate::ring::RingFeatures;
use crate::testing::{BlockDriver, ByHand, FrontEnd, NetDriver, marked_pages};
use crate::worker::WorkerOptions;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FEATURES: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };

type Outcome = JoinHandle<Result<(), ConnectionError>>;

fn pool() -> Arc<Pool> {
    let pool = Pool::new();
    pool.add_worker(&WorkerOptions::default()).unwrap();
    pool.add_worker(&WorkerOptions::default()).unwrap();
    pool
}

fn null(queues: u16) -> Arc<Backend> {
    let options = BlockOptions { queues, serial: "disk-1".to_owned(), ..BlockOptions::default() };
    Backend::new("d", Box::new(BlockDevice::open(options).unwrap()))
}

fn connect(backend: &Arc<Backend>, pool: &Arc<Pool>) -> (FrontEnd, Outcome) {
    let (here, there) = UnixStream::pair().unwrap();
    let mut session = Session::new(Arc::clone(backend), Arc::clone(pool));
    (FrontEnd::new(here).unwrap(), std::thread::spawn(move || session.run(there)))
}

fn wait(driver: &mut BlockDriver) -> (u16, u8, Vec<u8>) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match driver.ended() {
            Some(ended) => return ended,
            None if Instant::now() < end => std::thread::sleep(Duration::from_micros(100)),
            None => panic!("a request is lost"),
        }
    }
}

#[test]
fn a_front_end_comes_works_and_goes() {
    for packed in [false, true] {
        let (backend, pool) = (null(2), pool());
        let mut driver = BlockDriver::new(64, RingFeatures { packed, ..FEATURES });
        let mut base = if packed { 0x8000_8000 } else { 0 };
        for _ in 0..3 {
            let (mut front, outcome) = connect(&backend, &pool);
            front.negotiate(&driver.driver, 0).unwrap();
            assert_eq!(front.ask(17).unwrap(), 2, "queues");
            assert!(front.start(1, &driver.driver.layout(), 64, base).unwrap());
            for _ in 0..50 {
                driver.submit(8, 0, &[], 20).unwrap();
                front.kick().unwrap();
                let (_, status, name) = wait(&mut driver);
                assert_eq!((status, name), (0, b"disk-1\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()));
            }
            base = front.stop(1).unwrap();
            drop(front);
            outcome.join().unwrap().unwrap();
            assert!(backend.queues[1].key.lock().unwrap().is_none());
        }
        assert_eq!(backend.queues[1].state.counters.read().requests, 150);
    }
}

#[test]
fn the_eventfds_of_all_queues_know_their_device() {
    for queue in &null(2).queues {
        let file = Eventfd::new(File::open("/dev/null").unwrap().into(), &queue.state);
        assert_eq!(file.device(), "d");
    }
}

/// QEMU says where a packed ring was at its first start, and cloud-hypervisor which buffer was made available last.
#[test]
fn a_network_queue_goes_on_where_it_stands_whatever_the_front_end_says() {
    for packed in [false, true] {
        let switches = Switches::default();
        let device = |last| {
            let link = LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
            let mac = Some([2, 0, 0, 0, 0, last]);
            NetDevice::open(NetOptions { link, mac, ..NetOptions::default() }, &switches).unwrap()
        };
        let (served, peer) = (device(1), device(2));
        let ring = RingFeatures { packed, ..FEATURES };
        let (mut guest, mut sender) = (NetDriver::new(64, ring), NetDriver::new(64, ring));
        let by_peer = peer.transmit(0, VirtioFeatures(VirtioFeatures::VERSION_1));
        let mut by_hand = ByHand::new(&sender.transmit, Box::new(by_peer));
        (0..64).for_each(|_| assert!(guest.offer(1600).is_some()));
        let packet = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[0; 46]].concat();
        for restart in 0..9 {
            let (backend, pool) = (Backend::new("d", Box::new(Arc::clone(&served))), pool());
            let (mut front, outcome) = connect(&backend, &pool);
            front.negotiate(&guest.receive, 0).unwrap();
            assert_eq!(front.ask(17).unwrap(), 3, "virtqueues, and not pairs");
            let base = if packed { 0x8000_8000 } else { guest.receive.offered().into() };
            assert!(front.start(0, &guest.receive.layout(), 64, base).unwrap());
            for _ in 0..10 {
                sender.send([0; 10], &packet).unwrap();
                assert_eq!(by_hand.serve(8).requests, 1);
                sender.sent().unwrap();
                let end = Instant::now() + Duration::from_secs(20);
                while guest.received().is_none() {
                    assert!(Instant::now() < end, "reception has ended: packed {packed}, restart {restart}");
                    std::thread::sleep(Duration::from_micros(100));
                }
                guest.offer(1600).unwrap();
            }
            assert_eq!(backend.log.lines(), 0, "nothing is doubted");
            drop(front);
            outcome.join().unwrap().unwrap();
        }
    }
}

#[test]
fn a_broken_ring_is_told_by_the_error_eventfd_that_was_set_last() {
    use rustix::event::{EventfdFlags, eventfd};
    let (backend, pool) = (null(1), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    let [first, second, late] = [(); 3].map(|()| eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    let set = |front: &mut FrontEnd, file: &OwnedFd| {
        assert!(front.tell(14, &0_u64.to_ne_bytes(), &[file.as_fd()]).unwrap());
    };
    let is_told = |file: &OwnedFd| rustix::io::read(file, &mut [0; 8]).is_ok();
    let wait_for = |file: &OwnedFd| {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_told(file) {
            assert!(Instant::now() < end, "nobody is told");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    set(&mut front, &first);
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    set(&mut front, &second);
    driver.driver.offer(64);
    front.kick().unwrap();
    wait_for(&second);
    assert!(!is_told(&first));
    // One that comes too late is signalled too.
    set(&mut front, &late);
    wait_for(&late);
}

#[test]
fn a_reset_disables_all_rings_and_clears_the_status() {
    let (backend, pool) = (null(1), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let is_enabled = || {
        let key = backend.queues[0].key.lock().unwrap().unwrap();
        pool.with(key, |queue| queue.enabled).unwrap()
    };
    assert!(is_enabled());
    // VHOST_USER_SET_STATUS and VHOST_USER_GET_STATUS.
    assert!(front.tell(39, &0xf_u64.to_ne_bytes(), &[]).unwrap());
    // VHOST_USER_RESET_DEVICE, and VHOST_USER_SET_VRING_KICK without VHOST_USER_SET_VRING_ENABLE.
    assert!(front.tell(34, &[], &[]).unwrap());
    assert_eq!(front.ask(40).unwrap(), 0, "the driver starts anew");
    let kick = front.kick.try_clone().unwrap();
    assert!(front.tell(12, &0_u64.to_ne_bytes(), &[kick.as_fd()]).unwrap());
    assert!(!is_enabled());
    assert!(front.tell(18, &[0, 1].map(u32::to_ne_bytes).concat(), &[]).unwrap() && is_enabled());
    driver.submit(8, 0, &[], 20).unwrap();
    front.kick().unwrap();
    wait(&mut driver);
}

#[test]
fn a_driver_that_resets_the_device_ends_its_queues_and_any_other_status_does_not() {
    let (backend, pool) = (null(2), pool());
    let driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    for _ in 0..2 {
        for index in 0..2 {
            assert!(front.start(index, &driver.driver.layout(), 64, 0).unwrap());
        }
        for (status, is_served) in [(0xf_u64, true), (0, false)] {
            // VHOST_USER_SET_STATUS and VHOST_USER_GET_STATUS.
            assert!(front.tell(39, &status.to_ne_bytes(), &[]).unwrap());
            assert_eq!(front.ask(40).unwrap(), status);
            for queue in &backend.queues {
                assert_eq!(queue.key.lock().unwrap().is_some(), is_served, "{status}");
            }
        }
    }
}

#[test]
fn without_protocol_features_a_ring_is_enabled_from_its_start() {
    let (backend, pool) = (null(1), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    // VHOST_USER_SET_FEATURES without the bit. Acknowledgements stay agreed on.
    let features = VirtioFeatures::VERSION_1 | VirtioFeatures::EVENT_INDEX | VirtioFeatures::INDIRECT;
    assert!(front.tell(2, &features.to_ne_bytes(), &[]).unwrap());
    assert!(front.start_only(0, &driver.driver.layout(), 64, 0).unwrap());
    driver.submit(8, 0, &[], 20).unwrap();
    front.kick().unwrap();
    assert_eq!(wait(&mut driver).1, 0);
}

#[test]
fn a_queue_that_is_moved_while_it_stops_starts_at_its_new_worker() {
    let (backend, pool) = (null(1), pool());
    let driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let queue = &backend.queues[0];
    let at = |pool: &Pool| queue.key.lock().unwrap().and_then(|key| pool.worker_of(key));
    assert_eq!(at(&pool), Some(0));
    // The control tree writes the new worker just before it moves the queue.
    let mut wanted = queue.worker.lock().unwrap();
    let base = std::thread::scope(|scope| {
        let stopped = scope.spawn(|| front.stop(0).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        *wanted = Some(1);
        drop(wanted);
        stopped.join().unwrap()
    });
    assert!(front.start(0, &driver.driver.layout(), 64, base).unwrap());
    assert_eq!(at(&pool), Some(1));
    // A worker that is gone is forgotten.
    pool.remove_worker(1).unwrap();
    let base = front.stop(0).unwrap();
    assert_eq!(*queue.worker.lock().unwrap(), Some(0));
    assert!(front.start(0, &driver.driver.layout(), 64, base).unwrap());
}

#[test]
fn the_configuration_is_told_and_its_change_too() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
    let device = BlockDevice::open(options).unwrap();
    let (backend, pool) = (Backend::new("d", Box::new(Arc::clone(&device))), pool());
    let (mut front, _outcome) = connect(&backend, &pool);
    let driver = BlockDriver::new(8, FEATURES);
    front.negotiate(&driver.driver, 0).unwrap();
    let mut sectors = || {
        let payload = [[0_u32, 8, 0].map(u32::to_ne_bytes).concat(), vec![0; 8]].concat();
        front.send(24, 1, &payload, &[]).unwrap();
        let (payload, _) = front.receive().unwrap();
        u64::from_ne_bytes(*payload.last_chunk().unwrap())
    };
    assert_eq!(sectors(), 2048);
    file.as_file().set_len(2 << 20).unwrap();
    device.resize(None).unwrap();
    assert_eq!(sectors(), 4096);
    assert!(!backend.config_changed(), "there is no way to tell it yet");
    let (here, there) = UnixStream::pair().unwrap();
    assert!(front.tell(21, &[], &[there.as_fd()]).unwrap());
    let told = || {
        let mut bytes = [0; 12];
        std::io::Read::read_exact(&mut &here, &mut bytes).unwrap();
        assert_eq!(bytes, *[2_u32, 1, 0].map(u32::to_ne_bytes).as_flattened());
    };
    let nothing_is_told = |front: &mut FrontEnd| {
        // What follows the reply to a request has been sent before the next request is read.
        (0..2).for_each(|_| assert!(front.ask(1).is_ok()));
        here.set_nonblocking(true).unwrap();
        let read = std::io::Read::read(&mut &here, &mut [0]).unwrap_err();
        here.set_nonblocking(false).unwrap();
        assert_eq!(read.kind(), std::io::ErrorKind::WouldBlock);
    };
    let layout = driver.driver.layout();
    assert!(!backend.config_changed(), "nothing may be sent while no ring is started");
    nothing_is_told(&mut front);
    assert!(front.start(0, &layout, 8, 0).unwrap());
    told();
    nothing_is_told(&mut front);
    assert!(backend.config_changed());
    told();
    // As during a migration: the file has grown since the configuration was read.
    let base = front.stop(0).unwrap();
    file.as_file().set_len(3 << 20).unwrap();
    assert!(front.start(0, &layout, 8, base).unwrap());
    told();
    // A front-end that reads the configuration itself need not be told.
    let base = front.stop(0).unwrap();
    assert!(!backend.config_changed());
    front.send(24, 1, &[[0_u32, 8, 0].map(u32::to_ne_bytes).concat(), vec![0; 8]].concat(), &[]).unwrap();
    front.receive().unwrap();
    assert!(front.start(0, &layout, 8, base).unwrap());
    nothing_is_told(&mut front);
    let set = |offset: u32, value: u8| [[offset, 1, 0].map(u32::to_ne_bytes).concat(), vec![value]].concat();
    assert!(front.tell(25, &set(32, 1), &[]).unwrap(), "there is a cache");
    assert!(!front.tell(25, &set(32, 0), &[]).unwrap(), "which stays");
    assert!(!front.tell(25, &set(0, 0), &[]).unwrap(), "the size may not");
    assert!(!front.tell(25, &set(900, 0), &[]).unwrap());
}

#[test]
fn what_an_earlier_daemon_offered_is_accepted_and_no_longer_offered() {
    const CONFIG_WCE: u64 = 1 << 11;
    let (backend, pool) = (null(1), pool());
    let (mut front, _outcome) = connect(&backend, &pool);
    let driver = BlockDriver::new(8, FEATURES);
    front.negotiate(&driver.driver, 0).unwrap();
    assert_eq!(front.ask(1).unwrap() & CONFIG_WCE, 0);
    let features = VirtioFeatures::VERSION_1 | VirtioFeatures::PROTOCOL_FEATURES | CONFIG_WCE;
    assert!(front.tell(2, &features.to_ne_bytes(), &[]).unwrap());
}

/// Windows with `disable-modern=on`.
#[test]
fn a_legacy_guest_is_served_although_qemu_offers_it_a_feature_that_the_disk_lacks() {
    const ANY_LAYOUT: u64 = 1 << 27;
    for read_only in [false, true] {
        let options = BlockOptions { read_only, ..BlockOptions::default() };
        let backend = Backend::new("d", Box::new(BlockDevice::open(options).unwrap()));
        let pool = pool();
        let (mut front, _outcome) = connect(&backend, &pool);
        let mut driver = BlockDriver::new(64, FEATURES);
        front.negotiate(&driver.driver, 0).unwrap();
        assert_eq!(front.ask(1).unwrap() & ANY_LAYOUT, 0);
        let features = VirtioFeatures::PROTOCOL_FEATURES
            | VirtioFeatures::INDIRECT
            | VirtioFeatures::EVENT_INDEX
            | ANY_LAYOUT;
        assert!(front.tell(2, &features.to_ne_bytes(), &[]).unwrap());
        assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
        driver.submit(0, 0, &[], 512).unwrap();
        front.kick().unwrap();
        assert_eq!(wait(&mut driver).1, 0, "read-only: {read_only}");
    }
}

#[test]
fn what_was_under_way_is_done_by_the_next_back_end() {
    // QEMU asks for fewer descriptors than a ring has.
    for (packed, asked) in [(false, 64), (true, 64), (false, 16), (true, 16)] {
        let mut driver = BlockDriver::new(64, RingFeatures { packed, ..FEATURES });
        let first = (null(1), pool());
        let (mut front, outcome) = connect(&first.0, &first.1);
        front.negotiate(&driver.driver, 0).unwrap();
        let (description, file) = front.inflight(1, asked).unwrap();
        assert!(front.start(0, &driver.driver.layout(), 64, if packed { 0x8000_8000 } else { 0 }).unwrap());
        driver.submit(0, 0, &[], 512).unwrap();
        front.kick().unwrap();
        wait(&mut driver);
        // The memory says that two were taken, as if the back-end had been killed with them.
        let base = front.stop(0).unwrap();
        drop(front);
        outcome.join().unwrap().unwrap();
        let ids = [driver.submit(0, 1, &[], 512).unwrap(), driver.submit(0, 2, &[], 512).unwrap()];
        let bytes = u64::from_ne_bytes(*description.first_chunk().unwrap());
        let copy = File::from(file.try_clone().unwrap());
        let memory = InflightMemory::map_bytes(&copy, 0, 1, asked, bytes).unwrap();
        let mut ring = crate::ring::Ring::new(
            &driver.driver.memory,
            &driver.driver.layout(),
            64,
            base,
            driver.driver.features,
        )
        .unwrap();
        let mut chain = crate::ring::Chain::new();
        let mut killed = memory.queue(0, 64, packed).unwrap();
        for id in ids {
            assert!(ring.pop(&mut chain).unwrap() && chain.id == id);
            use crate::queue::inflight::Inflight;
            match (&mut killed, &ring) {
                (Inflight::Packed(inflight), crate::ring::Ring::Packed(ring)) => {
                    inflight.taken(&ring.last_taken(id));
                }
                (Inflight::Split(inflight), _) => inflight.taken(id),
                _ => unreachable!(),
            }
        }
        let second = (null(1), pool());
        let (mut front, _outcome) = connect(&second.0, &second.1);
        front.negotiate(&driver.driver, 0).unwrap();
        assert!(front.tell(32, &description, &[file.as_fd()]).unwrap());
        assert!(front.start(0, &driver.driver.layout(), 64, base).unwrap());
        let mut back = [wait(&mut driver).0, wait(&mut driver).0];
        back.sort_unstable();
        let mut expected = ids;
        expected.sort_unstable();
        assert_eq!(back, expected, "packed {packed}");
        assert_eq!(second.0.queues[0].state.counters.read().requests, 2);
    }
}

/// As when a disk is made read-only while its guest runs, and the front-end connects again.
#[test]
fn a_guest_whose_features_are_no_longer_offered_is_not_served_and_its_records_stay() {
    const DISCARD: u64 = 1 << 13;
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let device = |read_only| {
        let path = Some(disk.path().to_owned());
        let options = BlockOptions { path, read_only, ..BlockOptions::default() };
        Backend::new("d", Box::new(BlockDevice::open(options).unwrap()))
    };
    let pool = pool();
    for packed in [false, true] {
        let mut driver = BlockDriver::new(64, RingFeatures { packed, ..FEATURES });
        let layout = driver.driver.layout();
        let (mut front, outcome) = connect(&device(false), &pool);
        front.negotiate(&driver.driver, DISCARD).unwrap();
        let (description, memory) = front.inflight(1, 64).unwrap();
        assert!(front.start(0, &layout, 64, if packed { 0x8000_8000 } else { 0 }).unwrap());
        driver.submit(0, 0, &[], 512).unwrap();
        front.kick().unwrap();
        wait(&mut driver);
        let base = front.stop(0).unwrap();
        drop(front);
        outcome.join().unwrap().unwrap();
        (0..2).for_each(|sector| assert!(driver.submit(0, sector, &[], 512).is_some()));

        let records = File::from(memory.try_clone().unwrap());
        let recorded = || {
            let mut bytes = vec![0; records.metadata().unwrap().len() as usize];
            records.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let before = recorded();
        let (mut front, outcome) = connect(&device(true), &pool);
        let protocol = front.ask(15).unwrap() & ProtocolFeatures::OFFERED;
        front.send(16, 1, &protocol.to_ne_bytes(), &[]).unwrap();
        let features = VirtioFeatures::OFFERED & !VirtioFeatures::LOG_ALL | DISCARD;
        assert!(!front.tell(2, &features.to_ne_bytes(), &[]).unwrap());
        assert!(front.share(&driver.driver).unwrap());
        assert!(front.tell(32, &description, &[memory.as_fd()]).unwrap());
        assert!(front.start(0, &layout, 64, base).is_err(), "the connection is closed");
        let error = outcome.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("features (0x2000)") && error.contains("read-only"), "{error}");
        assert!(recorded() == before, "packed {packed}");

        let (mut front, outcome) = connect(&device(false), &pool);
        front.negotiate(&driver.driver, DISCARD).unwrap();
        assert!(front.tell(32, &description, &[memory.as_fd()]).unwrap());
        assert!(front.start(0, &layout, 64, base).unwrap());
        front.kick().unwrap();
        assert_eq!([wait(&mut driver).1, wait(&mut driver).1], [0; 2], "packed {packed}");
        drop(front);
        outcome.join().unwrap().unwrap();
    }
}

#[test]
fn a_queue_without_room_in_the_inflight_memory_is_told_of_within_the_limit_of_lines() {
    let (backend, pool) = (null(1), pool());
    let (mut front, _outcome) = connect(&backend, &pool);
    let driver = BlockDriver::new(64, FEATURES);
    front.negotiate(&driver.driver, 0).unwrap();
    let description =
        [&64_u64.to_ne_bytes()[..], &[0; 8], &[1_u16; 2].map(u16::to_ne_bytes).concat()].concat();
    let memory = crate::testing::memory_file(64);
    assert!(front.tell(32, &description, &[memory.as_fd()]).unwrap());
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let kick = front.kick.try_clone().unwrap();
    for _ in 0..19 {
        assert!(front.tell(12, &0_u64.to_ne_bytes(), &[kick.as_fd()]).unwrap());
    }
    assert_eq!(backend.log.lines(), 20);
}

#[test]
fn writes_are_marked_while_the_guest_migrates() {
    const FLUSH: u64 = 1 << 9;
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    // A null disk answers at once. A front-end may change another feature with the same message.
    for path in [None, Some(file.path().to_owned())] {
        for others in [0, FLUSH] {
            let options = BlockOptions { path: path.clone(), read_only: true, ..BlockOptions::default() };
            writes_are_marked(BlockDevice::open(options).unwrap(), others);
        }
    }
}

fn writes_are_marked(device: Arc<BlockDevice>, others: u64) {
    let (backend, pool) = (Backend::new("d", Box::new(device)), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let log = crate::testing::memory_file(0x1000);
    let payload = [0x1000_u64, 0].map(u64::to_ne_bytes).concat();
    front.send(6, 1, &payload, &[log.as_fd()]).unwrap();
    assert_eq!(front.receive().unwrap().0, payload);
    driver.submit(0, 0, &[], 512).unwrap();
    front.kick().unwrap();
    wait(&mut driver);
    assert!(marked_pages(&log).is_empty(), "not before it was agreed on");
    let features = VirtioFeatures::VERSION_1
        | VirtioFeatures::PROTOCOL_FEATURES
        | VirtioFeatures::EVENT_INDEX
        | VirtioFeatures::INDIRECT
        | VirtioFeatures::LOG_ALL
        | others;
    assert!(front.tell(2, &features.to_ne_bytes(), &[]).unwrap());
    driver.submit(0, 0, &[], 512).unwrap();
    front.kick().unwrap();
    assert_eq!(wait(&mut driver).1, 0);
    // The status and the data, which the driver places 0x8000 bytes after the header.
    let marked = marked_pages(&log);
    assert!(matches!(marked[..], [status, data] if data - status == 0x8000), "{marked:#x?}");
}

#[test]
fn memory_comes_and_goes_by_regions() {
    let (backend, pool) = (null(1), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    assert!(front.ask(36).unwrap() > 100);
    let region = |guest: u64| {
        let words = [0, guest, 0x1000, 0x1000_0000 + guest, 0];
        words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect::<Vec<u8>>()
    };
    let file = crate::testing::memory_file(0x1000);
    let far = 0x4000_0000;
    assert!(front.tell(37, &region(far), &[file.as_fd()]).unwrap());
    assert!(front.tell(37, &region(far), &[file.as_fd()]).unwrap(), "as some do for each pair of queues");
    let mut other = region(far);
    other[16..18].copy_from_slice(&[0, 0x20]);
    assert!(!front.tell(37, &other, &[file.as_fd()]).unwrap(), "another is there");
    for turn in 0..3 {
        driver.submit(0, 0, &[], 512).unwrap();
        front.kick().unwrap();
        assert_eq!(wait(&mut driver).1, 0, "turn {turn}");
        let is_there = turn < 2;
        assert_eq!(front.tell(38, &region(far), &[]).unwrap(), is_there);
    }
}

#[test]
fn a_ring_is_served_again_when_its_memory_is_back() {
    let (backend, pool) = (null(1), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let size = driver.driver.file.metadata().unwrap().len();
    let region: Vec<u8> =
        [0, 0, size, crate::testing::USER, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    for turn in 0..3 {
        driver.submit(0, 0, &[], 512).unwrap();
        front.kick().unwrap();
        assert_eq!(wait(&mut driver).1, 0, "turn {turn}");
        assert!(front.tell(38, &region, &[]).unwrap(), "it was there: turn {turn}");
        assert!(backend.queues[0].key.lock().unwrap().is_none());
        assert!(!front.tell(38, &region, &[]).unwrap(), "it is gone: turn {turn}");
        assert!(front.tell(37, &region, &[driver.driver.file.as_fd()]).unwrap());
    }
}

#[test]
fn a_queue_that_no_memory_can_start_ends_the_connection() {
    let (backend, pool) = (null(1), pool());
    let driver = BlockDriver::new(64, FEATURES);
    let (mut front, outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    assert!(!front.tell(2, &u64::MAX.to_ne_bytes(), &[]).unwrap(), "features that were not offered");
    let size = driver.driver.file.metadata().unwrap().len();
    let region: Vec<u8> =
        [0, 0, size, crate::testing::USER, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    assert!(front.tell(38, &region, &[]).is_err(), "its ring would stay dead");
    assert!(matches!(outcome.join().unwrap(), Err(ConnectionError::Unusable(_))));
}

#[test]
fn a_disk_that_others_write_is_served_when_they_have_ended() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = |read_only, share_rw| BlockOptions {
        path: Some(file.path().to_owned()),
        queues: 2,
        read_only,
        share_rw,
        ..BlockOptions::default()
    };
    let device = |options| Backend::new("d", Box::new(BlockDevice::open(options).unwrap()));
    let (source, target) = (device(options(false, false)), device(options(false, false)));
    let (reader, sharer) = (device(options(true, false)), device(options(false, true)));
    let (pool, driver) = (pool(), BlockDriver::new(64, FEATURES));
    let layout = driver.driver.layout();
    let front = |backend: &Arc<Backend>| {
        let (mut front, outcome) = connect(backend, &pool);
        front.negotiate(&driver.driver, 0).unwrap();
        (front, outcome)
    };
    let (mut first, _outcome) = front(&source);
    assert!(first.start(0, &layout, 64, 0).unwrap() && first.start(1, &layout, 64, 0).unwrap());
    let (mut reads, _reads) = front(&reader);
    assert!(reads.start(0, &layout, 64, 0).unwrap(), "readers exclude nobody");
    for others in [&target, &sharer] {
        let (mut refused, outcome) = front(others);
        assert!(refused.start(0, &layout, 64, 0).is_err(), "the connection is closed");
        let error = outcome.join().unwrap().unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()) && error.contains("share-rw"), "{error}");
    }
    // As at the end of a migration. The source writes until its last queue has stopped.
    let (mut next, _next) = front(&target);
    first.stop(0).unwrap();
    first.stop(1).unwrap();
    assert!(next.start(0, &layout, 64, 0).unwrap());
}

#[test]
fn a_disk_is_written_back_before_the_front_end_knows_that_the_last_queue_has_stopped() {
    // It cannot be flushed, and each attempt is counted as an error.
    let file = File::open("/dev/null").unwrap();
    let options = BlockOptions { queues: 2, share_rw: true, ..BlockOptions::default() };
    let device = disk_over(file.into(), 1, options).unwrap();
    let (backend, pool) = (Backend::new("d", Box::new(device)), pool());
    let driver = BlockDriver::new(64, FEATURES);
    let (mut front, outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    let errors = || [0, 1].map(|index: usize| backend.queues[index].state.counters.read().errors);
    let start = |front: &mut FrontEnd| {
        (0..2).for_each(|index| assert!(front.start(index, &driver.driver.layout(), 64, 0).unwrap()));
    };
    for turn in 1..3 {
        start(&mut front);
        assert!(front.share(&driver.driver).unwrap(), "they are paused, and go on");
        front.stop(1).unwrap();
        assert_eq!(errors(), [turn - 1, 0]);
        front.stop(0).unwrap();
        assert_eq!(errors(), [turn, 0]);
        front.stop(0).unwrap();
        assert_eq!(errors(), [turn, 0], "nothing was written since");
    }
    start(&mut front);
    drop(front);
    outcome.join().unwrap().unwrap();
    assert_eq!(errors(), [2, 0], "the next daemon has the same page cache");
}

#[test]
fn a_disk_that_is_being_removed_is_free_when_its_remover_says_so() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let device = || {
        let options = BlockOptions { path: Some(file.path().to_owned()), ..BlockOptions::default() };
        Backend::new("d", Box::new(BlockDevice::open(options).unwrap()))
    };
    let (removed, next, pool) = (device(), device(), pool());
    let driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&removed, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    // As while another thread ends the queues.
    removed.over.store(true, Ordering::SeqCst);
    front.stop(0).unwrap();
    assert!(next.device.acquire().is_err());
    removed.end(&pool);
    assert_eq!(next.device.acquire(), Ok(()));
}

#[test]
fn a_queue_that_its_remover_drains_has_not_ended_when_the_front_end_goes() {
    let (backend, pool) = (null(1), pool());
    let (mut front, outcome) = connect(&backend, &pool);
    let driver = BlockDriver::new(64, FEATURES);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(front.start(0, &driver.driver.layout(), 64, 0).unwrap());
    let key = backend.queues[0].key.lock().unwrap().unwrap();
    // As the remover does, before it says that the requests have completed.
    drop(pool.end(key).unwrap());
    drop(front);
    outcome.join().unwrap().unwrap();
    assert_eq!(*backend.queues[0].key.lock().unwrap(), Some(key), "another remover waits as well");
}

#[test]
fn what_cannot_be_is_refused_and_the_front_end_stays() {
    let (backend, pool) = (null(1), pool());
    let (mut front, outcome) = connect(&backend, &pool);
    let driver = BlockDriver::new(64, FEATURES);
    front.negotiate(&driver.driver, 0).unwrap();
    let layout = driver.driver.layout();
    let two = |a: u32, b: u32| [a, b].map(u32::to_ne_bytes).concat();
    assert!(!front.tell(8, &two(9, 64), &[]).unwrap(), "no such queue");
    assert!(!front.tell(8, &[1, 2, 3], &[]).unwrap(), "too short");
    assert!(!front.tell(999, &[], &[]).unwrap(), "no such request");
    for postcopy in 28..=30 {
        assert!(!front.tell(postcopy, &[], &[]).unwrap(), "postcopy");
    }
    assert!(!front.tell(22, &[0; 32], &[]).unwrap(), "an IOMMU of the guest");
    assert!(!front.tell(2, &u64::MAX.to_ne_bytes(), &[]).unwrap(), "features that were not offered");
    assert!(front.tell(2, &VirtioFeatures::PROTOCOL_FEATURES.to_ne_bytes(), &[]).unwrap());
    assert!(
        !front.tell(16, &u64::MAX.to_ne_bytes(), &[]).unwrap(),
        "protocol features that were not offered"
    );
    assert!(!front.start(0, &layout, 63, 0).unwrap(), "no size of a ring");
    front.stop(0).unwrap();
    assert!(!front.start(0, &crate::ring::RingLayout { device: 5, ..layout }, 64, 0).unwrap());
    front.stop(0).unwrap();
    assert!(front.start(0, &layout, 64, 0).unwrap());
    assert!(!front.tell(8, &two(0, 32), &[]).unwrap(), "it is being served");
    front.send(11, 1, &two(7, 0), &[]).unwrap();
    assert!(front.receive().is_err(), "a question without an answer ends the connection");
    assert!(matches!(outcome.join().unwrap(), Err(ConnectionError::NoReply(11))));
}

#[test]
fn what_cannot_be_read_ends_the_connection_if_the_front_end_waits_for_a_reply() {
    let (backend, pool) = (null(1), pool());
    // The configuration without its bytes, half a ring, no description, and a log without its file.
    let config = [0_u32, 8, 0].map(u32::to_ne_bytes).concat();
    for (code, payload) in [(24, &config[..]), (11, &[0; 4][..]), (31, &[][..]), (6, &[0; 16][..])] {
        let (mut front, outcome) = connect(&backend, &pool);
        front.send(code, 1, payload, &[]).unwrap();
        assert!(front.receive().is_err());
        assert!(matches!(outcome.join().unwrap(), Err(ConnectionError::NoReply(is)) if is == code));
    }
}

#[test]
fn a_queue_that_cannot_start_does_not_stop_those_after_it() {
    let (backend, pool) = (null(2), pool());
    let mut driver = BlockDriver::new(64, FEATURES);
    let (mut front, _outcome) = connect(&backend, &pool);
    front.negotiate(&driver.driver, 0).unwrap();
    assert!(!front.start(0, &driver.driver.layout(), 63, 0).unwrap(), "no size of a ring");
    assert!(front.start(1, &driver.driver.layout(), 64, 0).unwrap());
    assert!(!front.share(&driver.driver).unwrap(), "the first queue is refused again");
    driver.submit(8, 0, &[], 20).unwrap();
    front.kick().unwrap();
    assert_eq!(wait(&mut driver).1, 0);
}

#[test]
fn a_front_end_with_more_queues_than_the_device_is_turned_away() {
    let (backend, pool) = (null(1), pool());
    let (mut front, outcome) = connect(&backend, &pool);
    // As QEMU does it for each of its queues: without a file, and without waiting for a reply.
    for index in 0..2_u64 {
        front.send(13, 1, &(index | 1 << 8).to_ne_bytes(), &[]).unwrap();
    }
    assert!(matches!(outcome.join().unwrap(), Err(ConnectionError::NoQueue(1, 1))));
}

#[test]
fn what_is_no_message_ends_the_connection() {
    let (backend, pool) = (null(1), pool());
    for (code, flags) in [(1, 0), (1, 1 | 1 << 2)] {
        let (mut front, outcome) = connect(&backend, &pool);
        front.send(code, flags, &[], &[]).unwrap();
        assert!(matches!(outcome.join().unwrap(), Err(ConnectionError::Malformed(_))));
    }
}
