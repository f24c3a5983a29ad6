//! The page of `exitless iocm simulate`: the monitor's policy next to the best possible one, phase by phase.

use iocm_monitor::simulator::{PhaseOutcome, Replayed};
use maud::{Markup, html};

use crate::format::{NONE, count, counted, share, time};
use crate::iocm::beside::{Bars, Course, legend};
use crate::page::document::{ARMS, styled, tile};

const STYLES: [&str; 2] = [ARMS, include_str!("../iocm.css")];

/// The policy at one time of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Seconds from the beginning.
    pub time: f64,
    /// The served share of all offered work: 0 to 1.
    pub attained: f64,
    /// I/O cores.
    pub cores: usize,
}

/// The outcome as one page that opens offline, follows the reader's dark mode, fits a phone and prints. `course` has the
/// moments of the replay in order of time.
pub fn page(outcome: &Replayed, course: &[Moment]) -> String {
    let sections = html! {
        (head(outcome))
        (over_time(outcome, course))
        (by_phase(outcome))
        section {
            h2 { "What these figures are" }
            p {
                "Those of a model: cores that are I/O cores or shared by vCPUs, vCPUs that slow down when they find too few, what a "
                "request costs a busy worker, and what it costs more when its worker must be woken or is on another NUMA node. It "
                "foretells which arrangement is better, not what a machine will do."
            }
        }
    };
    styled("I/O cores that follow the load, simulated", &STYLES, &sections)
}

fn head(outcome: &Replayed) -> Markup {
    let worst = outcome.phases.iter().map(PhaseOutcome::of_best).fold(f64::INFINITY, f64::min);
    html! {
        header {
            p.eyebrow {
                (counted(outcome.cores as u64, "core")) ", " (counted(outcome.queues as u64, "queue")) ", a decision every "
                (time(outcome.period * 1e9))
            }
            h1 {
                "The monitor serves " (share(outcome.attained() * 100.0)) " of what is offered; the best number of I/O cores that never "
                "changes, " (outcome.best_single.cores) ", serves " (share(outcome.best_single.attained * 100.0))
            }
        }
        dl.tiles {
            (tile("The best number of each phase", &share(outcome.best_by_phase() * 100.0), "if it were known before"))
            (tile("A thread for each device", &share(outcome.each() * 100.0), "as the kernel's vhost has it"))
            @if worst.is_finite() {
                (tile("Least of the best, settled", &share(worst * 100.0), "in the second half of any phase"))
            }
        }
    }
}

fn over_time(outcome: &Replayed, course: &[Moment]) -> Markup {
    let all: f64 = outcome.phases.iter().map(|phase| phase.seconds).sum();
    if course.is_empty() || all <= 0.0 {
        return html! {};
    }
    let mut begin = 0.0;
    let spans: Vec<(f64, f64, &PhaseOutcome)> = outcome
        .phases
        .iter()
        .map(|phase| {
            let from = begin;
            begin += phase.seconds;
            (from / all, begin / all, phase)
        })
        .collect();
    let phases = || spans.iter().map(|(from, _, phase)| (*from, phase.name.clone())).collect::<Vec<_>>();
    let steps = |of: &dyn Fn(&PhaseOutcome) -> f64| -> Vec<(f64, f64)> {
        spans.iter().flat_map(|(from, to, phase)| [(*from, of(phase)), (*to, of(phase))]).collect()
    };
    let moments = |of: &dyn Fn(&Moment) -> f64| -> Vec<(f64, f64)> {
        course.iter().map(|moment| ((moment.time / all).min(1.0), of(moment))).collect()
    };
    let arms =
        ["the monitor", "the best number of each phase", "a thread for each device"].map(str::to_owned);
    html! {
        section {
            h2 { "Over time" }
            (legend(&arms))
            (Course {
                title: "Served of what is offered",
                note: "Each request weighted by what it costs.",
                arms: &arms,
                phases: phases(),
                lines: vec![
                    moments(&|moment| moment.attained * 100.0),
                    steps(&|phase| phase.best.attained * 100.0),
                    steps(&|phase| phase.each * 100.0),
                ],
                shown: &|percent| format!("{percent:.0} %"),
            }.render())
            (Course {
                title: "I/O cores",
                note: "Those of the monitor, and the number that serves most in each phase.",
                arms: &arms[..2],
                phases: phases(),
                lines: vec![moments(&|moment| moment.cores as f64), steps(&|phase| phase.best.cores as f64)],
                shown: &|cores| format!("{cores:.0}"),
            }.render())
        }
    }
}

fn by_phase(outcome: &Replayed) -> Markup {
    /// The maximum number of phases that are drawn. The table has all.
    const DRAWN: usize = 30;
    let arms = ["the monitor", "the same, settled", "the best number", "a thread for each device"]
        .map(str::to_owned);
    let drawn = &outcome.phases[..outcome.phases.len().min(DRAWN)];
    let groups = drawn.iter().map(|phase| {
        let shares = [phase.attained, phase.settled, phase.best.attained, phase.each];
        (phase.name.as_str(), shares.map(|share| Some(share * 100.0)).to_vec())
    });
    html! {
        section {
            h2 { "By phase" }
            (legend(&arms))
            (Bars {
                title: "Served of what is offered",
                note: "Settled: in the second half of the phase. Each phase has a scale of its own.",
                arms: &arms,
                groups: groups.collect(),
                shown: &share,
            }.render())
            @if outcome.phases.len() > DRAWN {
                p.muted { "The first " (DRAWN) " of " (counted(outcome.phases.len() as u64, "phase")) " are drawn." }
            }
            h3 { "All phases" }
            (table(outcome))
        }
    }
}

fn table(outcome: &Replayed) -> Markup {
    const NAMES: [&str; 10] = [
        "phase",
        "lasts",
        "monitor",
        "settled",
        "best",
        "thread each",
        "within 5 %",
        "cores (best)",
        "changes",
        "moves",
    ];
    let part = |value: f64| share(value * 100.0);
    html! {
        div.wide tabindex="0" role="region" aria-label="All phases" {
            table {
                thead { tr { @for name in NAMES { th scope="col" { (name) } } } }
                tbody {
                    @for phase in &outcome.phases {
                        tr {
                            th scope="row" { (phase.name) }
                            td { (time(phase.seconds * 1e9)) }
                            td { (part(phase.attained)) }
                            td { (part(phase.settled)) }
                            td { (part(phase.best.attained)) }
                            td { (part(phase.each)) }
                            td { (phase.converged.map_or_else(|| NONE.to_owned(), |seconds| format!("{seconds:.1} s"))) }
                            td { (phase.cores) " (" (phase.best.cores) ")" }
                            td { (count(phase.changes.into())) }
                            td { (count(phase.moves)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iocm_monitor::simulator::{Kind, Machine, Replay, made, replay};

    #[test]
    fn the_page_draws_the_course_and_each_phase() {
        let mut trace = made(Kind::Steps, Machine { cores: 8, nodes: 1 }, 16);
        trace.phases[0].name = "<script>".to_owned();
        let mut course = Vec::new();
        let outcome = replay(&trace, &Replay::default(), &mut |period| {
            let cores = period.decision.layout.cores();
            course.push(Moment { time: period.time, attained: period.attained, cores });
        });
        let outcome = outcome.unwrap();
        // Remove the script's test for NaN.
        let page = super::page(&outcome, &course).replace("Number.isNaN", "");
        assert_eq!(page.matches("<svg role=\"img\"").count(), 3);
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("Those of a model") && page.contains("too much of both"));
        for nonsense in ["NaN", "inf%", "inf\"", "http://", "https://"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
        assert_eq!(super::page(&outcome, &[]).matches("<svg role=\"img\"").count(), 1);
    }
}
