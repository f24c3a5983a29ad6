//! The log of a program whose threads may not wait for the reader of standard error, such as a terminal that is stopped.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// The number of lines that wait for a slow reader. Further lines are dropped.
const LINES_WAITING: usize = 256;
/// The text in place of dropped lines, after their number.
const DROPPED: &str = " lines of the log were dropped here, because its reader was too slow";
/// The longest wait for a slow reader before the process ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that writes, once there is one.
static BACKGROUND: OnceLock<Background> = OnceLock::new();

/// Lets a thread write all further lines of the log, and messages of panics: the usual ones would wait for the reader.
pub(crate) fn begin() -> anyhow::Result<()> {
    let background = Background::start(io::stderr()).context("Could not start a thread that logs")?;
    if BACKGROUND.set(background).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!("Thread {} {panic}", std::thread::current().name().unwrap_or("?"));
        }));
    }
    Ok(())
}

/// Waits until all lines are written, or for [`PATIENCE`].
pub(crate) fn flush() {
    if let Some(background) = BACKGROUND.get() {
        background.write(&[], PATIENCE);
    }
}

/// Makes writers for lines of the log.
pub(crate) struct Log;

/// Writes one line.
pub(crate) struct Line(Duration);

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Duration::ZERO)
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line {
        // The process may end after an error.
        Line(if *about.level() == Level::ERROR { PATIENCE } else { Duration::ZERO })
    }
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match BACKGROUND.get() {
            Some(background) => background.write(line, self.0),
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct Background {
    /// Lines, each with what is dropped when it is written.
    lines: SyncSender<(Vec<u8>, SyncSender<()>)>,
    dropped: AtomicU64,
}

impl Background {
    fn start(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, to_write) = sync_channel::<(Vec<u8>, SyncSender<()>)>(LINES_WAITING);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            for (line, _written) in to_write {
                // There is nowhere to report a failure of the log.
                let _ = out.write_all(&line);
            }
        })?;
        Ok(Self { lines, dropped: AtomicU64::new(0) })
    }

    /// Lets a line be written, and waits for that up to `patience`. If too many lines wait, it is dropped, and another line
    /// says how many were.
    fn write(&self, line: &[u8], patience: Duration) {
        let end = Instant::now() + patience;
        let (written, is_written) = sync_channel(0);
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        let mut text = Vec::new();
        if dropped > 0 {
            text.extend_from_slice(format!("{dropped}{DROPPED}\n").as_bytes());
        }
        text.extend_from_slice(line);
        let mut message = (text, written);
        while let Err(TrySendError::Full(back)) = self.lines.try_send(message) {
            if Instant::now() >= end {
                self.dropped.fetch_add(dropped + u64::from(!line.is_empty()), Ordering::Relaxed);
                return;
            }
            message = back;
            std::thread::sleep(Duration::from_millis(10));
        }
        if !patience.is_zero() {
            // Nothing is sent: the channel closes.
            let _ = is_written.recv_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A reader that reads nothing until a channel closes.
    struct Slow(Receiver<()>, Sender<String>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_is_not_waited_for_and_the_log_says_how_many_lines_were_dropped() {
        let ((reads, read), (sender, lines)) = (channel(), channel());
        let background = Background::start(Slow(read, sender)).unwrap();
        for _ in 0..LINES_WAITING + 10 {
            background.write(b"line\n", Duration::ZERO);
        }
        drop(reads);
        background.write(b"last\n", Duration::from_secs(60));
        let text: String = lines.try_iter().collect();
        let dropped = text.lines().filter_map(|line| line.strip_suffix(DROPPED)?.parse::<usize>().ok());
        let (dropped, written) = (dropped.sum::<usize>(), text.matches("line\n").count());
        assert_eq!(dropped + written, LINES_WAITING + 10);
        // The thread holds one besides those that wait.
        assert!(dropped >= 9 && text.ends_with("last\n"), "{text}");
    }
}
