//! A hostile guest's virtqueue, of either layout, and a block device that handles its requests. The ring is changed
//! between two looks, which is reproducible, and by another thread during a look, which finds what the first does not.

#![no_main]

use std::sync::atomic::{AtomicBool, Ordering};

use arbitrary::Arbitrary;
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::ring::{Chain, RingFeatures};
use iocm::testing::{ByHand, DATA, Driver, USER};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Guest {
    features: u8,
    descriptors: Vec<(u16, u16, [u16; 2])>,
    table: Vec<(u16, u16, [u16; 2])>,
    /// Types and sectors of requests. Descriptors mostly point to these.
    headers: Vec<(u8, u16)>,
    available: Vec<u16>,
    changes: Vec<(u16, u16)>,
}

impl Guest {
    /// The guest's memory, with everything that the guest wrote before the device looks.
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

    /// Changes a word of the descriptors, of the indirect table, of the headers, or of the driver area.
    fn change(driver: &Driver, (at, value): (u16, u16)) {
        let places = [Driver::slot(0), DATA, DATA + 0x1_0000, driver.layout().driver - USER];
        let place = places[usize::from(at >> 14)] + u64::from(at & 0x1fe);
        driver.word(place).store(value, Ordering::Relaxed);
    }

    /// Takes buffers and gives them back, and calls `then` after each.
    fn take_all(&self, driver: &Driver, mut then: impl FnMut((u16, u16))) {
        let Ok(mut ring) = driver.ring() else { return };
        let mut chain = Chain::new();
        for (at, value) in self.changes.iter().chain(std::iter::repeat_n(&(0, 0), 40)) {
            match ring.pop(&mut chain) {
                Ok(true) => {
                    let mut bytes = [0; 64];
                    chain.read(u64::from(*at), &mut bytes);
                    chain.write(u64::from(*at), &bytes);
                    ring.push(chain.id, 1);
                    ring.publish();
                }
                Ok(false) => {
                    let _ = ring.enable_kicks();
                    ring.disable_kicks();
                }
                Err(_) => break,
            }
            then((*at, *value));
        }
    }

    /// The same with a block device behind the ring.
    fn serve_all(&self, driver: &Driver, mut then: impl FnMut((u16, u16))) {
        let device = BlockDevice::open(BlockOptions::default()).expect("a null disk");
        let mut served = ByHand::new(driver, Box::new(device.queue(16)));
        for change in self.changes.iter().chain(std::iter::repeat_n(&(0, 0), 4)) {
            served.serve(8);
            assert_eq!(served.queue.in_flight(), 0, "a null disk has nothing in flight");
            then(*change);
        }
    }
}

fuzz_target!(|guest: Guest| {
    let driver = guest.driver();
    guest.take_all(&driver, |change| Guest::change(&driver, change));
    let driver = guest.driver();
    guest.serve_all(&driver, |change| Guest::change(&driver, change));
    if guest.changes.is_empty() {
        return;
    }
    let (driver, over) = (guest.driver(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                guest.changes.iter().for_each(|change| Guest::change(&driver, *change));
            }
        });
        guest.take_all(&driver, drop);
        guest.serve_all(&driver, drop);
        over.store(true, Ordering::Relaxed);
        // The end of a scope does not wait for what a thread frees last, which would be reported as a leak.
        changing.join().expect("it only writes");
    });
});
