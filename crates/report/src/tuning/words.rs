//! A tuning in words, the same in every medium.

use study::tuning::{Judged, Left, LeftTo, Ruling, Step, Tuning};

use crate::format::{NONE, counted};
use crate::study::figures::{self, Measure};

/// The reason why a tuning did not try an advised change, in a few words.
fn not_tried(by: LeftTo) -> &'static str {
    match by {
        LeftTo::Guest => "must be done in the guest",
        LeftTo::Host => "must be done on the host",
        LeftTo::Definition => "must be done by hand",
        LeftTo::Windows => "helps Windows alone",
    }
}

/// The line of a fix that was not tried: its device, its effect, and the reason.
pub(super) fn left(left: &Left) -> String {
    let Left { advised, device, does, by, .. } = left;
    format!(
        "{device} ({:.1} % of a CPU), {}: {does}; not tried: {}",
        advised.host_cpu_percent,
        advised.cure,
        not_tried(*by)
    )
}

/// The ruling on a step, in words.
pub(super) fn ruling(step: &Step) -> &'static str {
    match step.ruling {
        Ruling::Kept => "kept",
        Ruling::Worse if step.is_confirmation() => "not confirmed: worse",
        Ruling::Worse => "reverted: worse",
        Ruling::Mixed if step.is_confirmation() => "not confirmed: better and worse",
        Ruling::Mixed => "reverted: better and worse",
        Ruling::Uncertain => "reverted: better, but possibly by chance",
        Ruling::NoDifference => "reverted: no difference",
        Ruling::TooFew => "reverted: too few repeats",
        Ruling::Failed if step.is_confirmation() => "not confirmed: failed",
        Ruling::Failed => "reverted: failed",
        Ruling::Impossible => "not tried",
        Ruling::Confirmed => "confirmed",
        Ruling::NotConfirmed => "not confirmed",
    }
}

/// The levels without and with the change, in one unit.
pub(super) fn values(judged: &Judged) -> [String; 2] {
    let both = [judged.before, judged.after];
    let largest = both.iter().flatten().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let measure = Measure::of_metric(&judged.metric, judged.unit, largest);
    both.map(|value| value.map_or_else(|| NONE.to_owned(), |value| measure.shown(value)))
}

/// The finding: "better", "not seen".
pub(super) fn finding(judged: &Judged) -> &'static str {
    figures::finding(judged.finding, judged.better)
}

/// The answer in a sentence.
pub(super) fn answer(tuning: &Tuning) -> String {
    let tried = tuning.steps.iter().filter(|step| !step.is_confirmation()).count();
    let kept = tuning.kept.len();
    let mut text = match kept {
        0 if tried == 1 => "The one change was not kept.".to_owned(),
        0 => format!("None of {} was kept.", counted(tried as u64, "change")),
        kept => format!("{kept} of {} kept: {}.", counted(tried as u64, "change"), tuning.kept.join(", ")),
    };
    let confirmation = tuning.steps.iter().find(|step| step.is_confirmation());
    text += match confirmation.map(|step| step.ruling) {
        Some(Ruling::NotConfirmed) => {
            " Measured again, all of them together are not better than the baseline."
        }
        Some(Ruling::Worse) => " Measured again, all of them together are worse than the baseline.",
        Some(Ruling::Mixed) => {
            " Measured again, all of them together are better in some figures and worse in others."
        }
        Some(Ruling::Failed) => {
            " All of them together were not compared with the baseline, because runs failed."
        }
        None if tuning.complete && tuning.needs_confirmation() => {
            " This was not confirmed by a second measurement."
        }
        _ => "",
    };
    if !tuning.complete {
        text += " The tuning is not at its end.";
    }
    text
}
