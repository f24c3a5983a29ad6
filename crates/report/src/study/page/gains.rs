//! Gains in percent for each number of guests and test of a workload, with a table for each arm.

use maud::{Markup, html};
use study::analysis::{Comparison, Figure, Findings};

use super::marks::guests;
use super::tables;
use crate::format::NONE;
use crate::study::figures;
use crate::text::minus;

pub(super) fn render(findings: &Findings) -> Markup {
    let main = findings.main_and_alike();
    let arms: Vec<usize> = (1..findings.arms.len()).collect();
    if main.is_empty() || arms.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 { "Change of each workload's main figures" }
            p.muted {
                "In percent of the baseline, " (findings.arms[0].full_name) ". Bold and coloured: all three gates hold. Grey: no "
                "difference was seen, or it is too small. The intervals are in the tables behind the charts."
            }
            @for arm in arms {
                @if findings.arms.len() > 2 { h3 { (findings.arms[arm].full_name) } }
                (table(findings, &main, arm))
            }
        }
    }
}

fn table(findings: &Findings, main: &[&Figure], arm: usize) -> Markup {
    let caption = format!("Change with {} in percent", findings.arms[arm].full_name);
    let has_overall = main.iter().any(|figure| !figure.overall.is_empty());
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table.gains {
                caption.hidden { (caption) }
                thead {
                    tr {
                        th scope="col" { (guests(findings)) }
                        @for figure in main { th scope="col" { (figure.name()) } }
                    }
                }
                tbody {
                    @for count in &findings.counts {
                        tr {
                            th scope="row" { (count) }
                            @for figure in main {
                                @let point = figure.points.iter().find(|point| point.guests == *count);
                                (cell(figure, point.and_then(|point| point.comparisons.iter().find(|one| one.arm == arm))))
                            }
                        }
                    }
                }
                @if has_overall {
                    tfoot {
                        tr {
                            th scope="row" { "all" }
                            @for figure in main { (cell(figure, figure.overall.iter().find(|one| one.arm == arm))) }
                        }
                    }
                }
            }
        }
    }
}

fn cell(figure: &Figure, one: Option<&Comparison>) -> Markup {
    let Some(one) = one else { return html! { td { (NONE) } } };
    let within = format!("95 % interval {}", figures::interval(one.change, figure.unit));
    html! { td class=(tables::tone(figure, one)) title=(minus(&within)) { (minus(&figures::percent(one))) } }
}
