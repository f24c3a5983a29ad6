//! A hostile guest's network device: the headers that it sends, the offloads that it asks for, and its buffers for
//! another guest's packets.

#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use iocm::device::Device as _;
use iocm::device::net::switch::Switches;
use iocm::device::net::{LinkOptions, NetDevice, NetOptions};
use iocm::protocol::VirtioFeatures;
use iocm::ring::RingFeatures;
use iocm::testing::{ByHand, DATA, NetDriver};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Guests {
    packed: bool,
    features: [u64; 2],
    packets: Vec<Packet>,
    /// The addresses of the receiver's buffers, their sizes, and whether they are writable.
    buffers: Vec<(u16, u16, bool)>,
}

#[derive(Debug, Arbitrary)]
struct Packet {
    header: [u8; 10],
    /// The type of the headers before `bytes`.
    kind: u8,
    bytes: Vec<u8>,
    repeat: u8,
    cut: u16,
}

fn frame(packet: &Packet) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let protocol = if packet.kind & 1 == 0 { 6 } else { 17 };
    match packet.kind >> 1 & 3 {
        0 => frame.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]),
        1 => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64]);
            frame.extend([0; 32]);
        }
        2 => frame.clear(),
        _ => frame.extend([0x81, 0, 0, 1]),
    }
    for _ in 0..=packet.repeat % 32 {
        frame.extend(&packet.bytes);
    }
    frame.truncate(60_000);
    frame
}

fuzz_target!(|guests: Guests| {
    let switches = Switches::default();
    let ring = RingFeatures { packed: guests.packed, event_index: true, indirect: true };
    let link = || LinkOptions::Switch { name: "lan".to_owned(), checks_source: false };
    let made = guests.features.map(|features| {
        let options = NetOptions { link: link(), ..NetOptions::default() };
        let device: Arc<NetDevice> = NetDevice::open(options, &switches).expect("a port");
        let negotiated = VirtioFeatures(features & device.features() | VirtioFeatures::VERSION_1);
        let driver = NetDriver::new(64, ring);
        let receive = ByHand::new(&driver.receive, Box::new(device.receive(0, negotiated)));
        let transmit = ByHand::new(&driver.transmit, Box::new(device.transmit(0, negotiated)));
        (driver, receive, transmit, device)
    });
    let [mut sender, mut receiver] = made;
    for (place, size, writable) in &guests.buffers {
        let size = u32::from(*size) << (place & 3);
        receiver.0.receive.add(&[(DATA + u64::from(*place), size, *writable)]);
    }
    for packet in &guests.packets {
        let whole = frame(packet);
        let cut = usize::from(packet.cut).min(whole.len() + 12);
        sender.0.send_cut(packet.header, &whole, &[cut]);
        sender.2.serve(8);
        while sender.0.sent().is_some() {}
        receiver.1.serve(32);
        while receiver.0.receive.take().is_some() {}
    }
    assert!(!sender.2.is_broken(), "a guest's packet is no reason to give its queue up");
});
