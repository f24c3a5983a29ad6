//! Records only totals, for any duration.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use exits::Profile;
use files::Replacement;
use live::Collector;
use traces::exitless::{Header, Packing, write_profile};
use traces::merge_bounded;

use super::{Course, Recorded, header};
use crate::commands::watching::VmNames;

const STEP: Duration = Duration::from_millis(100);
/// The interval of reading the kernel's counts; each reading becomes a point of the timeline.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval of writing the file, which limits the loss if this process is killed.
const STORE: Duration = Duration::from_secs(60);

/// Counts until `course` ends, and rewrites the file at intervals.
pub(super) fn record(
    mut collector: Collector,
    output: &Path,
    course: &mut Course,
) -> anyhow::Result<Recorded> {
    let mut header = header(collector.isa())?;
    collector.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    let mut names = VmNames::default();
    let mut profile = Profile::new();
    // Errors of writing are found before hours have passed.
    store(output, &header, &profile)?;
    let (mut taken, mut stored) = (Instant::now(), Instant::now());
    while course.wait(STEP)? {
        if taken.elapsed() >= INTERVAL {
            taken = Instant::now();
            add(&mut profile, &mut collector, &mut names)?;
        }
        if stored.elapsed() >= STORE {
            stored = Instant::now();
            // The previous file is kept if there is no space for the new one.
            if let Err(error) = store(output, &header, &profile) {
                tracing::warn!("{error:#}; trying again in a minute");
            }
        }
    }
    let seconds = course.began.elapsed().as_secs_f64();
    let mut last = collector.finish()?;
    names.name(&mut last);
    merge_bounded(&mut profile, &last);
    header.names = profile.names.clone();
    let whole = store(output, &header, &profile).inspect_err(|error| tracing::error!("{error:#}")).is_ok();
    Ok(Recorded {
        file: output.to_owned(),
        whole,
        seconds,
        exits: profile.total(),
        not_written: 0,
        bytes: std::fs::metadata(output).map_or(0, |file| file.len()),
        losses: profile.losses,
    })
}

fn add(profile: &mut Profile, collector: &mut Collector, names: &mut VmNames) -> anyhow::Result<()> {
    let mut interval = collector.take()?;
    names.name(&mut interval);
    // A guest can touch any number of addresses within hours, so bound their number.
    merge_bounded(profile, &interval);
    Ok(())
}

/// Written under another name first, so that there is always a complete file.
fn store(output: &Path, header: &Header, profile: &Profile) -> anyhow::Result<()> {
    let cannot = || format!("Could not write {}", output.display());
    let new = Replacement::begin(output, 0o666).with_context(cannot)?;
    write_profile(new.file(), header, profile, Packing::Zstd).with_context(cannot)?;
    new.finish().with_context(cannot)
}
