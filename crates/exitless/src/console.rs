//! Standard error: log lines, and the progress of long work.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{IsTerminal, Write as _};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::{Progress, Step};
use terminal_size::{Height, Width, terminal_size, terminal_size_of};
use tracing::Level;

use crate::background_log::Log;
use crate::log_lines::{self, LogLines};

/// Log lines of the requested levels.
pub(crate) fn log_to_standard_error(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(Log);
    // Otherwise it would report a failed write to standard error on standard error, and panic: after a hang-up of the
    // terminal, in the middle of the cleanup.
    let lines = lines.log_internal_errors(false);
    let form = if log_lines::is_for_journal() { LogLines::Journal } else { LogLines::People };
    lines.event_format(form).init();
}

/// Shows the progress of building a laboratory: a bar on a terminal, otherwise a line for each step.
pub(crate) struct BuildProgress {
    bar: ProgressBar,
    step: Option<Step>,
    /// Steps for which a line was printed: two parallel builds alternate between theirs.
    said: Vec<Step>,
}

impl BuildProgress {
    pub(crate) fn new() -> Self {
        Self {
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
            step: None,
            said: Vec::new(),
        }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        if self.step != Some(progress.step) {
            self.step = Some(progress.step);
            self.begin(progress.step);
        }
        if progress.total > 0 {
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
        }
    }

    fn begin(&mut self, step: Step) {
        let (what, counted) = match step {
            Step::Waiting => ("Waiting for another build", "{spinner} {msg} ({elapsed})"),
            Step::Lists => ("Reading Debian's package lists", "{spinner} {msg}"),
            Step::Download => ("Downloading packages", "{msg} [{bar:30}] {bytes}/{total_bytes} {eta}"),
            Step::Unpack => ("Unpacking packages", "{msg} [{bar:30}] {pos}/{len}"),
            Step::Assemble => ("Building kernel, modules and disk", "{msg} [{bar:30}] {pos}/{len}"),
            Step::Compile => ("Compiling the emulator", "{msg} [{bar:30}] {pos}/{len}"),
            Step::SelfTest => ("Self-test: booting the emulator", "{spinner} {msg} ({elapsed})"),
            Step::Snapshot => {
                ("Booting for the snapshot that runs start from", "{spinner} {msg} ({elapsed})")
            }
        };
        if self.bar.is_hidden() {
            if !self.said.contains(&step) {
                self.said.push(step);
                say(what);
            }
            return;
        }
        let style = ProgressStyle::with_template(counted).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.progress_chars("=> "));
        self.bar.set_message(what);
        self.bar.reset();
        self.bar.enable_steady_tick(Duration::from_millis(200));
    }
}

impl Drop for BuildProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The width of tables on standard output, in columns.
pub(crate) fn width() -> usize {
    let columns = |size: Option<(Width, Height)>| size.map(|(width, _)| usize::from(width.0));
    let own = columns(terminal_size_of(std::io::stdout()));
    let said = std::env::var("COLUMNS").ok().and_then(|value| value.parse().ok());
    width_of(own, said, || columns(terminal_size()))
}

/// The width of standard output if it is a terminal, else COLUMNS, else that of another stream's terminal: a pager may
/// show the table there.
fn width_of(own: Option<usize>, said: Option<usize>, others: impl FnOnce() -> Option<usize>) -> usize {
    own.or(said).or_else(others).unwrap_or(80)
}

/// Tests whether standard output may be coloured: on a terminal that knows escape sequences, unless NO_COLOR is set.
pub(crate) fn colour() -> bool {
    let [no_color, terminal] = ["NO_COLOR", "TERM"].map(std::env::var_os);
    std::io::stdout().is_terminal() && allows_colour(no_color, terminal)
}

fn allows_colour(no_color: Option<OsString>, terminal: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty()) && terminal.is_none_or(|kind| kind != "dumb")
}

/// Tests whether the locale uses Unicode, with POSIX's precedence of the variables.
pub(crate) fn shows_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The text of a table, with symbols in ASCII if the locale does not use Unicode.
pub(crate) fn shown(text: String) -> String {
    if shows_unicode() { text } else { report::with_ascii_symbols(&text) }
}

/// Writes to standard error without control characters, and ends the last line. Nobody can be told that this failed, and
/// the work goes on.
pub(crate) fn say(text: impl Display) {
    say_at(Level::INFO, text);
}

/// As [`say`], with a priority for systemd's journal: without one in front of each line, the text could bring its own.
pub(crate) fn say_at(level: Level, text: impl Display) {
    let before = if log_lines::is_for_journal() { log_lines::priority(level) } else { String::new() };
    let text = lines(&before, &text.to_string());
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The text with `before` in front of each line, without control characters and with an end of the last line.
pub(crate) fn lines(before: &str, text: &str) -> String {
    let text = harmless(text).replace('\n', &format!("\n{before}"));
    format!("{before}{text}\n")
}

/// Replaces control characters except line ends and tabs: names from files and other programs are part of messages.
pub(crate) fn harmless(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(exits::printable).collect::<Vec<_>>().join("\t");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The current step of long work on standard error: on a terminal one line that is overwritten, otherwise a
/// line for each step.
pub(crate) struct StatusLine {
    bar: ProgressBar,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Begins a step.
    pub(crate) fn step(&self, text: impl Into<String>) {
        let text = text.into();
        if self.bar.is_hidden() {
            say(&text);
        }
        self.show(text);
    }

    /// Shows details of the current step, only on a terminal.
    pub(crate) fn show(&self, text: impl Into<String>) {
        let text: String = text.into();
        self.bar.set_message(harmless(&text));
    }

    /// Shows the progress of a measurement, with `before` in front of each text; each new operation is a
    /// step.
    pub(crate) fn measurement(&self, before: &str) -> impl FnMut(prove::Progress) {
        let mut present = None;
        move |progress| {
            let text = format!("{before}{progress}");
            if present.replace(progress.measure) == Some(progress.measure) {
                self.show(text);
            } else {
                self.step(text);
            }
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows what the program waits for, if that takes longer than a moment: on a terminal until it is over,
/// elsewhere as one line.
pub(crate) struct Waiting {
    watcher: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

const MOMENT: Duration = Duration::from_secs(1);
/// Longer than [`MOMENT`], because a printed line cannot be removed again.
const LONG_MOMENT: Duration = Duration::from_secs(5);

impl Waiting {
    /// Begins to wait for `what`, such as "Reading perf.data".
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let moment = if std::io::stderr().is_terminal() { MOMENT } else { LONG_MOMENT };
        let (end, ended) = mpsc::channel::<()>();
        let what = what.into();
        let watcher = std::thread::spawn(move || {
            // No message is ever sent: the channel disconnects when the wait is over.
            if ended.recv_timeout(moment) != Err(mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            let line = StatusLine::new();
            line.step(what);
            let _ = ended.recv();
        });
        Self { watcher: Some((end, watcher)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((end, watcher)) = self.watcher.take() {
            drop(end);
            // The thread only draws, so ignore its failure.
            let _ = watcher.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_decides_unless_standard_output_is_a_terminal() {
        let (terminal, said, other) = (Some(200), Some(120), || Some(90));
        assert_eq!(width_of(terminal, said, other), 200);
        assert_eq!(width_of(None, said, other), 120);
        assert_eq!(width_of(None, None, other), 90, "`exitless report | less`");
        assert_eq!(width_of(None, None, || None), 80);
    }

    #[test]
    fn control_characters_are_replaced_except_line_ends_and_tabs() {
        assert_eq!(harmless("\n\ta\u{1b}]0;x\u{7}\r\nb\u{9b}\n"), "\n\ta\u{fffd}]0;x\u{fffd}\nb\u{fffd}");
    }

    #[test]
    fn each_line_has_its_priority() {
        assert_eq!(
            lines("<3>", "cannot start\n<0>kernel: \u{1b}c\n"),
            "<3>cannot start\n<3><0>kernel: \u{fffd}c\n"
        );
        assert_eq!(lines("", "\na\n"), "\na\n");
    }

    #[test]
    fn a_terminal_without_escape_sequences_gets_no_colour() {
        let allows = |no_color: Option<&str>, terminal: Option<&str>| {
            allows_colour(no_color.map(OsString::from), terminal.map(OsString::from))
        };
        assert!(allows(None, Some("xterm")) && allows(Some(""), None));
        assert!(!allows(None, Some("dumb")) && !allows(Some("1"), Some("xterm")));
    }
}
