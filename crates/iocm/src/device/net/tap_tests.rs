//! A guest with a front-end and a worker behind a tap in a network namespace of its own; the host's kernel is the other
//! side.

use crate::device::Device;
use crate::device::net::features;
use crate::device::net::switch::Switches;
use crate::device::net::{Link, LinkOptions, NetDevice, NetError, NetOptions, TapOptions};
use crate::pool::Pool;
use crate::protocol::VirtioFeatures;
use crate::ring::RingFeatures;
use crate::session::{Backend, Session};
use crate::testing::{ByHand, DATA, FrontEnd, NEXT, NetDriver};
use crate::worker::WorkerOptions;
use rustix::fs::{FileType, Mode};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const RING: RingFeatures = RingFeatures { packed: false, event_index: true, indirect: true };
/// Checksums, TCP and merged buffers.
const MODERN: u64 = 0xffff;
const GUEST: [u8; 6] = [0x52, 0x54, 0, 0, 0, 7];
const HOST_ADDRESS: [u8; 4] = [10, 77, 0, 1];
const GUEST_ADDRESS: [u8; 4] = [10, 77, 0, 2];

/// A network namespace, which is removed when dropped.
struct Namespace(String);

impl Namespace {
    /// Creates it. `None`, and a message why, if that is not possible.
    fn new(turn: usize) -> Option<Self> {
        let text = format!("iocm-{}-{turn}-{:?}", std::process::id(), std::thread::current().id());
        let name: String = text.chars().filter(|char| char.is_ascii_alphanumeric() || *char == '-').collect();
        match ip(&["netns", "add", &name]) {
            Ok(()) => Some(Self(name)),
            Err(why) => {
                println!("not tested: no network namespace can be made: {why}");
                None
            }
        }
    }

    fn ip(&self, words: &[&str]) {
        ip(&[&["-n", &self.0], words].concat()).unwrap();
    }

    /// Does something in a thread that is in the namespace.
    fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        use std::os::fd::AsFd as _;
        let file = std::fs::File::open(format!("/run/netns/{}", self.0)).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                act()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.0]);
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

struct Guest {
    driver: NetDriver,
    front: FrontEnd,
    backend: Arc<Backend>,
    _pool: Arc<Pool>,
    host: [u8; 6],
}

fn options(namespace: &Namespace, pairs: u16) -> NetOptions {
    let tap = TapOptions::Name { name: "guest0".to_owned(), namespace: Some(namespace.0.clone()) };
    NetOptions { link: LinkOptions::Tap(tap), pairs, mtu: 1500, ..NetOptions::default() }
}

/// Gives the tap the host's address, and makes the guest's known.
fn give_address(namespace: &Namespace) {
    namespace.ip(&["address", "add", "10.77.0.1/24", "dev", "guest0"]);
    namespace.ip(&["neigh", "add", "10.77.0.2", "lladdr", "52:54:00:00:00:07", "dev", "guest0"]);
}

impl Guest {
    /// A guest whose tap has the host's address, and knows the guest's.
    fn new(namespace: &Namespace, features: u64, pairs: u16) -> Self {
        let pool = Pool::new();
        pool.add_worker(&WorkerOptions::default()).unwrap();
        let device = NetDevice::open(options(namespace, pairs), &Switches::default()).unwrap();
        give_address(namespace);
        let host = namespace.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let address = rustix::net::netdevice::name_to_index(&socket, "guest0").unwrap();
            assert!(address > 0);
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            assert!(text.contains("guest0"));
            mac_of(&socket)
        });
        let backend = Backend::new("d", Box::new(device));
        let (here, there) = UnixStream::pair().unwrap();
        let mut session = Session::new(Arc::clone(&backend), Arc::clone(&pool));
        std::thread::spawn(move || session.run(there));
        let mut front = FrontEnd::new(here).unwrap();
        let driver = NetDriver::new(64, RING);
        front.negotiate(&driver.receive, features).unwrap();
        assert!(front.start(0, &driver.receive.layout(), 64, 0).unwrap());
        assert!(front.start(1, &driver.transmit.layout(), 64, 0).unwrap());
        let mut guest = Self { driver, front, backend, _pool: pool, host };
        guest.offer();
        guest
    }

    fn offer(&mut self) {
        let before = self.driver.receive.offered();
        while self.driver.offer(1600).is_some() {}
        if self.driver.receive.must_kick(before) {
            self.front.kick().unwrap();
        }
    }

    fn send(&mut self, header: [u8; 10], frame: &[u8]) {
        let before = self.driver.transmit.offered();
        self.driver.send(header, frame).unwrap();
        if self.driver.transmit.must_kick(before) {
            self.front.kick().unwrap();
        }
        let end = Instant::now() + Duration::from_secs(20);
        while self.driver.sent().is_none() {
            assert!(Instant::now() < end, "a buffer does not come back");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Waits for the next IPv4 packet of this protocol. The kernel sends others by itself.
    fn received(&mut self, protocol: u8) -> ([u8; 12], Vec<u8>, usize) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match self.driver.received() {
                Some((header, frame, count)) => {
                    self.offer();
                    if frame[12..14] == [8, 0] && frame[23] == protocol {
                        return (header, frame, count);
                    }
                }
                None => {
                    assert!(Instant::now() < end, "a packet is lost");
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    }
}

fn mac_of(socket: &UdpSocket) -> [u8; 6] {
    let mut asked = [0_u8; 40];
    asked[..6].copy_from_slice(b"guest0");
    // SAFETY: the request takes a structure of 40 bytes (netdevice(7)).
    let done =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as libc::Ioctl, asked.as_mut_ptr()) };
    assert_eq!(done, 0);
    *asked[18..].first_chunk().unwrap()
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    pairs.fold(0, |sum, word| (sum + word) % 0xffff)
}

/// An IPv4 packet of the guest's to the host, with only the sum over the pseudo-header as its checksum.
fn packet(guest: &Guest, protocol: u8, transport: &[u8], data: &[u8]) -> Vec<u8> {
    let size = (transport.len() + data.len()) as u16;
    let mut ip = [&[0x45, 0][..], &(20 + size).to_be_bytes(), &[0, 1, 0, 0, 64, protocol, 0, 0]].concat();
    ip.extend([GUEST_ADDRESS, HOST_ADDRESS].concat());
    let checksum = !(sum(&ip) as u16);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [&guest.host[..], &GUEST, &[8, 0], &ip, transport, data].concat();
    let pseudo = (sum(&ip[12..20]) + u32::from(protocol) + u32::from(size)) % 0xffff;
    let at = 34 + if protocol == 6 { 16 } else { 6 };
    frame[at..at + 2].copy_from_slice(&(pseudo as u16).to_be_bytes());
    frame
}

fn udp(from: u16, to: u16, data: usize) -> Vec<u8> {
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &(8 + data as u16).to_be_bytes(), &[0, 0]].concat()
}

fn tcp(from: u16, to: u16, sequence: u32, acknowledged: u32, flags: u8) -> Vec<u8> {
    let numbers = [sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat();
    let window = [5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0];
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &numbers, &window].concat()
}

#[test]
fn datagrams_go_both_ways() {
    for (turn, features) in [0, MODERN].into_iter().enumerate() {
        let Some(namespace) = Namespace::new(turn) else { return };
        let mut guest = Guest::new(&namespace, features, 1);
        let socket = namespace.within(|| UdpSocket::bind("10.77.0.1:7000").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for turn in 0..20_usize {
            let data = vec![turn as u8; 100 + turn * 60];
            let mut frame = packet(&guest, 17, &udp(5000, 7000, data.len()), &data);
            let header = match features {
                // The host completes the checksum, or there is none.
                MODERN => [1, 0, 0, 0, 0, 0, 34, 0, 6, 0],
                _ => {
                    frame[40..42].fill(0);
                    [0; 10]
                }
            };
            guest.send(header, &frame);
            let mut room = [0; 2000];
            let (size, from) = socket.recv_from(&mut room).unwrap();
            assert_eq!((&room[..size], from.port()), (&data[..], 5000));
            socket.send_to(&data, from).unwrap();
            let (header, frame, _) = guest.received(17);
            assert_eq!(frame[42..], data);
            assert_eq!(header[0] & 1, u8::from(features == MODERN), "whose work the checksum is");
        }
        let sent = guest.backend.queues[1].state.counters.read();
        assert_eq!((sent.requests, sent.errors, sent.dropped), (20, 0, 0));
        // A packet with an impossible offload never reaches the kernel.
        guest.send([1, 1, 0, 0, 0, 0, 34, 0, 6, 0], &packet(&guest, 17, &udp(1, 2, 2000), &[0; 2000]));
        assert_eq!(guest.backend.queues[1].state.counters.read().errors, 1);
    }
}

#[test]
fn large_segments_go_both_ways() {
    let Some(namespace) = Namespace::new(0) else { return };
    let mut guest = Guest::new(&namespace, MODERN, 1);
    let listener = namespace.within(|| TcpListener::bind("10.77.0.1:7000").unwrap());
    let work = [1, 0, 0, 0, 0, 0, 34, 0, 16, 0];
    // The guest's side of a connection, by hand.
    let syn = packet(&guest, 6, &tcp(5000, 7000, 1000, 0, 2), &[]);
    guest.send(work, &syn);
    let (_, answer, _) = guest.received(6);
    assert_eq!(answer[47], 0x12, "it is accepted");
    let theirs = u32::from_be_bytes(*answer[38..].first_chunk().unwrap()).wrapping_add(1);
    let data: Vec<u8> = (0..20_000_u32).map(|byte| ((byte * 7) >> 3) as u8).collect();
    let large = packet(&guest, 6, &tcp(5000, 7000, 1001, theirs, 0x18), &data);
    guest.send(work, &packet(&guest, 6, &tcp(5000, 7000, 1001, theirs, 0x10), &[]));
    guest.send([1, 1, 54, 0, 0xb4, 5, 34, 0, 16, 0], &large);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut room = vec![0; data.len()];
    stream.read_exact(&mut room).unwrap();
    assert_eq!(room, data, "one packet of the guest's, cut by the kernel or not at all");
    // The other direction: the kernel sends more at once than a buffer has room for.
    stream.write_all(&data).unwrap();
    let (mut got, mut most) = (Vec::<u8>::new(), 0);
    while got.len() < data.len() {
        let (header, frame, count) = guest.received(6);
        let sequence = u32::from_be_bytes(*frame[38..].first_chunk().unwrap());
        let headers = 34 + usize::from(frame[46] >> 4) * 4;
        if frame.len() == headers || sequence != theirs.wrapping_add(got.len() as u32) {
            continue;
        }
        if header[1] == 1 {
            most = most.max(count);
        }
        got.extend(&frame[headers..]);
        let next = theirs.wrapping_add(got.len() as u32);
        guest.send(work, &packet(&guest, 6, &tcp(5000, 7000, 21_001, next, 0x10), &[]));
    }
    assert_eq!(got, data);
    assert!(most > 1, "a large segment came in several buffers");
}

#[test]
fn an_idle_tap_costs_nothing_and_wakes() {
    let Some(namespace) = Namespace::new(0) else { return };
    let mut guest = Guest::new(&namespace, MODERN, 1);
    let socket = namespace.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    socket.send_to(b"first", "10.77.0.2:9").unwrap();
    guest.received(17);
    let worker = Arc::clone(&guest._pool.workers()[0]);
    let in_a_while = || {
        let before = worker.counters().read().sweeps;
        std::thread::sleep(Duration::from_millis(300));
        worker.counters().read().sweeps - before
    };
    // The kernel sends a few packets by itself at first, and on a busy machine the worker polls for some time.
    let end = Instant::now() + Duration::from_secs(20);
    while in_a_while() >= 40 {
        assert!(Instant::now() < end, "the worker polls on");
    }
    socket.send_to(b"second", "10.77.0.2:9").unwrap();
    assert_eq!(guest.received(17).1[42..], *b"second");
}

/// A turn without a budget, because an earlier one used more than its own, still consumes the edge of the tap's event.
#[test]
fn a_tap_is_looked_at_again_after_a_turn_without_a_budget() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 1), &Switches::default()).unwrap();
    give_address(&namespace);
    let socket = namespace.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    let mut driver = NetDriver::new(64, RING);
    let mut receive = ByHand::new(&driver.receive, Box::new(device.receive(0, VirtioFeatures(MODERN))));
    while driver.offer(1600).is_some() {}
    receive.serve(32);
    // The kernel sends a few packets by itself.
    let end = Instant::now() + Duration::from_secs(20);
    while receive.queue.enable_wakeups() {
        assert!(Instant::now() < end);
        receive.serve(32);
    }
    socket.send_to(b"late", "10.77.0.2:9").unwrap();
    assert_eq!(receive.serve(0).requests, 0);
    assert!(receive.queue.enable_wakeups(), "there is a packet, for which the tap does not call again");
    while receive.serve(32).requests > 0 {}
    assert!(std::iter::from_fn(|| driver.received()).any(|(_, frame, _)| frame.ends_with(b"late")));
}

#[test]
fn a_tap_with_a_larger_mtu_than_the_devices_gives_the_guest_nothing_larger() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 1), &Switches::default()).unwrap();
    namespace.ip(&["link", "set", "guest0", "mtu", "9000"]);
    give_address(&namespace);
    let socket = namespace.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    let mut driver = NetDriver::new(64, RING);
    let mut receive = ByHand::new(&driver.receive, Box::new(device.receive(0, VirtioFeatures(MODERN))));
    while driver.offer(1600).is_some() {}
    for data in [8000, 1472] {
        socket.send_to(&vec![7; data], "10.77.0.2:9").unwrap();
    }
    while receive.serve(32).requests > 0 {}
    let sizes: Vec<_> = std::iter::from_fn(|| driver.received()).map(|(_, frame, _)| frame.len()).collect();
    assert!(sizes.contains(&1514) && sizes.iter().all(|size| *size <= 1522), "{sizes:?}");
    assert_eq!(receive.queue.state().counters.read().too_large, 1);
}

#[test]
fn a_packet_whose_page_is_lost_does_not_leave() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 1), &Switches::default()).unwrap();
    let mut driver = NetDriver::new(64, RING);
    let mut transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(0, VirtioFeatures(MODERN))));
    // The worker reads the header itself, so the kernel would find an empty page.
    driver.send([0; 10], &[7; 60]).unwrap();
    driver.transmit.file.set_len(DATA + NEXT).unwrap();
    assert_eq!(transmit.serve(32).requests, 1);
    let counters = transmit.queue.state().counters.read();
    assert_eq!((counters.requests, counters.dropped, transmit.is_broken()), (0, 1, true));
}

#[test]
fn a_large_packet_that_the_kernel_does_not_take_is_charged_for_its_copy() {
    let Some(namespace) = Namespace::new(0) else { return };
    let options = NetOptions { mtu: 0, ..options(&namespace, 1) };
    let device = NetDevice::open(options, &Switches::default()).unwrap();
    namespace.ip(&["link", "set", "guest0", "down"]);
    let mut driver = NetDriver::new(64, RING);
    let mut transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(0, VirtioFeatures(MODERN))));
    driver.send([0; 10], &[7; 60_000]).unwrap();
    let work = transmit.serve(32);
    assert_eq!((work.requests, work.bytes, work.extra), (1, 0, 3), "{work:?}");
}

#[test]
fn a_packet_of_many_small_segments_is_charged_for_them() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 1), &Switches::default()).unwrap();
    let mut driver = NetDriver::new(64, RING);
    let mut transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(0, VirtioFeatures(MODERN))));
    let ip = [0x45_u8, 0, 0x4e, 0x48, 0, 1, 0, 0, 64, 6, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1];
    let head = [&[2; 6][..], &GUEST, &[8, 0], &ip, &tcp(5000, 7000, 1, 1, 0x10)].concat();
    let frame = [&head[..], &[0; 20_000]].concat();
    for (segment, extra) in [(1448_u16, 0), (8, 20_000 / 8 / 64)] {
        let [low, high] = segment.to_le_bytes();
        driver.send([1, 1, 54, 0, low, high, 34, 0, 16, 0], &frame).unwrap();
        let work = transmit.serve(32);
        assert_eq!((work.requests, work.bytes, work.extra), (1, 20_054, extra), "{work:?}");
    }
}

#[test]
fn several_queues_are_one_interface() {
    let Some(namespace) = Namespace::new(0) else { return };
    let mut guest = Guest::new(&namespace, MODERN, 2);
    let socket = namespace.within(|| UdpSocket::bind("10.77.0.1:0").unwrap());
    // The second pair is not enabled, so all packets of the kernel come on the first.
    for port in 1..50 {
        socket.send_to(&[port as u8], ("10.77.0.2", 1000 + port)).unwrap();
        assert_eq!(guest.received(17).1[42], port as u8);
    }
}

/// The kernel spreads packets over the attached queues, and those for a queue that nobody reads are lost.
#[test]
fn a_taps_queue_is_attached_while_its_ring_is_started_and_enabled() {
    let Some(namespace) = Namespace::new(0) else { return };
    let pool = Pool::new();
    pool.add_worker(&WorkerOptions::default()).unwrap();
    let device = NetDevice::open(options(&namespace, 2), &Switches::default()).unwrap();
    let queue = match &device.link {
        Link::Tap(tap) => tap.queue(1).unwrap(),
        link => panic!("{link:?}"),
    };
    let is_attached = || queue.attached.load(Ordering::Relaxed);
    let backend = Backend::new("d", Box::new(device));
    let driver = NetDriver::new(64, RING);
    let second_receive = 2;
    for is_stopped in [true, false] {
        let (here, there) = UnixStream::pair().unwrap();
        let mut session = Session::new(Arc::clone(&backend), Arc::clone(&pool));
        let session = std::thread::spawn(move || session.run(there));
        let mut front = FrontEnd::new(here).unwrap();
        front.negotiate(&driver.receive, MODERN | features::QUEUES).unwrap();
        assert!(!is_attached());
        assert!(front.start(second_receive, &driver.receive.layout(), 64, 0).unwrap());
        for enabled in [true, false, true] {
            let state = [second_receive, u32::from(enabled)].map(u32::to_ne_bytes).concat();
            assert!(front.tell(18, &state, &[]).unwrap());
            assert_eq!(is_attached(), enabled);
        }
        if is_stopped {
            front.stop(second_receive).unwrap();
            assert!(!is_attached());
        }
        drop(front);
        session.join().unwrap().unwrap();
    }
    assert!(!is_attached(), "the next guest may use one pair only");
}

/// crosvm enables all queues, and the guest has buffers in the pairs that it asked the control queue for.
#[test]
fn a_tap_has_its_first_queue_alone_while_the_control_queue_is_served_here() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 2), &Switches::default()).unwrap();
    let attached = || match &device.link {
        Link::Tap(tap) => [0, 1].map(|pair| tap.queue(pair).unwrap().attached.load(Ordering::Relaxed)),
        link => panic!("{link:?}"),
    };
    let features = VirtioFeatures(MODERN | features::QUEUES);
    for control in [2, 4] {
        // The control queue is the last one, and starts last.
        let _handlers: Vec<_> = (0..=control)
            .map(|index| {
                let negotiated = if control == 4 { features } else { VirtioFeatures(MODERN) };
                let handler = Device::handler(&device, index, 16, negotiated);
                Device::enable(&device, index, true);
                handler
            })
            .collect();
        assert_eq!(attached(), [true, false]);
        Device::enable(&device, 2, true);
        assert_eq!(attached(), [true, false]);
        (0..=control).for_each(|index| Device::enable(&device, index, false));
    }
    let _handlers = [0, 2].map(|index| {
        let handler = Device::handler(&device, index, 16, features);
        Device::enable(&device, index, true);
        handler
    });
    assert_eq!(attached(), [true, true], "for a front-end that serves it itself");
}

#[test]
fn a_front_end_whose_tap_was_deleted_does_not_fill_the_log() {
    let Some(namespace) = Namespace::new(0) else { return };
    let device = NetDevice::open(options(&namespace, 2), &Switches::default()).unwrap();
    namespace.ip(&["link", "del", "guest0"]);
    for _ in 0..500 {
        [true, false].into_iter().for_each(|enabled| Device::enable(&device, 2, enabled));
    }
    match &device.link {
        Link::Tap(tap) => assert_eq!(tap.log.lines(), 500, "one for each enabling, past the limit or not"),
        link => panic!("{link:?}"),
    }
}

/// Refuses IPv4 sockets to this thread, as the packaged unit does to the daemon.
fn refuse_ipv4() {
    use seccompiler::{
        SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
        TargetArch,
    };
    let family = libc::AF_INET as u64;
    let is_ipv4 = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family).unwrap();
    let rules = [(libc::SYS_socket, vec![SeccompRule::new(vec![is_ipv4]).unwrap()])];
    let refused = SeccompAction::Errno(libc::EAFNOSUPPORT as u32);
    let filter = SeccompFilter::new(rules.into(), SeccompAction::Allow, refused, TargetArch::x86_64).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn without_ipv4_sockets_an_existing_tap_is_opened_and_a_new_one_cannot_be_set_up() {
    let Some(namespace) = Namespace::new(0) else { return };
    namespace.ip(&["tuntap", "add", "single", "mode", "tap", "vnet_hdr"]);
    namespace.ip(&["tuntap", "add", "many", "mode", "tap", "vnet_hdr", "multi_queue"]);
    namespace.within(|| {
        refuse_ipv4();
        let open = |name: &str, pairs| {
            let tap = TapOptions::Name { name: name.to_owned(), namespace: None };
            NetDevice::open(
                NetOptions { link: LinkOptions::Tap(tap), pairs, ..NetOptions::default() },
                &Switches::default(),
            )
        };
        for (name, pairs) in [("single", 1), ("many", 1), ("many", 2)] {
            open(name, pairs).unwrap();
        }
        let error = open("new", 1).unwrap_err();
        assert!(matches!(&error, NetError::Family { name } if name == "new"), "{error}");
    });
}

#[test]
fn an_interface_that_cannot_be_is_named() {
    let nowhere = TapOptions::Name { name: "x".to_owned(), namespace: Some("no-such-namespace".to_owned()) };
    let open = |tap| {
        let options = NetOptions { link: LinkOptions::Tap(tap), ..NetOptions::default() };
        NetDevice::open(options, &Switches::default()).unwrap_err()
    };
    assert!(open(nowhere).to_string().contains("no-such-namespace"));
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe").to_str().unwrap().to_owned();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        told.send(open(TapOptions::Name { name: "x".to_owned(), namespace: Some(pipe) })).unwrap();
    });
    let error = heard.recv_timeout(Duration::from_secs(5)).expect("nobody waits for the other end of a pipe");
    assert!(matches!(error, NetError::Namespace { .. }), "{error}");
    let long = TapOptions::Name { name: "a-name-that-is-too-long".to_owned(), namespace: None };
    assert!(open(long).to_string().contains("a-name-that-is-too-long"));
    assert!(matches!(open(TapOptions::Files(vec![])), NetError::Files { files: 0, pairs: 1 }));
    let null = std::fs::File::open("/dev/null").unwrap();
    for number in [-1, 99_999, null.as_raw_fd()] {
        assert!(open(TapOptions::Files(vec![number])).to_string().contains(&number.to_string()));
    }
}
