use super::*;

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
            assert!(!receiver.receive.queue.enable_wakeups(), "it waits for one more");
            let before = receiver.driver.receive.offered();
            receiver.offer(1, 1600);
            assert!(receiver.driver.receive.must_kick(before), "turn {turn}");
            let (told, whole) = receiver.receive().pop().unwrap();
            assert_eq!((&whole, told[10]), (&tcp, 4));
            assert!(!receiver.receive.queue.enable_wakeups());
        }
        // If half a ring has no room for the packet, it will never fit.
        receiver.offer(32, 100);
        sender.send(header, &tcp);
        sender.send(PLAIN, &frame(mac(2), mac(1), 60));
        let received = receiver.receive();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].1.len(), 60);
        assert_eq!(receiver.receive.queue.state().counters.read().too_large, 1);
        assert!(receiver.receive.queue.virtqueue.broken().is_none());
    }
}

#[test]
fn buffers_that_are_too_small_are_the_guests_own_loss() {
    let switches = Switches::default();
    let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
    let mut sender = Guest::new(&devices[0], 64, MODERN, SPLIT);
    let mut receiver = Guest::new(&devices[1], 64, VERSION, SPLIT);
    // Buffers without room, with less than a header's, and read-only ones: they come back empty.
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
    // Large packets are limited by their bytes.
    guests[1].receive.queue.set_enabled(false);
    guests[1].receive.queue.set_enabled(true);
    let (header, tcp) = large(2, 1, 60_000);
    for _ in 0..100 {
        guests[0].send(header, &tcp);
    }
    assert!(guests[0].errors().1 >= 130, "{:?}", guests[0].errors());
    // A queue that is disabled gets nothing, and nothing is kept for it.
    guests[1].receive.queue.set_enabled(false);
    let before = guests[0].errors();
    guests[0].send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guests[0].errors(), (before.0, before.1 + 1, before.2));
    guests[0].send(PLAIN, &frame([0xff; 6], mac(1), 60));
    assert_eq!(guests[0].errors().1, before.1 + 1, "not for it alone");
    guests[1].receive.queue.set_enabled(true);
    guests[1].offer(8, 1600);
    assert_eq!(guests[1].receive().len(), 0);
}

#[test]
fn packets_that_wait_for_a_queue_that_stops_are_counted() {
    let switches = Switches::default();
    let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
    let [mut sender, receiver] = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    let Guest { driver, mut receive, .. } = receiver;
    let dropped = |queue: &ByHand| queue.queue.state().counters.read().dropped;
    // Without buffers, the first packet waits at the worker of the queue and the others before it.
    for _ in 0..3 {
        sender.send(PLAIN, &frame(mac(2), mac(1), 60));
        serve(&mut receive, 32);
    }
    receive.queue.set_enabled(false);
    receive.queue.set_enabled(true);
    serve(&mut receive, 32);
    assert_eq!(dropped(&receive), 3);
    // A queue that is paused and started again, as for a change of memory.
    for _ in 0..2 {
        sender.send(PLAIN, &frame(mac(2), mac(1), 60));
        serve(&mut receive, 32);
    }
    drop(receive);
    let mut receive = ByHand::new(&driver.receive, Box::new(devices[1].receive(0, VirtioFeatures(VERSION))));
    serve(&mut receive, 32);
    assert_eq!((dropped(&receive), sender.errors()), (2, (0, 0, 0)));
}

#[test]
fn what_is_sent_by_a_disabled_queue_is_thrown_away() {
    let device = NetDevice::open(NetOptions::default(), &Switches::default()).unwrap();
    let mut guest = Guest::new(&device, 64, MODERN, SPLIT);
    guest.transmit.queue.set_enabled(false);
    guest.send(PLAIN, &frame(mac(2), mac(1), 60));
    assert_eq!(guest.errors(), (0, 1, 0));
    assert!(!guest.transmit.queue.enable_wakeups());
    guest.driver.send(PLAIN, &frame(mac(2), mac(1), 60)).unwrap();
    assert!(guest.transmit.queue.enable_wakeups(), "there is something to throw away");
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
    let work = serve(&mut guest.transmit, 256);
    assert!((1..=30).contains(&work.requests), "{work:?}");
    // At 1000 packets a second, the next one is allowed within a millisecond.
    assert!(work.throttled_ns.is_some_and(|ns| (1..=1_000_000).contains(&ns)), "{work:?}");
    assert_eq!(receiver.receive().len(), work.requests as usize);
    let free = port(&switches, 3, NetOptions { mtu: 1500, ..NetOptions::default() });
    let mut guest = Guest::new(&free, 64, MODERN, SPLIT);
    guest.send(PLAIN, &frame(mac(2), mac(1), 1522));
    guest.send(PLAIN, &frame(mac(2), mac(1), 1523));
    assert_eq!(guest.errors(), (0, 0, 1));
    // A front-end says its own, which is no larger than the administrator's.
    assert!(Device::set_mtu(&free, Some(9000)).unwrap_err().contains("1500"));
    guest.send(PLAIN, &frame(mac(2), mac(1), 1523));
    assert_eq!(guest.errors(), (0, 0, 2));
    assert_eq!(Device::config(&free, 8, 4), [1, 0, 0xdc, 0x05]);
    Device::set_mtu(&free, Some(1000)).unwrap();
    guest.send(PLAIN, &frame(mac(2), mac(1), 1023));
    assert_eq!(guest.errors(), (0, 0, 3));
    for invalid in [0, 67, 65_536, u64::MAX] {
        assert!(Device::set_mtu(&free, Some(invalid)).is_err(), "{invalid}");
    }
    assert_eq!(Device::config(&free, 8, 4), [1, 0, 0xe8, 0x03]);
    assert_eq!(Device::config(&free, 0, 6), mac(3));
    // The next front-end has its own.
    Device::set_mtu(&free, None).unwrap();
    assert_eq!(Device::config(&free, 8, 4), [1, 0, 0xdc, 0x05]);
    Device::set_mtu(&other, Some(9000)).unwrap();
    assert_eq!(Device::config(&other, 8, 4), [1, 0, 0x28, 0x23]);
}

#[test]
fn segments_are_no_larger_than_the_mtu() {
    for (mtu, delivered) in [(0, 5), (1500, 2)] {
        let switches = Switches::default();
        let options = NetOptions { mtu, ..NetOptions::default() };
        let nothing = NetDevice::open(options.clone(), &switches).unwrap();
        let mut to_nothing = Guest::new(&nothing, 64, MODERN, SPLIT);
        let mut sender = Guest::new(&port(&switches, 1, options), 64, MODERN, SPLIT);
        let mut receiver = Guest::new(&port(&switches, 2, NetOptions::default()), 64, MODERN, SPLIT);
        receiver.offer(5, 9000);
        // The second makes segments as large as packets with two VLAN tags; the last ones are larger than the data.
        for segment in [1460_u16, 1468, 1469, 8500, 65_535] {
            let (mut header, tcp) = large(2, 1, 8000);
            header[4..6].copy_from_slice(&segment.to_le_bytes());
            sender.send(header, &tcp);
            to_nothing.send(header, &tcp);
        }
        let too_large = 5 - delivered;
        assert_eq!(receiver.receive().len() as u64, delivered, "MTU {mtu}");
        assert_eq!((sender.errors(), to_nothing.errors()), ((0, 0, too_large), (0, 0, too_large)));
    }
}

#[test]
fn a_guest_receives_nothing_larger_than_its_mtu() {
    let switches = Switches::default();
    let options = |mtu| NetOptions { mtu, ..NetOptions::default() };
    let devices = [(1, 9000), (2, 0), (3, 9000)].map(|(last, mtu)| port(&switches, last, options(mtu)));
    // The front-end's MTU counts as well.
    Device::set_mtu(&devices[1], Some(1500)).unwrap();
    let mut guests = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    guests[1].offer(20, 10_000);
    guests[2].offer(20, 10_000);
    let dropped = |guest: &Guest| guest.receive.queue.state().counters.read().dropped;
    // In one piece, which is the usual case, and in two.
    for (turn, cuts) in [(1, &[][..]), (2, &[20])] {
        for size in [1514, 1522, 1523, 9014] {
            guests[0].driver.send_cut(PLAIN, &frame(mac(2), mac(1), size), cuts).unwrap();
        }
        assert_eq!(serve(&mut guests[0].transmit, 32).requests, 4);
        let sizes: Vec<_> = guests[1].receive().iter().map(|(_, frame)| frame.len()).collect();
        assert_eq!((sizes, guests[0].errors()), (vec![1514, 1522], (0, 0, 2 * turn)));
        assert_eq!(dropped(&guests[1]), 2 * turn, "who gets none sees it too");
    }
    // The other receiver gets a broadcast of that size.
    guests[0].send(PLAIN, &frame([0xff; 6], mac(1), 9014));
    assert_eq!((guests[1].receive().len(), guests[2].receive().len()), (0, 1));
    assert_eq!((guests[0].errors(), dropped(&guests[1])), ((0, 0, 4), 5));
    // A packet to be segmented may be larger, as its segments are not.
    for (segment, arrives) in [(1460_u16, 1), (8500, 0)] {
        let (mut header, tcp) = large(2, 1, 8500);
        header[4..6].copy_from_slice(&segment.to_le_bytes());
        guests[0].send(header, &tcp);
        assert_eq!(guests[1].receive().len(), arrives, "segments of {segment} bytes");
    }
}

/// crosvm passes the device's configuration space on, and says no MTU; cloud-hypervisor has its own.
#[test]
fn a_guest_receives_nothing_larger_than_the_mtu_that_its_front_end_read() {
    for (read, features, sizes) in [
        (Some((10, 2)), MODERN, &[1514_usize, 1522][..]),
        (Some((0, 60)), MODERN, &[1514, 1522]),
        (Some((10, 2)), MODERN & !features::MTU, &[1514, 1522, 1523, 9014]),
        (Some((0, 10)), MODERN, &[1514, 1522, 1523, 9014]),
        (None, MODERN, &[1514, 1522, 1523, 9014]),
    ] {
        let switches = Switches::default();
        let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
        // What an earlier front-end read is forgotten.
        Device::config(&devices[1], 10, 2);
        Device::set_mtu(&devices[1], None).unwrap();
        if let Some((offset, size)) = read {
            Device::config(&devices[1], offset, size);
        }
        let mut sender = Guest::new(&devices[0], 64, MODERN, SPLIT);
        let mut receiver = Guest::new(&devices[1], 64, features, SPLIT);
        receiver.offer(8, 10_000);
        for size in [1514, 1522, 1523, 9014] {
            sender.send(PLAIN, &frame(mac(2), mac(1), size));
        }
        let received: Vec<_> = receiver.receive().iter().map(|(_, frame)| frame.len()).collect();
        assert_eq!((&received[..], sender.errors()), (sizes, (0, 0, 4 - sizes.len() as u64)), "{read:?}");
    }
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
fn answers_are_received_by_the_pair_that_sent_the_question() {
    let switches = Switches::default();
    let options = NetOptions { pairs: 4, ..NetOptions::default() };
    let (several, one) = (port(&switches, 1, options), port(&switches, 2, NetOptions::default()));
    let mut pairs = [0, 1, 2, 3].map(|pair| Guest::of_pair(&several, pair, 64, MODERN, SPLIT));
    let mut peer = Guest::new(&one, 64, MODERN, SPLIT);
    let packet = |to_peer: bool, number: u8| {
        let (to, from) = if to_peer { (2, 1) } else { (1, 2) };
        let mut packet = frame(mac(to), mac(from), 60);
        packet[12..34]
            .copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        let ports = if to_peer { [0x80, number, 0, 53] } else { [0, 53, 0x80, number] };
        packet[34..38].copy_from_slice(&ports);
        packet
    };
    let mut answered = |pair: usize, number: u8| {
        pairs.iter_mut().for_each(|pair| pair.offer(1, 2000));
        pairs[pair].send(PLAIN, &packet(true, number));
        peer.send(PLAIN, &packet(false, number));
        pairs.each_mut().map(|pair| pair.receive().len())
    };
    for (number, pair) in (0..12).zip([0, 1, 2, 3].into_iter().cycle()) {
        let mut received = [0; 4];
        received[pair] = 1;
        assert_eq!(answered(pair, number), received);
    }
    assert_eq!(answered(3, 0), [0, 0, 0, 1], "the program has moved to another vCPU");
    // The guest has sent nothing in these connections.
    pairs.iter_mut().for_each(|pair| pair.offer(32, 2000));
    (100..132).for_each(|number| peer.send(PLAIN, &packet(false, number)));
    let received = pairs.each_mut().map(|pair| pair.receive().len());
    assert!(received.iter().all(|count| *count > 0) && received.iter().sum::<usize>() == 32, "{received:?}");
}

/// crosvm leaves the control queue to the device, and enables all queues. A guest has buffers in the pairs that it uses.
#[test]
fn a_guest_whose_control_queue_is_served_here_receives_by_the_pairs_that_it_asked_for() {
    let switches = Switches::default();
    let options = NetOptions { pairs: 4, ..NetOptions::default() };
    let (several, one) = (port(&switches, 1, options), port(&switches, 2, NetOptions::default()));
    let mut pairs = [0, 1, 2, 3].map(|pair| Guest::of_pair(&several, pair, 256, MODERN, SPLIT));
    let mut peer = Guest::new(&one, 256, MODERN, SPLIT);
    let mut received = || {
        pairs.iter_mut().for_each(|pair| while pair.driver.offer(2000).is_some() {});
        for number in 0..64 {
            let mut packet = frame(mac(1), mac(2), 60);
            packet[12..34]
                .copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
            packet[34..38].copy_from_slice(&[0, 53, 0x80, number]);
            peer.send(PLAIN, &packet);
        }
        let counts = pairs.each_mut().map(|pair| pair.receive().len());
        assert_eq!(counts.iter().sum::<usize>(), 64, "{counts:?}");
        counts.map(|count| count > 0)
    };
    assert_eq!(received(), [true; 4], "the front-end enables what is used");
    let mut driver = NetDriver::new(16, SPLIT).receive;
    let handler = || Device::handler(&several, 8, 16, VirtioFeatures(MODERN | features::QUEUES));
    let mut control = ByHand::new(&driver, handler());
    Device::enable(&several, 8, true);
    assert_eq!(received(), [true, false, false, false]);
    let mut ask = |pairs: u8| {
        driver.write(DATA, &[4, 0, pairs, 0]);
        driver.add(&[(DATA, 4, false), (DATA + 0x100, 1, true)]).unwrap();
        assert_eq!(serve(&mut control, 8).requests, 1);
        driver.take().unwrap();
        driver.read(DATA + 0x100, 1)
    };
    assert_eq!((ask(2), received()), (vec![0], [true, true, false, false]));
    // Queues are paused and started again when the guest's memory changes.
    drop(handler());
    Device::enable(&several, 8, true);
    assert_eq!((ask(5), received()), (vec![1], [true, true, false, false]));
    assert_eq!((ask(4), received()), (vec![0], [true; 4]));
    assert_eq!((ask(1), received()), (vec![0], [true, false, false, false]));
    Device::enable(&several, 8, false);
    assert_eq!(received(), [true; 4], "the next front-end's");
}

#[test]
fn the_control_queue_answers() {
    let switches = Switches::default();
    let device = port(&switches, 1, NetOptions { pairs: 2, ..NetOptions::default() });
    let driver = NetDriver::new(16, SPLIT);
    let handler = Device::handler(&device, 4, 16, VirtioFeatures(MODERN | features::QUEUES));
    let mut queue = ByHand::new(&driver.receive, handler);
    let mut driver = driver.receive;
    for (command, answer) in [
        (&[4, 0, 2, 0][..], 0),
        (&[4, 0, 3, 0], 1),
        (&[0, 0, 1], 0),
        // Linux sends tables of addresses because of VIRTIO_NET_F_CTRL_RX; another address to receive is a feature more.
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
        (&[1, 1, 2, 0, 0, 0, 0, 1], 1),
        (&[9, 9], 1),
        (&[], 1),
    ] {
        driver.write(DATA, command);
        driver.write(DATA + 0x100, &[0xff]);
        driver.add(&[(DATA, command.len() as u32, false), (DATA + 0x100, 1, true)]).unwrap();
        assert_eq!(serve(&mut queue, 8).requests, 1);
        assert_eq!(driver.take().unwrap().1, 1);
        assert_eq!(driver.read(DATA + 0x100, 1), [answer], "{command:?}");
    }
    assert_eq!(Device::queues(&device), 5);
    // The queue of a receiver, if the front-end has more pairs.
    driver.add(&[(DATA, 1600, true)]).unwrap();
    serve(&mut queue, 8);
    assert_eq!((queue.is_broken(), driver.take()), (true, None));
    // A driver without VIRTIO_NET_F_MQ has the control queue after the first pair.
    let mut driver = NetDriver::new(16, SPLIT).receive;
    let mut queue = ByHand::new(&driver, Device::handler(&device, 2, 16, VirtioFeatures(MODERN)));
    driver.write(DATA, &[4, 0, 1, 0]);
    driver.add(&[(DATA, 4, false), (DATA + 0x100, 1, true)]).unwrap();
    assert_eq!(serve(&mut queue, 8).requests, 1);
    assert_eq!((driver.take().unwrap().1, driver.read(DATA + 0x100, 1)), (1, vec![0]));
}

#[test]
fn a_turn_is_charged_for_every_copy_and_segment() {
    let switches = Switches::default();
    let devices: Vec<_> = (1..=9).map(|last| port(&switches, last, NetOptions::default())).collect();
    let mut guests: Vec<Guest> =
        devices.iter().map(|device| Guest::new(device, 256, MODERN, SPLIT)).collect();
    guests.iter_mut().for_each(|guest| guest.offer(60, 1600));
    // A broadcast to all eight others.
    let all = frame([0xff; 6], mac(1), 60);
    for _ in 0..40 {
        guests[0].driver.send(PLAIN, &all).unwrap();
    }
    let work = serve(&mut guests[0].transmit, 64);
    assert_eq!(
        (work.extra, work.units(), work.more),
        (7 * work.requests, 8 * work.requests, true),
        "{work:?}"
    );
    assert_eq!(work.requests, 8, "what was taken ahead is put back: {work:?}");
    assert_eq!(guests[8].receive().len(), work.requests as usize);
    // An unknown address with a single other port costs as much as a known one.
    let pair = Switches::default();
    let devices = [1, 2].map(|last| port(&pair, last, NetOptions::default()));
    let [mut sender, mut simple] = [(&devices[0], MODERN), (&devices[1], VERSION)]
        .map(|(device, features)| Guest::new(device, 256, features, SPLIT));
    simple.offer(60, 1600);
    sender.driver.send(PLAIN, &frame(mac(2), mac(1), 60)).unwrap();
    assert_eq!(serve(&mut sender.transmit, 64).units(), 1);
    // A receiver that takes no large packets gets segments: flooded, and to a known address.
    for is_known in [false, true] {
        let (header, bytes) = large(2, 1, 3000);
        sender.driver.send(header, &bytes).unwrap();
        let work = serve(&mut sender.transmit, 64);
        let before = if is_known { 0 } else { 1 };
        let segments = simple.receive().len() - before;
        assert!(segments >= 3 && work.extra as usize == segments - 1, "{segments} segments: {work:?}");
        simple.send(PLAIN, &frame(mac(1), mac(2), 60));
    }
    // A large packet to ports of which none takes it is copied, too.
    simple.receive.queue.set_enabled(false);
    let (header, mut all) = large(2, 1, 60_000);
    all[..6].fill(0xff);
    sender.driver.send(header, &all).unwrap();
    let work = serve(&mut sender.transmit, 64);
    assert_eq!((work.requests, work.bytes, work.extra), (1, 0, 3), "{work:?}");
}

#[test]
fn of_a_malformed_packet_only_the_head_is_read() {
    let (mut header, mut tcp) = large(2, 1, 60_000);
    // Without a checksum to be made.
    header[0] = 0;
    for first in [mac(2)[0], 0xff] {
        tcp[0] = first;
        let switches = Switches::default();
        let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
        let [mut sender, mut receiver] =
            devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
        let at = DATA + crate::testing::NEXT;
        let whole = [&header[..], &[0, 0], &tcp].concat();
        sender.driver.transmit.write(at, &whole);
        sender.driver.transmit.add(&[(at, whole.len() as u32, false)]).unwrap();
        // Whoever reads the other pages loses them.
        sender.driver.transmit.file.set_len(at + 0x1000).unwrap();
        assert_eq!(serve(&mut sender.transmit, 32).units(), 1);
        assert_eq!((sender.errors(), sender.transmit.is_broken()), ((1, 0, 0), false));
        assert_eq!(receiver.receive(), vec![]);
    }
}

#[test]
fn large_packets_for_many_ports_wait_in_the_ring_when_the_turn_is_used_up() {
    for ring in [SPLIT, PACKED] {
        let switches = Switches::default();
        let devices: Vec<_> = (1..=64).map(|last| port(&switches, last, NetOptions::default())).collect();
        let mut guests: Vec<Guest> =
            devices.iter().map(|device| Guest::new(device, 64, MODERN, ring)).collect();
        let (header, mut all) = large(2, 1, 60_000);
        all[..6].fill(0xff);
        (0..16).for_each(|_| assert!(guests[0].driver.send(header, &all).is_some()));
        for turn in 1..=16 {
            let work = serve(&mut guests[0].transmit, 32);
            assert!(work.requests == 1 && work.more && work.units() > 32, "turn {turn}: {work:?}");
        }
        assert_eq!(serve(&mut guests[0].transmit, 32), WorkDone::default(), "none is sent twice");
        assert_eq!(std::iter::from_fn(|| guests[0].driver.sent()).count(), 16);
        guests[63].offer(16, 65_000);
        assert_eq!(guests[63].receive().len(), 16);
    }
}

#[test]
fn a_turn_is_charged_for_long_chains_of_descriptors() {
    let switches = Switches::default();
    let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
    let [mut sender, mut receiver] = devices.each_ref().map(|device| Guest::new(device, 64, MODERN, SPLIT));
    for _ in 0..40 {
        sender.driver.transmit.add_indirect(&[(DATA, 0, false); 1000]).unwrap();
    }
    for is_enabled in [true, false] {
        sender.transmit.queue.set_enabled(is_enabled);
        let work = serve(&mut sender.transmit, 32);
        assert!(work.requests <= 3 && work.units() >= 32 && work.more, "{work:?}");
    }
    for _ in 0..40 {
        receiver.driver.receive.add_indirect(&[(DATA, 2, true); 1000]).unwrap();
    }
    let mut other = Guest::new(&port(&switches, 3, NetOptions::default()), 64, MODERN, SPLIT);
    (0..20).for_each(|_| other.send(PLAIN, &frame(mac(2), mac(3), 60)));
    let work = serve(&mut receiver.receive, 32);
    assert!(work.requests <= 4 && work.units() >= 32 && work.more, "{work:?}");
}

#[test]
fn after_a_lost_page_the_rest_of_a_queue_is_not_looked_at() {
    for ring in [SPLIT, PACKED] {
        let switches = Switches::default();
        let devices = [1, 2].map(|last| port(&switches, last, NetOptions::default()));
        let [mut sender, mut receiver] =
            devices.each_ref().map(|device| Guest::new(device, 64, MODERN, ring));
        receiver.offer(8, 1600);
        for _ in 0..8 {
            sender.driver.send(PLAIN, &frame(mac(2), mac(1), 60)).unwrap();
        }
        sender.driver.transmit.file.set_len(DATA + crate::testing::NEXT).unwrap();
        assert_eq!(serve(&mut sender.transmit, 32).requests, 1);
        assert!(sender.transmit.is_broken() && sender.driver.sent().is_none());
        assert_eq!(serve(&mut sender.transmit, 32).requests, 0);
        assert_eq!((sender.errors(), receiver.receive()), ((0, 1, 0), vec![]), "nobody gets the empty page");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a guest puts into its buffers: all come back, the counters add up, and the other guest gets whole packets.
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
        // A packet that is cut into hundreds of segments uses up a turn.
        while serve(&mut guest.transmit, 256).more {}
        let back = std::iter::from_fn(|| guest.driver.sent()).count();
        prop_assert_eq!(back, count);
        let counters = guest.transmit.queue.state().counters.read();
        let all = counters.requests + counters.errors + counters.dropped + counters.too_large;
        prop_assert_eq!(all, count as u64);
        prop_assert!(guest.transmit.queue.virtqueue.broken().is_none());
        for (_, frame) in other.receive() {
            prop_assert!(frame.len() >= 14 && frame.len() <= LARGEST);
        }
    }
}
