//! The outcome of a suite: published figures next to measured ones.

mod markdown;
mod page;
mod terminal;

pub use self::markdown::markdown;
pub use self::page::page;
pub use self::terminal::terminal;

use stats::{Contrast, Interval, Scale};
use study::Unit;
use study::suite::{Agreement, FigureOutcome, Measured, StudyOutcome, SuiteOutcome};

use crate::format::{self, NONE, counted};
use crate::study::figures::{self, Measure};

/// The texts of one row.
struct Row<'a> {
    figure: &'a str,
    published: String,
    /// The levels of the baseline and the arm, with their unit.
    levels: String,
    change: String,
    interval: String,
    repeats: String,
    agreement: &'static str,
}

fn row(outcome: &FigureOutcome) -> Row<'_> {
    let measured = outcome.measured;
    Row {
        figure: &outcome.published.figure,
        published: published(outcome),
        levels: measured
            .map_or_else(|| NONE.to_owned(), |measured| levels(&outcome.published.metric, &measured)),
        change: measured
            .map_or_else(|| NONE.to_owned(), |measured| change(measured.change, measured.in_points)),
        interval: measured.map_or_else(|| NONE.to_owned(), |measured| interval(&measured)),
        repeats: measured.map_or_else(|| NONE.to_owned(), |measured| measured.repeats.to_string()),
        agreement: outcome.agreement.map_or(NONE, agreement),
    }
}

/// The levels of the baseline and the arm: "412, 430 MB/s".
fn levels(metric: &str, measured: &Measured) -> String {
    let [before, after] = measured.levels;
    let measure = Measure::of_metric(metric, measured.unit, before.abs().max(after.abs()));
    format!("{}, {}", measure.number(before), measure.shown(after))
}

fn change(value: f64, in_points: bool) -> String {
    let (scale, unit) = scale(in_points);
    figures::change(Some(contrast(scale, value, None)), unit)
}

fn interval(measured: &Measured) -> String {
    let (scale, unit) = scale(measured.in_points);
    figures::interval(Some(contrast(scale, measured.change, measured.interval)), unit)
}

fn scale(in_points: bool) -> (Scale, Unit) {
    if in_points { (Scale::Difference, Unit::Percent) } else { (Scale::Ratio, Unit::PerSecond) }
}

fn contrast(scale: Scale, estimate: f64, interval: Option<Interval>) -> Contrast {
    Contrast { scale, estimate, interval, p_value: None, test: None, repeats: 0, is_paired: true }
}

/// The published change, or its range: "-47 %", "+0.29 to +2.73 %".
fn published(outcome: &FigureOutcome) -> String {
    let in_points = outcome.measured.is_some_and(|measured| measured.in_points);
    let unit = if in_points { " points" } else { " %" };
    let signed = |value: f64| if value > 0.0 { format!("+{value}") } else { format!("{value}") };
    match outcome.published.published[..] {
        [] => NONE.to_owned(),
        [only] => format!("{}{unit}", signed(only)),
        [low, high, ..] => format!("{} to {}{unit}", signed(low), signed(high)),
    }
}

fn agreement(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Agrees => "agrees",
        Agreement::Open => "cannot tell",
        Agreement::SameSign => "same direction",
        Agreement::OnlyHere => "significant only here",
        Agreement::OtherSign => "opposite direction",
        Agreement::NotSeen => "no significant difference",
        Agreement::TooFew => "too few",
    }
}

/// The number of figures by their agreement: "Of 20 published figures 6 agree, ...".
fn answer(outcome: &SuiteOutcome) -> String {
    let all = || outcome.studies.iter().flat_map(|study| &study.figures);
    let published = all().filter(|figure| !figure.published.published.is_empty()).count();
    if published == 0 {
        return "No figure was published for these settings.".to_owned();
    }
    let with = |wanted: Agreement| all().filter(|figure| figure.agreement == Some(wanted)).count();
    let missing = published - all().filter(|figure| figure.agreement.is_some()).count();
    let parts = [
        (with(Agreement::Agrees), "within the interval measured here"),
        (with(Agreement::Open), "within an interval that also includes no change"),
        (with(Agreement::SameSign), "in the same direction, of another size"),
        (with(Agreement::OnlyHere), "with a significant difference only here"),
        (with(Agreement::OtherSign), "in the opposite direction"),
        (with(Agreement::NotSeen), "without a significant difference here"),
        (with(Agreement::TooFew), "with too few repeats"),
        (missing, "not measured yet"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, words)| format!("{number} {words}"))
        .collect();
    format!("{}: {}.", counted(published as u64, "published figure"), parts.join(", "))
}

/// The runs of a study: "8 of 12 runs, 1 failed attempt, in lab:amd-avic".
fn runs(study: &StudyOutcome) -> String {
    let failed = match study.failed {
        0 => String::new(),
        failed => format!(", {}", counted(failed as u64, "failed attempt")),
    };
    let made = if study.runs == study.planned {
        counted(study.runs as u64, "run")
    } else {
        format!("{} of {}", format::count(study.runs as u64), counted(study.planned as u64, "run"))
    };
    format!("{made}{failed}, on {}", study.study.target)
}

/// The names of the studies that were not started; `None` if all were.
fn not_made(outcome: &SuiteOutcome) -> Option<String> {
    let missing = outcome.studies.iter().filter(|study| study.planned == 0);
    let names: Vec<&str> = missing.map(|study| study.study.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The command that repeats one study; `again` is the command that repeats the whole suite.
fn command(again: &str, study: &StudyOutcome) -> String {
    format!("{again} --only {}", study.study.name)
}

#[cfg(test)]
mod tests;
