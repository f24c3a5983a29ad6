//! Samples every occurrence of some tracepoints in some threads.

use crate::perf::{Event, Watch};
use crate::record::{Records, records};
use crate::ring::{Ring, page_size};
use crate::{Error, EventFormat};
use std::io;
use tracing::debug;

/// Samples tracepoints of given threads, with one buffer per thread. Dropping it closes all events.
#[derive(Debug)]
pub struct TracepointSampler {
    names: Vec<(u16, String)>,
    threads: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    thread: i32,
    // Dropped before the events, because the mapping refers to the first event's buffer.
    ring: Ring,
    events: Vec<Event>,
}

/// The counts of one event in one thread since it was opened, including dropped samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTotal {
    /// The event's ID.
    pub event: u16,
    /// Occurrences.
    pub count: u64,
    /// Occurrences whose sample was dropped, as the kernel reports since Linux 6.0.
    pub lost: Option<u64>,
}

/// The records in one thread's buffer.
#[derive(Debug, Clone)]
pub struct ThreadSamples {
    /// The thread.
    pub thread: i32,
    /// The totals of each event since it was opened, read before the buffer.
    pub totals: Vec<EventTotal>,
    bytes: Vec<u8>,
}

impl ThreadSamples {
    /// The records in the order in which they were written.
    #[must_use]
    pub fn records(&self) -> Records<'_> {
        records(&self.bytes)
    }

    /// The total of `event` since it was opened.
    #[must_use]
    pub fn total(&self, event: u16) -> Option<EventTotal> {
        self.totals.iter().copied().find(|total| total.event == event)
    }
}

impl TracepointSampler {
    /// Opens `events` for each of `threads`, disabled, with buffers of at least `bytes_per_thread` (rounded up to a
    /// power of two of pages).
    ///
    /// # Errors
    /// [`Error::Open`] or [`Error::Map`]; both say what is missing.
    pub fn open(events: &[&EventFormat], threads: &[i32], bytes_per_thread: usize) -> Result<Self, Error> {
        let pages = bytes_per_thread.div_ceil(page_size()).max(1).next_power_of_two();
        let threads = threads.iter().map(|&thread| watch(events, thread, pages)).collect::<Result<_, _>>()?;
        let names = events.iter().map(|event| (event.id, event.name.clone())).collect();
        debug!(?names, pages, "tracepoints opened");
        Ok(Self { names, threads })
    }

    /// Starts counting. The events of one thread start together; threads start one after the other.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&mut self) -> Result<(), Error> {
        self.each("start", Event::enable_group)
    }

    /// Stops counting. Recorded samples can still be drained.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&mut self) -> Result<(), Error> {
        self.each("stop", Event::disable_group)
    }

    fn each(&self, action: &'static str, run: impl Fn(&Event) -> io::Result<()>) -> Result<(), Error> {
        for watched in &self.threads {
            if let Some(leader) = watched.events.first() {
                run(leader).map_err(|source| Error::Control { thread: watched.thread, action, source })?;
            }
        }
        Ok(())
    }

    /// Takes the contents of the buffers, in the order in which the threads were given.
    ///
    /// # Errors
    /// [`Error::Control`] if a total cannot be read.
    pub fn drain(&mut self) -> Result<Vec<ThreadSamples>, Error> {
        let names = &self.names;
        self.threads.iter_mut().map(|watched| watched.drain(names)).collect()
    }
}

impl Watched {
    fn drain(&mut self, names: &[(u16, String)]) -> Result<ThreadSamples, Error> {
        let thread = self.thread;
        // Read the totals first: while events are running, there may be more samples than the total, but not fewer,
        // so that samples that were not read yet are not taken for lost.
        let totals = names
            .iter()
            .zip(&self.events)
            .map(|(&(event, _), open)| {
                let total = open.total()?;
                Ok(EventTotal { event, count: total.count, lost: total.lost })
            })
            .collect::<io::Result<_>>()
            .map_err(|source| Error::Control { thread, action: "read", source })?;
        let bytes = self.ring.take().unwrap_or_else(|| {
            debug!(thread, "the buffer's head and tail contradict each other; its records count as lost");
            Vec::new()
        });
        Ok(ThreadSamples { thread, totals, bytes })
    }
}

fn watch(formats: &[&EventFormat], thread: i32, pages: usize) -> Result<Watched, Error> {
    let mut events: Vec<Event> = Vec::with_capacity(formats.len());
    let mut ring = None;
    for format in formats {
        let event =
            Event::open(format.id, Watch::Thread(thread), events.first()).map_err(|source| Error::Open {
                event: format.name.clone(),
                thread,
                next: Watch::Thread(thread).advice(&source),
                source,
            })?;
        match events.first() {
            None => ring = Some(map(&event, thread, pages)?),
            Some(leader) => event.write_to(leader).map_err(|source| Error::Control {
                thread,
                action: "join the buffers of",
                source,
            })?,
        }
        events.push(event);
    }
    let ring = ring.ok_or_else(|| Error::Control {
        thread,
        action: "open",
        source: io::Error::new(io::ErrorKind::InvalidInput, "no event was asked for"),
    })?;
    Ok(Watched { thread, ring, events })
}

fn map(event: &Event, thread: i32, pages: usize) -> Result<Ring, Error> {
    Ring::map(event.file(), pages).map_err(|source| {
        let next = match source.raw_os_error() {
            Some(libc::EPERM) => {
                "run as root, ask for fewer exits a thread, or raise /proc/sys/kernel/perf_event_mlock_kb"
            }
            _ => "ask for fewer exits a thread, or count fewer threads at once",
        };
        Error::Map { thread, bytes: pages * page_size(), next, source }
    })
}
