//! The outcome of a suite as a page that opens offline.

use maud::{Markup, html};
use study::suite::{Agreement, FigureOutcome, StudyOutcome, SuiteOutcome};

use super::{answer, command, not_made, row, runs};
use crate::page::axis::percent;
use crate::page::document::{ARMS, styled};
use crate::page::table::{self, Cell, Column};
use crate::text::minus;

/// The height of a row's drawing, in pixels.
const HEIGHT: u32 = 26;

/// The page: the counts, then for each study its source, both setups, its figures, and the command that repeats it. `again`
/// is the command that repeats the whole suite. `is_linked` adds links to the studies' own pages, which are
/// `NAME/report.html` next to this page.
pub fn page(outcome: &SuiteOutcome, again: &str, is_linked: bool) -> String {
    let sections = html! {
        header {
            h1 { (outcome.title) }
            p { (answer(outcome)) }
            p.muted {
                "In each drawing the bar is the published range and the line the 95 % interval measured here; the dashed "
                "line is no change. Points are of percentages, all other changes are in percent of the baseline."
            }
        }
        @for study in outcome.studies.iter().filter(|study| study.planned > 0) { (section(again, study, is_linked)) }
        @if let Some(missing) = not_made(outcome) { section { h2 { "Not made yet" } p { (missing) } } }
    };
    styled(&outcome.title, &[ARMS], &sections)
}

fn section(again: &str, study: &StudyOutcome, is_linked: bool) -> Markup {
    let about = &study.study;
    let facts =
        [("Published", about.source.as_str()), ("Setup there", &about.setup), ("Here", &about.differs)];
    let made = runs(study);
    let again = command(again, study);
    let facts = facts.into_iter().filter(|(_, said)| !said.is_empty());
    html! {
        section {
            h2 { (about.name) }
            (table::facts(facts.chain([("Runs", made.as_str()), ("Again", again.as_str())]), Some("text")))
            @for warning in &study.warnings { p { "Warning: " (warning) } }
            @if let Some(why) = &study.why_not {
                p { "Not compared: " (why) }
            } @else if !study.figures.is_empty() {
                (figures(study))
            }
            @if is_linked && study.runs > 0 {
                p { a href={ (about.name) "/report.html" } { "The whole study" } }
            }
        }
    }
}

fn figures(study: &StudyOutcome) -> Markup {
    let axis = Axis::of(&study.figures);
    let rows: Vec<_> = study.figures.iter().map(row).collect();
    let texts = |cell: fn(&super::Row<'_>) -> String| {
        rows.iter().map(|row| Cell::figure(&cell(row), None)).collect::<Vec<_>>()
    };
    let drawings = study.figures.iter().map(|figure| Cell::drawing(axis.drawing(figure))).collect();
    let agreements = study.figures.iter().zip(&rows);
    let columns = [
        Column::figures(
            "Figure",
            rows.iter().map(|row| Cell::figure(row.figure, None).class("text")).collect(),
        ),
        Column::figures("Published", texts(|row| row.published.clone())),
        Column::figures("Before, after", texts(|row| row.levels.clone())),
        Column::figures("Change", texts(|row| row.change.clone())),
        Column::figures("95 % interval", texts(|row| row.interval.clone())),
        Column::figures("n", texts(|row| row.repeats.clone())),
        Column::drawings(html! { "Both" }, drawings),
        Column::figures(
            "",
            agreements
                .map(|(figure, row)| Cell::figure(row.agreement, None).class(tone(figure.agreement)))
                .collect(),
        ),
    ];
    table::render(&study.study.name, &columns, 0)
}

fn tone(agreement: Option<Agreement>) -> &'static str {
    match agreement {
        Some(Agreement::Agrees | Agreement::SameSign) => "good",
        Some(Agreement::OtherSign) => "bad",
        Some(Agreement::Open | Agreement::OnlyHere | Agreement::NotSeen | Agreement::TooFew) | None => {
            "quiet"
        }
    }
}

/// The scale of the changes of a study's figures. It always includes zero.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(figures: &[FigureOutcome]) -> Self {
        let published = figures.iter().flat_map(|figure| figure.published.published.iter().copied());
        let measured = figures.iter().filter_map(|figure| figure.measured);
        let ends = measured.flat_map(|measured| match measured.interval {
            Some(interval) => [interval.low, interval.high],
            None => [measured.change; 2],
        });
        let all: Vec<f64> = published.chain(ends).chain([0.0]).collect();
        let (low, high) =
            all.iter().fold((0.0_f64, 0.0_f64), |(low, high), &value| (low.min(value), high.max(value)));
        let room = ((high - low) * 0.04).max(0.5);
        Self { low: low - room, high: high + room }
    }

    fn at(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn drawing(&self, figure: &FigureOutcome) -> Markup {
        let texts = row(figure);
        let label = format!(
            "{}: published {}; here {}, 95 % interval {}",
            texts.figure, texts.published, texts.change, texts.interval
        );
        let published = &figure.published.published;
        let range =
            published.iter().copied().reduce(f64::min).zip(published.iter().copied().reduce(f64::max));
        html! {
            svg role="img" width="100%" height=(HEIGHT) aria-label=(minus(&label)) {
                title { (minus(&label)) }
                line.zero x1=(percent(self.at(0.0))) x2=(percent(self.at(0.0))) y1="0" y2=(HEIGHT) {}
                @if let Some((low, high)) = range {
                    @let (left, width) = (self.at(low), (self.at(high) - self.at(low)).max(0.012));
                    rect.arm.arm0 x=(percent(left)) y="4" width=(percent(width)) height="7" {}
                }
                @if let Some(measured) = figure.measured {
                    @if let Some(ends) = measured.interval {
                        line.interval x1=(percent(self.at(ends.low))) x2=(percent(self.at(ends.high))) y1="18" y2="18" {}
                    }
                    circle.run.arm1 style="fill-opacity: 1" cx=(percent(self.at(measured.change))) cy="18" r="4" {}
                }
            }
        }
    }
}
