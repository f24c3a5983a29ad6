//! Reads the kernel's buffers and returns their events in order.

use super::clock::Anchor;
use super::cpus::{HOTPLUG_NS, online};
use super::decoder::Decoder;
use super::event::{Event, Loss, Occurrence, What};
use super::kind::EventKind;
use super::missing::{Missing, listed};
use super::order::Order;
use super::owner::{Owner, Owners};
use super::source::{CpuRecords, Source, Tracepoint};
use super::state::States;
use crate::record::{Record, records};
use crate::{Error, Tracefs};
use exits::InhibitNumbering;
use host::vms::{Vms, WantedVm};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use tracing::debug;

/// The time for which an event is held back for earlier ones of other CPUs. A record is in its buffer within
/// microseconds, unless the CPU itself was stopped meanwhile, which can happen if the host is a guest.
const HOLD_BACK_NS: u64 = 50_000_000;

/// The options of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// The kinds; if empty, those of [`EventKind::is_default`].
    pub kinds: BTreeSet<EventKind>,
    /// Only events of VMs with these names or numbers ([`WantedVm`]); all if empty.
    pub vms: Vec<String>,
    /// Also report requests that change nothing: to set a reason that is set, or to clear one that is not.
    pub unchanged: bool,
    /// End after this number of events; `None` is no limit.
    pub count: Option<u64>,
}

/// A result of [`Tracer::poll`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An event.
    Event(Occurrence),
    /// A loss of events.
    Lost(Loss),
}

/// The counts of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Reported events by kind, with an entry for every kind that was traced.
    pub events: BTreeMap<EventKind, u64>,
    /// Lost events by kind, if there were any.
    pub lost: BTreeMap<EventKind, u64>,
    /// Inhibit requests that changed nothing and were not reported.
    pub unchanged: u64,
    /// Events that were not reported because VMs were selected and their VM is not known.
    pub of_nobody: u64,
    /// Records that could not be decoded.
    pub undecoded: u64,
}

/// Traces the whole host, until dropped.
#[derive(Debug)]
pub struct Tracer {
    root: PathBuf,
    options: Options,
    wanted: Vec<WantedVm>,
    decoders: HashMap<u16, Decoder>,
    event_id: crate::Field,
    source: Source,
    owners: Owners,
    states: States,
    held: Order<Held>,
    missing: Vec<Missing>,
    recorded: HashMap<u16, u64>,
    summary: Summary,
    /// The number of losses that were reported so far.
    told: u64,
    looked_ns: u64,
}

#[derive(Debug)]
enum Held {
    Event(Event, Option<Owner>),
    Lost { time_ns: u64, cpu: u32, events: u64 },
}

impl Tracer {
    /// Starts to trace the host below `root` (`/` for this one), whose tracefs is `tracefs`. Kinds that this kernel
    /// does not have are in [`Self::missing`].
    ///
    /// # Errors
    /// [`Error::NothingToTrace`] if no kind exists, [`Error::OnCpu`] if privileges are missing,
    /// [`Error::TracefsDenied`], [`Error::Read`].
    pub fn attach(root: &Path, tracefs: &Tracefs, options: Options) -> Result<Self, Error> {
        let mut missing = Vec::new();
        let mut decoders = HashMap::new();
        let mut tracepoints = Vec::new();
        let mut event_id = None;
        let mut summary = Summary::default();
        for kind in EventKind::all() {
            let wanted =
                if options.kinds.is_empty() { kind.is_default() } else { options.kinds.contains(&kind) };
            let found = kind.tracepoints().iter().find(|name| tracefs.has("kvm", name));
            match found {
                _ if !wanted => continue,
                None => missing.push(Missing::why(kind, tracefs)),
                Some(name) => {
                    let format = tracefs.format("kvm", name);
                    if let Err(error @ Error::TracefsDenied { .. }) = format {
                        return Err(error);
                    }
                    let decoder = format.and_then(|format| {
                        let id = crate::inhibit::number_field(&format, "common_type")?;
                        Ok((Decoder::new(kind, &format, Some(tracefs))?, id))
                    });
                    match decoder {
                        Err(error) => missing.push(Missing::unusable(kind, &error)),
                        Ok((decoder, id)) => {
                            event_id.get_or_insert(id);
                            let (name, filter) = (format!("kvm:{name}"), decoder.filter());
                            debug!(name, filter, "to be traced");
                            tracepoints.push(Tracepoint { id: decoder.id, name, filter });
                            decoders.insert(decoder.id, decoder);
                            summary.events.insert(kind, 0);
                        }
                    }
                }
            }
        }
        let Some(event_id) = event_id else { return Err(Error::NothingToTrace(listed(&missing))) };
        let numbering = decoders.values().find_map(Decoder::numbering).cloned();
        let states = States::new(numbering.unwrap_or_else(|| {
            InhibitNumbering::of_kernel(tracefs.kernel().unwrap_or(exits::KernelVersion::new(0, 0)))
        }));
        // VMs that are not found now are recognized by their first event.
        let running =
            if options.vms.is_empty() { None } else { Vms::discover(root).ok() }.unwrap_or_default();
        let wanted = options.vms.iter().map(|vm| WantedVm::new(vm, &running)).collect();
        let mut source = Source::open(tracepoints, &online(root)?)?;
        source.enable()?;
        Ok(Self {
            root: root.to_owned(),
            wanted,
            options,
            decoders,
            event_id,
            source,
            owners: Owners::new(root),
            states,
            held: Order::default(),
            missing,
            recorded: HashMap::new(),
            summary,
            told: 0,
            looked_ns: crate::monotonic_ns(),
        })
    }

    /// The requested kinds that do not exist here.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// The kinds that are traced.
    pub fn kinds(&self) -> impl Iterator<Item = EventKind> + '_ {
        self.summary.events.keys().copied()
    }

    /// Tests whether the requested number of events was reported, so that no more will follow.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.options.count.is_some_and(|count| self.summary.events.values().sum::<u64>() >= count)
    }

    /// The events since the last call, in order of time; those of the last 50 ms follow with a later call. Call it
    /// about twenty times a second.
    pub fn poll(&mut self) -> Vec<Item> {
        let now = Anchor::now();
        if now.ns().saturating_sub(self.looked_ns) > HOTPLUG_NS {
            self.looked_ns = now.ns();
            match online(&self.root) {
                Ok(online) => {
                    let followed = self.source.follow(&online);
                    self.hold(followed.last, now);
                }
                Err(error) => debug!(%error, "the CPUs that are online are not known"),
            }
        }
        let taken = self.source.take();
        self.hold(taken, now);
        self.release(now, now.ns().saturating_sub(HOLD_BACK_NS))
    }

    /// Ends the trace, and returns the remaining events, the losses that no buffer reported, and the counts.
    pub fn finish(mut self) -> (Vec<Item>, Summary) {
        self.source.disable();
        let now = Anchor::now();
        let taken = self.source.take();
        self.hold(taken, now);
        let mut items = self.release(now, u64::MAX);
        for (id, count) in self.source.counts() {
            let lost = count.saturating_sub(self.recorded.get(&id).copied().unwrap_or(0));
            if let Some(decoder) = self.decoders.get(&id).filter(|_| lost > 0) {
                self.summary.lost.insert(decoder.kind, lost);
            }
        }
        let untold = self.summary.lost.values().sum::<u64>().saturating_sub(self.told);
        if untold > 0 {
            items.push(Item::Lost(Loss {
                time_ns: now.ns(),
                wall: now.wall(now.ns()),
                cpu: None,
                events: untold,
            }));
        }
        (items, self.summary)
    }

    fn hold(&mut self, taken: Vec<CpuRecords>, now: Anchor) {
        for CpuRecords { cpu, bytes } in taken {
            // A loss has no time of its own; it was before the next sample.
            let mut lost = 0;
            for record in records(&bytes) {
                match record {
                    Record::Sample(sample) => {
                        self.lose(sample.time_ns, cpu, std::mem::take(&mut lost));
                        let id = self.event_id.read(sample.raw).and_then(|id| u16::try_from(id).ok());
                        let decoder = id.and_then(|id| self.decoders.get(&id));
                        if let Some(decoder) = decoder {
                            *self.recorded.entry(decoder.id).or_default() += 1;
                        }
                        match decoder.and_then(|decoder| decoder.decode(cpu, &sample)) {
                            Some(event) => {
                                let owner = self.owner(&event, now);
                                self.held.push(event.time_ns, Held::Event(event, owner));
                            }
                            None => self.summary.undecoded += 1,
                        }
                    }
                    Record::Lost(events) => lost += events,
                    Record::Malformed { .. } => self.summary.undecoded += 1,
                    Record::Other(_) => {}
                }
            }
            self.lose(now.ns(), cpu, lost);
        }
    }

    /// Looked up when the event is read, not when it is reported: its process may have ended by then.
    fn owner(&mut self, event: &Event, now: Anchor) -> Option<Owner> {
        // A thread of the IOMMU driver reads the GA log.
        let strange = event.in_interrupt || matches!(event.what, What::GaLog { .. });
        if strange { None } else { self.owners.of(event.pid, now.ns()) }
    }

    fn lose(&mut self, time_ns: u64, cpu: u32, events: u64) {
        if events > 0 {
            self.told += events;
            self.held.push(time_ns, Held::Lost { time_ns, cpu, events });
        }
    }

    fn release(&mut self, now: Anchor, until_ns: u64) -> Vec<Item> {
        let ready = self.held.release(until_ns);
        ready
            .into_iter()
            .filter_map(|held| match held {
                Held::Lost { time_ns, cpu, events } => {
                    Some(Item::Lost(Loss { time_ns, wall: now.wall(time_ns), cpu: Some(cpu), events }))
                }
                Held::Event(event, owner) => self.occurrence(event, owner, now).map(Item::Event),
            })
            .collect()
    }

    fn occurrence(&mut self, mut event: Event, owner: Option<Owner>, now: Anchor) -> Option<Occurrence> {
        if self.is_done() {
            return None;
        }
        let mut unchanged = false;
        if let What::Inhibit(change) = event.what {
            // Before any filter: the state depends on all changes.
            let report = self.states.report(owner.as_ref().map_or(event.pid, |owner| owner.pid), change);
            unchanged = report.changed == Some(false);
            event.what = What::InhibitReport(report);
        }
        if !self.options.vms.is_empty() {
            let Some(owner) = &owner else {
                self.summary.of_nobody += 1;
                return None;
            };
            let (vm, management) = (owner.vm.as_deref(), &owner.management);
            // Ask every one, because each has to learn about the VM.
            let mut meant = false;
            for wanted in &mut self.wanted {
                meant |= wanted.is(owner.pid, vm, management);
            }
            if !meant {
                return None;
            }
        }
        if unchanged && !self.options.unchanged {
            self.summary.unchanged += 1;
            return None;
        }
        *self.summary.events.entry(event.what.kind()).or_default() += 1;
        Some(Occurrence { wall: now.wall(event.time_ns), event, owner })
    }
}
