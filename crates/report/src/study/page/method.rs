//! The method of the study: arms, order, guests, host, and failures, with links to the raw files.

use std::collections::BTreeMap;

use host::Fingerprint;
use maud::{Markup, html};
use study::Unit;
use study::analysis::{Figure, Findings, Source};

use super::marks::guests;
use crate::format::{NONE, counted, duration};
use crate::page::eyebrow::when;
use crate::page::table;
use crate::study::figures;

/// The metric of the CPU time that sampling itself takes.
const SAMPLING: &str = "sampling.cpu";

pub(super) fn render(findings: &Findings, runs: Option<&str>) -> Markup {
    html! {
        section {
            h2 { "How it was run" }
            (summary(findings))
            h3 { "Arms" }
            (arms(findings))
            h3 { "Workloads" }
            (workloads(findings))
            (failures(findings, runs))
            details { summary { "The order of all runs" } (order(findings, runs)) }
            @if !findings.method.guests.is_empty() {
                details { summary { "The guests" } @for (number, facts) in findings.method.guests.iter().enumerate() { h3 { "Guest " (number) } (table_of(facts)) } }
            }
            (host(findings))
            p.muted {
                "Whiskers and intervals: within a block every arm ran once, in a random order, so each block gives one change; the "
                "interval is Student's t over the blocks. Changes of positive figures are means of logarithms of ratios, and so the "
                "ratios of the geometric means beside them; those of percentages are differences of means. p values come from "
                "dealing the arms' names again within blocks, and with fewer than six blocks from Student's t. Counts of few events, "
                "or of none, are compared by their differences, and are no surer than so few events can be by chance."
            }
            @if let Some(runs) = runs {
                p {
                    "Beside this page: " a href={ (runs) "plan.toml" } { "plan.toml" } " (the plan as it was given), "
                    a href={ (runs) "study.json" } { "study.json" } " (plan in full, seed, host) and "
                    a href={ (runs) "runs/" } { "runs/" } " (what the tools printed, and the samples)."
                }
            }
        }
    }
}

fn summary(findings: &Findings) -> Markup {
    let study = &findings.study;
    let method = &findings.method;
    let skew = method
        .skew
        .map(|skew| format!("median {}, at most {}", duration(skew.median), duration(skew.largest)));
    let warm_up = match study.warm_up {
        0 => "none".to_owned(),
        runs => format!(
            "{} of each workload after each start of the {}",
            counted(u64::from(runs), "run"),
            guests(findings)
        ),
    };
    let facts = [
        ("plan", study.name.clone()),
        ("target", study.target.clone()),
        ("exitless", study.version.clone()),
        ("began", when(method.started)),
        ("last run began", when(method.last_started)),
        ("time measured", duration(method.measured)),
        (
            "runs",
            format!(
                "{} of {} planned, {}",
                method.runs.len(),
                method.planned,
                counted(method.failed.len() as u64, "failed attempt")
            ),
        ),
        ("warm-up", warm_up),
        ("seed of the order", study.seed.to_string()),
        ("start skew of guests", skew.unwrap_or_else(|| NONE.to_owned())),
        ("cost of sampling", sampling(findings)),
    ];
    let apart = study.counts_exits_apart().then(|| {
        let what = "counted in a repetition of each run, which follows in the same guests; the figures of workloads and CPUs \
                    are from the run itself, without the cost of counting";
        ("exits", what.to_owned())
    });
    html! {
        (table::facts(facts.into_iter().chain(apart), Some("text")))
    }
}

/// The cost of sampling in each arm, which differs with the number of exits: "off 0.31 %, on 0.12 % of the host's CPUs on
/// average; 0.52 % at most in a run".
fn sampling(findings: &Findings) -> String {
    let is_cost = |figure: &&Figure| {
        figure.source == Source::Host && figure.metric == SAMPLING && figure.unit == Unit::Percent
    };
    let points = || findings.figures.iter().filter(is_cost).flat_map(|figure| &figure.points);
    let mut most: f64 = 0.0;
    let mut means = Vec::new();
    for (at, arm) in findings.arms.iter().enumerate() {
        let of_arm = points().filter_map(|point| point.arms.get(at)?.as_ref());
        let values: Vec<f64> = of_arm.flat_map(|arm| arm.values.iter().map(|value| value.1)).collect();
        if !values.is_empty() {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            means.push(format!("{} {mean:.2} %", arm.name));
            most = values.into_iter().fold(most, f64::max);
        }
    }
    if means.is_empty() {
        return "not measured".to_owned();
    }
    format!("{} of the host's CPUs on average; {most:.2} % at most in a run", means.join(", "))
}

fn arms(findings: &Findings) -> Markup {
    let settings = |levels: &BTreeMap<String, String>| {
        let of = findings.study.factors.iter().filter_map(|factor| {
            let level = factor.levels.iter().find(|level| levels.get(&factor.name) == Some(&level.name))?;
            Some(level.settings.clone())
        });
        of.collect::<Vec<_>>().join(" ")
    };
    html! {
        div.wide {
            table.facts {
                tbody {
                    @for (at, arm) in findings.arms.iter().enumerate() {
                        tr {
                            th scope="row" { (arm.full_name) @if at == 0 { " (baseline)" } @if arm.is_like_baseline { " (same as the baseline)" } }
                            td.text { code { (settings(&arm.levels)) } }
                        }
                    }
                    @for fact in &findings.method.arm_facts {
                        tr {
                            th scope="row" { code { (fact.field) } }
                            td.text {
                                @for (at, value) in fact.values.iter().enumerate() {
                                    @if at > 0 { ", " }
                                    (value.as_deref().unwrap_or("unknown")) " (" (findings.arms.get(at).map_or("", |arm| &arm.name)) ")"
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn workloads(findings: &Findings) -> Markup {
    html! {
        (table::facts(
            findings.study.workloads.iter().map(|workload| {
                (&workload.name, html! { (workload.tool) " " code { (workload.settings) } })
            }),
            Some("text"),
        ))
    }
}

fn failures(findings: &Findings, runs: Option<&str>) -> Markup {
    html! {
        @if !findings.method.failed.is_empty() {
            h3 { "Attempts that failed" }
            ul.narrow {
                @for run in &findings.method.failed {
                    li {
                        "Block " (run.block) ", " (run.arm) ", " (figures::guests(findings, run.guests)) ", " (run.workload) ", attempt "
                        (run.attempt + 1) ": " (run.why) @if run.was_repeated { " (repeated with success)" }
                        " " (link(runs, &run.folder))
                    }
                }
            }
        }
    }
}

fn order(findings: &Findings, runs: Option<&str>) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="The order of all runs" {
            table {
                thead {
                    tr {
                        @for title in ["place", "block", "arm", guests(findings), "workload", "started", "took", "attempts", "files"] { th scope="col" { (title) } }
                    }
                }
                tbody {
                    @for run in &findings.method.runs {
                        tr {
                            th scope="row" { (run.position) }
                            td { (run.block) }
                            td { (findings.arms.get(run.arm).map_or("", |arm| &arm.name)) }
                            td { (run.guests) }
                            td { (run.workload) }
                            td { (when(run.started)) }
                            td { (duration(run.took)) }
                            td { (run.attempt + 1) }
                            td { (link(runs, &run.folder)) }
                        }
                    }
                }
            }
        }
    }
}

/// A link to a run's folder, or only its name if that has special characters.
fn link(runs: Option<&str>, folder: &str) -> Markup {
    let is_plain =
        folder.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '+'));
    match runs {
        Some(runs) if is_plain => html! { a href={ (runs) (folder) "/" } { (folder) } },
        _ => html! { code { (folder) } },
    }
}

fn host(findings: &Findings) -> Markup {
    // All known fields differ from an empty fingerprint.
    let facts = Fingerprint::default().differences(&findings.method.fingerprint);
    let facts: BTreeMap<String, String> =
        facts.into_iter().filter_map(|(name, _, value)| Some((name, value?))).collect();
    html! {
        details {
            summary { "The host: " (counted(facts.len() as u64, "fact")) " about virtual interrupts" }
            (table_of(&facts))
        }
    }
}

fn table_of(facts: &BTreeMap<String, String>) -> Markup {
    table::facts(facts.iter().map(|(name, value)| (html! { code { (name) } }, value)), Some("text"))
}
