//! Applying the levels of an arm on the host, and undoing them.

use std::path::{Path, PathBuf};

use exits::with_causes;
use knobs::{
    Actions, After, Change, Changes, Entry, Lasting, Made, Outcome, Restore, RestoredChange, restore,
};

use super::level::setting_path;
use super::modules::{self, Wanted};
use super::{ApplyError, CommandPair, Level, Setting, cpufreq};

/// The changes of the host for the current arm. All are in the journal of the crate `knobs`: [`Self::undo`], a drop and
/// a panic undo them, and after a kill `exitless restore` does.
#[derive(Debug)]
pub struct HostLevels<A: Actions> {
    root: PathBuf,
    command: Vec<String>,
    actions: A,
    /// Created with the first change: a study that changes nothing needs no rights to write a journal.
    changes: Option<Changes<A>>,
    /// The modules that were loaded again.
    loaded: Vec<String>,
    /// Lines about changes that remain of levels that could not be applied.
    left: Vec<String>,
}

impl<A: Actions + Clone> HostLevels<A> {
    /// Prepares changes of the host below `root` (`/`). `command` is the command line to record in the journal.
    #[must_use]
    pub fn new(root: &Path, actions: A, command: Vec<String>) -> Self {
        Self { root: root.to_owned(), command, actions, changes: None, loaded: Vec::new(), left: Vec::new() }
    }

    /// Applies the levels of one arm. Each value is read back and compared.
    ///
    /// # Errors
    /// [`ApplyError`]; then the changes made so far are undone, and the next [`Self::undo`] returns those that remain.
    pub fn apply(&mut self, levels: &[&Level]) -> Result<(), ApplyError> {
        let made = self.apply_all(levels);
        if made.is_err() {
            self.left = self.undo();
        }
        made
    }

    /// Undoes all changes, the newest first; returns a line for each change that remains.
    pub fn undo(&mut self) -> Vec<String> {
        let mut lines = std::mem::take(&mut self.left);
        let Some(changes) = &mut self.changes else { return lines };
        for module in self.loaded.drain(..) {
            // The kernel destroys a VM later than its process. A module that stays in use is told below.
            let _ = modules::wait_until_free(&self.root, &module);
        }
        lines.extend(changes.release().into_iter().filter_map(|(entry, outcome)| left(&entry, &outcome)));
        lines
    }

    /// Changes of other sessions of this command that are in force, a line for each: those that a running process holds,
    /// and those that `exitless restore` would undo or could not examine. Values that others have changed since are left
    /// out. So are scripts, as they may already have been undone; a warning names them. If the journal cannot be read,
    /// the reason; empty for users who may not read it.
    pub fn left_over(&mut self) -> Vec<String> {
        let only_look = Restore { dry_run: true, ..Restore::default() };
        let found = match restore(&self.root, &mut self.actions, only_look) {
            Ok(found) => found,
            Err(error) if may_not_read(&error) => return Vec::new(),
            Err(error) => return vec![with_causes(&error)],
        };
        for damage in found.damage.iter().filter(|damage| !damage.cut) {
            tracing::warn!(
                "A change of an earlier session may be in force, for the journal is damaged: {damage}"
            );
        }
        let ours = found.changes.into_iter().filter(|change| change.entry.command == self.command);
        let mut left_out: Vec<Entry> = Vec::new();
        ours.filter_map(|RestoredChange { entry, outcome }| match outcome {
            Outcome::WouldUndo => Some(not_undone(&entry, "its process ended before")),
            Outcome::ChangedSince { .. } => {
                left_out.push(entry);
                None
            }
            // It waits for a later change, whose value others have changed.
            Outcome::Failed { .. } if left_out.iter().any(|later| later.has_object_of(&entry)) => None,
            Outcome::Failed { why } => Some(not_undone(&entry, &why)),
            Outcome::Held { pid } if i64::from(pid) == i64::from(std::process::id()) => {
                Some(not_undone(&entry, "an earlier study of this command left it"))
            }
            Outcome::Held { pid } => Some(format!(
                "process {pid} holds change {}, because it makes or ends a study: wait until it has ended",
                entry.id
            )),
            Outcome::Script { script } => {
                let id = entry.id;
                tracing::warn!(
                    "An earlier session did not run the script that undoes change {id}, which \
                     `exitless restore --run-scripts` does: {script}"
                );
                None
            }
            Outcome::Undone | Outcome::Already { .. } => None,
        })
        .collect()
    }

    fn apply_all(&mut self, levels: &[&Level]) -> Result<(), ApplyError> {
        for (module, wanted) in modules::wanted(levels)? {
            self.set_module(&module, &wanted)?;
        }
        let files = levels.iter().flat_map(|level| &level.files).map(|(path, value)| (path.clone(), value));
        let settings = levels.iter().flat_map(|level| &level.kernel_settings);
        let settings = settings.filter_map(|(name, value)| Some((setting_path(name)?, value)));
        for (path, value) in files.chain(settings) {
            self.set_file(path, value)?;
        }
        for frequency in levels.iter().filter_map(|level| level.frequency.as_ref()) {
            for step in cpufreq::steps(&self.root, frequency)? {
                match step {
                    cpufreq::Step::File { path, value } => self.set_file(path, &Setting::Text(value))?,
                    cpufreq::Step::Program { run, undo } => {
                        self.make(Change::Command { run: Some(run), undo: Some(undo) }).map(drop)?;
                    }
                }
            }
            cpufreq::check(&self.root, frequency)?;
        }
        for pair in levels.iter().flat_map(|level| &level.commands) {
            let change =
                Change::Command { run: limited(pair, &pair.before), undo: limited(pair, &pair.after) };
            self.make(change).map_err(|error| ApplyError::of_command(pair, error))?;
        }
        Ok(())
    }

    fn set_module(&mut self, module: &str, wanted: &Wanted) -> Result<(), ApplyError> {
        let differing = modules::differing(&self.root, module, wanted)?;
        if differing.is_empty() {
            return Ok(());
        }
        if modules::writable(&self.root, module, &differing) {
            for (name, value) in differing {
                self.set_file(host::parameter_path(module, &name), &value)?;
            }
            return Ok(());
        }
        modules::wait_until_free(&self.root, module)?;
        let mut parameters: knobs::Parameters =
            wanted.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
        parameters.extend(modules::cleared(&self.root, module, wanted, &differing));
        self.make(Change::Load { module: module.to_owned(), parameters })?;
        self.loaded.push(module.to_owned());
        match modules::differing(&self.root, module, wanted)?.into_iter().next() {
            None => Ok(()),
            Some((name, value)) => Err(ApplyError::NotTaken {
                what: format!("{name} of the module {module}"),
                asked: value.to_string(),
                found: modules::found(&self.root, module, &name),
            }),
        }
    }

    fn set_file(&mut self, path: String, value: &Setting) -> Result<(), ApplyError> {
        let made = self.make(Change::Value { path: path.clone(), value: value.to_string() })?;
        match made {
            Made::Changed(entry) => match entry.after() {
                Some(After::Value { value: found }) if !value.is(found) => {
                    Err(ApplyError::NotTaken { what: path, asked: value.to_string(), found: found.clone() })
                }
                _ => Ok(()),
            },
            Made::AlreadySo => Ok(()),
        }
    }

    fn make(&mut self, change: Change) -> Result<Made, knobs::Error> {
        let changes = match &mut self.changes {
            Some(changes) => changes,
            none => none.insert(Changes::begin(&self.root, self.actions.clone(), self.command.clone())?),
        };
        changes.make(change, Lasting::WhileHeld)
    }
}

/// Tests whether this user may not read the journal, and so has made no changes.
fn may_not_read(error: &knobs::Error) -> bool {
    match error {
        knobs::Error::JournalOfRoot => true,
        knobs::Error::JournalRead { source, .. } | knobs::Error::JournalWrite { source, .. } => {
            // Not if the error is our own, about a file that somebody else may have written.
            source.kind() == std::io::ErrorKind::PermissionDenied && source.raw_os_error().is_some()
        }
        _ => false,
    }
}

/// A script under timeout(1), so that the journal contains the limit and `exitless restore` applies it too.
fn limited(pair: &CommandPair, script: &str) -> Option<Vec<String>> {
    let seconds = format!("{:.3}", pair.limit.duration().as_secs_f64());
    Some(["timeout", "--kill-after=10", &seconds, "sh", "-c", script].map(str::to_owned).to_vec())
}

/// A line about the change if it could not be undone, with the reason.
fn left(entry: &Entry, outcome: &Result<Outcome, knobs::Error>) -> Option<String> {
    let why = match outcome {
        Ok(Outcome::ChangedSince { what }) => format!("others changed it since: {what}"),
        Ok(Outcome::Failed { why }) => why.clone(),
        Ok(Outcome::Held { pid }) => format!("process {pid} holds it"),
        Ok(Outcome::Script { script }) => format!("a script undoes it: {script}"),
        Ok(Outcome::Undone | Outcome::Already { .. } | Outcome::WouldUndo) => return None,
        Err(error @ knobs::Error::JournalUndone { .. }) => return Some(with_causes(error)),
        Err(error) => with_causes(error),
    };
    Some(not_undone(entry, &why))
}

fn not_undone(entry: &Entry, why: &str) -> String {
    format!("Change {} was not undone, see `exitless restore --dry-run`: {why}", entry.id)
}

#[cfg(test)]
#[path = "host_levels_tests.rs"]
mod tests;
