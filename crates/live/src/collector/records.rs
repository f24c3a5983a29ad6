//! Single exits.

use std::path::{Path, PathBuf};

use aya::maps::perf::{PerfEvent, PerfEventArray, PerfEventArrayBuffer};
use aya::maps::{MapData, MapError, PerCpuArray, RingBuf};
use exits::{Isa, Losses};

use super::joining::{Joining, LiveAccess, LiveExit, Record};
use super::programs::{self, Attached, Pair, Purpose, Wanted};
use super::vcpus::Vcpus;
use super::waiting::living_threads;
use super::{
    EXITS, LOST_RECORDS, Mechanism, SLEPT, Watch, counted, isa, lost, map, map_error, watch_processes,
};
use crate::trace::cpus::{HOTPLUG_NS, OfCpus, online};
use crate::{Error, monotonic_ns};

/// The number of CPUs that share the ring buffer. A program locks it for each record, with interrupts disabled: more CPUs
/// would wait for each other in every exit.
const MOST_ON_RING: usize = 32;
/// The size of each CPU's buffer in pages, where there is no ring buffer (before Linux 5.8).
const PERF_PAGES: usize = 256;
/// The same where more than [`MOST_ON_RING`] CPUs are online: what the kernel lets every user lock by default
/// (`perf_event_mlock_kb`).
const PERF_PAGES_OF_MANY: usize = 128;

/// The interval of making room for new vCPUs.
const ROOM_NS: u64 = 10_000_000_000;

enum Buffers {
    Ring(RingBuf<MapData>),
    Perf(PerfBuffers),
}

/// perf's buffers, one for each CPU.
struct PerfBuffers {
    array: PerfEventArray<MapData>,
    pages: usize,
    open: OfCpus<PerfEventArrayBuffer<MapData>>,
    looked_ns: u64,
}

impl PerfBuffers {
    /// Opens buffers for CPUs that came online, also again, at most once a second. Returns those that get no more records.
    fn follow(&mut self, root: &Path, now_ns: u64) -> Vec<PerfEventArrayBuffer<MapData>> {
        if now_ns.saturating_sub(self.looked_ns) <= HOTPLUG_NS {
            return Vec::new();
        }
        self.looked_ns = now_ns;
        let Ok(online) = online(root) else { return Vec::new() };
        let Self { array, pages, open, .. } = self;
        let over = open.follow(&online, |cpu| {
            let opened = array.open(cpu, Some(*pages));
            opened.inspect_err(|error| tracing::debug!(cpu, %error, "its exits are lost")).ok()
        });
        over.into_iter().map(|(_, buffer)| buffer).collect()
    }
}

/// The buffers on a host with this number of CPUs. The ring suffices for long exits, which are rare.
fn purpose(watch: &Watch, processors: usize) -> Purpose {
    let ring_suffices = processors <= MOST_ON_RING || watch.long.is_some();
    if watch.no_ring_buffer || !ring_suffices { Purpose::RecordPerf } else { Purpose::RecordRing }
}

/// Prepares a recorder with `first`, or else with the other kind of buffers: before Linux 5.8 the object that needs a ring
/// buffer cannot be loaded, and perf's buffers can be more than the limit of locked memory.
///
/// # Errors
/// That of perf's buffers, which all kernels have.
fn with_either<T>(
    first: Purpose,
    no_ring_buffer: bool,
    mut prepare: impl FnMut(Purpose) -> Result<T, Error>,
) -> Result<T, Error> {
    if first == Purpose::RecordRing {
        return prepare(first).or_else(|_| prepare(Purpose::RecordPerf));
    }
    prepare(first).or_else(|error| {
        if no_ring_buffer {
            return Err(error);
        }
        let Ok(prepared) = prepare(Purpose::RecordRing) else { return Err(error) };
        tracing::warn!("All CPUs record into one ring buffer, so their exits wait for each other: {error}");
        Ok(prepared)
    })
}

impl Buffers {
    fn open(root: &Path, attached: &mut Attached, purpose: Purpose) -> Result<Self, Error> {
        if purpose == Purpose::RecordRing {
            return Ok(Self::Ring(map(attached, "records")?));
        }
        let mut array: PerfEventArray<MapData> = map(attached, "records")?;
        let online = online(root)?;
        // Each buffer is a file.
        files::allow_open_files();
        let pages = if online.len() > MOST_ON_RING { PERF_PAGES_OF_MANY } else { PERF_PAGES };
        let open = OfCpus::open(&online, |cpu| array.open(cpu, Some(pages)).map(Some));
        let open = open.map_err(|error| Error::Load {
            cause: format!("perf's buffers: {error}"),
            next: "raise the limit of locked memory (`ulimit -l unlimited`)",
        })?;
        Ok(Self::Perf(PerfBuffers { array, pages, open, looked_ns: monotonic_ns() }))
    }
}

fn wanted(watch: &Watch, isa: Isa) -> Wanted<'_> {
    watch.wanted(purpose(watch, programs::processors()), isa)
}

/// eBPF programs that hand over every exit, or the long ones, until this is dropped.
pub struct Recorder {
    attached: Attached,
    vcpus: Vcpus,
    buffers: Buffers,
    counters: PerCpuArray<MapData, u64>,
    root: PathBuf,
    isa: Isa,
    lost_in_buffers: u64,
    made_room_ns: u64,
    /// The exits in which threads ended, as far as they were passed on without a time.
    at_the_end: u64,
    /// Records that must wait because earlier ones may follow.
    early: Vec<Record>,
    joining: Joining,
}

impl Recorder {
    /// Loads the programs into the kernel of the host below `root` (`/`), and starts to record exits, entries and
    /// accesses at the same moment.
    ///
    /// # Errors
    /// Those of [`super::Collector::attach`].
    pub fn attach(root: &Path, watch: &Watch) -> Result<Self, Error> {
        Self::attach_to(root, watch, &wanted(watch, isa(root)?))
    }

    /// Records system calls as if they were exits, see [`super::Collector::attach_to_system_calls`].
    ///
    /// # Errors
    /// Those of [`Recorder::attach`].
    #[doc(hidden)]
    pub fn attach_to_system_calls(watch: &Watch) -> Result<Self, Error> {
        let wanted = Wanted { pair: Pair::SystemCalls, ..wanted(watch, Isa::Vmx) };
        Self::attach_to(Path::new("/"), watch, &wanted)
    }

    fn attach_to(root: &Path, watch: &Watch, first: &Wanted<'_>) -> Result<Self, Error> {
        let isa = first.isa;
        let (wanted, (mut attached, buffers)) =
            with_either(first.purpose, watch.no_ring_buffer, |purpose| {
                let wanted = Wanted { purpose, ..*first };
                let mut attached = programs::load(root, &wanted)?;
                let buffers = Buffers::open(root, &mut attached, purpose)?;
                Ok((wanted, (attached, buffers)))
            })?;
        watch_processes(&mut attached, watch)?;
        let counters = map(&mut attached, "counters")?;
        let vcpus = Vcpus::of(&mut attached)?;
        attached.attach(&wanted)?;
        attached.begin()?;
        Ok(Self {
            vcpus,
            attached,
            buffers,
            counters,
            root: root.to_owned(),
            isa,
            lost_in_buffers: 0,
            made_room_ns: monotonic_ns(),
            at_the_end: 0,
            early: Vec::new(),
            joining: Joining::default(),
        })
    }

    /// Passes on the exits since the last call; those of one vCPU are in order of time. Call it often enough that the
    /// buffers, which have room for 200,000 exits of all CPUs, or for 6,000 of each, do not overflow. Exits that arrive
    /// during the call are left for the next one, or it might never return.
    pub fn drain(&mut self, exit: &mut impl FnMut(&LiveExit, &[LiveAccess])) {
        let now_ns = monotonic_ns();
        if now_ns.saturating_sub(self.made_room_ns) > ROOM_NS {
            self.made_room_ns = now_ns;
            if let Err(error) = self.forget_ended(exit) {
                tracing::debug!(%error, "vCPUs of threads that have ended keep their room");
            }
        }
        self.take_records(exit);
    }

    /// Forgets vCPUs whose threads have ended once the kernel's maps are half full, and passes on their last exits, without
    /// a time.
    fn forget_ended(&mut self, exit: &mut impl FnMut(&LiveExit, &[LiveAccess])) -> Result<(), MapError> {
        let Some(alive) = living_threads(&self.root) else { return Ok(()) };
        if !self.vcpus.is_crowded(&alive)? {
            return Ok(());
        }
        let ended = self.vcpus.open(self.isa, |thread| !alive(thread))?;
        // What these threads did before is in the buffers.
        self.take_records(exit);
        self.at_the_end += ended.len() as u64;
        ended.iter().for_each(|(last, _)| self.joining.close(last, exit));
        self.vcpus.free(&alive)
    }

    fn take_records(&mut self, exit: &mut impl FnMut(&LiveExit, &[LiveAccess])) {
        let (isa, joining) = (self.isa, &mut self.joining);
        let now_ns = monotonic_ns();
        match &mut self.buffers {
            Buffers::Ring(ring) => {
                while let Some(item) = ring.next() {
                    let Some(record) = Record::read(&item) else { continue };
                    let is_new = record.order() > now_ns;
                    joining.take(record, isa, exit);
                    if is_new {
                        break;
                    }
                }
            }
            Buffers::Perf(buffers) => {
                let mut over = buffers.follow(&self.root, now_ns);
                // Each CPU has its own buffer, and a vCPU may have moved: later records wait for the next call,
                // because earlier ones may be in a buffer that was already read.
                let mut keep = |bytes: &[u8]| self.early.extend(Record::read(bytes));
                for buffer in over.iter_mut().chain(buffers.open.iter_mut().map(|(_, buffer)| buffer)) {
                    buffer.for_each(|event| match event {
                        PerfEvent::Sample { head, tail: [] } => keep(head),
                        // The record wraps around at the end of the buffer.
                        PerfEvent::Sample { head, tail } => keep(&[head, tail].concat()),
                        PerfEvent::Lost { count } => self.lost_in_buffers += count,
                    });
                }
                self.early.sort_by_key(Record::order);
                let ready = self.early.partition_point(|record| record.order() <= now_ns);
                self.early.drain(..ready).for_each(|record| joining.take(record, isa, exit));
            }
        }
    }

    /// Stops recording exits, entries and accesses at the same moment, and passes on the rest; exits that are being
    /// handled at the end come last, without a time. Returns what [`Self::lost`] does, with these.
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the counts cannot be read.
    pub fn finish(mut self, exit: &mut impl FnMut(&LiveExit, &[LiveAccess])) -> Result<Losses, Error> {
        self.attached.end()?;
        self.take_records(exit);
        let open = self.vcpus.open(self.isa, |_| true).map_err(map_error)?;
        self.at_the_end += open.len() as u64;
        open.iter().for_each(|(open, _)| self.joining.close(open, exit));
        self.lost()
    }

    /// The exits and events that were lost so far: there was no room for them, or the program was already running on the
    /// CPU. `exits_at_the_end` are those that were passed on without a time because the thread had ended, which is no loss.
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the counts cannot be read.
    pub fn lost(&self) -> Result<Losses, Error> {
        let mut lost = lost(&self.attached, &self.counters, &self.root)?;
        // perf's buffers report losses later; they include what the programs have already counted, and lost accesses.
        let without_place = counted(&self.counters, LOST_RECORDS)?.max(self.lost_in_buffers);
        lost.lost_exits += without_place;
        lost.lost_events += without_place;
        lost.exits_at_the_end = self.at_the_end;
        Ok(lost)
    }

    /// All exits so far, and the long ones among them that were not passed on because the guest slept; zero unless only
    /// long ones are recorded.
    ///
    /// # Errors
    /// [`Error::KernelMap`] if the counts cannot be read.
    pub fn counted(&self) -> Result<(u64, u64), Error> {
        Ok((counted(&self.counters, EXITS)?, counted(&self.counters, SLEPT)?))
    }

    /// The mechanism by which the programs are attached.
    #[must_use]
    pub fn mechanism(&self) -> &Mechanism {
        &self.attached.mechanism
    }

    /// Events that this kernel does not have, and the reason if VMs have no names.
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use exits::LongOptions;

    use super::super::tests::{ICR, ICR_AS_MSR, send_ipi};
    use super::*;

    #[test]
    fn many_processors_do_not_share_a_buffer_unless_exits_to_record_are_rare() {
        let (all, long) =
            (Watch::default(), Watch { long: Some(LongOptions::default()), ..Watch::default() });
        assert_eq!(
            [1, 32, 33, 512].map(|cpus| purpose(&all, cpus) == Purpose::RecordPerf),
            [false, false, true, true]
        );
        assert_eq!(purpose(&long, 512), Purpose::RecordRing);
        let old = Watch { no_ring_buffer: true, ..long };
        assert_eq!(purpose(&old, 1), Purpose::RecordPerf);
    }

    #[test]
    fn buffers_that_cannot_be_opened_are_replaced_by_the_other_kind() {
        use Purpose::{RecordPerf, RecordRing};
        let of = |first, no_ring_buffer, works: &[Purpose]| {
            let mut tried = Vec::new();
            let prepared = with_either(first, no_ring_buffer, |purpose| {
                tried.push(purpose);
                let cause = format!("{purpose:?}");
                works.contains(&purpose).then_some(purpose).ok_or(Error::Load { cause, next: "" })
            });
            (tried, prepared.map_err(|error| error.to_string().contains("RecordPerf")))
        };
        let both = [RecordRing, RecordPerf];
        assert_eq!(of(RecordRing, false, &both), (vec![RecordRing], Ok(RecordRing)));
        assert_eq!(of(RecordRing, false, &[RecordPerf]), (vec![RecordRing, RecordPerf], Ok(RecordPerf)));
        assert_eq!(of(RecordRing, false, &[]), (vec![RecordRing, RecordPerf], Err(true)));
        assert_eq!(of(RecordPerf, false, &both), (vec![RecordPerf], Ok(RecordPerf)));
        assert_eq!(of(RecordPerf, false, &[RecordRing]), (vec![RecordPerf, RecordRing], Ok(RecordRing)));
        assert_eq!(of(RecordPerf, false, &[]), (vec![RecordPerf, RecordRing], Err(true)));
        assert_eq!(of(RecordPerf, true, &[RecordRing]), (vec![RecordPerf], Err(true)));
    }

    /// A recorder of an AMD host's exits that ignores the system calls of this thread. `None`, with the reason printed, if
    /// this user may not attach one.
    fn recorder(long: Option<LongOptions>, no_ring_buffer: bool) -> Option<Recorder> {
        let processes = Some(vec![std::process::id()]);
        let watch = Watch { processes, accesses: true, long, no_ring_buffer, ..Watch::default() };
        let wanted = Wanted { pair: Pair::SystemCalls, ..wanted(&watch, Isa::Svm) };
        let recorder = Recorder::attach_to(Path::new("/"), &watch, &wanted);
        let mut recorder = recorder.inspect_err(|error| eprintln!("not tested: {error}")).ok()?;
        recorder.attached.links.clear();
        Some(recorder)
    }

    #[test]
    fn an_ipi_that_is_traced_before_its_exit_is_recorded_as_part_of_it() {
        let each = Some(LongOptions { bound_ns: 1, sleep: true });
        for (long, no_ring_buffer) in [(None, false), (None, true), (each, false), (each, true)] {
            let Some(recorder) = recorder(long, no_ring_buffer) else { return };
            let number = send_ipi(&recorder.attached.ebpf);
            let mut seen = Vec::new();
            let mut take = |exit: &LiveExit, accesses: &[LiveAccess]| {
                if exit.vcpu.number == Some(number) {
                    let handling_ns = accesses.iter().map(|one| one.handling_ns == exit.handling_ns);
                    let its = accesses.iter().map(|one| one.access).zip(handling_ns).collect::<Vec<_>>();
                    seen.push((exit.reason.code, exit.handling_ns.is_some(), its));
                }
            };
            recorder.finish(&mut take).unwrap();
            // An access without an exit of its kind after it belongs to no exit.
            let its = vec![(ICR, true), (ICR_AS_MSR, true)];
            assert_eq!(seen, [(0x78, true, vec![]), (0x7c, true, its), (0x78, true, vec![])]);
        }
    }

    #[test]
    fn threads_that_have_ended_make_room_and_their_last_exits_are_recorded() {
        const ENDED: u64 = 6_000;
        // With tracepoints each thread is a vCPU of its own.
        let no_raw_tracepoints = Some("to test".to_owned());
        let watch =
            Watch { processes: Some(vec![std::process::id()]), no_raw_tracepoints, ..Watch::default() };
        let mut recorder = match Recorder::attach_to_system_calls(&watch) {
            Ok(recorder) => recorder,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        let (mut ended, mut without_time) = (0, 0);
        let mut take = |exit: &LiveExit, _: &[LiveAccess]| {
            ended += u64::from(exit.reason == exits::ExitReason::vmx(60));
            without_time += u64::from(exit.handling_ns.is_none());
        };
        for _ in 0..12 {
            (0..ENDED / 12).for_each(|_| std::thread::spawn(|| ()).join().unwrap());
            recorder.take_records(&mut take);
        }
        assert!(recorder.vcpus.is_crowded(|_| false).unwrap());
        recorder.forget_ended(&mut take).unwrap();
        assert!(!recorder.vcpus.is_crowded(|_| false).unwrap());
        let made_room = recorder.lost().unwrap().exits_at_the_end;
        let losses = recorder.finish(&mut take).unwrap();
        let lost = losses.lost_exits;
        assert!(ended <= ENDED && ended + lost >= ENDED, "{ended} of {ENDED}, {lost} lost");
        let all = losses.exits_at_the_end;
        assert!(made_room + lost >= ENDED / 2, "{made_room}, {lost} lost");
        assert!(made_room <= all && all <= without_time, "{made_room} of {all} of {without_time}");
    }

    #[test]
    fn exits_in_which_a_guest_sleeps_are_counted_in_the_kernel() {
        let long = LongOptions { bound_ns: 1, sleep: false };
        for no_ring_buffer in [false, true] {
            let (mut recorder, number, counted) = loop {
                let Some(recorder) = recorder(Some(long), no_ring_buffer) else { return };
                let (before, begun) = (recorder.counted().unwrap(), Instant::now());
                let number = send_ipi(&recorder.attached.ebpf);
                let took = begun.elapsed();
                let after = recorder.counted().unwrap();
                // If this thread was stopped for longer (`TELL_NS`), the last one is recorded too.
                if took < Duration::from_secs(1) {
                    break (recorder, number, (after.0 - before.0, after.1 - before.1));
                }
            };
            assert_eq!(counted, (3, 1));
            let mut seen = Vec::new();
            let mut take = |exit: &LiveExit, _: &[LiveAccess]| {
                seen.extend((exit.vcpu.number == Some(number)).then_some(exit.reason.code));
            };
            recorder.drain(&mut take);
            // The first one tells of the vCPU.
            assert_eq!(seen, [0x78, 0x7c]);
        }
    }
}
