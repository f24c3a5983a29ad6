//! A profile of the host while it handles exits: stack samples, by the exit that is being handled.

mod gathered;
mod sampling;
mod ticks;

use std::path::{Path, PathBuf};

use aya::Pod;
use aya::maps::{HashMap, MapData, RingBuf};
use exits::{Isa, Profile};
use hotspots::{Event, Head, Losses, MOST_ADDRESSES, Recording, Symbols};

use self::gathered::{measured, resolved};
use self::sampling::{Sampled, sample};
use self::ticks::Ticks;
use super::programs::{Link, Pair, Purpose, Wanted};
use super::{Collector, LOST_RECORDS, TICKS, Watch, counted, isa, map, map_error, scheduler};
use crate::trace::cpus::{HOTPLUG_NS, online};
use crate::{Error, Mechanism, monotonic_ns};

/// The size of the ring buffer (`ticks` of the BPF programs).
const RING_BYTES: usize = 16 << 20;
/// The size of the header before each record in the ring (`BPF_RINGBUF_HDR_SZ` of include/uapi/linux/bpf.h), and the
/// multiple to which records are rounded up (`bpf_ringbuf_reserve` of kernel/bpf/ringbuf.c).
const RECORD_HEADER: usize = 8;

/// The options of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Samples per second and CPU.
    pub frequency_hz: u64,
    /// Use only this event. `None` uses cycles, or the CPU clock if there is no counter of cycles.
    pub event: Option<Event>,
    /// Follow threads that go off the CPU in an exit.
    pub away: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        // A prime, so that samples do not stay in step with periodic timers.
        Self { frequency_hz: 997, event: None, away: true }
    }
}

/// eBPF programs that count exits and sample stacks until this is dropped.
pub struct Profiler {
    collector: Collector,
    ring: RingBuf<MapData>,
    absences: HashMap<MapData, AbsenceKey, Absence>,
    monitors: HashMap<MapData, u32, u8>,
    workers: HashMap<MapData, u32, u32>,
    symbols: Symbols,
    root: PathBuf,
    sampled: Sampled,
    looked_ns: u64,
    ticks: Ticks,
    head: Head,
    profile: Profile,
}

/// `struct absence_key` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AbsenceKey {
    process: u32,
    thread: u32,
    reason: u32,
    runnable: u32,
}

/// `struct absence` of the BPF programs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Absence {
    times: u64,
    away_ns: u64,
    waited_ns: u64,
}

// SAFETY: plain numbers without padding, laid out as the programs' structure; every bit pattern is a value.
unsafe impl Pod for AbsenceKey {}
// SAFETY: as above.
unsafe impl Pod for Absence {}
const _: () = assert!(size_of::<AbsenceKey>() == 4 * 4 && size_of::<Absence>() == 3 * 8);

impl Profiler {
    /// Loads the programs into the kernel of the host below `root` (`/`) and starts all of them at the same moment.
    ///
    /// # Errors
    /// Those of [`Collector::attach`]; also [`Error::OnCpu`] if the kernel does not allow sampling. Needs ring
    /// buffers (Linux 5.8).
    pub fn attach(root: &Path, watch: &Watch, sampling: &Sampling) -> Result<Self, Error> {
        Self::attach_to(root, watch, sampling, &watch.wanted(Purpose::HotSpots, isa(root)?))
    }

    /// Samples system calls as if they were exits, see [`Collector::attach_to_system_calls`].
    ///
    /// # Errors
    /// Those of [`Profiler::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch, sampling: &Sampling) -> Result<Self, Error> {
        let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::HotSpots, Isa::Vmx) };
        Self::attach_to(Path::new("/"), watch, sampling, &wanted)
    }

    fn attach_to(
        root: &Path,
        watch: &Watch,
        sampling: &Sampling,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Error> {
        let mut collector = Collector::attached(root, watch, wanted)?;
        let attached = &mut collector.attached;
        let (ring, absences) = (map(attached, "ticks")?, map(attached, "absences")?);
        let (monitors, workers) = (map(attached, "monitors")?, map(attached, "workers")?);
        let mut notes = Vec::new();
        let away = sampling.away && follow_scheduler(&mut collector, root, &mut notes);
        let looked_ns = monotonic_ns();
        let online = online(root)?;
        let sampled = sample(&mut collector, sampling, &online, &mut notes)?;
        let (event, frequency_hz) = (sampled.event(), sampling.frequency_hz);
        let cpus = u32::try_from(online.len()).unwrap_or(u32::MAX);
        let head = Head { kernel: None, event, frequency_hz, cpus, duration_ns: 0, away, notes };
        Ok(Self {
            collector: collector.begun()?,
            ring,
            absences,
            monitors,
            workers,
            symbols: Symbols::new(root),
            root: root.to_owned(),
            sampled,
            looked_ns,
            ticks: Ticks::default(),
            head,
            profile: Profile::new(),
        })
    }

    /// Counts samples of a device model's other threads from now on, even before one of its vCPUs has an exit.
    /// `workers` are kernel threads that work for it (vhost before Linux 6.4).
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the maps cannot be updated.
    pub fn follow(&mut self, process: u32, workers: &[u32]) -> Result<(), Error> {
        self.symbols.learn(process);
        self.monitors.insert(process, 1, 0).map_err(map_error)?;
        workers.iter().try_for_each(|worker| self.workers.insert(worker, process, 0)).map_err(map_error)
    }

    /// Takes the samples since the last call. Call it often enough that the buffer, which has room for 12,000
    /// samples, does not overflow. Samples that arrive during the call may be left for the next one.
    ///
    /// # Errors
    /// Those of [`Collector::keep`].
    pub fn drain(&mut self) -> Result<(), Error> {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.looked_ns) > HOTPLUG_NS {
            self.looked_ns = now_ns;
            if let Ok(online) = online(&self.root) {
                self.sampled.follow(&mut self.collector, &online);
            }
        }
        self.take_samples();
        self.collector.keep()
    }

    fn take_samples(&mut self) {
        let isa = self.collector.isa();
        let Self { ring, ticks, symbols, .. } = self;
        drain_ring(|| {
            let item = ring.next()?;
            let process = ticks.take(&item, isa);
            // Read the mappings while the process exists: they lead to its files.
            if let Some(process) = process.filter(|&process| !symbols.knows(process)) {
                symbols.learn(process);
            }
            Some(item.len())
        });
    }

    /// The source of the samples.
    #[must_use]
    pub fn event(&self) -> Event {
        self.head.event
    }

    /// The collector that counts the exits.
    #[must_use]
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Stops, and returns the hot spots and the counted exits.
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the counts cannot be read.
    pub fn finish(mut self) -> Result<(Recording, Profile), Error> {
        let ended_ns = self.collector.attached.end()?;
        let duration_ns = ended_ns.saturating_sub(self.collector.began_ns());
        // This empties the ring: the programs have stopped, and one call takes as much as the ring can hold.
        self.take_samples();
        drop(self.sampled);
        let lost = counted(&self.collector.counters, LOST_RECORDS)? + self.ticks.lost();
        let folded = self.ticks.folded();
        let ticks = counted(&self.collector.counters, TICKS)?;
        let missing = self.collector.missing().to_vec();
        let mechanism = self.collector.mechanism().clone();
        let isa = self.collector.isa();
        let absences: Vec<_> = self.absences.iter().filter_map(Result::ok).collect();
        self.profile = self.collector.ended(ended_ns)?;

        let mut head = self.head;
        head.duration_ns = duration_ns;
        // Without tracefs, two messages have the same cause: the scheduler's fields are not known, and its events
        // cannot be attached.
        for one in missing {
            if !head.notes.contains(&one) {
                head.notes.push(one);
            }
        }
        if let Mechanism::Tracepoints { why } = mechanism {
            head.notes.push(format!(
                "Not by raw tracepoints: {why}. An interrupt that ended a guest's turn cannot be told from other work of \
                 its exit, so that samples of the guest may be among those of interrupts"
            ));
        }
        if folded > 0 {
            head.notes.push(format!(
                "{} met more different stacks than are kept; the device model's part of these is left out",
                exits::counted(folded, "sample")
            ));
        }
        if self.ticks.lost() > 0 {
            head.notes.push(format!(
                "{} met more different stacks than are kept, and are among those that found no room",
                exits::counted(self.ticks.lost(), "sample")
            ));
        }
        let mut recording = Recording::new(head);
        recording.measured = measured(&self.profile, &absences, isa);
        let processes: Vec<u32> = self.profile.vcpus().iter().filter_map(|one| one.vcpu.vm).collect();
        processes.iter().for_each(|&process| self.symbols.learn(process));
        let mut without_user_stack = 0;
        for (met, times) in self.ticks.into_sorted() {
            without_user_stack += if met.no_user { times.samples } else { 0 };
            let stack = resolved(&mut recording, &mut self.symbols, &met, times);
            recording.stacks.push(stack);
        }
        if recording.frames.len() >= MOST_ADDRESSES {
            recording.head.notes.push(format!(
                "There are {MOST_ADDRESSES} or more different places in code; those that have no symbol and came later \
                 are shown without their address"
            ));
        }
        if self.symbols.left_out() > 0 {
            recording.head.notes.push(format!(
                "The symbols of programs take more than 1 GiB; the functions of {} beyond that have no names",
                exits::counted(self.symbols.left_out() as u64, "file")
            ));
        }
        if self.symbols.kernel_is_hidden() {
            let path = self.root.join("proc/kallsyms");
            recording.head.notes.push(format!(
                "{} hides or lacks the kernel's symbols (kernel.kptr_restrict), so its functions have no names",
                path.display()
            ));
        }
        let lost_exits = self.profile.losses.lost_exits;
        recording.losses = Losses { ticks, lost, lost_exits, without_user_stack };
        Ok((recording, self.profile))
    }
}

/// Takes records, whose lengths `next` returns, until there are none or a full ring's worth has been taken: otherwise
/// samples that arrive as fast as they are read would keep it busy forever.
fn drain_ring(mut next: impl FnMut() -> Option<usize>) {
    let mut taken = 0;
    while taken < RING_BYTES {
        let Some(length) = next() else { return };
        taken += (RECORD_HEADER + length).next_multiple_of(RECORD_HEADER);
    }
}

/// Starts to follow threads that go off the CPU; `false` with a note if that is not possible.
fn follow_scheduler(collector: &mut Collector, root: &Path, notes: &mut Vec<String>) -> bool {
    match scheduler::attach(&mut collector.attached.ebpf, root) {
        Ok(links) => {
            collector.attached.links.extend(links.into_iter().map(Link::Tracepoint));
            true
        }
        Err(error) => {
            notes.push(format!("Time without a processor is not known: {error}"));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_fills_as_quickly_as_it_is_read_is_left_after_what_it_holds() {
        // The shortest record, without stacks, and the longest one.
        for length in [32, 32 + 8 + 8 * (64 + 96)] {
            let mut records = 0;
            drain_ring(|| {
                records += 1;
                (records < 1 << 20).then_some(length)
            });
            // A full ring is emptied.
            assert_eq!(records, RING_BYTES.div_ceil(length + RECORD_HEADER));
        }
        let mut left = vec![40, 40];
        drain_ring(|| left.pop());
        assert!(left.is_empty());
    }
}
