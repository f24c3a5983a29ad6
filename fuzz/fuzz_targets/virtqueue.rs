//! A hostile guest's virtqueue, of either layout, and what a block device makes of its requests.

#![no_main]

use std::sync::atomic::Ordering;

use arbitrary::Arbitrary;
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::ring::{Chain, RingFeatures};
use iocm::testing::{ByHand, DATA, Driver};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Guest {
    features: u8,
    descriptors: Vec<(u16, u16, [u16; 2])>,
    table: Vec<(u16, u16, [u16; 2])>,
    /// Kinds and sectors of requests, where descriptors mostly point to.
    headers: Vec<(u8, u16)>,
    available: Vec<u16>,
    changes: Vec<(u16, u16)>,
}

impl Guest {
    /// The guest's memory, with all that the guest wrote before the device looks.
    fn driver(&self) -> Driver {
        let bit = |number: u8| self.features & 1 << number != 0;
        let features = RingFeatures { packed: bit(0), event_index: bit(1), indirect: bit(2) };
        let mut driver = Driver::new(16, features);
        let write = |driver: &Driver, at: u64, (guest, size, halves): (u16, u16, [u16; 2])| {
            // Mostly where there is memory, sometimes beyond its end.
            driver.descriptor(at, DATA + (u64::from(guest) << 8), u32::from(size) << 2, halves);
        };
        for (index, descriptor) in self.descriptors.iter().take(16).enumerate() {
            write(&driver, Driver::slot(index as u16), *descriptor);
        }
        for (index, descriptor) in self.table.iter().take(256).enumerate() {
            write(&driver, DATA + 16 * index as u64, *descriptor);
        }
        for (index, (kind, sector)) in self.headers.iter().take(64).enumerate() {
            let header = [&u32::from(*kind).to_le_bytes()[..], &[0; 4], &u64::from(*sector).to_le_bytes()];
            driver.write(DATA + 0x1_0000 + (index as u64 * 0x100), &header.concat());
        }
        for head in self.available.iter().take(20) {
            if !features.packed {
                driver.offer(*head);
            }
        }
        driver
    }

    /// Changes what is in the ring while the device reads it.
    fn change(driver: &Driver, (at, value): (u16, u16)) {
        driver.word(Driver::slot(0) + u64::from(at & 0xfe)).store(value, Ordering::Relaxed);
    }
}

fuzz_target!(|guest: Guest| {
    let driver = guest.driver();
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
        Guest::change(&driver, (*at, *value));
    }
    // The same guest again, with a block device behind the ring.
    let driver = guest.driver();
    let device = BlockDevice::open(BlockOptions::default()).expect("a disk that forgets");
    let mut served = ByHand::new(&driver, Box::new(device.queue(16)));
    for change in guest.changes.iter().chain(std::iter::repeat(&(0, 0)).take(4)) {
        served.serve(8);
        assert_eq!(served.queue.in_flight(), 0, "a disk that forgets has nothing under way");
        Guest::change(&driver, *change);
    }
});
