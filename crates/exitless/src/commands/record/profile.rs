//! Records only totals, for any duration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use exits::Profile;
use files::Replacement;
use live::Collector;
use traces::exitless::{Header, Packing, fit, write_profile};
use traces::merge_bounded_accesses;

use super::{Course, Recorded, header};
use crate::commands::watching::NamesAside;

const STEP: Duration = Duration::from_millis(100);
/// The least interval of reading the kernel's counts. Readings are up to a step later, and slices of the timeline are at least
/// as long as the longest: a power of two nanoseconds.
const INTERVAL: Duration = Duration::from_millis(950);
const _: () = assert!(INTERVAL.as_nanos() + STEP.as_nanos() < 1 << 30);
/// The interval of writing the file, which limits the loss if this process is killed.
const STORE: Duration = Duration::from_secs(60);

/// Counts until `course` ends, and rewrites the file at intervals.
pub(super) fn record(
    mut collector: Collector,
    output: &Path,
    course: &mut Course,
) -> anyhow::Result<Recorded> {
    // Counting has begun, so that the first interval contains the time to write the first file.
    let mut taken = Instant::now();
    let mut header = header(collector.isa())?;
    collector.missing().iter().for_each(|missing| tracing::warn!("{missing}"));
    let names = NamesAside::start()?;
    let mut profile = Profile::new();
    // Write once now: an error should not come after hours.
    let mut kept = Kept::new(output);
    kept.store_and(&header, &mut profile, || course.start())?;
    while course.wait(STEP)? {
        if taken.elapsed() >= INTERVAL {
            taken = Instant::now();
            add(&mut kept, &mut profile, &mut collector, &names)?;
        }
        if kept.is_due() {
            kept.store_again(&header, &mut profile);
        }
    }
    let seconds = course.began.elapsed().as_secs_f64();
    let last = collector.finish()?;
    kept.add(&mut profile, &last);
    name(&mut profile, names.last(vms_of(&last)));
    header.names = profile.names.clone();
    Ok(kept.end(&header, &mut profile, seconds))
}

fn add(
    kept: &mut Kept<'_>,
    profile: &mut Profile,
    collector: &mut Collector,
    names: &NamesAside,
) -> anyhow::Result<()> {
    let interval = collector.take()?;
    kept.add(profile, &interval);
    name(profile, names.of(vms_of(&interval)));
    Ok(())
}

fn vms_of(profile: &Profile) -> impl Iterator<Item = u32> {
    profile.vcpus().iter().filter_map(|exits| exits.vcpu.vm)
}

/// Adds names. A VM keeps its first one, as in [`Profile::merge`].
fn name(profile: &mut Profile, names: BTreeMap<u32, String>) {
    for (vm, name) in names {
        profile.names.entry(vm).or_insert(name);
    }
}

/// The file, the number of exits in it, and the time at which it was last to be written.
pub(super) struct Kept<'o> {
    output: &'o Path,
    exits: u64,
    stored: Instant,
    /// The VMs with exits since the file was last stored, and between the two times before.
    running: [BTreeSet<u32>; 2],
    /// What is added up because the profile would be too large otherwise, as the user was told.
    told: BTreeSet<&'static str>,
}

impl<'o> Kept<'o> {
    pub(super) fn new(output: &'o Path) -> Self {
        Self { output, exits: 0, stored: Instant::now(), running: Default::default(), told: BTreeSet::new() }
    }

    /// Adds exits to the totals.
    pub(super) fn add(&mut self, profile: &mut Profile, exits: &Profile) {
        // A guest can touch any number of addresses within hours, so bound their number.
        merge_bounded_accesses(profile, exits);
        self.running[0].extend(vms_of(exits));
    }

    /// Tests whether a kill would lose more than [`STORE`].
    pub(super) fn is_due(&self) -> bool {
        self.stored.elapsed() >= STORE
    }

    /// Stores the totals so far. On a full disk the previous file remains.
    pub(super) fn store_again(&mut self, header: &Header, profile: &mut Profile) {
        self.stored = Instant::now();
        if let Err(error) = self.store(header, profile) {
            tracing::warn!("{error:#}; trying again in a minute");
        }
    }

    /// Stores all totals.
    pub(super) fn end(mut self, header: &Header, profile: &mut Profile, seconds: f64) -> Recorded {
        let stored = self.store(header, profile).inspect_err(|error| tracing::error!("{error:#}"));
        Recorded {
            file: self.output.to_owned(),
            whole: stored.is_ok(),
            seconds,
            exits: self.exits,
            not_written: profile.total() - self.exits,
            bytes: std::fs::metadata(self.output).map_or(0, |file| file.len()),
            losses: profile.losses,
        }
    }

    /// Replaces the file atomically, so that there is always a complete one.
    fn store(&mut self, header: &Header, profile: &mut Profile) -> anyhow::Result<()> {
        self.store_and(header, profile, || Ok(()))
    }

    /// Adds up what would make the file too large to be read, in the totals themselves: they would grow without a limit on a
    /// host where VMs come and go.
    fn fit(&mut self, profile: &mut Profile) {
        let summed = fit(profile, |vm| self.running.iter().any(|vms| vms.contains(&vm)));
        let running = std::mem::take(&mut self.running[0]);
        self.running[1] = running;
        if let Some(what) = summed.filter(|&what| self.told.insert(what)) {
            tracing::warn!(
                "{} would be too large for readers, so {what} are summed up in it from now on",
                self.output.display()
            );
        }
    }

    /// Like [`Self::store`], and calls `written` before the old file is replaced.
    pub(super) fn store_and(
        &mut self,
        header: &Header,
        profile: &mut Profile,
        written: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.fit(profile);
        let cannot = || format!("Could not write {}", self.output.display());
        let new = Replacement::begin(self.output, 0o666).with_context(cannot)?;
        write_profile(new.file(), header, profile, Packing::Zstd).with_context(cannot)?;
        written()?;
        new.finish().with_context(cannot)?;
        self.exits = profile.total();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, Vcpu};

    #[test]
    fn exits_that_came_after_the_last_file_are_not_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("there");
        std::fs::create_dir(&place).unwrap();
        let output = place.join("night.profile");
        let with = |count| {
            let mut profile = Profile::new();
            profile.vcpu(Vcpu::default()).reasons.entry(ExitReason::vmx(12)).or_default().count = count;
            profile
        };
        let mut kept = Kept::new(&output);
        kept.store(&Header::default(), &mut with(5)).unwrap();
        assert_eq!(kept.exits, 5);
        std::fs::remove_dir_all(&place).unwrap();
        let started = || -> anyhow::Result<()> { unreachable!("there is no place for the recording") };
        kept.store_and(&Header::default(), &mut with(9), started).unwrap_err();
        assert_eq!(kept.exits, 5);
    }
}
