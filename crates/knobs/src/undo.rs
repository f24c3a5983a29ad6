//! Undoes one change.

use crate::change::numbers;
use crate::error::Error;
use crate::present::present;
use crate::{
    Actions, After, Before, Change, Content, Entry, FileState, Journal, Parameters, file, module, value,
};
use rustix::thread::CpuSet;
use serde::Serialize;
use std::path::Path;

/// The result of an attempt to undo a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The change is undone.
    Undone,
    /// There is nothing to undo.
    Already {
        /// Why.
        why: String,
    },
    /// Others changed the object since, so it is left alone. With force it is undone anyway.
    ChangedSince {
        /// The present state.
        what: String,
    },
    /// The process of the change still runs, and will undo it.
    Held {
        /// The process.
        pid: i32,
    },
    /// The change would be undone.
    WouldUndo,
    /// Undoing needs the script of a plan, which runs only if the user asks for it.
    Script {
        /// The script.
        script: String,
    },
    /// The change could not be undone.
    Failed {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// The journal's word for the outcome if nothing is left to undo, otherwise `None`.
    pub(crate) fn settled(&self) -> Option<&'static str> {
        match self {
            Self::Undone => Some("undone"),
            Self::Already { .. } => Some("already"),
            _ => None,
        }
    }

    /// Tests whether the change stays although it should be undone.
    pub(crate) fn left(&self) -> bool {
        matches!(
            self,
            Self::ChangedSince { .. } | Self::Held { .. } | Self::Script { .. } | Self::Failed { .. }
        )
    }
}

/// The message about a file whose directory is missing too.
const GONE: &str = "is gone with its directory";

/// Tests whether an undone change may be removed from the journal. A command that generates files from others stays while
/// later changes are left: it must run again when those are undone.
pub(crate) fn forget(entry: &Entry, something_left: bool) -> bool {
    !(something_left && matches!(entry.change, Change::Command { undo: Some(_), .. }))
}

/// Tests whether there is something to undo: [`Outcome::WouldUndo`], [`Outcome::Already`] or [`Outcome::ChangedSince`].
pub(crate) fn examine(root: &Path, actions: &impl Actions, entry: &Entry) -> Result<Outcome, Error> {
    examine_after(root, actions, entry, None)
}

/// Does the same as [`examine`], for the time when a later change of the same object is undone: `then` is the state before
/// that one.
pub(crate) fn examine_after(
    root: &Path,
    actions: &impl Actions,
    entry: &Entry,
    then: Option<&Before>,
) -> Result<Outcome, Error> {
    let already = |why: &str| Ok(Outcome::Already { why: why.to_owned() });
    let now = match then {
        // There is nothing to compare the present state with.
        _ if entry.before == Before::Unknown => Ok(Before::Unknown),
        Some(then) if *then != Before::Unknown => Ok(then.clone()),
        _ => present(root, actions, &entry.change),
    };
    match (&entry.change, &entry.before, now) {
        (Change::Value { path, .. }, ..) if !file::path(root, path)?.exists() => {
            already("the kernel has the file no more")
        }
        (Change::Affinity { .. }, _, Err(Error::ThreadGone { .. })) => already("the thread has ended"),
        (Change::Command { undo: None, .. }, ..) => already("it needs no undoing"),
        (Change::Command { undo: Some(undo), .. }, Before::Shown { sha256: old }, now) => {
            compare_shown(undo, now, old, entry.after())
        }
        (_, _, Err(error)) => Err(error),
        (
            Change::File { path, content },
            Before::File { file: old, .. },
            Ok(Before::File { file: now, .. }),
        ) => {
            let now = now.as_ref().map(|file| &file.content);
            match compare_files(path, now, content, old.as_ref()) {
                // The directory may be on a file system that is not mounted now.
                Outcome::ChangedSince { .. } if file::place(root, path)?.is_gone() => {
                    let next = "mount its file system, or forget the change with --force";
                    Ok(Outcome::ChangedSince { what: format!("{path} {GONE}; {next}") })
                }
                found => Ok(found),
            }
        }
        (Change::Value { path, .. }, Before::Value { value: old }, Ok(Before::Value { value: now })) => {
            if now != *old && lost_all_cpus(root, path, entry.after()) {
                return Ok(Outcome::WouldUndo);
            }
            Ok(compare(path, &now, old, entry.after()))
        }
        (
            Change::Load { module, .. },
            Before::Module { parameters: old },
            Ok(Before::Module { parameters: now }),
        ) => Ok(compare_modules(module, now.as_ref(), old.as_ref(), entry)),
        (
            Change::Affinity { tid, .. },
            Before::Affinity { cpus: old, unlimited },
            Ok(Before::Affinity { cpus: now, .. }),
        ) => {
            if now != *old && is_still(root, *tid, entry.after(), &now) {
                return Ok(Outcome::WouldUndo);
            }
            match compare(&format!("the CPUs of thread {tid}"), &now, old, entry.after()) {
                // Its control group has got other CPUs since.
                Outcome::ChangedSince { .. } if *unlimited && is_unlimited(root, *tid, &now) => {
                    already(&format!("thread {tid} has all CPUs of its control group"))
                }
                found => Ok(found),
            }
        }
        (Change::Command { undo: Some(undo), .. }, ..)
            if crate::kernel_install::commands(root, undo).is_empty() =>
        {
            let what = "no installed kernel has a boot entry; mount the boot partition".to_owned();
            Ok(Outcome::ChangedSince { what })
        }
        _ => Ok(Outcome::WouldUndo),
    }
}

/// Undoes a change of the journal, and records there the undoing of modules. May be repeated after an
/// interruption.
pub(crate) fn undo_recorded(
    journal: &Journal,
    actions: &mut impl Actions,
    entry: &Entry,
    force: bool,
) -> Result<Outcome, Error> {
    let root = journal.root();
    let found = match entry.change {
        Change::Load { .. } => Some(examine(root, actions, entry)?),
        _ => None,
    };
    // Announce it: a module that was removed but not loaded again would otherwise look like a change by
    // others.
    let announced = matches!(found, Some(Outcome::WouldUndo))
        || force && matches!(found, Some(Outcome::ChangedSince { .. }));
    if announced {
        journal.undoing(entry)?;
    }
    let undone = undo(root, actions, entry, force);
    if let (true, true, Some(after)) = (announced, undone.is_err(), entry.after()) {
        // Nothing was changed, for instance because the module is in use. Withdraw the announcement, or a later
        // restore would overwrite a module that others have loaded.
        if examine(root, actions, entry).ok() == found {
            journal.done(entry, after)?;
        }
    }
    undone
}

/// Undoes a change. May be repeated after an interruption.
pub(crate) fn undo(
    root: &Path,
    actions: &mut impl Actions,
    entry: &Entry,
    force: bool,
) -> Result<Outcome, Error> {
    let found = examine(root, actions, entry)?;
    let needed =
        matches!(found, Outcome::WouldUndo) || force && matches!(found, Outcome::ChangedSince { .. });
    match (&entry.change, &entry.before) {
        (Change::File { path, .. }, Before::File { file: old, missing }) => {
            let place = file::place(root, path)?;
            if needed && old.is_some() && place.is_gone() {
                return Ok(Outcome::Already { why: GONE.to_owned() });
            }
            if needed {
                // Keep the present owner and permissions: others may have changed them.
                let now = if force { None } else { file::look(&place)? };
                match old {
                    Some(old) => {
                        file::replace(&place, &old.content, now.as_ref().or(Some(old)), entry.id)?;
                    }
                    None => file::remove(&place)?,
                }
            }
            // Even if the file did not change: the change may have been cut short before the rename.
            file::clear(&place, entry.id)?;
            file::remove_directories(root, missing)?;
        }
        _ if !needed => {}
        (Change::Value { path, .. }, Before::Value { value: old }) => {
            value::write_back(&file::path(root, path)?, old)?;
        }
        (Change::Load { module, parameters }, Before::Module { parameters: old }) => match old {
            None => module::unload(root, actions, module)?,
            Some(old) => {
                let first = first_given(parameters, old, entry.after());
                module::give_back(root, actions, module, old, first)?;
            }
        },
        (Change::Command { undo: Some(command), .. }, _) => module::run(root, actions, command)?,
        (Change::Affinity { tid, .. }, Before::Affinity { unlimited: true, .. }) => {
            // Since Linux 6.2 the kernel keeps the CPUs that are set here, and a thread never gets others when its control
            // group does (kernel/sched/core.c, user_cpus_ptr). It cuts them to those that the group has now.
            actions.set_affinity(*tid, &format!("0-{}", CpuSet::MAX_CPU - 1))?;
        }
        (Change::Affinity { tid, .. }, Before::Affinity { cpus: old, .. }) => {
            actions.set_affinity(*tid, old)?;
        }
        _ => {}
    }
    Ok(if needed { Outcome::Undone } else { found })
}

fn compare_files(path: &str, now: Option<&Content>, new: &Content, old: Option<&FileState>) -> Outcome {
    let old = old.map(|old| &old.content);
    if now == old {
        Outcome::Already { why: format!("{path} is as it was") }
    } else if now == Some(new) {
        Outcome::WouldUndo
    } else if now.is_none() {
        Outcome::ChangedSince { what: format!("{path} was removed") }
    } else {
        Outcome::ChangedSince { what: format!("{path} has other content") }
    }
}

/// Compares what a program prints of the object of a command that `undo` undoes.
fn compare_shown(
    undo: &[String],
    now: Result<Before, Error>,
    old: &str,
    after: Option<&After>,
) -> Result<Outcome, Error> {
    match (now, after) {
        (Ok(Before::Shown { sha256: now }), _) if now == old => {
            Ok(Outcome::Already { why: "it is as it was".to_owned() })
        }
        // It is unknown whether the command ran, so assume that the state is ours.
        (Ok(_), None) => Ok(Outcome::WouldUndo),
        (Ok(Before::Shown { sha256: now }), Some(After::Shown { sha256 })) if now == *sha256 => {
            Ok(Outcome::WouldUndo)
        }
        (Err(gone @ Error::Command { .. }), _) => Ok(Outcome::ChangedSince { what: gone.to_string() }),
        (Err(error), _) => Err(error),
        _ => {
            let what = format!("`{}` would replace what others made", undo.join(" "));
            Ok(Outcome::ChangedSince { what })
        }
    }
}

fn compare(what: &str, now: &str, old: &str, after: Option<&After>) -> Outcome {
    match after {
        _ if now == old => Outcome::Already { why: format!("{what} is {old}") },
        // It is unknown whether the value was written, so assume that it is ours.
        None => Outcome::WouldUndo,
        Some(After::Value { value }) if value == now => Outcome::WouldUndo,
        _ => Outcome::ChangedSince { what: format!("{what} is {now}") },
    }
}

/// Tests whether a thread still has the CPUs that it was given. The kernel omits those that went offline or that the control
/// group excludes; a thread with none left gets all that there are.
fn is_still(root: &Path, tid: i32, after: Option<&After>, now: &str) -> bool {
    let limits = limits(root, tid);
    let (false, Some(After::Value { value })) = (limits.is_empty(), after) else { return false };
    let left = |list: &str| {
        let cpus = numbers(list).unwrap_or_default();
        cpus.into_iter().filter(|cpu| limits.iter().all(|limit| limit.contains(cpu))).collect::<Vec<_>>()
    };
    let given = left(value);
    given.is_empty() || given == left(now)
}

/// Tests whether a thread with these CPUs has all that are online and that its control group allows.
pub(crate) fn is_unlimited(root: &Path, tid: i32, cpus: &str) -> bool {
    let limits = limits(root, tid);
    let (Some((first, others)), Some(cpus)) = (limits.split_first(), numbers(cpus)) else { return false };
    let mut allowed = first.iter().filter(|cpu| others.iter().all(|limit| limit.contains(cpu))).peekable();
    allowed.peek().is_some() && allowed.all(|cpu| cpus.contains(cpu))
}

/// The lists of CPUs beside its affinity to which the kernel restricts a thread, as far as they can be read.
fn limits(root: &Path, tid: i32) -> Vec<Vec<usize>> {
    [online(root), of_control_group(root, tid)].into_iter().flatten().collect()
}

/// Tests whether all CPUs that an interrupt was given have gone offline. The kernel then gives it all that are online (Linux
/// kernel/irq/cpuhotplug.c, migrate_one_irq), which is no change by others.
fn lost_all_cpus(root: &Path, path: &str, after: Option<&After>) -> bool {
    let is_interrupt = path.starts_with("/proc/irq/") && path.ends_with("/smp_affinity_list");
    let (true, Some(After::Value { value }), Some(online)) = (is_interrupt, after, online(root)) else {
        return false;
    };
    numbers(value).is_some_and(|given| !given.iter().any(|cpu| online.contains(cpu)))
}

fn online(root: &Path) -> Option<Vec<usize>> {
    let text = std::fs::read_to_string(crate::under(root, "/sys/devices/system/cpu/online")).ok()?;
    numbers(text.trim())
}

/// The CPUs that its control group allows a thread: with cgroup v2 those of the nearest group that has the controller
/// `cpuset` (Documentation/admin-guide/cgroup-v2.rst), with cgroup v1 those of its group in the hierarchy of that controller
/// (cgroup-v1/cpusets.rst).
fn of_control_group(root: &Path, tid: i32) -> Option<Vec<usize>> {
    let text = std::fs::read_to_string(crate::under(root, &format!("/proc/{tid}/cgroup"))).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?.strip_prefix('/')?);
        let (home, name) = match controllers {
            "" => ("/sys/fs/cgroup", "cpuset.cpus.effective"),
            _ if controllers.split(',').any(|controller| controller == "cpuset") => {
                ("/sys/fs/cgroup/cpuset", "cpuset.effective_cpus")
            }
            _ => return None,
        };
        Path::new(group).ancestors().find_map(|group| {
            let file = Path::new(home).join(group).join(name);
            numbers(std::fs::read_to_string(crate::under(root, file.to_str()?)).ok()?.trim())
        })
    })
}

fn compare_modules(
    module: &str,
    now: Option<&Parameters>,
    old: Option<&Parameters>,
    entry: &Entry,
) -> Outcome {
    let changed = |other: Option<&Parameters>| match (now, other) {
        (None, None) => None,
        (Some(now), Some(other)) => {
            let concerned = other
                .iter()
                .find(|&(name, value)| concerns(name, old, entry) && now.get(name) != Some(value));
            concerned.map(|(name, _)| {
                let value = now.get(name).map_or("not there", String::as_str);
                format!("{module} has {name} {value}")
            })
        }
        (None, Some(_)) => Some(format!("{module} is not loaded")),
        (Some(_), None) => Some(format!("{module} is loaded")),
    };
    if changed(old).is_none() {
        return Outcome::Already { why: format!("{module} is as it was") };
    }
    match entry.after() {
        Some(After::Module { parameters: after }) => match changed(after.as_ref()) {
            Some(what) => Outcome::ChangedSince { what },
            None => Outcome::WouldUndo,
        },
        _ => Outcome::WouldUndo,
    }
}

/// Tests whether a change concerns a parameter: it passed the parameter, or the parameter had another value afterwards. If
/// the result is not known, it concerns all.
fn concerns(name: &str, old: Option<&Parameters>, entry: &Entry) -> bool {
    if let Change::Load { parameters, .. } = &entry.change
        && parameters.contains_key(name)
    {
        return true;
    }
    match (old, entry.after()) {
        (Some(old), Some(After::Module { parameters: Some(after) })) => old.get(name) != after.get(name),
        _ => true,
    }
}

/// The parameters to pass in the first try to restore a module: those that the change passed, and those that had
/// another value afterwards.
fn first_given(passed: &Parameters, old: &Parameters, after: Option<&After>) -> Parameters {
    let differs = |name: &str, value: &str| match after {
        _ if passed.contains_key(name) => true,
        Some(After::Module { parameters: Some(after) }) => after.get(name).is_some_and(|new| new != value),
        _ => false,
    };
    let chosen = old.iter().filter(|(name, value)| differs(name, value));
    chosen.map(|(name, value)| (name.clone(), value.clone())).collect()
}
