//! The loads: the number of devices, and the requests of their front-ends.

use crate::block_peers::peer::Disk;
use std::time::Duration;

/// The largest request of [`Requests::Mixed`], bytes.
const LARGEST: usize = 1 << 20;
const PAGE: usize = 4096;

/// The time at which a front-end sends its next request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// As soon as a request has been answered.
    Closed,
    /// At this rate per second. The front-end polls for answers every 50 us, as far as its timer allows.
    Rate(f64),
    /// This many at once, at this interval.
    Bursts(u32, Duration),
    /// For each slot of the queue, 1 us to 10 ms after its last answer, with each factor of ten equally likely.
    Think,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// Reads of 4 KiB.
    Reads,
    /// Seven of ten are reads; from 512 B to 1 MiB, with each power of two equally likely.
    Mixed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) devices: usize,
    pub(crate) depth: usize,
    pub(crate) pace: Pace,
    pub(crate) requests: Requests,
    /// The first device is busy (closed loop, depth 32). Latencies and fairness are those of the others.
    pub(crate) beside_busy: bool,
}

impl Load {
    /// Reads of 4 KiB, the same from all devices.
    pub(crate) const fn even(devices: usize, depth: usize, pace: Pace) -> Self {
        Self { devices, depth, pace, requests: Requests::Reads, beside_busy: false }
    }

    const fn mixed(devices: usize, depth: usize) -> Self {
        Self { requests: Requests::Mixed, ..Self::even(devices, depth, Pace::Closed) }
    }

    /// All loads that are measured, each with its disk.
    pub(crate) fn all() -> Vec<(Disk, Self)> {
        let even = [
            Self::even(1, 32, Pace::Rate(40000.0)),
            Self::even(8, 32, Pace::Rate(5000.0)),
            Self::even(16, 32, Pace::Rate(2500.0)),
            Self::even(64, 8, Pace::Rate(625.0)),
            Self::even(1, 1, Pace::Closed),
            Self::even(1, 32, Pace::Closed),
            Self::even(8, 32, Pace::Closed),
        ];
        let uneven = [
            Self::even(1, 1, Pace::Think),
            Self::even(8, 4, Pace::Think),
            Self::even(1, 32, Pace::Bursts(16, Duration::from_millis(1))),
            Self::even(8, 32, Pace::Bursts(16, Duration::from_millis(8))),
            Self { beside_busy: true, ..Self::even(8, 8, Pace::Bursts(1, Duration::from_millis(2))) },
        ];
        let sizes = [Self::mixed(1, 8), Self::mixed(8, 4)];
        let of = |disk, loads: &[Self]| loads.iter().map(|load| (disk, *load)).collect::<Vec<_>>();
        [
            of(Disk::Null, &even),
            of(Disk::File, &even),
            of(Disk::Null, &uneven),
            of(Disk::File, &sizes),
            of(Disk::Direct, &[Self::even(1, 1, Pace::Closed), Self::even(8, 4, Pace::Closed)]),
            of(Disk::Direct, &sizes),
        ]
        .concat()
    }

    pub(crate) fn title(self, disk: Disk) -> String {
        let disk = match disk {
            Disk::Null => "null",
            Disk::File => "file in memory",
            Disk::Direct => "file past the page cache",
        };
        let pace = match self.pace {
            Pace::Closed => format!("closed loop at depth {}", self.depth),
            Pace::Rate(rate) => format!("{rate} I/O a second each"),
            Pace::Bursts(1, every) => format!("one each {} ms", every.as_millis()),
            Pace::Bursts(count, every) => format!("bursts of {count} each {} ms", every.as_millis()),
            Pace::Think => format!("{} with think times of 1 us to 10 ms each", self.depth),
        };
        let devices = if self.devices == 1 { "device" } else { "devices" };
        let requests = match self.requests {
            Requests::Reads => "4 KiB reads",
            Requests::Mixed => "70 % reads, 512 B to 1 MiB",
        };
        let busy = if self.beside_busy { ", the first busy" } else { "" };
        format!("{disk}: {} {devices}{busy}, {pace}, {requests}", self.devices)
    }

    /// The load of one of the devices.
    pub(crate) fn of_device(self, number: usize) -> Self {
        match self.is_busy(number) {
            true => Self { depth: 32, pace: Pace::Closed, ..self },
            false => self,
        }
    }

    pub(crate) const fn is_busy(self, number: usize) -> bool {
        self.beside_busy && number == 0
    }
}

impl Requests {
    /// The room for a request in the front-end's memory, bytes.
    pub(crate) const fn room(self) -> usize {
        match self {
            Self::Reads => PAGE,
            Self::Mixed => LARGEST,
        }
    }

    /// The size of the next request, and true if it reads, from a random number.
    pub(crate) const fn next(self, random: u64) -> (usize, bool) {
        match self {
            Self::Reads => (PAGE, true),
            Self::Mixed => (512 << (random % 12), random / 12 % 10 < 7),
        }
    }
}
