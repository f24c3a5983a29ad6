use super::segmentation::make_checksum;
use super::*;
use crate::queue::WorkDone;
use crate::ring::RingFeatures;
use crate::testing::{ByHand, DATA, NetDriver};
use proptest::prelude::*;
use switch::Switches;

#[path = "delivery_tests.rs"]
mod delivery;

const SPLIT: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };
const PACKED: RingFeatures = RingFeatures { packed: true, ..SPLIT };
const VERSION: u64 = VirtioFeatures::VERSION_1;
/// All features that a modern guest negotiates.
const MODERN: u64 = VERSION | 0x1ffff | 1 << 54 | 1 << 55 | 1 << 56;
const PLAIN: [u8; 10] = [0; 10];

/// A guest with its two queues, served by hand.
struct Guest {
    driver: NetDriver,
    receive: ByHand,
    transmit: ByHand,
}

fn serve(queue: &mut ByHand, budget: u32) -> WorkDone {
    queue.serve(budget)
}

impl Guest {
    fn new(device: &Arc<NetDevice>, size: u16, features: u64, ring: RingFeatures) -> Self {
        Self::of_pair(device, 0, size, features, ring)
    }

    /// A guest with one queue pair of the device.
    fn of_pair(device: &Arc<NetDevice>, pair: u16, size: u16, features: u64, ring: RingFeatures) -> Self {
        let driver = NetDriver::new(size, ring);
        let negotiated = VirtioFeatures(features & (device.offered() | VERSION));
        let receive = ByHand::new(&driver.receive, Box::new(device.receive(pair, negotiated)));
        let transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(pair, negotiated)));
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
    let link = LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
    let link = if more.link == LinkOptions::Nothing { link } else { more.link.clone() };
    NetDevice::open(NetOptions { link, mac: Some(mac(last)), ..more }, switches).unwrap()
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn frame(to: [u8; 6], from: [u8; 6], size: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.extend((14..size).map(|byte| byte as u8));
    frame
}

/// A TCP packet with `data` bytes to be segmented, and its header.
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
        // To another guest, to all, to an unknown address, to the sender itself, and to a link-local protocol.
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
fn packets_arrive_in_order_whole_and_once_whatever_their_pieces_and_turns() {
    for ring in [SPLIT, PACKED] {
        for (budget, cuts) in [(1, &[][..]), (5, &[12]), (17, &[4, 20]), (32, &[]), (64, &[12, 26])] {
            let switches = Switches::default();
            let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
            let mut guests = devices.each_ref().map(|device| Guest::new(device, 256, MODERN, ring));
            let [from, to] = &mut guests;
            to.offer(70, 1600);
            // Runs of packets to one address, interrupted by single packets that nobody gets.
            let packets: Vec<_> = (0..50_u8)
                .map(|number| {
                    let nobody = number % 7 == 3;
                    let mut packet = frame(mac(if nobody { 1 } else { 2 }), mac(1), 60);
                    packet[59] = number;
                    (packet, nobody)
                })
                .collect();
            for (packet, _) in &packets {
                from.driver.send_cut(PLAIN, packet, cuts).unwrap();
            }
            let mut taken = 0;
            while taken < packets.len() as u32 {
                let work = serve(&mut from.transmit, budget);
                assert_eq!(work.requests, budget.min(50 - taken));
                taken += work.requests;
            }
            assert_eq!(std::iter::from_fn(|| from.driver.sent()).count(), packets.len());
            let received: Vec<_> = to.receive().into_iter().map(|(_, packet)| packet).collect();
            let expected: Vec<_> =
                packets.into_iter().filter_map(|(packet, nobody)| (!nobody).then_some(packet)).collect();
            assert_eq!(received, expected, "turns of {budget}, cut at {cuts:?}");
        }
    }
}

#[test]
fn addresses_are_learnt_where_they_are_used() {
    let switches = Switches::default();
    let options = |link: LinkOptions| NetOptions { link, ..NetOptions::default() };
    let link = || LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
    let devices = [(); 3].map(|()| NetDevice::open(options(link()), &switches).unwrap());
    let mut guests = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests.iter_mut().for_each(|guest| guest.offer(16, 1600));
    guests[2].send(PLAIN, &frame(mac(7), mac(33), 60));
    assert_eq!((guests[0].receive().len(), guests[1].receive().len()), (1, 1));
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (0, 1));
    // The address moves to another port, as in a migration or a failover. The next packet goes there.
    guests[1].send(PLAIN, &frame([0xff; 6], mac(33), 60));
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (1, 1));
    // The same by QEMU's message for a guest that has migrated here.
    devices[2].tell_network(mac(33)).unwrap();
    let heard = guests[0].receive();
    assert_eq!(heard.last().unwrap().1[12..14], [0x80, 0x35]);
    guests[0].send(PLAIN, &frame(mac(33), mac(7), 60));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (1, 1));
}

#[test]
fn a_guest_cannot_take_anothers_address() {
    let switches = Switches::default();
    let checked = LinkOptions::Switch { name: "lan".to_owned(), checks_source: true };
    let first = port(&switches, 1, NetOptions { link: checked, ..NetOptions::default() });
    let (second, third) =
        (port(&switches, 2, NetOptions::default()), port(&switches, 3, NetOptions::default()));
    let mut guests = [&first, &second, &third].map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests.iter_mut().for_each(|guest| guest.offer(8, 1600));
    guests[0].send(PLAIN, &frame(mac(2), mac(3), 60));
    assert_eq!(guests[1].receive().len(), 0, "it is not its own");
    assert_eq!(guests[0].errors(), (1, 0, 0), "and somebody can see that");
    guests[0].send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guests[1].receive().len(), 1);
    // A guest whose source is not checked cannot take an assigned address either.
    guests[1].send(PLAIN, &frame(mac(3), mac(1), 60));
    guests[2].send(PLAIN, &frame(mac(1), mac(3), 60));
    assert_eq!((guests[0].receive().len(), guests[1].receive().len()), (1, 0));
    guests[1].send(PLAIN, &frame(mac(3), [3, 0, 0, 0, 0, 1], 60));
    assert_eq!(guests[2].receive().len(), 1, "nobody's address is a group's");
    assert_eq!(guests[1].errors(), (1, 0, 0));
    let error =
        NetDevice::open(NetOptions { link: first.options.link.clone(), ..second.options.clone() }, &switches);
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
            // The header and the packet may be split over descriptors anywhere: it is still one packet.
            for cuts in [&[0][..], &[1, 1, 2, 10, 11], &[12], &[13, 20], &[5, 12, 40]] {
                guest.driver.send_cut(PLAIN, &good, cuts).unwrap();
            }
            assert_eq!(serve(&mut guest.transmit, 32).requests, 5);
            assert_eq!(guest.errors(), (0, 0, 0));
            let sizes = [0, 1, 11, 12, 13, 25];
            for size in sizes {
                guest.driver.transmit.add(&[(DATA, size, false)]).unwrap();
            }
            // Write-only, and larger than any packet.
            guest.driver.transmit.add(&[(DATA, 100, true)]).unwrap();
            guest.driver.transmit.add(&[(DATA, 0x20_0000, false)]).unwrap();
            guest.driver.transmit.add(&[(DATA, 0x1_0000, false), (DATA, 0x1_0000, false)]).unwrap();
            let count = sizes.len() as u32 + 3;
            assert_eq!(serve(&mut guest.transmit, 32).requests, count);
            assert_eq!(guest.errors(), (u64::from(count), 0, 0));
            assert_eq!(std::iter::from_fn(|| guest.driver.sent()).count(), 14, "all buffers come back");
            // Offloads that are not possible.
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
    // Each guest gets a broadcast as it takes it: unchanged, or with the checksum completed.
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

/// A device on the switch `lan`.
fn announcing(
    switches: &Switches,
    mac: Option<Address>,
    checks_source: bool,
    packets: u64,
) -> Arc<NetDevice> {
    let link = LinkOptions::Switch { name: "lan".to_owned(), checks_source };
    let options = NetOptions { link, mac, packets_a_second: packets, ..NetOptions::default() };
    NetDevice::open(options, switches).unwrap()
}

#[test]
fn an_announcement_is_from_an_address_that_the_guest_may_send_from_and_counts_against_its_limit() {
    let switches = Switches::default();
    let mac = |last| [0x52, 0x54, 0, 0, 0, last];
    let first = announcing(&switches, Some(mac(1)), true, 0);
    let second = announcing(&switches, Some(mac(2)), false, 0);
    let limited = announcing(&switches, None, false, 100);
    assert!(first.announce(mac(1)).is_ok());
    assert!(first.announce(mac(3)).is_err(), "its source is checked");
    assert!(second.announce(mac(3)).is_ok());
    assert!(second.announce(mac(1)).is_err(), "it is another one's");
    assert!(second.announce([0xff; 6]).is_err(), "a group's");
    let allowed = (0..1000).filter(|_| limited.announce(mac(9)).is_ok()).count();
    assert!(allowed < 20, "{allowed} at once at a limit of 100 a second");
}
