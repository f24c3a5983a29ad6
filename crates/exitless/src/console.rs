//! Standard error: log lines, and how far long work has come.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lab::{Progress, Step};
use tracing::Level;

/// Log lines of the levels that were asked for.
pub(crate) fn log_to_standard_error(verbose: u8) {
    let level = match verbose {
        0 => Level::WARN,
        1 => Level::INFO,
        _ => Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}

/// Shows the progress of building a laboratory: a bar on a terminal, a line a step elsewhere.
pub(crate) struct BuildProgress {
    bar: ProgressBar,
    step: Option<Step>,
}

impl BuildProgress {
    pub(crate) fn new() -> Self {
        Self { bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()), step: None }
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

    fn begin(&self, step: Step) {
        let (what, counted) = match step {
            Step::Lists => ("Reading Debian's package lists", "{spinner} {msg}"),
            Step::Download => ("Downloading packages", "{msg} [{bar:30}] {bytes}/{total_bytes} {eta}"),
            Step::Unpack => ("Unpacking packages", "{msg} [{bar:30}] {pos}/{len}"),
            Step::Assemble => ("Making kernel, modules and disk", "{msg} [{bar:30}] {pos}/{len}"),
            Step::SelfTest => ("Self-test: booting the emulator", "{spinner} {msg} ({elapsed})"),
        };
        if self.bar.is_hidden() {
            eprintln!("{what}");
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

/// How wide tables on standard output may be, in columns.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

/// Whether standard output may be coloured: on a terminal, unless NO_COLOR is set.
pub(crate) fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// One line on standard error that is written over again: the present run of a measurement.
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

    pub(crate) fn show(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
