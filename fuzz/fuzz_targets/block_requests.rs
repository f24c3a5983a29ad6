//! A guest's requests to a disk in a file, each until it completes: its answer, the content of the file, and the data read.

#![no_main]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use arbitrary::Arbitrary;
use iocm::device::block::{BlockDevice, BlockOptions};
use iocm::ring::RingFeatures;
use iocm::testing::{ByHand, DATA, Driver, Piece, memory_file};
use libfuzzer_sys::fuzz_target;

const DISK: usize = 1 << 20;
/// The addresses of headers, statuses, ranges and data.
const STATUS: u64 = DATA + 0x100;
const RANGES: u64 = DATA + 0x200;
const PIECES: u64 = DATA + 0x1_0000;
const ROOM: u32 = 0x4_0000;

#[derive(Debug, Arbitrary)]
struct Guest {
    features: u8,
    direct: bool,
    read_only: bool,
    limit: u16,
    requests: Vec<Request>,
}

#[derive(Debug, Arbitrary)]
struct Request {
    kind: u8,
    sector: u16,
    /// The distance of a piece from its place, and its bytes.
    pieces: Vec<(u16, u32)>,
    ranges: Vec<(u16, u16, u8)>,
    byte: u8,
    status_first: bool,
}

fuzz_target!(|guest: Guest| {
    let bit = |number: u8| guest.features & 1 << number != 0;
    let features = RingFeatures { packed: bit(0), event_index: bit(1), indirect: bit(2) };
    let file: File = memory_file(DISK as u64);
    let mut model: Vec<u8> = (0..DISK).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&model, 0).expect("room");
    let device = BlockDevice::open(BlockOptions {
        path: Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into()),
        direct: guest.direct,
        read_only: guest.read_only,
        requests_a_second: u64::from(guest.limit) * 1000,
        ..BlockOptions::default()
    });
    // Not every file system supports O_DIRECT.
    let Ok(device) = device else { return };
    let mut driver = Driver::new(64, features);
    let mut served = ByHand::new(&driver, Box::new(device.queue(64)));
    for request in guest.requests.iter().take(16) {
        let kind = [0, 1, 4, 8, 11, 13, u32::from(request.kind)][usize::from(request.kind) % 7];
        let header = [&kind.to_le_bytes()[..], &[0; 4], &u64::from(request.sector).to_le_bytes()].concat();
        driver.write(DATA, &header);
        driver.write(STATUS, &[0xff]);
        let mut data: Vec<Piece> = Vec::new();
        // The bytes in the pieces. They differ, so that the order of the pieces matters.
        let mut given: Vec<u8> = Vec::new();
        if matches!(kind, 11 | 13) {
            let ranges: Vec<u8> = request
                .ranges
                .iter()
                .take(40)
                .flat_map(|(sector, sectors, flags)| {
                    let words = [u32::from(*sectors).to_le_bytes(), u32::from(*flags).to_le_bytes()].concat();
                    [&u64::from(*sector).to_le_bytes()[..], &words].concat()
                })
                .collect();
            driver.write(RANGES, &ranges);
            data.push((RANGES, ranges.len() as u32, false));
        } else {
            for (number, (lead, size)) in request.pieces.iter().take(12).enumerate() {
                let at = PIECES + u64::from(ROOM) * number as u64 + u64::from(lead & 0x1fff);
                let size = size % (ROOM - 0x2000);
                let begin = given.len();
                given.extend(
                    (begin..begin + size as usize)
                        .map(|position| request.byte.wrapping_add((position % 251) as u8)),
                );
                driver.write(at, &given[begin..]);
                data.push((at, size, kind == 0 || kind == 8));
            }
        }
        let status = (STATUS, 1, true);
        let mut pieces: Vec<Piece> = vec![(DATA, 16, false)];
        match request.status_first && data.iter().all(|piece| piece.2) {
            true => pieces.extend([status].iter().chain(&data)),
            false => pieces.extend(data.iter().chain(&[status])),
        }
        if driver.add(&pieces).is_none() {
            break;
        }
        let mut turns = 0;
        let ended = loop {
            served.serve(4);
            assert_eq!(served.queue.in_flight(), 0, "each is made to its end");
            match driver.take() {
                Some(ended) => break ended,
                None if served.is_broken() => return,
                None => std::thread::sleep(std::time::Duration::from_micros(200)),
            }
            turns += 1;
            assert!(turns < 10_000, "a request is lost");
        };
        let sizes: u64 = data.iter().map(|(_, size, _)| u64::from(*size)).sum();
        let (from, to) =
            (usize::from(request.sector) * 512, usize::from(request.sector) * 512 + sizes as usize);
        let status = driver.read(STATUS, 1)[0];
        let is_last = !request.status_first || data.is_empty() || data.iter().any(|piece| !piece.2);
        if is_last {
            assert!(matches!(status, 0..=2), "status {status} of kind {kind}");
        }
        match (kind, status) {
            (1, 0) => {
                assert!(!guest.read_only && to <= DISK && sizes.is_multiple_of(512));
                model[from..to].copy_from_slice(&given);
            }
            // A part of the data may have been written.
            (1, _) if guest.direct && !guest.read_only && to <= DISK => {
                file.read_exact_at(&mut model, 0).expect("the file")
            }
            (0, 0) if is_last => {
                assert_eq!(u64::from(ended.1), sizes + 1);
                let mut at = from;
                for (guest, size, _) in &data {
                    assert!(
                        driver.read(*guest, *size as usize) == model[at..at + *size as usize],
                        "what was read"
                    );
                    at += *size as usize;
                }
            }
            (11 | 13, _) if !guest.read_only => file.read_exact_at(&mut model, 0).expect("the file"),
            _ => {}
        }
        let mut stored = vec![0; DISK];
        file.read_exact_at(&mut stored, 0).expect("the file is as large as it was");
        assert!(stored == model, "kind {kind} with status {status} changed something else");
    }
    assert_eq!(file.metadata().map(|data| data.len()).ok(), Some(DISK as u64));
});
