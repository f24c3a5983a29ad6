//! A hostile guest's virtqueue, of either layout, and what a block device makes of its requests.

#![no_main]

use std::sync::atomic::Ordering;

use arbitrary::Arbitrary;
use iocm::ring::{Chain, RingFeatures};
use iocm::testing::{DATA, Driver};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Guest {
    features: u8,
    descriptors: Vec<(u16, u16, [u16; 2])>,
    table: Vec<(u16, u16, [u16; 2])>,
    available: Vec<u16>,
    changes: Vec<(u16, u16)>,
}

fuzz_target!(|guest: Guest| {
    let bit = |number: u8| guest.features & 1 << number != 0;
    let features = RingFeatures { packed: bit(0), event_index: bit(1), indirect: bit(2) };
    let mut driver = Driver::new(16, features);
    let write = |driver: &Driver, at: u64, (guest, size, halves): (u16, u16, [u16; 2])| {
        // Mostly where there is memory, sometimes beyond its end.
        driver.descriptor(at, DATA + (u64::from(guest) << 8), u32::from(size) << 2, halves);
    };
    for (index, descriptor) in guest.descriptors.iter().take(16).enumerate() {
        write(&driver, Driver::slot(index as u16), *descriptor);
    }
    for (index, descriptor) in guest.table.iter().take(256).enumerate() {
        write(&driver, DATA + 16 * index as u64, *descriptor);
    }
    for head in guest.available.iter().take(20) {
        if !features.packed {
            driver.offer(*head);
        }
    }
    let Ok(mut ring) = driver.ring() else { return };
    let mut chain = Chain::new();
    for (at, value) in guest.changes.iter().chain(std::iter::repeat(&(0, 0)).take(40)) {
        match ring.pop(&mut chain) {
            Ok(true) => {
                let mut bytes = [0; 64];
                chain.read(u64::from(*at), &mut bytes);
                chain.write(u64::from(*at), &bytes);
                ring.push(chain.id, 1);
                ring.publish();
            }
            Ok(false) => {
                ring.want_kicks();
                ring.spare_kicks();
            }
            Err(_) => break,
        }
        driver.word(Driver::slot(0) + u64::from(at & 0xfe)).store(*value, Ordering::Relaxed);
    }
});
