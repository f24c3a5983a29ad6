//! The question and the answer, at the top of the page.

use maud::{Markup, html};
use study::analysis::{Figure, Findings, Judgement, largest};

use super::marks::unbroken;
use crate::format::{count, counted};
use crate::page::document::tile;
use crate::page::eyebrow;
use crate::study::figures;
use crate::text::minus;

/// The judgement as a label.
pub(crate) fn label(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Better => "Better",
        Judgement::Worse => "Worse",
        Judgement::Mixed => "Gives and takes",
        Judgement::NoDifference => "No clear difference",
        Judgement::TooFewRepeats => "Too few repeats",
        Judgement::Alike => "Arms that are alike",
        Judgement::Nothing => "Nothing compared",
    }
}

pub(super) fn render(findings: &Findings) -> Markup {
    let tone = match findings.verdict.judgement {
        Judgement::Better => "good",
        Judgement::Worse => "bad",
        _ => "neutral",
    };
    html! {
        header {
            p.eyebrow { (findings.study.title) }
            p.question { (findings.study.question) }
            p class={ "judgement " (tone) } { (label(findings.verdict.judgement)) }
            h1 { (unbroken(&findings.verdict.sentence)) }
            p.muted { (machine(findings)) }
        }
        (tiles(findings))
        @if !findings.warnings.is_empty() {
            section.warnings {
                h2 { "What to know first" }
                ul.narrow { @for warning in &findings.warnings { li.grave[warning.is_grave()] { (warning) } } }
            }
        }
        section {
            h2 { "What was found, and what was not" }
            ul.found { @for sentence in &findings.verdict.sentences { li { (unbroken(sentence)) } } }
            @if findings.multiplicity.made > 0 { p.muted { (figures::chance(&findings.multiplicity)) } }
            p.muted {
                "A difference is called one when all three gates hold: its p value is below " (findings.gates.level)
                " and its interval is without 0; it is at least " (findings.gates.strength_percent) "\u{a0}% (of percentages: "
                (findings.gates.strength_points) " points); and it is larger than what averages of so many repeats of one and the "
                "same arm differ by. A p value is how often noise alone would show a change at least as large."
            }
        }
    }
}

fn tiles(findings: &Findings) -> Markup {
    // The largest change, then the change of all exits of the same workload.
    let main = findings.main();
    let all = main.iter().flat_map(|&figure| figure.summary().iter().map(move |one| (figure, one)));
    let found: Vec<_> = all.filter(|(_, one)| one.finding.is_found()).collect();
    let main = largest(&found).map(|(figure, _)| figure).or(main.last().copied());
    let exits = main.and_then(|main| {
        findings.figures.iter().find(|figure| figure.workload == main.workload && figure.is_exit_total())
    });
    let drawn = |figure: &Figure| {
        let one = figure.summary().iter().filter(|one| !one.is_aa).max_by(|a, b| {
            let size = |percent: Option<f64>| percent.map_or(0.0, f64::abs);
            size(a.percent).total_cmp(&size(b.percent))
        })?;
        let change = one.change?;
        let name = findings.arms.get(one.arm).map_or("", |arm| &arm.full_name);
        let within = match change.interval {
            Some(_) => {
                let interval = minus(&figures::interval(Some(change), figure.unit));
                format!("{name}; 95 % interval {interval}")
            }
            None => format!("{name}; too few repeats for an interval"),
        };
        Some((figure.name(), figures::change(Some(change), figure.unit), within))
    };
    html! {
        dl.tiles {
            @for figure in [main, exits].into_iter().flatten() {
                @if let Some((title, change, within)) = drawn(figure) { (tile(&title, &minus(&change), &within)) }
            }
            (tile(
                "Runs",
                &count(findings.method.runs.len() as u64),
                &format!(
                    "{}, {}, {}",
                    counted(findings.arms.len() as u64, "arm"),
                    counted(blocks(findings) as u64, "block"),
                    counted(findings.method.failed.len() as u64, "failed attempt")
                ),
            ))
        }
    }
}

fn blocks(findings: &Findings) -> usize {
    findings.method.runs.iter().map(|run| run.block).collect::<std::collections::BTreeSet<_>>().len()
}

pub(crate) fn machine(findings: &Findings) -> String {
    let mut parts = eyebrow::machine(&findings.method.fingerprint);
    parts.push(format!("target {}", findings.study.target));
    parts.push(eyebrow::when(findings.method.started));
    parts.join(" · ")
}
