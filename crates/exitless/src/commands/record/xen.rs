//! `exitless record` on a Xen host.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use exits::{Losses, Profile};
use traces::exitless::{Header, Summary, WriteError, Writer};
use traces::{AccessRecord, ExitRecord, Sink, Sums};

use super::profile::Kept as KeptProfile;
use super::{Course, Recorded, begin, header};
use crate::commands::xen::{Following, XenHost};

const STEP: Duration = Duration::from_millis(20);

/// The interval of flushing, which limits the loss if this process is killed.
const FLUSH: Duration = Duration::from_secs(1);

/// The recording in progress, filled by the reader of xentrace's output.
struct Keeper<W: Write + Send>(Arc<Mutex<Kept<W>>>);

struct Kept<W: Write + Send> {
    writer: Writer<W>,
    domains: BTreeSet<u32>,
    losses: Losses,
}

impl<W: Write + Send> Sink for Keeper<W> {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        let mut kept = self.lock();
        kept.domains.extend(exit.vcpu.vm);
        kept.losses.exits_without_entry += u64::from(exit.handling_ns.is_none());
        kept.writer.exit_with(exit, accesses);
    }

    fn lost(&mut self, events: u64) {
        let losses = &mut self.lock().losses;
        losses.lost_events = losses.lost_events.saturating_add(events);
    }
}

impl<W: Write + Send> Keeper<W> {
    fn new(writer: Writer<W>) -> Self {
        Self(Arc::new(Mutex::new(Kept { writer, domains: BTreeSet::new(), losses: Losses::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, Kept<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the exits so far, with the losses and names so far.
    fn flush(&self, names: impl FnOnce(&BTreeSet<u32>) -> BTreeMap<u32, String>) -> Result<(), WriteError> {
        // Look up names without the lock: it is slow, and xentrace's buffers overflow while their reader
        // waits.
        let domains = self.lock().domains.clone();
        let names = names(&domains);
        let mut kept = self.lock();
        let losses = kept.losses;
        kept.writer.set_summary(Summary { losses, names, ..Summary::default() });
        kept.writer.flush()
    }
}

/// Records every exit until `course` ends.
pub(super) fn record(mut host: XenHost, output: &Path, course: &mut Course) -> anyhow::Result<Recorded> {
    let (place, file, (keeper, following)) = begin(output, &about(&host)?, course, |writer| {
        let keeper = Keeper::new(writer);
        let following = host.follow(Keeper(Arc::clone(&keeper.0)))?;
        Ok((keeper, following))
    })?;
    let (mut flushed, mut failure) = (Instant::now(), None);
    let seconds = wait(&following, course, || {
        if flushed.elapsed() >= FLUSH {
            flushed = Instant::now();
            failure = keeper.flush(|domains| host.names_of(domains)).err();
        }
        failure.is_none()
    })?;
    // Without the sink, which holds the writer.
    let outcome = following.finish().map(|(reading, _)| reading);
    let kept = Arc::into_inner(keeper.0).context("Xentrace's records are still being read")?;
    let Kept { writer, domains, losses } = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
    host.forget_unnamed();
    let mut summary = Summary { losses, names: host.names_of(&domains), ..Summary::default() };
    let mut whole = match outcome {
        Ok(reading) => {
            warn(&reading.warnings);
            summary.losses = reading.profile.losses;
            summary.events = reading.profile.events;
            summary.last_ns = reading.profile.span.map(|span| span.last_ns);
            reading.damage.is_none()
        }
        // xentrace has ended early: what was recorded until then is kept.
        Err(error) => {
            tracing::error!("{error:#}");
            false
        }
    };
    let losses = summary.losses;
    let so_far = writer.written();
    let (written, failure) = match writer.finish(summary) {
        Ok(written) => (written, failure),
        Err(error) => (so_far, Some(error)),
    };
    if let Some(error) = failure {
        whole = false;
        // Ignore an error: readers skip an incomplete record at the end.
        let _ = file.set_len(written.bytes);
        tracing::error!("{:#}", anyhow::Error::new(error));
    } else if let Err(error) = place.finish() {
        tracing::error!("{} did not reach the disk: {error}", output.display());
        whole = false;
    }
    Ok(Recorded::new(output, whole, seconds, written, losses))
}

/// Records totals until `course` ends, and rewrites the file at intervals.
pub(super) fn profile(mut host: XenHost, output: &Path, course: &mut Course) -> anyhow::Result<Recorded> {
    let mut about = about(&host)?;
    // Attach before the command starts, or its first exits would be missed.
    let sums = Sums::default();
    let following = host.follow(sums.clone())?;
    let mut profile = Profile::new();
    // Write once now: an error should not come after hours.
    let mut kept = KeptProfile::new(output);
    kept.store_and(&about, &mut profile, || course.start())?;
    let began = course.began;
    let mut add = |kept: &mut KeptProfile<'_>, about: &mut Header, profile: &mut Profile| {
        kept.add(profile, &sums.take());
        profile.set_length(began.elapsed().as_nanos() as u64);
        host.forget_unnamed();
        host.name(profile);
        about.names = profile.names.clone();
    };
    let seconds = wait(&following, course, || {
        if kept.is_due() {
            add(&mut kept, &mut about, &mut profile);
            kept.store_again(&about, &mut profile);
        }
        true
    })?;
    let outcome = following.finish();
    add(&mut kept, &mut about, &mut profile);
    profile.set_length(Duration::from_secs_f64(seconds).as_nanos() as u64);
    let whole = match outcome {
        Ok((reading, _)) => {
            warn(&reading.warnings);
            profile.losses = reading.profile.losses;
            profile.events = reading.profile.events;
            reading.damage.is_none()
        }
        Err(error) if profile.total() == 0 => return Err(error),
        // xentrace has ended early: what was counted until then is kept.
        Err(error) => {
            tracing::error!("{error:#}");
            false
        }
    };
    let recorded = kept.end(&about, &mut profile, seconds);
    Ok(Recorded { whole: whole && recorded.whole, ..recorded })
}

/// The facts of this host, marked as Xen even if the control domain does not say so.
fn about(host: &XenHost) -> anyhow::Result<Header> {
    let mut about = header(host.isa())?;
    about.isa = host.control.isa;
    // xentrace stamps records with TSC ticks, which have no known relation to the time of day.
    (about.clock, about.start_ns) = (Some("TSC".to_owned()), None);
    if let Some(fingerprint) = &mut about.host {
        fingerprint.hypervisor.get_or_insert_default();
    }
    Ok(about)
}

/// Waits until the recording ends or `goes_on` returns false. Returns the elapsed seconds.
fn wait<S: Send + 'static>(
    following: &Following<S>,
    course: &mut Course,
    mut goes_on: impl FnMut() -> bool,
) -> anyhow::Result<f64> {
    while !following.has_ended() && goes_on() && course.wait(STEP)? {}
    Ok(course.began.elapsed().as_secs_f64())
}

fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, Vcpu};
    use traces::{Options, Source};

    #[test]
    fn a_recording_that_is_cut_has_the_losses_and_the_names_so_far() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let to = file.reopen().unwrap();
        let mut keeper = Keeper::new(Writer::new(to, &Header::default()).unwrap());
        let exit = |time_ns| ExitRecord {
            time_ns,
            vcpu: Vcpu { vm: Some(3), number: Some(0), thread: None },
            cpu: 0,
            reason: ExitReason::vmx(12),
            guest_rip: 0,
            access: None,
            handling_ns: Some(10),
        };
        keeper.exit(&exit(100));
        keeper.lost(5);
        let named = |domains: &BTreeSet<u32>| domains.iter().map(|&one| (one, "web".to_owned())).collect();
        keeper.flush(named).unwrap();
        keeper.exit(&exit(200));
        let read = traces::read(&Source::from(file.path()), &Options::default(), &mut ()).unwrap();
        assert!(read.damage.is_some());
        assert_eq!((read.profile.total(), read.profile.losses.lost_events), (1, 5));
        assert_eq!(read.profile.names, BTreeMap::from([(3, "web".to_owned())]));
    }
}
