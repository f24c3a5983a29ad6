use super::*;
use crate::queue::Served;
use crate::ring::RingFeatures;
use crate::testing::{ByHand, DATA, NetDriver};
use proptest::prelude::*;
use switch::Switches;

const SPLIT: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };
const PACKED: RingFeatures = RingFeatures { packed: true, ..SPLIT };
const VERSION: u64 = VirtioFeatures::VERSION_1;
/// All that a modern guest agrees on.
const MODERN: u64 = VERSION | 0x1ffff | 1 << 54 | 1 << 55 | 1 << 56;
const PLAIN: [u8; 10] = [0; 10];

/// A guest with its two queues, served by hand.
struct Guest {
    driver: NetDriver,
    receive: ByHand,
    transmit: ByHand,
}

fn serve(queue: &mut ByHand, budget: u32) -> Served {
    queue.serve(budget)
}

impl Guest {
    fn new(device: &Arc<NetDevice>, size: u16, features: u64, ring: RingFeatures) -> Self {
        let driver = NetDriver::new(size, ring);
        let agreed = VirtioFeatures(features & (device.offered() | VERSION));
        let receive = ByHand::new(&driver.receive, Box::new(device.receive(0, agreed)));
        let transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(0, agreed)));
        Self { driver, receive, transmit }
    }

    fn send(&mut self, header: [u8; 10], frame: &[u8]) {
        self.driver.send(header, frame).unwrap();
        assert_eq!(serve(&mut self.transmit, 32).requests, 1);
        self.driver.sent().unwrap();
    }

    fn receive(&mut self) -> Vec<([u8; 12], Vec<u8>)> {
        serve(&mut self.receive, 256);
        std::iter::from_fn(|| self.driver.received()).map(|(header, frame, _)| (header, frame)).collect()
    }

    fn offer(&mut self, count: usize, size: u32) {
        for _ in 0..count {
            self.driver.offer(size).unwrap();
        }
    }

    fn errors(&self) -> (u64, u64, u64) {
        let sent = self.transmit.queue.state().counters.read();
        (sent.errors, sent.dropped, sent.too_large)
    }
}

fn port(switches: &Switches, last: u8, more: NetOptions) -> Arc<NetDevice> {
    let place = NetPlace::Switch { name: "lan".to_owned(), checks_source: false };
    let place = if more.place == NetPlace::Nothing { place } else { more.place.clone() };
    NetDevice::open(NetOptions { place, mac: Some(mac(last)), ..more }, switches).unwrap()
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn frame(to: [u8; 6], from: [u8; 6], size: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.extend((14..size).map(|byte| byte as u8));
    frame
}

/// A TCP segment of so much data to be cut, and its header.
fn large(to: u8, from: u8, data: usize) -> ([u8; 10], Vec<u8>) {
    let mut frame = [&mac(to)[..], &mac(from), &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend((40 + data as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5 << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    frame.extend((0..data).map(|byte| byte as u8));
    ([1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0], frame)
}

#[test]
fn guests_of_a_switch_hear_each_other() {
    for ring in [SPLIT, PACKED] {
        let switches = Switches::default();
        let devices = [1, 2, 3].map(|last| port(&switches, last, NetOptions::default()));
        let mut guests = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, ring));
        guests.iter_mut().for_each(|guest| guest.offer(8, 1600));
        // To one, to a group, to one that nobody knows, to itself, and to a link protocol.
        for (to, hears) in [
            (mac(2), [0, 1, 0]),
            ([0xff; 6], [0, 1, 1]),
            (mac(9), [0, 1, 1]),
            (mac(1), [0, 0, 0]),
            ([1, 0x80, 0xc2, 0, 0, 0], [0, 0, 0]),
        ] {
            let sent = frame(to, mac(1), 60);
            guests[0].send(PLAIN, &sent);
            for (guest, hears) in guests.iter_mut().zip(hears) {
                let received = guest.receive();
                assert_eq!(received.len(), hears, "{to:?}");
                assert!(received.iter().all(|(header, frame)| *frame == sent && header[10] == 1));
                guest.offer(hears, 1600);
            }
        }
        let counters = guests[1].receive.queue.state().counters.read();
        assert_eq!((counters.requests, counters.bytes), (3, 180));
        assert_eq!(guests[0].transmit.queue.state().counters.read().requests, 5);
        drop(guests);
        drop(devices);
        assert!(switches.get("lan").is_empty(), "ports go with their devices");
    }
}

#[test]
fn addresses_are_learnt_where_they_are_used() {
    let switches = Switches::default();
    let options = |place: NetPlace| NetOptions { place, ..NetOptions::default() };
    let place = || NetPlace::Switch { name: "lan".to_owned(), checks_source: false };
    let devices = [(); 3].map(|()| NetDevice::open(options(place()), &switches).unwrap());
    let mut guests = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests.iter_mut().for_each(|guest| guest.offer(16, 1600));
    guests[2].send(PLAIN, &frame(mac(7), mac(33), 60));
    assert_eq!((guests[0].receive().len(), guests[1].receive().len()), (1, 1));
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (0, 1));
    // It moves: as a guest does that migrates, or fails over. The next packet goes to where it is now.
    guests[1].send(PLAIN, &frame([0xff; 6], mac(33), 60));
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (1, 1));
    // By QEMU's message for a guest that came by migration.
    devices[2].tell_network(mac(33)).unwrap();
    let heard = guests[0].receive();
    assert_eq!(heard.last().unwrap().1[12..14], [0x80, 0x35]);
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (1, 1));
}

#[test]
fn a_guest_cannot_take_anothers_address() {
    let switches = Switches::default();
    let checked = NetPlace::Switch { name: "lan".to_owned(), checks_source: true };
    let first = port(&switches, 1, NetOptions { place: checked, ..NetOptions::default() });
    let (second, third) =
        (port(&switches, 2, NetOptions::default()), port(&switches, 3, NetOptions::default()));
    let mut guests = [&first, &second, &third].map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests.iter_mut().for_each(|guest| guest.offer(8, 1600));
    guests[0].send(PLAIN, &frame(mac(2), mac(3), 60));
    assert_eq!(guests[1].receive().len(), 0, "it is not its own");
    guests[0].send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guests[1].receive().len(), 1);
    // One that is not checked is not learnt where it does not belong either.
    guests[1].send(PLAIN, &frame(mac(3), mac(1), 60));
    guests[2].send(PLAIN, &frame(mac(1), mac(3), 60));
    assert_eq!((guests[0].receive().len(), guests[1].receive().len()), (1, 0));
    guests[1].send(PLAIN, &frame(mac(3), [3, 0, 0, 0, 0, 1], 60));
    assert_eq!(guests[2].receive().len(), 1, "nobody's address is a group's");
    let error = NetDevice::open(
        NetOptions { place: first.options.place.clone(), ..second.options.clone() },
        &switches,
    );
    assert!(error.unwrap_err().to_string().contains("02:00:00:00:00:02"));
}

#[test]
fn what_is_no_packet_is_dropped_and_counted() {
    for ring in [SPLIT, PACKED] {
        let switches = Switches::default();
        for device in [
            port(&switches, 1, NetOptions::default()),
            NetDevice::open(NetOptions::default(), &switches).unwrap(),
        ] {
            let mut guest = Guest::new(&device, 64, MODERN, ring);
            let good = frame([0xff; 6], mac(1), 60);
            // Header and packet cut anywhere are one packet all the same.
            for cuts in [&[0][..], &[1, 1, 2, 10, 11], &[12], &[13, 20], &[5, 12, 40]] {
                guest.driver.send_cut(PLAIN, &good, cuts).unwrap();
            }
            assert_eq!(serve(&mut guest.transmit, 32).requests, 5);
            assert_eq!(guest.errors(), (0, 0, 0));
            let sizes = [0, 1, 11, 12, 13, 25];
            for size in sizes {
                guest.driver.transmit.add(&[(DATA, size, false)]).unwrap();
            }
            // To be written only, and larger than any.
            guest.driver.transmit.add(&[(DATA, 100, true)]).unwrap();
            guest.driver.transmit.add(&[(DATA, 0x20_0000, false)]).unwrap();
            guest.driver.transmit.add(&[(DATA, 0x1_0000, false), (DATA, 0x1_0000, false)]).unwrap();
            let count = sizes.len() as u32 + 3;
            assert_eq!(serve(&mut guest.transmit, 32).requests, count);
            assert_eq!(guest.errors(), (u64::from(count), 0, 0));
            assert_eq!(std::iter::from_fn(|| guest.driver.sent()).count(), 14, "all buffers come back");
            // Work that cannot be done.
            let (header, tcp) = large(2, 1, 4000);
            for (at, value) in [(1, 2), (4, 0), (6, 200), (9, 0xff), (0, 0)] {
                let mut wrong = header;
                wrong[at] = value;
                if at == 4 {
                    wrong[5] = 0;
                }
                guest.send(wrong, &tcp);
            }
            assert_eq!(guest.errors().0, u64::from(count) + 5);
            guest.send(header, &tcp);
            assert_eq!(guest.errors().0, u64::from(count) + 5);
        }
    }
}

#[test]
fn work_is_done_for_guests_that_do_not_do_it() {
    let switches = Switches::default();
    let devices = [1, 2, 3].map(|last| port(&switches, last, NetOptions::default()));
    let plain = VERSION;
    let mut sender = Guest::new(&devices[0], 64, MODERN, SPLIT);
    let mut modern = Guest::new(&devices[1], 64, MODERN, SPLIT);
    let mut simple = Guest::new(&devices[2], 64, plain, SPLIT);
    modern.offer(8, 1600);
    simple.offer(8, 1600);
    let (header, tcp) = large(2, 1, 4000);
    sender.send(header, &tcp);
    let whole = modern.receive();
    assert_eq!(whole.len(), 1);
    assert_eq!((&whole[0].1, whole[0].0), (&tcp, [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0, 3, 0]));
    let (header, tcp) = large(3, 1, 4000);
    sender.send(header, &tcp);
    let pieces = simple.receive();
    assert_eq!(pieces.iter().map(|(_, frame)| frame.len()).collect::<Vec<_>>(), [1502, 1502, 1158]);
    assert!(pieces.iter().all(|(header, _)| *header == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]));
    let back: Vec<u8> = pieces.iter().flat_map(|(_, frame)| frame[54..].to_vec()).collect();
    assert_eq!(back, tcp[54..]);
    // A packet for all is given to each as it takes it, and the checksum alone is made for those who do not.
    let (header, mut tcp) = large(3, 1, 100);
    tcp[..6].fill(0xff);
    let checksum_only = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0];
    assert_eq!(header[6..], checksum_only[6..]);
    modern.offer(4, 1600);
    sender.send(checksum_only, &tcp);
    let (as_it_is, made) = (modern.receive(), simple.receive());
    assert_eq!((as_it_is[0].0[0], &as_it_is[0].1), (1, &tcp));
    assert_eq!(made[0].0[0], 0);
    let mut expected = tcp;
    make_checksum(&mut expected, 34, 16);
    assert_eq!(made[0].1, expected);
}

#[test]
fn packets_wait_for_buffers_and_are_merged() {
    for ring in [SPLIT, PACKED] {
        let switches = Switches::default();
        let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
        let [mut sender, mut receiver] =
            devices.each_ref().map(|device| Guest::new(device, 64, MODERN, ring));
        let (header, tcp) = large(2, 1, 6000);
        for turn in 0..40 {
            sender.send(header, &tcp);
            receiver.offer(3, 1600);
            assert_eq!(receiver.receive().len(), 0);
            assert!(!receiver.receive.queue.rest(), "it waits for one more");
            let before = receiver.driver.receive.offered();
            receiver.offer(1, 1600);
            assert!(receiver.driver.receive.must_kick(before), "turn {turn}");
            let (told, whole) = receiver.receive().pop().unwrap();
            assert_eq!((&whole, told[10]), (&tcp, 4));
            assert!(!receiver.receive.queue.rest());
        }
        // Half a ring without enough room says that there never will be.
        receiver.offer(32, 100);
        sender.send(header, &tcp);
        sender.send(PLAIN, &frame(mac(2), mac(1), 60));
        let received = receiver.receive();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].1.len(), 60);
        assert_eq!(receiver.receive.queue.state().counters.read().too_large, 1);
        assert!(receiver.receive.queue.broken().is_none());
    }
}

#[test]
fn buffers_that_are_too_small_are_the_guests_own_loss() {
    let switches = Switches::default();
    let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
    let mut sender = Guest::new(&devices[0], 64, MODERN, SPLIT);
    let mut receiver = Guest::new(&devices[1], 64, VERSION, SPLIT);
    // None, less than a header, and to be read: they come back empty.
    receiver.driver.receive.add(&[(DATA, 0, true)]).unwrap();
    receiver.offer(1, 11);
    receiver.driver.receive.add(&[(DATA, 100, false)]).unwrap();
    receiver.offer(1, 71);
    receiver.offer(1, 72);
    for _ in 0..5 {
        sender.send(PLAIN, &frame(mac(2), mac(1), 60));
    }
    serve(&mut receiver.receive, 32);
    let back: Vec<u32> =
        std::iter::from_fn(|| receiver.driver.receive.take()).map(|(_, size)| size).collect();
    assert_eq!(back, [0, 0, 0]);
    let counters = receiver.receive.queue.state().counters.read();
    assert_eq!((counters.errors, counters.too_large, counters.requests), (3, 5, 0));
}

#[test]
fn a_guest_that_takes_nothing_loses_its_own_packets_alone() {
    let switches = Switches::default();
    let devices = [1, 2, 3].map(|last| port(&switches, last, NetOptions::default()));
    let mut guests = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests[2].offer(4, 1600);
    for _ in 0..1100 {
        guests[0].send(PLAIN, &frame(mac(2), mac(1), 60));
    }
    assert_eq!(guests[0].errors(), (0, 100, 0));
    guests[0].send(PLAIN, &frame(mac(3), mac(1), 60));
    assert_eq!(guests[2].receive().len(), 1);
    guests[1].receive();
    assert_eq!(guests[1].receive.queue.state().counters.read().dropped, 100, "who gets none sees it too");
    // Large ones are bounded by their bytes.
    guests[1].receive.queue.set_enabled(false);
    guests[1].receive.queue.set_enabled(true);
    let (header, tcp) = large(2, 1, 60_000);
    for _ in 0..100 {
        guests[0].send(header, &tcp);
    }
    assert!(guests[0].errors().1 >= 130, "{:?}", guests[0].errors());
    // One that is switched off gets nothing, and nothing waits for it.
    guests[1].receive.queue.set_enabled(false);
    let before = guests[0].errors();
    guests[0].send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guests[0].errors(), before);
    guests[1].receive.queue.set_enabled(true);
    guests[1].offer(8, 1600);
    assert_eq!(guests[1].receive().len(), 0);
}

#[test]
fn what_is_sent_by_a_disabled_queue_is_thrown_away() {
    let device = NetDevice::open(NetOptions::default(), &Switches::default()).unwrap();
    let mut guest = Guest::new(&device, 64, MODERN, SPLIT);
    guest.transmit.queue.set_enabled(false);
    guest.send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guest.errors(), (0, 1, 0));
    assert!(!guest.transmit.queue.rest());
    guest.driver.send(PLAIN, &frame(mac(2), mac(1), 60)).unwrap();
    assert!(guest.transmit.queue.rest(), "there is something to throw away");
}

#[test]
fn limits_and_the_mtu_hold() {
    let switches = Switches::default();
    let options = NetOptions { packets_a_second: 1000, mtu: 1500, ..NetOptions::default() };
    let (device, other) = (port(&switches, 1, options), port(&switches, 2, NetOptions::default()));
    let mut guest = Guest::new(&device, 64, MODERN, SPLIT);
    let mut receiver = Guest::new(&other, 64, MODERN, SPLIT);
    receiver.offer(60, 1600);
    for _ in 0..60 {
        guest.driver.send(PLAIN, &frame(mac(2), mac(1), 60)).unwrap();
    }
    let served = serve(&mut guest.transmit, 256);
    assert!((1..=30).contains(&served.requests), "{served:?}");
    assert!(served.held_back_ns.is_some_and(|ns| (100_000..=1_000_000).contains(&ns)), "{served:?}");
    assert_eq!(receiver.receive().len(), served.requests as usize);
    let free = port(&switches, 3, NetOptions { mtu: 1500, ..NetOptions::default() });
    let mut guest = Guest::new(&free, 64, MODERN, SPLIT);
    guest.send(PLAIN, &frame(mac(2), mac(1), 1522));
    guest.send(PLAIN, &frame(mac(2), mac(1), 1523));
    assert_eq!(guest.errors(), (0, 0, 1));
    Device::set_mtu(&free, 9000);
    guest.send(PLAIN, &frame(mac(2), mac(1), 1523));
    assert_eq!(guest.errors(), (0, 0, 1));
    assert_eq!(Device::config(&free, 8, 4), [1, 0, 0x28, 0x23]);
    assert_eq!(Device::config(&free, 0, 6), mac(3));
}

#[test]
fn drivers_of_before_virtio_1_have_a_shorter_header() {
    let switches = Switches::default();
    let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
    let mut old = Guest::new(&devices[0], 64, 0, RingFeatures::default());
    let mut new = Guest::new(&devices[1], 64, MODERN, SPLIT);
    old.offer(2, 1600);
    new.offer(2, 1600);
    let sent = frame(mac(2), mac(1), 60);
    old.driver.transmit.write(DATA, &[&PLAIN[..], &sent].concat());
    old.driver.transmit.add(&[(DATA, 70, false)]).unwrap();
    serve(&mut old.transmit, 1);
    assert_eq!(new.receive()[0].1, sent);
    new.send(PLAIN, &frame(mac(1), mac(2), 60));
    serve(&mut old.receive, 1);
    assert_eq!(old.driver.receive.take().unwrap().1, 70);
}

#[test]
fn the_control_queue_answers() {
    let switches = Switches::default();
    let device = port(&switches, 1, NetOptions { pairs: 2, ..NetOptions::default() });
    let driver = NetDriver::new(16, SPLIT);
    let handler = Device::handler(&device, 4, 16, VirtioFeatures(MODERN));
    let mut queue = ByHand::new(&driver.receive, handler);
    let mut driver = driver.receive;
    for (command, answer) in
        [(&[4, 0, 2, 0][..], 0), (&[4, 0, 3, 0], 1), (&[0, 0, 1], 0), (&[9, 9], 1), (&[], 1)]
    {
        driver.write(DATA, command);
        driver.write(DATA + 0x100, &[0xff]);
        driver.add(&[(DATA, command.len() as u32, false), (DATA + 0x100, 1, true)]).unwrap();
        assert_eq!(serve(&mut queue, 8).requests, 1);
        assert_eq!(driver.take().unwrap().1, 1);
        assert_eq!(driver.read(DATA + 0x100, 1), [answer], "{command:?}");
    }
    assert_eq!((Device::queues(&device), Device::queue_number(&device)), (5, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a guest puts into its buffers: all of them come back, what is counted adds up, and the other guest gets
    /// whole packets.
    #[test]
    fn whatever_a_guest_sends_harms_nobody(
        packets in prop::collection::vec((any::<[u8; 10]>(), prop::collection::vec(any::<u8>(), 0..200), 0..64_usize), 1..30),
        likely: bool,
        packed: bool,
        features: u64,
    ) {
        let switches = Switches::default();
        let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
        let ring = if packed { PACKED } else { SPLIT };
        let mut guest = Guest::new(&devices[0], 64, MODERN, ring);
        let mut other = Guest::new(&devices[1], 64, features | VERSION, ring);
        other.offer(60, 2000);
        let mut count = 0;
        for (mut header, mut bytes, cut) in packets {
            if likely {
                let (usual, tcp) = large(2, 1, 3000);
                header[..2].copy_from_slice(&usual[..2]);
                header[6..].copy_from_slice(&usual[6..]);
                bytes = [&tcp[..], &bytes].concat();
            }
            let cut = cut.min(12 + bytes.len());
            if guest.driver.send_cut(header, &bytes, &[cut]).is_some() {
                count += 1;
            }
        }
        serve(&mut guest.transmit, 256);
        let back = std::iter::from_fn(|| guest.driver.sent()).count();
        prop_assert_eq!(back, count);
        let counters = guest.transmit.queue.state().counters.read();
        let all = counters.requests + counters.errors + counters.dropped + counters.too_large;
        prop_assert_eq!(all, count as u64);
        prop_assert!(guest.transmit.queue.broken().is_none());
        for (_, frame) in other.receive() {
            prop_assert!(frame.len() >= 14 && frame.len() <= LARGEST);
        }
    }
}
