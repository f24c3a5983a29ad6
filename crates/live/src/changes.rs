//! Changes of how interrupts reach VMs, as KVM reports them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::inhibit::{CHANGED, InhibitFields, UPDATE_REQUEST, number_field};
use crate::trace::cpus;
use crate::trace::source::{Source, Tracepoint};
use crate::{Error, EventFormat, Field, InhibitChange, Record, Sample, Tracefs, records};

const POSTING: &str = "kvm_pi_irte_update";
/// The limit of kept changes, of some 50 bytes each: a guest can inhibit AVIC thousands of times a second.
const MOST_KEPT: usize = 1 << 20;

/// A change of how KVM delivers an interrupt of an assigned device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostingChange {
    /// The host's number of the interrupt, as in `/proc/interrupts`.
    pub host_irq: u32,
    /// True if it is posted from now on; otherwise the host handles it.
    pub posted: bool,
}

/// The changes that the threads of one process made, in order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes of inhibit reasons.
    pub inhibits: Vec<InhibitChange>,
    /// Changes of device interrupts.
    pub posting: Vec<PostingChange>,
}

/// The changes that were seen on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// By watched process, also of those that made none.
    pub processes: BTreeMap<i32, Changes>,
    /// The number of events of the whole host that were lost because a buffer was full.
    pub lost: u64,
}

/// Watches all CPUs for changes of some processes: any thread of a VMM that calls into KVM can make one, and a host has far
/// fewer CPUs than such threads, each of which would need its own events and buffer.
#[derive(Debug)]
pub struct ChangesWatch {
    root: PathBuf,
    source: Source,
    fields: Fields,
    kept: Kept,
}

/// The changes that were taken from the buffers.
#[derive(Debug)]
struct Kept {
    /// By watched process, with their times, CPU by CPU.
    processes: BTreeMap<i32, Vec<(u64, Change)>>,
    /// The number of changes that can still be kept.
    room: usize,
    /// The number of events that were read, without those for which there was no room.
    seen: u64,
}

#[derive(Debug)]
enum Change {
    Inhibit(InhibitChange),
    Posting(PostingChange),
}

#[derive(Debug)]
struct Fields {
    inhibit: InhibitFields,
    posting: Option<PostingFields>,
}

#[derive(Debug)]
struct PostingFields {
    id: u16,
    host_irq: Field,
    set: Field,
}

impl PostingFields {
    fn new(format: &EventFormat) -> Result<Self, Error> {
        Ok(Self {
            id: format.id,
            host_irq: number_field(format, "host_irq")?,
            set: number_field(format, "set")?,
        })
    }

    fn decode(&self, raw: &[u8]) -> Option<PostingChange> {
        let host_irq = u32::try_from(self.host_irq.read(raw)?).ok()?;
        Some(PostingChange { host_irq, posted: self.set.read(raw)? != 0 })
    }
}

impl ChangesWatch {
    /// Watches these processes of the host below `root` from now on.
    ///
    /// # Errors
    /// [`Error::NoEvent`] if this kernel does not report changes of inhibit reasons; [`Error::OnCpu`] if the events may not
    /// be watched.
    pub fn attach(root: &Path, processes: impl IntoIterator<Item = i32>) -> Result<Self, Error> {
        let tracefs = Tracefs::find(root)?;
        let name = [CHANGED, UPDATE_REQUEST].into_iter().find(|name| tracefs.has("kvm", name));
        let inhibit = tracefs.format("kvm", name.unwrap_or(CHANGED))?;
        // Kernels without support for device assignment lack this event.
        let posting = tracefs.format("kvm", POSTING).ok();
        let fields = Fields {
            inhibit: InhibitFields::new(&inhibit, Some(&tracefs))?,
            posting: posting.as_ref().map(PostingFields::new).transpose()?,
        };
        let tracepoints = std::iter::once(&inhibit).chain(&posting).map(|event| Tracepoint {
            id: event.id,
            name: format!("kvm:{}", event.name),
            filter: None,
        });
        let mut source = Source::open(tracepoints.collect(), &cpus::online(root)?)?;
        source.enable()?;
        Ok(Self { root: root.to_owned(), source, fields, kept: Kept::of(processes, MOST_KEPT) })
    }

    /// Empties the buffers, which are small and may fill by the changes of any VM, and starts to watch CPUs that came online.
    /// Call it at least once a second.
    pub fn keep(&mut self) {
        if let Ok(online) = cpus::online(&self.root) {
            for last in self.source.follow(&online).last {
                self.kept.add(&self.fields, &last.bytes);
            }
        }
        self.empty();
    }

    fn empty(&mut self) {
        for taken in self.source.take() {
            self.kept.add(&self.fields, &taken.bytes);
        }
    }

    /// Ends watching, and returns the changes since it began.
    #[must_use]
    pub fn finish(mut self) -> HostChanges {
        self.source.disable();
        self.empty();
        // A buffer reports its losses with the next record that fits, so the kernel's counts say more.
        let all: u64 = self.source.counts().iter().map(|(_, count)| count).sum();
        HostChanges { lost: all.saturating_sub(self.kept.seen), processes: self.kept.in_order() }
    }
}

impl Kept {
    fn of(processes: impl IntoIterator<Item = i32>, room: usize) -> Self {
        Self { processes: processes.into_iter().map(|pid| (pid, Vec::new())).collect(), room, seen: 0 }
    }

    /// Adds the changes of watched processes in the buffer of a CPU. The events of other processes are only counted, so that
    /// they take no room.
    fn add(&mut self, fields: &Fields, buffer: &[u8]) {
        for record in records(buffer) {
            let Record::Sample(sample) = record else { continue };
            if let Some(changes) = self.processes.get_mut(&sample.pid)
                && let Some(change) = fields.decode(&sample)
            {
                if self.room == 0 {
                    continue;
                }
                self.room -= 1;
                changes.push((sample.time_ns, change));
            }
            self.seen += 1;
        }
    }

    /// The changes of each process in order of time: its threads run on several CPUs.
    fn in_order(self) -> BTreeMap<i32, Changes> {
        let of_process = |mut kept: Vec<(u64, Change)>| {
            kept.sort_by_key(|(time_ns, _)| *time_ns);
            let mut changes = Changes::default();
            for (_, change) in kept {
                match change {
                    Change::Inhibit(change) => changes.inhibits.push(change),
                    Change::Posting(change) => changes.posting.push(change),
                }
            }
            changes
        };
        self.processes.into_iter().map(|(pid, kept)| (pid, of_process(kept))).collect()
    }
}

impl Fields {
    fn decode(&self, sample: &Sample<'_>) -> Option<Change> {
        let event = u16::from_ne_bytes(*sample.raw.first_chunk()?);
        if event == self.inhibit.id {
            self.inhibit.decode(sample.tid, sample.time_ns, sample.raw).map(Change::Inhibit)
        } else {
            let posting = self.posting.as_ref().filter(|fields| fields.id == event)?;
            posting.decode(sample.raw).map(Change::Posting)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::written;

    /// The format of an event in a real kernel.
    fn format(name: &str) -> EventFormat {
        let formats = include_str!("../../tracepoints/tests/fixtures/all-of-kvm.formats");
        let start = formats.find(&format!("name: {name}\n")).unwrap();
        let end = start + formats[start..].find("\n\nname: ").unwrap() + 1;
        EventFormat::parse(&formats[start..end]).unwrap()
    }

    fn fields() -> Fields {
        let inhibit = InhibitFields::new(&format(CHANGED), None).unwrap();
        Fields { inhibit, posting: Some(PostingFields::new(&format(POSTING)).unwrap()) }
    }

    #[test]
    fn a_posting_change_of_a_real_kernels_format() {
        let fields = PostingFields::new(&format(POSTING)).unwrap();
        let mut raw = [0; 40];
        raw[8] = 77;
        assert_eq!(fields.decode(&raw), Some(PostingChange { host_irq: 77, posted: false }));
        raw[32] = 1;
        assert_eq!(fields.decode(&raw), Some(PostingChange { host_irq: 77, posted: true }));
        assert_eq!(fields.decode(&raw[..20]), None);
    }

    /// A record of an interrupt's change.
    fn sample(pid: i32, tid: i32, time_ns: u64, posted: u8) -> Vec<u8> {
        let mut raw = [0; 40];
        raw[..2].copy_from_slice(&format(POSTING).id.to_ne_bytes());
        raw[8] = 77;
        raw[32] = posted;
        written::sample_of(pid, tid, time_ns, &raw)
    }

    /// The changes of each process, and the number of events that were seen.
    fn posted(kept: Kept) -> (Vec<(i32, Vec<bool>)>, u64) {
        let seen = kept.seen;
        let of_process = |changes: Changes| changes.posting.iter().map(|one| one.posted).collect::<Vec<_>>();
        (kept.in_order().into_iter().map(|(pid, changes)| (pid, of_process(changes))).collect(), seen)
    }

    #[test]
    fn changes_on_all_cpus_are_those_of_their_processes_in_order() {
        let fields = fields();
        let mut kept = Kept::of([7, 8, 9], MOST_KEPT);
        // A thread of process 7 moved from the second CPU to the first.
        for buffer in [[sample(7, 71, 50, 1), sample(8, 81, 20, 0)].concat(), sample(7, 71, 40, 0)] {
            kept.add(&fields, &buffer);
        }
        assert_eq!(posted(kept), (vec![(7, vec![false, true]), (8, vec![false]), (9, vec![])], 3));
    }

    #[test]
    fn changes_of_other_processes_take_no_room() {
        let fields = fields();
        let mut kept = Kept::of([7], 2);
        let others = (0..5).map(|time_ns| sample(8, 81, time_ns, 1));
        kept.add(&fields, &others.chain([sample(7, 71, 10, 0)]).collect::<Vec<_>>().concat());
        // There is no room for the last one, which counts as lost.
        kept.add(&fields, &[sample(7, 71, 20, 1), sample(8, 81, 30, 1), sample(7, 71, 40, 0)].concat());
        assert_eq!(posted(kept), (vec![(7, vec![false, true])], 8));
    }
}
