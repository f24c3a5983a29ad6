//! Programs whose answer is short and must come soon, whatever the machine at the other end does.

use std::io;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use guest::Ending;
use guest::pipes::{self, Sink};

use crate::Output;

/// The bytes that are kept of each output.
const LARGEST: usize = 64 << 10;

#[derive(Debug, Default)]
struct Kept {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    status: Option<i32>,
}

#[derive(Debug, Default)]
struct Answer {
    kept: Mutex<Kept>,
    ended: Condvar,
}

impl Answer {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rest is read and dropped, so that a full pipe does not block the program.
fn keep(kept: &mut Vec<u8>, bytes: &[u8]) {
    let room = LARGEST.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
}

impl Sink for Answer {
    fn stdout(&self, bytes: &[u8]) {
        keep(&mut self.lock().stdout, bytes);
    }

    fn stderr(&self, bytes: &[u8]) {
        keep(&mut self.lock().stderr, bytes);
    }

    fn ended(&self, status: i32, _at_ns: u64) {
        self.lock().status = Some(status);
        self.ended.notify_all();
    }
}

/// The first 64 KiB of each of a program's outputs, and its status. What it left in the background is not
/// waited for.
///
/// # Errors
/// Where it does not start. [`io::ErrorKind::TimedOut`] if it does not end within `patience`; it is killed.
pub(super) fn answer(command: Command, patience: Duration) -> io::Result<Output> {
    let answer = Arc::new(Answer::default());
    let mut piped = pipes::start(command, &answer)?;
    // Ends its input. One that has ended already does not take it.
    let _ = guest::Line::release(&mut piped);
    let runs = |kept: &mut Kept| kept.status.is_none();
    let waited = answer.ended.wait_timeout_while(answer.lock(), patience, runs);
    let kept = std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0);
    let Some(status) = kept.status else {
        // The thread that waits for its end reaps it.
        piped.signal(Ending::Kill)?;
        let why = format!("it had not ended after {:.1} s and was killed", patience.as_secs_f64());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Output { status, stdout: text(kept.stdout), stderr: text(kept.stderr) })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::testing::{LONG, ends};

    fn shell(script: &str, patience: Duration) -> io::Result<Output> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        answer(command, patience)
    }

    #[test]
    fn the_beginnings_of_both_outputs_are_kept_and_neither_blocks() {
        let million = "head -c 1000000 /dev/zero";
        let output = shell(&format!("{million} >&2; {million}; exit 3"), LONG).unwrap();
        assert_eq!((output.status, output.stdout.len(), output.stderr.len()), (3, LARGEST, LARGEST));
    }

    #[test]
    fn what_never_ends_is_killed_although_it_prints() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("pid");
        for program in ["sleep 1000", "yes", "yes >&2"] {
            let script = format!("echo $$ > {}; exec {program}", mark.display());
            let begun = Instant::now();
            let error = shell(&script, Duration::from_millis(500)).unwrap_err();
            assert!(begun.elapsed() < LONG / 2, "{program}: {:?}", begun.elapsed());
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{program}: {error}");
            assert!(error.to_string().contains("after 0.5 s"), "{error}");
            assert!(ends(&std::fs::read_to_string(&mark).unwrap()), "{program}");
        }
    }

    #[test]
    fn what_is_left_in_the_background_is_not_waited_for() {
        let begun = Instant::now();
        let output = shell("sleep 100 & echo 4", LONG).unwrap();
        assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
        assert_eq!(output.stdout, "4\n");
    }
}
