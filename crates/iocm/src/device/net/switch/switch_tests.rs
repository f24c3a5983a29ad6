//! Guests of a switch with front-ends and workers.

use crate::device::net::{LinkOptions, NetDevice, NetOptions, switch::Switches};
use crate::pool::Pool;
use crate::ring::RingFeatures;
use crate::session::{Backend, Session};
use crate::testing::{FrontEnd, NetDriver};
use crate::worker::WorkerOptions;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RING: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };
/// Checksums, TCP, UDP and merged buffers.
const MODERN: u64 = 0xffff | 1 << 54 | 1 << 55 | 1 << 56;

struct Guest {
    driver: NetDriver,
    front: FrontEnd,
    /// The kick of the receive queue; that of the transmit queue is in `front`.
    receive_kick: OwnedFd,
    backend: Arc<Backend>,
}

impl Guest {
    fn new(pool: &Arc<Pool>, switches: &Switches, ring: RingFeatures) -> Self {
        let link = LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
        let device = NetDevice::open(NetOptions { link, ..NetOptions::default() }, switches).unwrap();
        let backend = Backend::new("d", Box::new(device));
        let (here, there) = UnixStream::pair().unwrap();
        let mut session = Session::new(Arc::clone(&backend), Arc::clone(pool));
        std::thread::spawn(move || session.run(there));
        let mut front = FrontEnd::new(here).unwrap();
        let driver = NetDriver::new(64, ring);
        front.negotiate(&driver.receive, MODERN).unwrap();
        assert_eq!(front.ask(17).unwrap(), 3, "two queues of packets, and the control queue");
        let base = if ring.packed { 0x8000_8000 } else { 0 };
        assert!(front.start(0, &driver.receive.layout(), 64, base).unwrap());
        let receive_kick = front.another_kick().unwrap();
        assert!(front.start(1, &driver.transmit.layout(), 64, base).unwrap());
        Self { driver, front, receive_kick, backend }
    }

    fn send(&mut self, frame: &[u8]) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            while self.driver.sent().is_some() {}
            let before = self.driver.transmit.offered();
            if self.driver.send([0; 10], frame).is_some() {
                if self.driver.transmit.must_kick(before) {
                    self.front.kick().unwrap();
                }
                return;
            }
            assert!(Instant::now() < end, "buffers do not come back");
            std::thread::yield_now();
        }
    }

    fn offer(&mut self) {
        let before = self.driver.receive.offered();
        while self.driver.offer(2000).is_some() {}
        if self.driver.receive.must_kick(before) {
            rustix::io::write(&self.receive_kick, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    fn received(&mut self) -> Vec<u8> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some((_, frame, _)) = self.driver.received() {
                return frame;
            }
            assert!(Instant::now() < end, "a packet is lost");
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn key(&self, queue: usize) -> crate::queue::QueueKey {
        self.backend.queues[queue].key.lock().unwrap().unwrap()
    }
}

fn frame(number: u32, to: u8, from: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.resize(60 + number as usize % 1400, number as u8);
    frame
}

fn pool(workers: u32) -> Arc<Pool> {
    let pool = Pool::new();
    for _ in 0..workers {
        pool.add_worker(&WorkerOptions::default()).unwrap();
    }
    pool
}

#[test]
fn packets_go_from_worker_to_worker_in_order_while_queues_move() {
    for packed in [false, true] {
        let (pool, switches) = (pool(3), Switches::default());
        let ring = RingFeatures { packed, ..RING };
        let (mut a, mut b) = (Guest::new(&pool, &switches, ring), Guest::new(&pool, &switches, ring));
        b.offer();
        a.offer();
        // The switch learns both addresses.
        a.send(&frame(0, 2, 1));
        assert_eq!(b.received(), frame(0, 2, 1));
        b.send(&frame(0, 1, 2));
        assert_eq!(a.received(), frame(0, 1, 2));
        for number in 1..3000_u32 {
            a.send(&frame(number, 2, 1));
            if number % 8 == 0 {
                for number in number - 7..=number {
                    assert_eq!(b.received(), frame(number, 2, 1), "packed {packed}");
                }
                b.offer();
            }
            if number % 100 == 0 {
                let to = number / 100 % 3;
                pool.move_queue(a.key(1), to).unwrap();
                pool.move_queue(b.key(0), (to + 1) % 3).unwrap();
            }
        }
        let figures = b.backend.queues[0].state.counters.read();
        assert!(figures.requests >= 2993 && figures.dropped == 0, "{figures:?}");
    }
}

#[test]
fn devices_without_packets_cost_nothing() {
    let (pool, switches) = (pool(1), Switches::default());
    let mut guests: Vec<Guest> = (0..4).map(|_| Guest::new(&pool, &switches, RING)).collect();
    guests.iter_mut().for_each(Guest::offer);
    guests[0].send(&frame(1, 9, 1));
    guests[1..].iter_mut().for_each(|guest| assert_eq!(guest.received(), frame(1, 9, 1)));
    let sweeps = || pool.workers()[0].counters().read().sweeps;
    let in_a_while = || {
        let before = sweeps();
        std::thread::sleep(Duration::from_millis(300));
        sweeps() - before
    };
    // On a busy machine it may take some time until the worker has stopped polling.
    let end = Instant::now() + Duration::from_secs(20);
    while in_a_while() >= 10 {
        assert!(Instant::now() < end, "the worker polls on");
    }
    // And the first packet after a rest wakes the worker.
    guests[2].send(&frame(2, 1, 3));
    assert_eq!(guests[0].received(), frame(2, 1, 3));
}

#[test]
fn a_guest_that_goes_leaves_the_others() {
    let (pool, switches) = (pool(2), Switches::default());
    let mut guests: Vec<Guest> = (0..3).map(|_| Guest::new(&pool, &switches, RING)).collect();
    guests.iter_mut().for_each(Guest::offer);
    guests[1].send(&frame(1, 9, 2));
    assert_eq!(guests[0].received(), frame(1, 9, 2));
    let gone = guests.remove(1);
    drop(gone.front);
    let end = Instant::now() + Duration::from_secs(20);
    while gone.backend.queues[0].key.lock().unwrap().is_some() {
        assert!(Instant::now() < end, "its queues are still served");
        std::thread::sleep(Duration::from_millis(1));
    }
    guests[0].send(&frame(2, 2, 1));
    guests[0].send(&frame(3, 9, 1));
    // Packets for the port that is gone reach nobody.
    let heard = [guests[1].received(), guests[1].received()];
    assert_eq!(heard, [frame(1, 9, 2), frame(3, 9, 1)]);
}
