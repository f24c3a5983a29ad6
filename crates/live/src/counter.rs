//! The VM exits of given threads.

use crate::decode::{Carried, Decoder, ThreadExits};
use crate::inhibit::{CHANGED, InhibitFields, UPDATE_REQUEST};
use crate::sampler::TracepointSampler;
use crate::{Error, Tracefs};
use tracing::debug;

/// Room in the buffer for one exit and its entry: 88 and 56 bytes on Linux 6.12, rounded up for later fields.
const BYTES_PER_EXIT: usize = 160;

/// The options of counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The number of exits for which each thread's buffer has room between two drains; further ones are counted as
    /// lost.
    pub exits_per_thread: usize,
}

impl Default for Options {
    /// Room for 20,000 exits per thread, 4 MiB each.
    fn default() -> Self {
        Self { exits_per_thread: 20_000 }
    }
}

/// Counts the exits of vCPU threads by reason, with handling times and inhibit changes.
///
/// While it is enabled, the kernel writes two records per exit; no code of ours runs until [`Self::drain`].
/// Dropping it closes all events.
#[derive(Debug)]
pub struct ExitCounter {
    sampler: TracepointSampler,
    decoder: Decoder,
    carried: Vec<Carried>,
    sees_inhibits: bool,
}

impl ExitCounter {
    /// Prepares to count the exits of `threads` with the default [`Options`], without starting.
    ///
    /// # Errors
    /// The missing thing and the next step: the events ([`Error::NoEvent`]), the rights ([`Error::Open`],
    /// [`Error::TracefsDenied`]), the memory ([`Error::Map`]), or support for this kernel ([`Error::Field`]).
    pub fn attach(tracefs: &Tracefs, threads: &[i32]) -> Result<Self, Error> {
        Self::attach_with(tracefs, threads, Options::default())
    }

    /// Like [`Self::attach`], with options.
    ///
    /// # Errors
    /// Those of [`Self::attach`].
    pub fn attach_with(tracefs: &Tracefs, threads: &[i32], options: Options) -> Result<Self, Error> {
        let exit = tracefs.format("kvm", "kvm_exit")?;
        let entry = tracefs.format("kvm", "kvm_entry")?;
        let inhibit = [CHANGED, UPDATE_REQUEST].into_iter().find(|name| tracefs.has("kvm", name));
        let inhibit = inhibit.map(|name| tracefs.format("kvm", name)).transpose()?;
        debug!(event = inhibit.as_ref().map(|format| format.name.as_str()), "inhibit changes");

        let fields = inhibit.as_ref().map(|format| InhibitFields::new(format, Some(tracefs))).transpose()?;
        let decoder = Decoder::new(&exit, &entry, fields)?;
        let events: Vec<_> = [&exit, &entry].into_iter().chain(&inhibit).collect();
        let bytes = options.exits_per_thread.saturating_mul(BYTES_PER_EXIT);
        let sampler = TracepointSampler::open(&events, threads, bytes)?;
        let carried = threads.iter().map(|_| Carried::default()).collect();
        Ok(Self { sampler, decoder, carried, sees_inhibits: inhibit.is_some() })
    }

    /// Tests whether this kernel reports inhibit changes; if not, [`ThreadExits::inhibits`] stays empty.
    #[must_use]
    pub fn sees_inhibits(&self) -> bool {
        self.sees_inhibits
    }

    /// Starts counting.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&mut self) -> Result<(), Error> {
        self.carried.iter_mut().for_each(Carried::interrupt);
        self.sampler.enable()
    }

    /// Stops counting.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&mut self) -> Result<(), Error> {
        self.sampler.disable()
    }

    /// The exits since the last drain by thread, in the order in which the threads were given. Losses are exact after
    /// [`Self::disable`]; before, some may only be reported by the next drain.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn drain(&mut self) -> Result<Vec<ThreadExits>, Error> {
        let drained = self.sampler.drain()?;
        let exit = self.decoder.exit_id;
        let decode = |(samples, carried): (&crate::ThreadSamples, &mut Carried)| {
            let exits = samples.total(exit).map_or(0, |total| total.count);
            self.decoder.decode(samples.thread, samples.records(), exits, carried)
        };
        Ok(drained.iter().zip(&mut self.carried).map(decode).collect())
    }
}
