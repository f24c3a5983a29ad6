//! The state file of a running monitor, replaced atomically.

use super::view::total;
use super::{Decided, Figures, Layout, MONITOR_FORMAT, Step, VmFigures};
use files::{Directory, Missing, Replacement};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The default path of the state file.
pub const STATE: &str = "/run/exitless/iocm-monitor.json";
/// The number of decisions that are kept.
const DECISIONS: usize = 20;
/// The largest valid state file, bytes.
const LARGEST: u64 = 64 << 20;

/// A running monitor, as the state file shows it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// [`MONITOR_FORMAT`].
    pub format: u32,
    /// The PID of the monitor.
    pub pid: i32,
    /// The start time of the process, in clock ticks since boot.
    pub start_ticks: u64,
    /// The target that it acts on.
    pub target: String,
    /// True in a dry run.
    pub dry_run: bool,
    /// Seconds between two decisions.
    pub every: f64,
    /// The time at which this was written, in seconds since 1970.
    pub time: f64,
    /// The figures of the last period; `None` in trouble.
    pub figures: Option<Figures>,
    /// The queues by core: the core's number, or `anywhere`.
    pub queues: BTreeMap<String, Vec<String>>,
    /// Each worker's share of its time on requests, by core, 0 to 1.
    pub loads: BTreeMap<String, f64>,
    /// The VMs in the last period.
    #[serde(default)]
    pub vms: Vec<VmFigures>,
    /// The reason why VM exits are not counted.
    #[serde(default)]
    pub exits_missing: Option<String>,
    /// The VMs that are left alone, with the reason.
    pub notes: Vec<String>,
    /// The reason why the monitor does nothing.
    pub trouble: Option<String>,
    /// The last decisions, the newest last.
    pub decisions: VecDeque<Decided>,
}

/// A failure to read the state file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoState {
    /// The file does not exist or cannot be read.
    #[error("Cannot read the state of a monitor at {path}; start one with `exitless iocm monitor`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not a state file of this format.
    #[error("{path} is not the state of a monitor: {why}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        why: String,
    },
}

impl State {
    /// A monitor of this process that has decided nothing yet.
    #[must_use]
    pub fn new(root: &Path, target: String, dry_run: bool, every: f64) -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        let start_ticks = start_of(root, pid).unwrap_or_default();
        Self { format: MONITOR_FORMAT, pid, start_ticks, target, dry_run, every, ..Self::default() }
    }

    /// Updates the state with the result of a period. `name_of` returns the name of a queue.
    pub fn take(&mut self, time: f64, step: &Step, name_of: impl Fn(u32) -> String) {
        self.time = time;
        if let Some(seen) = &step.seen {
            self.figures = Some(Figures::of(seen));
            self.notes.clone_from(&seen.notes);
            self.vms = VmFigures::of(seen);
            self.exits_missing.clone_from(&seen.exits_missing);
            self.trouble = None;
            self.queues = step.layout.named(&name_of);
            self.loads = Layout::of(&seen.view)
                .0
                .iter()
                .map(|(&core, queues)| {
                    let own = seen.view.queues.iter().filter(|queue| queues.contains(&queue.number));
                    (Layout::core_name(core), total(own.map(|queue| queue.useful)))
                })
                .collect();
        }
        if let Some(decided) = &step.said {
            if decided.trouble.is_some() {
                (self.figures, self.exits_missing, self.trouble) = (None, None, decided.trouble.clone());
                self.vms.clear();
                self.queues.clear();
                self.loads.clear();
                self.notes.clear();
            }
            self.decisions.push_back(decided.clone());
            if self.decisions.len() > DECISIONS {
                self.decisions.pop_front();
            }
        }
    }

    /// Writes the file atomically: readers see the old file or the new one.
    ///
    /// # Errors
    /// When the file or its directory cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        // The directory may belong to the daemon's user, who could place a symlink there.
        let new =
            Replacement::within(Self::directory(path, Missing::Made(0o755))?, Self::name(path)?, 0o644)?;
        new.file().write_all(&serde_json::to_vec(self)?)?;
        new.swap()
    }

    /// Removes the file.
    ///
    /// # Errors
    /// When it does not exist or cannot be removed.
    pub fn remove(path: &Path) -> io::Result<()> {
        Self::directory(path, Missing::Refused)?.remove(Self::name(path)?)
    }

    fn directory(path: &Path, missing: Missing) -> io::Result<Directory> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Directory::open(above, missing).map_err(files::Error::into_io)
    }

    fn name(path: &Path) -> io::Result<&OsStr> {
        Ok(path.file_name().ok_or(io::ErrorKind::InvalidInput)?)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`NoState`].
    pub fn read(path: &Path) -> Result<Self, NoState> {
        let unread = |source| NoState::Read { path: path.to_owned(), source };
        let bytes = files::regular(path).and_then(|file| files::read(&file, LARGEST)).map_err(unread)?;
        let no = |why: String| NoState::Format { path: path.to_owned(), why };
        let state: Self = serde_json::from_slice(&bytes).map_err(|error| no(error.to_string()))?;
        if state.format == MONITOR_FORMAT {
            Ok(state)
        } else {
            Err(no(format!("it has format {}, and this exitless reads {MONITOR_FORMAT}", state.format)))
        }
    }

    /// Tests whether the monitor still runs.
    #[must_use]
    pub fn is_alive(&self, root: &Path) -> bool {
        start_of(root, self.pid).is_some_and(|start| start == self.start_ticks)
    }
}

fn start_of(root: &Path, pid: i32) -> Option<u64> {
    host::scheduling::ThreadId { pid, tid: pid }.start_ticks(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::Seen;
    use crate::{PolicyState, QueueView, Reason, Settings, View, WorkerView, decide};
    use std::fs;

    #[test]
    fn what_is_written_is_read_and_no_more_decisions_than_that_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/state.json");
        let mut state = State::new(Path::new("/"), "vhost".to_owned(), true, 0.1);
        for time in 0..50 {
            let decided = Decided { time: f64::from(time), ..Decided::default() };
            let step = Step { said: Some(decided), ..Step::default() };
            state.take(f64::from(time), &step, |queue| format!("{queue}"));
        }
        state.write(&path).unwrap();
        let read = State::read(&path).unwrap();
        assert_eq!(read, state);
        assert_eq!((read.decisions.len(), read.decisions.back().unwrap().time), (DECISIONS, 49.0));
        assert!(read.is_alive(Path::new("/")));
        assert!(!State { start_ticks: read.start_ticks + 1, ..read }.is_alive(Path::new("/")));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_decision_about_queues_without_a_worker_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let queue = QueueView { number: 0, worker: 4, node: None, useful: 0.1, requests: 0.0, bytes: 0.0 };
        let view = View { queues: vec![queue], ..View::default() };
        let reason = decide(&Settings::default(), &mut PolicyState::default(), &view).reason;
        assert_eq!(reason, Reason::Uneven { most: 0.0, least: 0.0 });
        let decided = Decided { reason: Some(reason), ..Decided::default() };
        let state = State { format: MONITOR_FORMAT, decisions: [decided].into(), ..State::default() };
        state.write(&path).unwrap();
        assert_eq!(State::read(&path).unwrap(), state);
    }

    #[test]
    fn a_place_without_queues_has_no_load_of_minus_nothing() {
        let worker = WorkerView { number: 0, core: Some(3), useful: 0.0 };
        let seen = Seen { view: View { workers: vec![worker], ..View::default() }, ..Seen::default() };
        let mut state = State::new(Path::new("/"), "vhost".to_owned(), true, 0.1);
        state.take(0.0, &Step { seen: Some(seen), ..Step::default() }, |queue| format!("{queue}"));
        assert_eq!(state.loads.into_values().map(|load| load.to_string()).collect::<Vec<_>>(), ["0"]);
    }

    #[test]
    fn in_trouble_nothing_that_was_seen_before_is_shown() {
        let worker = WorkerView { number: 0, core: Some(3), useful: 0.0 };
        let view = View { workers: vec![worker], ..View::default() };
        let seen = Seen { view, notes: vec!["left alone".to_owned()], ..Seen::default() };
        let layout = Layout::of(&seen.view);
        let mut state = State::new(Path::new("/"), "vhost".to_owned(), true, 0.1);
        let before = state.clone();
        state.take(0.0, &Step { seen: Some(seen), layout, said: None }, |queue| format!("{queue}"));
        assert!(!state.queues.is_empty() && !state.loads.is_empty());
        let decided = Decided { trouble: Some("gone".to_owned()), ..Decided::default() };
        let step = Step { said: Some(decided), ..Step::default() };
        state.take(0.0, &step, |queue| format!("{queue}"));
        let (decisions, trouble) = (state.decisions.clone(), Some("gone".to_owned()));
        assert_eq!(state, State { decisions, trouble, ..before });
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_a_fifo_is_not_waited_at() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["state.json", "other"].map(|name| directory.path().join(name));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        State::default().write(&path).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        State::remove(&path).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert!(matches!(State::read(&path), Err(NoState::Read { .. })));
    }

    #[test]
    fn what_is_no_state_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert!(matches!(State::read(&path), Err(NoState::Read { .. })));
        fs::write(&path, "{}").unwrap();
        assert!(State::read(&path).unwrap_err().to_string().contains("missing field"));
        let newer = State { format: 9, ..State::default() };
        newer.write(&path).unwrap();
        assert!(State::read(&path).unwrap_err().to_string().contains("format 9"));
    }
}
