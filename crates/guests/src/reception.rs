//! The reception of one script's output, over any channel.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use guest::pipes::Sink;
use guest::{BEGAN, READY};

use crate::Output;

/// The bytes that are kept of each of a script's outputs. Tools print kilobytes.
const LARGEST_OUTPUT: usize = 64 << 20;
/// The most bytes before the first line of a waiting script: messages of the shell at its start.
const LARGEST_HEAD: usize = 64 << 10;

/// The state of a script, and its output.
#[derive(Debug, Default)]
pub(super) struct Reception {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Output before the script began.
    head: Vec<u8>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    lost: usize,
    group: Option<i32>,
    began_ns: Option<u64>,
    ended: Option<(i32, u64)>,
    broken: Option<String>,
}

/// The end of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) output: Output,
    /// `None` if it ended without having begun.
    pub(super) began_ns: Option<u64>,
    pub(super) ended_ns: u64,
}

impl Reception {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Takes bytes of standard output that arrived at a time of CLOCK_MONOTONIC.
    pub(super) fn stdout_at(&self, bytes: &[u8], at_ns: u64) {
        self.change(|state| {
            if state.began_ns.is_some() {
                keep(&mut state.stdout, &mut state.lost, bytes);
            } else {
                state.head.extend_from_slice(bytes);
                state.read_head(at_ns);
            }
        });
    }

    /// Records that the channel is broken, so nothing more will arrive.
    pub(super) fn broke(&self, why: &str) {
        self.change(|state| {
            state.broken.get_or_insert_with(|| why.to_owned());
        });
    }

    /// Waits until the script is ready, and returns its process group.
    ///
    /// # Errors
    /// A description of what arrived instead.
    pub(super) fn wait_ready(&self, patience: Duration) -> Result<i32, String> {
        self.wait(patience, |state| match (state.group, &state.ended, &state.broken) {
            (Some(group), ..) => Some(Ok(group)),
            (None, Some((status, _)), _) => {
                Some(Err(format!("the shell ended with status {status}{}", state.words())))
            }
            (None, None, Some(why)) => Some(Err(format!("{why}{}", state.words()))),
            _ => None,
        })
        .unwrap_or_else(|| Err(format!("no shell was ready within {} s", patience.as_secs())))
    }

    /// The script's end, if it arrives within `patience`.
    ///
    /// # Errors
    /// If nothing more will arrive.
    pub(super) fn wait_end(&self, patience: Duration) -> Result<Option<End>, String> {
        let end = self.wait(patience, |state| match (&state.ended, &state.broken) {
            (Some((status, ended_ns)), _) => Some(Ok(state.end(*status, *ended_ns))),
            (None, Some(why)) => Some(Err(format!("{why}{}", state.words()))),
            (None, None) => None,
        });
        end.transpose()
    }

    fn wait<T>(&self, patience: Duration, mut look: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&state) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Reception {
    fn stdout(&self, bytes: &[u8]) {
        self.stdout_at(bytes, live::monotonic_ns());
    }

    fn stderr(&self, bytes: &[u8]) {
        self.change(|state| keep(&mut state.stderr, &mut state.lost, bytes));
    }

    fn ended(&self, status: i32, at_ns: u64) {
        self.change(|state| state.ended = state.ended.or(Some((status, at_ns))));
    }
}

impl State {
    fn read_head(&mut self, at_ns: u64) {
        while let Some(end) = self.head.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.head.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if line == BEGAN && self.group.is_some() {
                self.began_ns = Some(at_ns);
                let rest = std::mem::take(&mut self.head);
                return keep(&mut self.stdout, &mut self.lost, &rest);
            }
            if let Some(group) = line.strip_prefix(READY) {
                self.group = group.parse().ok().or(self.group);
            }
        }
        if self.head.len() > LARGEST_HEAD {
            self.head.clear();
        }
    }

    fn end(&self, status: i32, ended_ns: u64) -> End {
        let mut stderr = String::from_utf8_lossy(&self.stderr).into_owned();
        if self.lost > 0 {
            stderr += &format!(
                "\nexitless: {} of output {} not kept\n",
                exits::counted(self.lost as u64, "byte"),
                exits::agree(self.lost as u64, "was", "were")
            );
        }
        let stdout = String::from_utf8_lossy(&self.stdout).into_owned();
        End { output: Output { status, stdout, stderr }, began_ns: self.began_ns, ended_ns }
    }

    /// The last lines of standard error, for a message.
    fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        match programs::last_lines(&text, 3).join("; ") {
            empty if empty.is_empty() => empty,
            words => format!(": {words}"),
        }
    }
}

fn keep(kept: &mut Vec<u8>, lost: &mut usize, bytes: &[u8]) {
    let room = LARGEST_OUTPUT.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
    *lost += bytes.len() - room;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn what_comes_before_the_script_is_not_its_output() {
        let reception = Reception::new();
        reception.stdout_at(b"Welcome\nexitless-began\nexitless-ready 42\n", 1);
        assert_eq!(reception.wait_ready(SOON), Ok(42));
        reception.stdout_at(b"exitless-began\nout", 5);
        reception.stdout_at(b"put\n", 6);
        reception.ended(3, 9);
        let end = reception.wait_end(SOON).unwrap().unwrap();
        assert_eq!((end.output.stdout.as_str(), end.output.status), ("output\n", 3));
        assert_eq!((end.began_ns, end.ended_ns), (Some(5), 9));
    }

    #[test]
    fn a_shell_that_never_waits_says_why() {
        let reception = Reception::new();
        reception.stderr(b"ssh: connect to host a port 22: Connection refused\n");
        reception.ended(255, 1);
        let refusal = reception.wait_ready(SOON).unwrap_err();
        assert!(refusal.contains("255") && refusal.contains("Connection refused"), "{refusal}");
    }

    #[test]
    fn the_end_is_kept_although_the_channel_breaks_after_it() {
        let reception = Reception::new();
        reception.ended(0, 1);
        reception.broke("gone");
        assert!(reception.wait_end(SOON).unwrap().is_some());
        assert_eq!(Reception::new().wait_end(SOON), Ok(None));
    }

    proptest! {
        #[test]
        fn any_splitting_gives_the_same_output(text in "[a-z\n]{0,60}", piece in 1usize..20) {
            let stream = format!("noise\n{READY}7\n{BEGAN}\n{text}");
            let reception = Reception::new();
            for part in stream.as_bytes().chunks(piece) {
                reception.stdout_at(part, 1);
            }
            reception.ended(0, 2);
            prop_assert_eq!(reception.wait_end(SOON).unwrap().unwrap().output.stdout, text);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            Reception::new().stdout_at(&bytes, 1);
        }
    }
}
