//! Changes of how interrupts reach VMs, as KVM reports them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::inhibit::{CHANGED, InhibitFields, UPDATE_REQUEST, number_field};
use crate::trace::cpus;
use crate::trace::source::{CpuRecords, Source, Tracepoint};
use crate::{Error, EventFormat, Field, InhibitChange, Record, Sample, Tracefs, records};

const POSTING: &str = "kvm_pi_irte_update";
/// The limit of kept records, in bytes, about a million events: a guest can inhibit AVIC thousands of times a second.
const MOST_KEPT: usize = 64 << 20;

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
    /// By process.
    pub processes: BTreeMap<i32, Changes>,
    /// The number of events that were lost because a buffer was full.
    pub lost: u64,
}

/// Watches all CPUs for changes: any thread of a VMM that calls into KVM can make one, and a host has far fewer CPUs than
/// such threads, each of which would need its own events and buffer.
#[derive(Debug)]
pub struct ChangesWatch {
    root: PathBuf,
    source: Source,
    /// The records that [`Self::keep`] took from the buffers.
    kept: Vec<CpuRecords>,
    fields: Fields,
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
    /// Watches the host below `root` from now on.
    ///
    /// # Errors
    /// [`Error::NoEvent`] if this kernel does not report changes of inhibit reasons; [`Error::OnCpu`] if the events may not
    /// be watched.
    pub fn attach(root: &Path) -> Result<Self, Error> {
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
        Ok(Self { root: root.to_owned(), source, kept: Vec::new(), fields })
    }

    /// Empties the buffers, which are small and may fill by the changes of any VM, and starts to watch CPUs that came online.
    /// Call it now and then.
    pub fn keep(&mut self) {
        if let Ok(online) = cpus::online(&self.root) {
            let last = self.source.follow(&online);
            self.add_kept(last);
        }
        let taken = self.source.take();
        self.add_kept(taken);
    }

    /// Drops records beyond the limit. [`Self::finish`] counts them as lost.
    fn add_kept(&mut self, taken: Vec<CpuRecords>) {
        let mut room = MOST_KEPT.saturating_sub(self.kept.iter().map(|records| records.bytes.len()).sum());
        self.kept.extend(taken.into_iter().filter(|records| {
            let has_room = records.bytes.len() <= room;
            room -= if has_room { records.bytes.len() } else { 0 };
            has_room
        }));
    }

    /// Ends watching, and returns the changes since it began.
    #[must_use]
    pub fn finish(mut self) -> HostChanges {
        self.source.disable();
        let taken = self.source.take();
        self.add_kept(taken);
        let (processes, seen) = self.fields.changes(self.kept.iter().map(|of_cpu| of_cpu.bytes.as_slice()));
        // A buffer reports its losses with the next record that fits, so the kernel's counts say more.
        let all: u64 = self.source.counts().iter().map(|(_, count)| count).sum();
        HostChanges { processes, lost: all.saturating_sub(seen) }
    }
}

impl Fields {
    /// The changes in the buffers of all CPUs by process, and the number of events there.
    fn changes<'a>(&self, buffers: impl Iterator<Item = &'a [u8]>) -> (BTreeMap<i32, Changes>, u64) {
        let mut samples: Vec<Sample<'a>> = buffers
            .flat_map(records)
            .filter_map(|record| match record {
                Record::Sample(sample) => Some(sample),
                Record::Lost(_) | Record::Other(_) | Record::Malformed { .. } => None,
            })
            .collect();
        // The threads of a process run on several CPUs.
        samples.sort_by_key(|sample| sample.time_ns);
        let mut processes: BTreeMap<i32, Changes> = BTreeMap::new();
        for sample in &samples {
            self.add(sample, processes.entry(sample.pid).or_default());
        }
        (processes, samples.len() as u64)
    }

    fn add(&self, sample: &Sample<'_>, changes: &mut Changes) {
        let Some(event) = sample.raw.first_chunk().map(|id| u16::from_ne_bytes(*id)) else { return };
        if self.inhibit.id == event {
            changes.inhibits.extend(self.inhibit.decode(sample.tid, sample.time_ns, sample.raw));
        } else if let Some(fields) = self.posting.as_ref().filter(|fields| fields.id == event) {
            changes.posting.extend(fields.decode(sample.raw));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::written;
    use std::collections::BTreeSet;

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

    #[test]
    fn changes_on_all_cpus_are_those_of_their_processes_in_order() {
        let posting = format(POSTING);
        let fields = fields();
        let sample = |pid: i32, tid: i32, time_ns: u64, posted: u8| {
            let mut raw = [0; 40];
            raw[..2].copy_from_slice(&posting.id.to_ne_bytes());
            raw[8] = 77;
            raw[32] = posted;
            written::sample_of(pid, tid, time_ns, &raw)
        };
        // A thread of process 7 moved from the second CPU to the first.
        let buffers = [[sample(7, 71, 50, 1), sample(8, 81, 20, 0)].concat(), sample(7, 71, 40, 0)];
        let (processes, seen) = fields.changes(buffers.iter().map(Vec::as_slice));
        let posted = |pid: i32| processes[&pid].posting.iter().map(|one| one.posted).collect::<Vec<_>>();
        assert_eq!((posted(7), posted(8), seen), (vec![false, true], vec![false], 3));
        assert!(processes.values().all(|changes| changes.inhibits.is_empty()));
    }

    #[test]
    fn records_are_kept_up_to_a_limit() {
        let source = Source::open(Vec::new(), &BTreeSet::new()).unwrap();
        let mut watch =
            ChangesWatch { root: PathBuf::from("/nowhere"), source, kept: Vec::new(), fields: fields() };
        let records = |cpu: u32, length: usize| CpuRecords { cpu, bytes: vec![0; length] };
        watch.add_kept(vec![records(0, MOST_KEPT - 8), records(1, 9)]);
        watch.add_kept(vec![records(2, 9), records(3, 8)]);
        assert_eq!(watch.kept.iter().map(|one| one.cpu).collect::<Vec<_>>(), [0, 3]);
    }
}
