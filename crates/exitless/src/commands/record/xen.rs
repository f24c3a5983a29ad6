//! `exitless record` on a host of Xen.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use exits::Span;
use files::Replacement;
use traces::exitless::{Packing, Summary, WriteError, Writer, write_profile};
use traces::{AccessRecord, ExitRecord, Sink, Sums};

use super::{Course, Recorded, header};
use crate::commands::xen::{Following, XenHost};

const STEP: Duration = Duration::from_millis(20);

/// The interval of flushing, which limits the loss if this process is killed.
const FLUSH: Duration = Duration::from_secs(1);

/// Writes exits, and remembers their domains.
struct Keeper {
    writer: Writer<File>,
    domains: BTreeSet<u32>,
    flushed: Instant,
    /// The first error; `failed` is set with it, for the waiting thread.
    failure: Option<WriteError>,
    failed: Arc<AtomicBool>,
}

impl Sink for Keeper {
    const WANTS_ACCESSES: bool = true;

    fn exit(&mut self, exit: &ExitRecord) {
        self.exit_with(exit, &[]);
    }

    fn exit_with(&mut self, exit: &ExitRecord, accesses: &[AccessRecord]) {
        self.domains.extend(exit.vcpu.vm);
        self.writer.exit_with(exit, accesses);
        if self.failure.is_none() && self.flushed.elapsed() >= FLUSH {
            self.flushed = Instant::now();
            self.failure = self.writer.flush().err();
            self.failed.store(self.failure.is_some(), Ordering::Relaxed);
        }
    }
}

/// Records every exit until `course` ends.
pub(super) fn record(mut host: XenHost, output: &Path, course: &mut Course) -> anyhow::Result<Recorded> {
    let cannot = || format!("Could not write {}", output.display());
    let mut place = Replacement::begin(output, 0o666).with_context(cannot)?;
    let file = place.file().try_clone().with_context(cannot)?;
    let mut about = header(host.isa())?;
    about.isa = host.control.isa;
    // The records' times are ticks of Xen's TSC since the processors' start.
    (about.clock, about.start_ns) = (Some("TSC".to_owned()), None);
    let writer = Writer::new(file.try_clone().with_context(cannot)?, &about).with_context(cannot)?;
    // An older recording is replaced only now; this one exists from here on, however it ends.
    place.place().with_context(cannot)?;
    let failed = Arc::new(AtomicBool::new(false));
    let keeper = Keeper {
        writer,
        domains: BTreeSet::new(),
        flushed: Instant::now(),
        failure: None,
        failed: Arc::clone(&failed),
    };
    let following = host.follow(keeper)?;
    let seconds = wait(&following, &failed, course)?;
    let (reading, mut keeper) = following.finish()?;
    warn(&reading.warnings);
    let losses = reading.profile.losses;
    let summary = Summary {
        losses,
        names: host.names_of(&std::mem::take(&mut keeper.domains)),
        events: reading.profile.events,
        last_ns: reading.profile.span.map(|span| span.last_ns),
    };
    let so_far = keeper.writer.written();
    let (written, failure) = match keeper.writer.finish(summary) {
        Ok(written) => (written, keeper.failure),
        Err(error) => (so_far, Some(error)),
    };
    let mut whole = failure.is_none() && reading.damage.is_none();
    if let Some(error) = failure {
        // Readers ignore an incomplete end as well.
        let _ = file.set_len(written.bytes);
        tracing::error!("{:#}", anyhow::Error::new(error));
    } else if let Err(error) = place.finish() {
        tracing::error!("{} did not reach the disk: {error}", output.display());
        whole = false;
    }
    Ok(Recorded::new(output, whole, seconds, written, losses))
}

/// Records sums until `course` ends.
pub(super) fn profile(mut host: XenHost, output: &Path, course: &mut Course) -> anyhow::Result<Recorded> {
    let cannot = || format!("Could not write {}", output.display());
    let first_ns = live::monotonic_ns();
    let mut about = header(host.isa())?;
    about.isa = host.control.isa;
    // Errors of writing are found before hours have passed.
    let new = Replacement::begin(output, 0o666).with_context(cannot)?;
    let following = host.follow(Sums::default())?;
    let seconds = wait(&following, &AtomicBool::new(false), course)?;
    let (reading, sums) = following.finish()?;
    warn(&reading.warnings);
    let mut profile = sums.take();
    profile.losses = reading.profile.losses;
    profile.events = reading.profile.events;
    profile.span = Some(Span { first_ns, last_ns: live::monotonic_ns() });
    host.name(&mut profile);
    about.names = profile.names.clone();
    write_profile(new.file(), &about, &profile, Packing::Zstd).with_context(cannot)?;
    let bytes = new.file().metadata().map_or(0, |file| file.len());
    new.finish().with_context(cannot)?;
    Ok(Recorded {
        file: output.to_owned(),
        whole: reading.damage.is_none(),
        seconds,
        exits: profile.total(),
        not_written: 0,
        bytes,
        losses: profile.losses,
    })
}

/// Waits for the end, and returns the elapsed seconds.
fn wait<S: Send + 'static>(
    following: &Following<S>,
    failed: &AtomicBool,
    course: &mut Course,
) -> anyhow::Result<f64> {
    while !following.has_ended() && !failed.load(Ordering::Relaxed) && course.wait(STEP)? {}
    Ok(course.began.elapsed().as_secs_f64())
}

fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}
