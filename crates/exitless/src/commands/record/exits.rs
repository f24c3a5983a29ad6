//! Records every exit to a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use exits::Losses;
use live::{LiveAccess, LiveExit, Recorder};
use traces::exitless::{Summary, WriteError, Writer};
use traces::{AccessRecord, ExitRecord, Sink};

use super::{Course, Recorded, begin, header};
use crate::commands::watching::NamesAside;

/// The interval of reading the kernel's buffer, which holds 200,000 exits.
const STEP: Duration = Duration::from_millis(20);
/// The interval of flushing, which limits the loss if this process is killed.
const FLUSH: Duration = Duration::from_secs(1);

/// The recording in progress.
struct Recording {
    writer: Writer<File>,
    names: BTreeMap<u32, String>,
    /// The VMs that had exits since names were last asked for.
    vms: BTreeSet<u32>,
    accesses: Vec<AccessRecord>,
    without_time: u64,
}

/// Records until `course` ends, or until the file cannot grow.
pub(super) fn record(mut recorder: Recorder, output: &Path, course: &mut Course) -> anyhow::Result<Recorded> {
    let names = NamesAside::start()?;
    // The second handle is for truncating an incomplete record when the disk is full.
    let (place, file, writer) = begin(output, &header(recorder.isa())?, course, Ok)?;
    let mut recording = Recording {
        writer,
        names: BTreeMap::new(),
        vms: BTreeSet::new(),
        accesses: Vec::new(),
        without_time: 0,
    };
    recorder.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    let mut flushed = Instant::now();
    let mut failure = None;
    while failure.is_none() && course.wait(STEP)? {
        recorder.drain(&mut |exit, accesses| recording.take(exit, accesses));
        if flushed.elapsed() >= FLUSH {
            flushed = Instant::now();
            recording.names.extend(names.of(std::mem::take(&mut recording.vms)));
            failure = recording.flush(recorder.lost()?).err();
        }
    }
    let seconds = course.began.elapsed().as_secs_f64();
    let lost = recorder.finish(&mut |exit, accesses| recording.take(exit, accesses))?;
    let mut summary = recording.summary(lost);
    summary.names.extend(names.last(std::mem::take(&mut recording.vms)));
    let losses = summary.losses;
    let so_far = recording.writer.written();
    let (written, failure) = match recording.writer.finish(summary) {
        Ok(written) => (written, failure),
        Err(error) => (so_far, Some(error)),
    };
    let (written, whole) = match failure {
        None => match place.finish() {
            Ok(()) => (written, true),
            Err(error) => {
                tracing::error!("{} did not reach the disk: {error}", output.display());
                (written, false)
            }
        },
        Some(error) => {
            let written = match &error {
                WriteError::Store { written, .. } => *written,
                _ => written,
            };
            // Ignore an error: readers skip an incomplete record at the end.
            let _ = file.set_len(written.bytes);
            tracing::error!("{:#}", anyhow::Error::new(error));
            (written, false)
        }
    };
    Ok(Recorded::new(output, whole, seconds, written, losses))
}

impl Recording {
    fn take(&mut self, exit: &LiveExit, accesses: &[LiveAccess]) {
        self.vms.extend(exit.vcpu.vm);
        self.without_time += u64::from(exit.handling_ns.is_none());
        self.accesses.clear();
        let each = accesses.iter();
        self.accesses
            .extend(each.map(|&LiveAccess { access, handling_ns }| AccessRecord { access, handling_ns }));
        let record = ExitRecord {
            time_ns: exit.time_ns,
            vcpu: exit.vcpu,
            cpu: exit.cpu,
            reason: exit.reason,
            guest_rip: 0,
            access: AccessRecord::last_of_exit(&self.accesses),
            handling_ns: exit.handling_ns,
        };
        self.writer.exit_with(&record, &self.accesses);
    }

    fn flush(&mut self, lost: Losses) -> Result<(), WriteError> {
        let summary = self.summary(lost);
        self.writer.set_summary(summary);
        self.writer.flush()
    }

    fn summary(&self, lost: Losses) -> Summary {
        // An exit at the end of its thread, or of the recording, has no entry to be lost.
        let exits_without_entry = self.without_time.saturating_sub(lost.exits_at_the_end);
        let losses = Losses { exits_without_entry, ..lost };
        Summary {
            losses,
            names: self.names.clone(),
            last_ns: Some(live::monotonic_ns()),
            ..Summary::default()
        }
    }
}
