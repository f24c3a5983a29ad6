//! Progress as text.

use std::time::{Duration, Instant};

use exits::counted;
use report::duration;
use study::engine::{Phase, SharedReason, StudyProgress};

use crate::console::StatusLine;

/// Shows a study's progress: a step for each attempt at a run, with its phase.
pub(super) fn runs(line: &StatusLine) -> impl FnMut(&StudyProgress) {
    let mut present = None;
    let mut first: Option<(Instant, u32)> = None;
    move |progress| {
        // This program's clock: that of a lab is emulated, and tells nothing about the time that a user waits.
        let (began, before) = *first.get_or_insert_with(|| (Instant::now(), progress.done));
        let left = time_left(progress, before, began.elapsed());
        let this = Some((progress.position, progress.attempt));
        if std::mem::replace(&mut present, this) != this {
            line.step(attempt(progress, left));
        }
        line.show(phase(progress, left));
    }
}

/// The estimated time until all runs are done, by the mean of those that ended in `elapsed`, when `before` were done already.
fn time_left(progress: &StudyProgress, before: u32, elapsed: Duration) -> Option<Duration> {
    let ended = progress.done.saturating_sub(before);
    (ended > 0).then(|| (elapsed / ended).saturating_mul(progress.total.saturating_sub(progress.done)))
}

/// The line of an attempt: the run's number, its cell, and the remaining time.
fn attempt(progress: &StudyProgress, left: Option<Duration>) -> String {
    let cell = &progress.cell;
    let arm = cell.arm.values().map(String::as_str).collect::<Vec<_>>().join("+");
    let more = if progress.at_least { "+" } else { "" };
    let guests = match cell.guests {
        0 => String::new(),
        some => format!(", {}", counted(some.into(), "guest")),
    };
    let again =
        if progress.attempt > 0 { format!(", attempt {}", progress.attempt + 1) } else { String::new() };
    let left =
        left.map(|left| format!("; {} left", duration(left.as_secs_f64().round()))).unwrap_or_default();
    format!(
        "Run {} of {}{more}: {arm}{guests}, {}{again}{left}",
        progress.done + 1,
        progress.total,
        cell.workload
    )
}

/// The line of an attempt with its current phase.
fn phase(progress: &StudyProgress, left: Option<Duration>) -> String {
    let phase = match progress.phase {
        Phase::Levels => "setting levels",
        Phase::Guests => "starting guests",
        Phase::Prepare => "preparing",
        Phase::WarmUp => "warm-up",
        Phase::Run => "running",
        Phase::Repetition => "counting exits",
    };
    format!("{}: {phase}", attempt(progress, left))
}

/// Failed runs: `12 runs failed for good, 10 of them not tried (000-on-1-fio, 001-off-1-fio, ...)`.
pub(super) fn failed(reason: &SharedReason<'_>) -> String {
    const NAMED: usize = 3;
    let names: Vec<String> =
        reason.runs.iter().take(NAMED).map(|run| run.cell.folder_name(run.position)).collect();
    let more = if reason.runs.len() > NAMED { ", ..." } else { "" };
    let runs = counted(reason.runs.len() as u64, "run");
    let not_tried = match reason.not_tried {
        0 => String::new(),
        some => format!(", {some} of them not tried"),
    };
    format!("{runs} failed for good{not_tried} ({}{more})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use study::Cell;

    use super::*;

    #[test]
    fn the_remaining_time_is_of_the_runs_that_ended_here() {
        let cell = Cell { arm: BTreeMap::new(), guests: 1, workload: "w".to_owned(), block: 0 };
        let progress = |done| StudyProgress {
            position: done,
            done,
            total: 7,
            at_least: false,
            cell: cell.clone(),
            attempt: 0,
            phase: Phase::Run,
        };
        let left = |done| time_left(&progress(done), 1, Duration::from_secs(100));
        assert_eq!([1, 3, 7].map(left), [None, Some(Duration::from_secs(200)), Some(Duration::ZERO)]);
    }
}
