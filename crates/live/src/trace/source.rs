//! Samples some tracepoints on every CPU, with one buffer per CPU.

use super::cpus::{OfCpus, Online};
use crate::Error;
use crate::perf::{Event, Watch};
use crate::ring::{Ring, page_size};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use tracing::{debug, warn};

/// The size of each CPU's buffer: room for about 2,000 events between two readings. Larger ones would exceed what
/// `perf_event_mlock_kb` lets unprivileged users lock.
const BUFFER: usize = 256 * 1024;

/// A tracepoint to open.
#[derive(Debug, Clone)]
pub(crate) struct Tracepoint {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) filter: Option<String>,
}

/// Samples tracepoints on all online CPUs. Dropping it closes all events.
#[derive(Debug)]
pub(crate) struct Source {
    tracepoints: Vec<Tracepoint>,
    cpus: OfCpus<Watched>,
    /// The counts of CPUs that went offline, by tracepoint.
    gone: Vec<u64>,
    /// Online CPUs that cannot be watched.
    refused: BTreeSet<u32>,
    enabled: bool,
}

#[derive(Debug)]
struct Watched {
    // Dropped before the events, because the mapping refers to the first event's buffer.
    ring: Ring,
    events: Vec<Event>,
}

/// The records in one CPU's buffer.
#[derive(Debug)]
pub(crate) struct CpuRecords {
    pub(crate) cpu: u32,
    pub(crate) bytes: Vec<u8>,
}

/// The result of [`Source::follow`].
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The last records of CPUs that went offline.
    pub(crate) last: Vec<CpuRecords>,
    /// The CPUs that are watched from now on.
    pub(crate) begun: Vec<u32>,
}

impl Source {
    /// Opens `tracepoints` on the CPUs that are online, disabled. CPUs that went offline meanwhile are skipped.
    ///
    /// # Errors
    /// [`Error::OnCpu`].
    pub(crate) fn open(tracepoints: Vec<Tracepoint>, online: &Online) -> Result<Self, Error> {
        // An event of each tracepoint on each CPU is a file: the usual limit is a dozen of them on 80 CPUs.
        files::allow_open_files();
        let gone = vec![0; tracepoints.len()];
        let cpus = OfCpus::open(online, |cpu| match watch(&tracepoints, cpu) {
            Ok(watched) => Ok(Some(watched)),
            Err(Error::OnCpu { source, .. }) if is_offline(&source) => {
                debug!(cpu, "went offline");
                Ok(None)
            }
            Err(error) => Err(error),
        })?;
        Ok(Self { tracepoints, cpus, gone, refused: BTreeSet::new(), enabled: false })
    }

    /// Starts the events, CPU by CPU.
    ///
    /// # Errors
    /// [`Error::OnCpu`].
    pub(crate) fn enable(&mut self) -> Result<(), Error> {
        self.enabled = true;
        self.cpus.iter().try_for_each(|(cpu, watched)| watched.enable(cpu))
    }

    /// Stops the events. Recorded samples can still be taken.
    pub(crate) fn disable(&mut self) {
        self.enabled = false;
        for (cpu, watched) in self.cpus.iter() {
            if let Some(Err(error)) = watched.events.first().map(Event::disable_group) {
                debug!(cpu, %error, "events could not be stopped");
            }
        }
    }

    /// Takes the contents of the buffers, CPU by CPU.
    pub(crate) fn take(&mut self) -> Vec<CpuRecords> {
        let taken = self.cpus.iter_mut().map(|(cpu, watched)| watched.take(cpu));
        taken.filter(|records| !records.bytes.is_empty()).collect()
    }

    /// Starts to watch CPUs that came online, again those that were offline since the last call, and drops those that are
    /// offline. A CPU that cannot be watched is reported once, and the others continue.
    pub(crate) fn follow(&mut self, online: &Online) -> Followed {
        let Self { tracepoints, cpus, gone, refused, enabled } = self;
        refused.retain(|cpu| online.contains_key(cpu));
        let mut begun = Vec::new();
        let over = cpus.follow(online, |cpu| {
            let watched = watch(tracepoints, cpu).and_then(|watched| {
                if *enabled {
                    watched.enable(cpu)?;
                }
                Ok(watched)
            });
            match watched {
                Ok(watched) => {
                    debug!(cpu, "came online");
                    refused.remove(&cpu);
                    begun.push(cpu);
                    return Some(watched);
                }
                Err(Error::OnCpu { source, .. }) if is_offline(&source) => {}
                // Tried again with each call, but reported once.
                Err(error) if refused.insert(cpu) => warn!(
                    "{error}: {}",
                    std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
                ),
                Err(_) => {}
            }
            None
        });
        let mut last = Vec::new();
        for (cpu, mut watched) in over {
            last.push(watched.take(cpu));
            gone.iter_mut().zip(watched.counts()).for_each(|(sum, count)| *sum += count);
            debug!(cpu, "went offline");
        }
        Followed { last, begun }
    }

    /// The number of times that each tracepoint passed its filter since it was opened, by ID, including dropped
    /// records.
    pub(crate) fn counts(&self) -> Vec<(u16, u64)> {
        let mut sums = self.gone.clone();
        for (_, watched) in self.cpus.iter() {
            sums.iter_mut().zip(watched.counts()).for_each(|(sum, count)| *sum += count);
        }
        self.tracepoints.iter().map(|tracepoint| tracepoint.id).zip(sums).collect()
    }
}

impl Watched {
    fn enable(&self, cpu: u32) -> Result<(), Error> {
        let Some(leader) = self.events.first() else { return Ok(()) };
        leader.enable_group().map_err(|source| failed("start", "the events", cpu, source))
    }

    fn take(&mut self, cpu: u32) -> CpuRecords {
        let bytes = self.ring.take().unwrap_or_else(|| {
            debug!(cpu, "the buffer's head and tail contradict each other; its records count as lost");
            Vec::new()
        });
        CpuRecords { cpu, bytes }
    }

    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        // If a count cannot be read, it shows no losses; the buffers' own records still do.
        self.events.iter().map(|event| event.total().map_or(0, |total| total.count))
    }
}

fn watch(tracepoints: &[Tracepoint], cpu: u32) -> Result<Watched, Error> {
    let mut events: Vec<Event> = Vec::with_capacity(tracepoints.len());
    let mut ring = None;
    for tracepoint in tracepoints {
        let name = &tracepoint.name;
        let event = Event::open(tracepoint.id, Watch::Cpu(cpu), events.first())
            .map_err(|source| failed("trace", name, cpu, source))?;
        if let Some(filter) = &tracepoint.filter {
            let set = CString::new(filter.as_str())
                .map_err(io::Error::from)
                .and_then(|filter| event.set_filter(&filter));
            set.map_err(|source| failed("filter", name, cpu, source))?;
        }
        match events.first() {
            None => {
                let pages = (BUFFER / page_size()).max(1).next_power_of_two();
                ring = Some(
                    Ring::map(event.file(), pages)
                        .map_err(|source| failed("map a buffer for", name, cpu, source))?,
                );
            }
            Some(leader) => {
                event.write_to(leader).map_err(|source| failed("join the buffers of", name, cpu, source))?;
            }
        }
        events.push(event);
    }
    let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "no event was asked for");
    let ring = ring.ok_or_else(|| failed("trace", "nothing", cpu, nothing()))?;
    Ok(Watched { ring, events })
}

fn failed(action: &'static str, event: &str, cpu: u32, source: io::Error) -> Error {
    Error::OnCpu { action, event: event.to_owned(), cpu, next: Watch::Cpu(cpu).advice(&source), source }
}

fn is_offline(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tracing::span::{Attributes, Id, Record};

    /// Counts warnings.
    struct Warnings(Arc<AtomicU32>);

    impl tracing::Subscriber for Warnings {
        fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
            *about.level() == tracing::Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_cpu_that_cannot_be_watched_is_told_once() {
        // No kernel has a tracepoint with this ID.
        let none = Tracepoint { id: u16::MAX, name: "none:none".to_owned(), filter: None };
        let mut source = Source::open(vec![none], &Online::new()).unwrap();
        let warnings = Arc::new(AtomicU32::new(0));
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
            (0..3).for_each(|_| drop(source.follow(&[(0, None)].into())));
            assert_eq!(warnings.load(Ordering::Relaxed), 1);
            // The CPU goes offline and comes online again.
            drop(source.follow(&Online::new()));
            drop(source.follow(&[(0, None)].into()));
        });
        assert_eq!(warnings.load(Ordering::Relaxed), 2);
    }
}
