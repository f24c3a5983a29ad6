//! The result of `exitless iocm simulate`.

use std::fmt::Write as _;

use iocm_monitor::simulator::{PhaseOutcome, Replayed};

use crate::format::{NONE, count, share, time};
use crate::terminal::NARROWEST;
use crate::terminal::columns::{Column, drawn};
use crate::text::printable;

/// The phases of a replay with the served share of offered work, and the sums below.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(outcome: &Replayed, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let mut text = format!(
        "{}, {}, a decision every {}. Served of what was offered:\n\n",
        crate::format::counted(outcome.cores as u64, "core"),
        crate::format::counted(outcome.queues as u64, "queue"),
        time(outcome.period * 1e9)
    );
    text += &drawn(phases(outcome), width, false, colour);
    text.push('\n');
    let lines = [
        ("The monitor over all phases", share(outcome.attained() * 100.0)),
        ("The best number of I/O cores of each phase", share(outcome.best_by_phase() * 100.0)),
        (
            "The best number that never changes",
            format!("{} with {}", share(outcome.best_single.attained * 100.0), outcome.best_single.cores),
        ),
        ("A thread for each device", share(outcome.each() * 100.0)),
    ];
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<44}{value}");
    }
    text += "Shares are those of a model, not of a machine.\n";
    text
}

fn phases(outcome: &Replayed) -> Vec<Column> {
    let all = &outcome.phases;
    let of = |figure: &dyn Fn(&PhaseOutcome) -> String| all.iter().map(figure).collect::<Vec<_>>();
    let part = |value: f64| share(value * 100.0);
    vec![
        Column::names("phase", of(&|one| printable(&one.name))),
        Column::figures("lasts", of(&|one| time(one.seconds * 1e9))).may_go(3),
        Column::figures("monitor", of(&|one| part(one.attained))),
        Column::figures("settled", of(&|one| part(one.settled))),
        Column::figures("best", of(&|one| part(one.best.attained))),
        Column::figures("of best", of(&|one| part(one.of_best()))).may_go(4),
        Column::figures("thread each", of(&|one| part(one.each))),
        Column::figures(
            "within 5 %",
            of(&|one| one.converged.map_or_else(|| NONE.to_owned(), |seconds| time(seconds * 1e9))),
        ),
        Column::figures("cores", of(&|one| format!("{} ({})", one.cores, one.best.cores))),
        Column::figures("changes", of(&|one| count(u64::from(one.changes)))).may_go(2),
        Column::figures("moves", of(&|one| count(one.moves))).may_go(1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use iocm_monitor::simulator::{Kind, Machine, Replay, made, replay};

    #[test]
    fn the_table_fits_and_says_what_it_is() {
        let mut trace = made(Kind::Steps, Machine { cores: 16, nodes: 2 }, 64);
        trace.phases[0].name = "a\u{1b}[2Jphase of a very long name that has to give way".to_owned();
        let outcome = replay(&trace, &Replay::default(), &mut |_| {}).unwrap();
        let text = terminal(&outcome, 80, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("16 cores, 64 queues") && text.contains("a model"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(terminal(&outcome, 200, false).contains("moves"));
    }
}
