//! Exits one by one.

use std::path::Path;

use aya::maps::perf::{PerfEvent, PerfEventArray, PerfEventArrayBuffer};
use aya::maps::{MapData, PerCpuArray, RingBuf};
use exits::{Access, ExitReason, Isa, Vcpu};

use super::cells::access;
use super::programs::{self, Attached, Pair, Purpose, Wanted};
use super::{Mechanism, Watch, isa, map, map_error, watch_processes};
use crate::{Error, Tracefs};

/// Room for records that wait for user space: 300,000 of them.
const RING_BYTES: u32 = 16 << 20;
/// Pages of each processor's buffer before Linux 5.8.
const PERF_PAGES: usize = 256;
const NO_VCPU: u32 = u32::MAX;
const UNKNOWN: u64 = u64::MAX;

/// One exit with what happened until the next entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveExit {
    /// When the guest was left, nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Whose exit it is.
    pub vcpu: Vcpu,
    /// The processor that left the guest.
    pub cpu: u16,
    /// Why.
    pub reason: ExitReason,
    /// The last port, address or register that the host handled before the next entry.
    pub access: Option<Access>,
    /// How long it took over that, by the rules of `perf kvm stat`, nanoseconds.
    pub access_ns: Option<u64>,
    /// Time to the next entry, nanoseconds; `None` when another exit came first.
    pub handling_ns: Option<u64>,
}

/// `struct record` of the programs.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    exit_ns: u64,
    handling_ns: u64,
    access_value: u64,
    access_ns: u64,
    access_kind: u32,
    reason: u32,
    process: u32,
    thread: u32,
    vcpu: u32,
    cpu: u16,
    unused: u16,
}

impl Record {
    fn read(bytes: &[u8]) -> Option<Self> {
        // perf's buffers pad at the end.
        if bytes.len() < size_of::<Self>() {
            return None;
        }
        // SAFETY: long enough, checked above; plain numbers, read without regard to alignment.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    fn exit(&self, isa: Isa) -> LiveExit {
        let known = |ns: u64| (ns != UNKNOWN).then_some(ns);
        LiveExit {
            time_ns: self.exit_ns,
            vcpu: Vcpu {
                vm: Some(self.process),
                number: (self.vcpu != NO_VCPU).then_some(self.vcpu),
                thread: Some(self.thread),
            },
            cpu: self.cpu,
            reason: ExitReason { isa, code: self.reason },
            access: u8::try_from(self.access_kind).ok().and_then(|kind| access(kind, self.access_value)),
            access_ns: known(self.access_ns),
            handling_ns: known(self.handling_ns),
        }
    }
}

enum Buffers {
    Ring(RingBuf<MapData>),
    /// The array keeps the buffers open.
    Perf(#[expect(dead_code)] PerfEventArray<MapData>, Vec<PerfEventArrayBuffer<MapData>>),
}

/// Programs in the kernel that hand over every exit until this is dropped.
pub struct Recorder {
    attached: Attached,
    buffers: Buffers,
    counters: PerCpuArray<MapData, u64>,
    isa: Isa,
    lost_in_buffers: u64,
}

impl Recorder {
    /// Brings the programs into the kernel of the host below `root` (`/`).
    ///
    /// # Errors
    /// As [`super::Collector::attach`].
    pub fn attach(root: &Path, watch: &Watch) -> Result<Self, Error> {
        Self::attach_to(root, watch, &watch.wanted(Purpose::RecordRing, isa(root)?, RING_BYTES))
    }

    /// Records system calls as if they were exits, see [`super::Collector::attach_to_system_calls`].
    ///
    /// # Errors
    /// As [`Recorder::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch) -> Result<Self, Error> {
        let wanted = watch.wanted(Purpose::RecordRing, Isa::Vmx, RING_BYTES);
        Self::attach_to(Path::new("/"), watch, &Wanted { pair: Pair::SystemCalls, ..wanted })
    }

    fn attach_to(root: &Path, watch: &Watch, ring: &Wanted<'_>) -> Result<Self, Error> {
        let isa = ring.isa;
        let tracefs = Tracefs::find(root)?;
        let ring = *ring;
        let perf = Wanted { purpose: Purpose::RecordPerf, ..ring };
        // Before Linux 5.8 the ring does not exist, and the object that has one cannot be loaded.
        let (mut attached, wanted) = match programs::load(root, &tracefs, &ring) {
            Ok(attached) => (attached, ring),
            Err(first) => match programs::load(root, &tracefs, &perf) {
                Ok(attached) => (attached, perf),
                Err(_) => return Err(first),
            },
        };
        watch_processes(&mut attached, watch)?;
        let buffers = match wanted.purpose {
            Purpose::RecordPerf => {
                let mut array: PerfEventArray<MapData> = map(&mut attached, "records")?;
                let online = aya::util::online_cpus().map_err(|(path, source)| Error::Read {
                    path: path.into(),
                    expected: "processors",
                    source,
                })?;
                let open = online.into_iter().map(|cpu| array.open(cpu, Some(PERF_PAGES)));
                let open = open.collect::<Result<Vec<_>, _>>();
                let open = open.map_err(|error| Error::Load {
                    cause: format!("perf's buffers: {error}"),
                    next: "raise the limit of locked memory (`ulimit -l unlimited`)",
                })?;
                Buffers::Perf(array, open)
            }
            _ => Buffers::Ring(map(&mut attached, "records")?),
        };
        let counters = map(&mut attached, "counters")?;
        attached.attach(&wanted)?;
        Ok(Self { attached, buffers, counters, isa, lost_in_buffers: 0 })
    }

    /// Hands on what has come; those of one vCPU are in order of time. Call it often enough that the buffers, of
    /// 300,000 exits, do not fill up.
    pub fn drain(&mut self, exit: &mut impl FnMut(&LiveExit)) {
        let isa = self.isa;
        let mut take = |bytes: &[u8]| {
            if let Some(record) = Record::read(bytes) {
                exit(&record.exit(isa));
            }
        };
        match &mut self.buffers {
            Buffers::Ring(ring) => {
                while let Some(item) = ring.next() {
                    take(&item);
                }
            }
            Buffers::Perf(_, buffers) => {
                for buffer in buffers {
                    buffer.for_each(|event| match event {
                        PerfEvent::Sample { head, tail: [] } => take(head),
                        // Around the end of the buffer.
                        PerfEvent::Sample { head, tail } => take(&[head, tail].concat()),
                        PerfEvent::Lost { count } => self.lost_in_buffers += count,
                    });
                }
            }
        }
    }

    /// Exits so far that user space did not get: there was no room for them.
    ///
    /// # Errors
    /// [`Error::KernelMap`] when the kernel does not say.
    pub fn lost(&self) -> Result<u64, Error> {
        let mut lost = self.lost_in_buffers;
        // LOST_RECORDS and VCPUS_FULL of the programs.
        for counter in [0, 1] {
            lost += self.counters.get(&counter, 0).map_err(map_error)?.iter().sum::<u64>();
        }
        Ok(lost)
    }

    /// How the tracepoints are reached.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.attached.mechanism
    }

    /// Events that this kernel does not give, each with the cause.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.attached.missing
    }

    /// The instruction set of the host.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }
}
