//! Log lines for systemd's journal, each with its priority (sd-daemon(3)).

use std::fmt;
use std::os::unix::fs::MetadataExt as _;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Tests whether standard error is a stream of the journal: `JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
pub(crate) fn is_standard_error() -> bool {
    let stream = std::env::var("JOURNAL_STREAM");
    // Standard error itself, whatever path it was opened by.
    let own = std::fs::metadata("/proc/self/fd/2");
    matches!((stream, own), (Ok(stream), Ok(own)) if names(&stream, own.dev(), own.ino()))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    stream == format!("{device}:{inode}")
}

/// Writes `<4>message`: the journal takes the number as the priority, and adds the time itself.
pub(crate) struct JournalLines;

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// The priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_begin_with_their_priority() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .event_format(JournalLines)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!("disk {} is gone", "d0");
            tracing::warn!("slow");
            tracing::info!("ready");
            tracing::debug!("kicked");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "<3>disk d0 is gone\n<4>slow\n<6>ready\n<7>kicked\n");
    }

    #[test]
    fn only_the_stream_of_the_journal_is_one() {
        assert!(names("9:1234", 9, 1234));
        for other in ["9:1235", "8:1234", "", "9", "9:1234 "] {
            assert!(!names(other, 9, 1234), "{other}");
        }
    }
}
