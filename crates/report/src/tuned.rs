//! The result of a tuning: the same texts on the terminal, in Markdown and in a diff of definitions.

mod markdown;
mod terminal;

use similar::TextDiff;
use study::tuning::{Judged, Left, LeftTo, Ruling, TunedDefinition, Tuning};

use crate::fixing::{in_lines, unified_diff};
use crate::format::{NONE, counted};
use crate::studied::{self, Measure};

pub use markdown::tuning as markdown;
pub use terminal::{tuning as terminal, tuning_steps as steps};

/// The kept changes as a unified diff of the guest's definition, an option on each line; empty if nothing was
/// kept.
pub fn difference(before: &[String], after: &[String]) -> String {
    let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let (before, after) = (text(before), text(after));
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(3)
        .header("guest (before)", "guest (tuned)")
        .to_string()
}

/// The kept changes as a unified diff of the definition of the VM that the guests stand for; empty without
/// changes.
pub fn of_definition(tuned: &TunedDefinition) -> String {
    unified_diff(&tuned.name, &in_lines(tuned.before.as_bytes()), &in_lines(tuned.carried.text.as_bytes()))
}

/// The reason why a tuning did not try an advised change, in a few words.
fn not_tried(by: LeftTo) -> &'static str {
    match by {
        LeftTo::Guest => "must be done in the guest",
        LeftTo::Host => "must be done on the host",
        LeftTo::Definition => "must be done by hand",
        LeftTo::Windows => "helps Windows alone",
    }
}

/// A fix that was not tried, in a line: its device, its effect, and where it must be made.
fn left(left: &Left) -> String {
    let Left { advised, device, does, by, .. } = left;
    format!(
        "{device} ({:.1} % of a CPU), {}: {does}; not tried: {}",
        advised.host_cpu_percent,
        advised.cure,
        not_tried(*by)
    )
}

/// The ruling on a change, in words.
fn ruling(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Kept => "kept",
        Ruling::Worse => "reverted: worse",
        Ruling::Mixed => "reverted: better and worse",
        Ruling::NoDifference => "reverted: no difference",
        Ruling::TooFew => "reverted: too few repeats",
        Ruling::Failed => "reverted: failed",
        Ruling::Impossible => "not tried",
        Ruling::Confirmed => "confirmed",
        Ruling::NotConfirmed => "not confirmed",
    }
}

/// The levels without and with the change, in one unit.
fn values(judged: &Judged) -> [String; 2] {
    let both = [judged.before, judged.after];
    let largest = both.iter().flatten().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let measure = Measure::of_metric(&judged.metric, judged.unit, largest);
    both.map(|value| value.map_or_else(|| NONE.to_owned(), |value| measure.shown(value)))
}

/// The finding: "better", "not seen".
fn finding(judged: &Judged) -> &'static str {
    studied::finding(judged.finding, judged.better)
}

/// The answer in a sentence.
fn answer(tuning: &Tuning) -> String {
    let tried = tuning
        .steps
        .iter()
        .filter(|step| !matches!(step.ruling, Ruling::Confirmed | Ruling::NotConfirmed))
        .count();
    let kept = tuning.kept.len();
    let mut text = match kept {
        0 if tried == 1 => "The one change was not kept.".to_owned(),
        0 => format!("None of {} was kept.", counted(tried as u64, "change")),
        kept => format!("{kept} of {} kept: {}.", counted(tried as u64, "change"), tuning.kept.join(", ")),
    };
    if tuning.steps.iter().any(|step| step.ruling == Ruling::NotConfirmed) {
        text += " All of them together are not better than the baseline.";
    }
    if !tuning.complete {
        text += " The tuning is not at its end.";
    }
    text
}

#[cfg(test)]
#[path = "tuned/tests.rs"]
mod tests;
