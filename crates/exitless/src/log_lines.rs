//! The form of log lines: for people, or for systemd's journal, which takes the priority from each line (sd-daemon(3)).

use std::fmt;
use std::os::unix::fs::MetadataExt as _;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::console;

/// Tests whether standard error is a stream of the journal: `JOURNAL_STREAM` has its device and inode (systemd.exec(5)).
pub(crate) fn is_for_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM");
    // Standard error itself, whatever path it was opened by.
    let own = std::fs::metadata("/proc/self/fd/2");
    matches!((stream, own), (Ok(stream), Ok(own)) if names(&stream, own.dev(), own.ino()))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    stream == format!("{device}:{inode}")
}

/// Writes events, with the level before each line.
pub(crate) enum LogLines {
    /// ` WARN message`.
    People,
    /// `<4>message`: the journal takes the number as the priority, and adds the time itself.
    Journal,
}

impl<S, N> FormatEvent<S, N> for LogLines
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
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        // Messages contain text of others, of which no line may look like another event.
        let text = text.trim_end().replace('\n', "\n  ");
        let level = *event.metadata().level();
        let before = match self {
            Self::People => format!("{level:>5} "),
            Self::Journal => priority(level),
        };
        writer.write_str(&console::lines(&before, &text))
    }
}

/// The priority before a line of the journal, with the numbers of syslog(3).
pub(crate) fn priority(level: Level) -> String {
    let number = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    format!("<{number}>")
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

    fn logged(lines: LogLines, events: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .event_format(lines)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, events);
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_begin_with_their_level() {
        let events = || {
            tracing::error!("disk {} is gone", "d0");
            tracing::warn!(vcpu = 1, "slow");
            tracing::info!("ready");
            tracing::debug!("kicked");
        };
        assert_eq!(
            logged(LogLines::Journal, events),
            "<3>disk d0 is gone\n<4>slow vcpu=1\n<6>ready\n<7>kicked\n"
        );
        assert_eq!(
            logged(LogLines::People, events),
            "ERROR disk d0 is gone\n WARN slow vcpu=1\n INFO ready\nDEBUG kicked\n"
        );
    }

    #[test]
    fn text_of_others_is_no_other_event_and_cannot_control_a_terminal() {
        let event = || tracing::warn!(of = %"y\n<0>z\u{202e}", "a\n<0>b\r\u{e}\u{202e}c\r\n\n");
        let safe = |before: &str| {
            format!(
                "{before}a\n{before}  <0>b\u{fffd}\u{fffd}\u{fffd}c\n{before}  \n{before}   of=y\n\
                 {before}  <0>z\u{fffd}\n"
            )
        };
        assert_eq!(logged(LogLines::Journal, event), safe("<4>"));
        assert_eq!(logged(LogLines::People, event), safe(" WARN "));
    }

    #[test]
    fn only_the_stream_of_the_journal_is_one() {
        assert!(names("9:1234", 9, 1234));
        for other in ["9:1235", "8:1234", "", "9", "9:1234 "] {
            assert!(!names(other, 9, 1234), "{other}");
        }
    }
}
