//! Inflight memory, as a front-end passes it to a daemon, in either layout, changed while it is used.

#![no_main]

use std::os::unix::fs::FileExt as _;

use arbitrary::Arbitrary;
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::queue::inflight::InflightMemory;
use iocm::ring::RingFeatures;
use iocm::testing::{BlockDriver, ByHand, memory_file};
use libfuzzer_sys::fuzz_target;

const SIZE: u16 = 16;

#[derive(Debug, Arbitrary)]
struct Input {
    packed: bool,
    /// The head, and each entry, as words of 16 bits.
    head: [u16; 16],
    entries: Vec<[u16; 16]>,
    steps: Vec<(u8, u16, u16)>,
}

fuzz_target!(|input: Input| {
    let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    let file = memory_file(InflightMemory::bytes(1, SIZE));
    let mut memory = bytes(if input.packed { &input.head[..] } else { &input.head[..8] });
    for entry in input.entries.iter().take(SIZE.into()) {
        memory.extend(bytes(if input.packed { &entry[..] } else { &entry[..8] }));
    }
    file.write_all_at(&memory, 0).expect("room");
    let features = RingFeatures { packed: input.packed, event_index: false, indirect: true };
    let mut driver = BlockDriver::new(SIZE, features);
    let device = BlockDevice::open(BlockOptions::default()).expect("a null disk");
    for back_end in 0..3 {
        let inflight = InflightMemory::map(&file, 0, 1, SIZE).expect("it is memory");
        let mut served = ByHand::new(&driver.driver, Box::new(device.queue(SIZE)));
        let Some(inflight) = inflight.queue(0, SIZE, input.packed) else { return };
        if served.queue.track_inflight(inflight).is_err() {
            return;
        }
        for (step, at, value) in input.steps.iter().skip(back_end * 8).take(8) {
            match step % 4 {
                0 => drop(driver.submit(u32::from(step >> 2) % 16, u64::from(*at), &[], 512)),
                1 => drop(driver.submit(1, u64::from(*at), &[3; 512], 0)),
                2 => file
                    .write_all_at(&value.to_ne_bytes(), u64::from(*at) % memory.len().max(1) as u64)
                    .expect("room"),
                _ => {}
            }
            served.serve(4);
            // Used buffers need not be those that were asked for: the guest's memory is as hostile as the front-end's.
            for _ in 0..2 * SIZE {
                match driver.driver.take() {
                    Some((id, _)) if id < SIZE => {}
                    _ => break,
                }
            }
        }
    }
});
