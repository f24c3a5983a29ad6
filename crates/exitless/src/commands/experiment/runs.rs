//! The runs of a study: the folder that keeps them, and making them here, over ssh, or in a lab.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use guests::GuestFiles;
use host::Fingerprint;
use study::engine::{Conclusion, Here, HostLock, Kept, Past, ToldReasons, carry_out, refuse_left_over};
use study::plan::Plan;
use study::store::Store;
use study::target::{Event, Patience, Settings, Ssh, Target, coordinate};

use super::{SERVE, lab_target, words};
use crate::console::{self, StatusLine};
use crate::status::Usage;

/// Refuses a target that cannot be, before anything is written or started.
pub(in crate::commands) fn check_target(target: &Target, ssh_config: Option<&Path>) -> anyhow::Result<()> {
    if let Target::Lab { name, arguments } = target {
        lab_target::check(name, arguments)?;
    }
    // With this word ssh reads no configuration (ssh(1), -F).
    match ssh_config.filter(|file| *file != Path::new("none") && !file.exists()) {
        Some(file) => Err(Usage(format!("{}: no such configuration of ssh", file.display())).into()),
        None => Ok(()),
    }
}

/// Creates the folder of a study, or opens one that has a part of it, and reports damage.
pub(in crate::commands) fn open(
    folder: &Path,
    plan: &Plan,
    text: &str,
    target: &str,
) -> anyhow::Result<Store> {
    let store = Store::open(folder, plan, text, target, chance())?;
    tell_damage(&store);
    Ok(store)
}

/// Lists on standard error the damage that was found in the folder of a study.
pub(in crate::commands) fn tell_damage(store: &Store) {
    for warning in store.warnings() {
        console::say(format_args!("exitless: {warning}"));
    }
}

/// Lists on standard error what a session could not undo.
pub(in crate::commands) fn tell_not_undone(conclusion: &Conclusion) {
    for what in &conclusion.not_undone {
        console::say(format_args!(
            "exitless: not undone: {what}; run `exitless restore`, then the same command"
        ));
    }
}

/// Makes the missing runs on the target.
pub(in crate::commands) fn make_runs(
    store: &mut Store,
    target: &Target,
    ssh_config: Option<&Path>,
    allow_unlike: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Conclusion> {
    match target {
        Target::Local => here(store, allow_unlike, stop),
        target => elsewhere(store, target, ssh_config, allow_unlike, stop),
    }
}

fn here(store: &mut Store, allow_unlike: bool, stop: &Arc<AtomicBool>) -> anyhow::Result<Conclusion> {
    let place = tempfile::Builder::new().prefix("exitless-study-").tempdir_in(place());
    let place = place.context("Could not create a folder for the guests")?;
    // Before the rig, which undoes its changes when it is dropped.
    let warn = &mut |line: String| tracing::warn!("{line}");
    let Some(_lock) = HostLock::take(store.plan(), stop, warn)? else { return Ok(Conclusion::default()) };
    let mut rig = Here::new(place.path(), Box::new(|folder| files(folder, stop)));
    refuse_left_over(&mut rig)?;
    let fingerprint = Fingerprint::read(Path::new("/")).context("Could not read this host")?;
    store.begin(&fingerprint, None, allow_unlike)?;
    let line = StatusLine::new();
    let plan: Plan = store.plan().clone();
    let (seed, past) = (store.seed(), Past::new(&plan, store.runs(), store.failed()));
    let mut show = words::runs(&line);
    let mut sink = Kept { store, on_progress: &mut show, told: ToldReasons::default() };
    Ok(carry_out(&plan, seed, past, &mut rig, &mut sink, stop)?)
}

fn elsewhere(
    store: &mut Store,
    target: &Target,
    ssh_config: Option<&Path>,
    allow_unlike: bool,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Conclusion> {
    let id = format!("{:x}", chance());
    let patience = Patience::of(store.plan());
    let line = StatusLine::new();
    let mut show = words::runs(&line);
    let mut told = ToldReasons::default();
    let mut on_event = |event: Event<'_>| match event {
        Event::Progress(progress) => show(progress),
        Event::Kept(run) => {
            if let Some(text) = told.of(run) {
                tracing::warn!("{text}");
            }
        }
        Event::Warning(text) => tracing::warn!("{text}"),
    };
    match target {
        Target::Ssh { destination, port } => {
            let serve = SERVE.map(str::to_owned).to_vec();
            line.step(format!("Asking {destination} for the runs"));
            let ssh_config = ssh_config.map(Path::to_owned);
            let mut ssh = Ssh::new(destination, *port, ssh_config, serve, Arc::clone(stop));
            let settings = Settings { study: &id, emulated: None, allow_unlike, patience };
            Ok(coordinate(store, &mut ssh, settings, stop, &mut on_event)?)
        }
        Target::Lab { name, arguments } => {
            let (mut remote, emulated) = lab_target::make_ready(name, arguments, store.plan(), stop)?;
            // The request must be the same each time a study with a seed is made, so derive the ID from the
            // seed.
            let id = store.plan().order.seed.map_or(id, |seed| format!("{seed:x}"));
            let settings = Settings { study: &id, emulated: Some(&emulated), allow_unlike, patience };
            line.step(format!("Starting the emulated host {name}"));
            Ok(coordinate(store, &mut remote, settings, stop, &mut on_event)?)
        }
        Target::Local => Err(Usage("local is not another machine".to_owned()).into()),
    }
}

/// The folder for guests' and scripts' files. Not /tmp, because guests' disks are large and /tmp may be a
/// tmpfs.
pub(super) fn place() -> PathBuf {
    let large = PathBuf::from("/var/tmp");
    std::env::var_os("TMPDIR").map(PathBuf::from).unwrap_or(if large.is_dir() {
        large
    } else {
        std::env::temp_dir()
    })
}

/// The files of the guest image, which is built first if necessary.
pub(super) fn files(folder: &Path, stop: &Arc<AtomicBool>) -> Result<GuestFiles, String> {
    let mut progress = crate::console::BuildProgress::new();
    let image = super::super::guest::image(&mut progress, stop);
    drop(progress);
    image.and_then(|image| super::super::guest::files(image, folder)).map_err(|error| format!("{error:#}"))
}

/// A random seed for a plan without one. Below 2^53, so that every JSON reader keeps it exact.
pub(in crate::commands) fn chance() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    // The standard library seeds its hashers with the system's random numbers.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 11
}
