//! The page of the bench `dynamic_load`: arrangements of I/O workers under a varying load.

use iocm_monitor::evaluation::{Arrangement, ENOUGH, Evaluation, Judged, Measured, SOON};
use maud::{Markup, html};

use super::beside::{Bars, Course, legend};
use crate::format::{NONE, count, counted, per_second, share, time};
use crate::page::document::{ARMS, styled, tile};

const STYLES: [&str; 2] = [ARMS, include_str!("iocm.css")];

/// The evaluation as one page that opens offline, follows the reader's dark mode, fits a phone and prints.
pub fn page(evaluation: &Evaluation) -> String {
    let sections = html! {
        (head(evaluation))
        @for front_ends in evaluation.sizes() { (size(evaluation, front_ends)) }
        (method(evaluation))
    };
    styled("I/O workers under a load that changes", &STYLES, &sections)
}

fn name(arrangement: Arrangement) -> String {
    match arrangement {
        Arrangement::ThreadEach => "a thread for each device".to_owned(),
        Arrangement::Shared(workers) => counted(workers as u64, "shared worker"),
        Arrangement::Monitor => "the monitor".to_owned(),
    }
}

fn head(evaluation: &Evaluation) -> Markup {
    let judged = evaluation.judged();
    let met = judged.iter().filter(|one| one.is_met()).count();
    let worst = judged.iter().map(|one| one.of_best).fold(f64::INFINITY, f64::min);
    let mut slowest = judged.iter().map(|one| one.converged);
    let slowest = slowest.try_fold(0.0_f64, |most, one| Some(most.max(one?)));
    let tone = if met == judged.len() { "good" } else { "bad" };
    html! {
        header {
            p.eyebrow { "I/O workers under a load that changes" }
            @if judged.is_empty() {
                h1 { "The monitor was not measured beside a fixed number of workers" }
            } @else {
                p class={ "judgement " (tone) } { (met) " of " (counted(judged.len() as u64, "phase")) " as aimed for" }
                h1 {
                    "With the number of workers that follows the load, at least " (share(worst * 100.0))
                    " of what the best fixed number serves is served in every phase"
                }
            }
            p.muted {
                "Aimed for in every phase: " (share(ENOUGH * 100.0)) " of the best fixed number, no less than with a thread for each "
                "device, and that within " (time(SOON * 1e9)) " of the phase's begin."
            }
        }
        @if !judged.is_empty() {
            dl.tiles {
                (tile("Least of the best", &share(worst * 100.0), "of any phase"))
                (tile(
                    "Longest way there",
                    &after(slowest),
                    "until 95 % of the best is served",
                ))
                (tile("CPUs", &count(evaluation.cpus as u64), "for back-ends and front-ends together"))
            }
            section {
                h2 { "The monitor, phase by phase" }
                (aims(&judged))
            }
        }
    }
}

/// A duration in tenths of a second, because windows of the bench are not shorter.
fn after(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1} s"))
}

fn aims(judged: &[Judged<'_>]) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="The monitor, phase by phase" {
            table.aims {
                thead {
                    tr {
                        @for name in ["phase", "front-ends", "of the best fixed number", "of a thread each", "95 % within"] {
                            th scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    @for one in judged {
                        tr {
                            th scope="row" { (one.phase) }
                            td { (one.front_ends) }
                            @let is_late = one.converged.is_none_or(|seconds| seconds > SOON);
                            td.missed[one.of_best < ENOUGH] { (share(one.of_best * 100.0)) }
                            td.missed[!one.is_met() && one.of_best >= ENOUGH && !is_late] { (one.of_each.map_or_else(|| NONE.to_owned(), |of| share(of * 100.0))) }
                            td.missed[is_late] {
                                (after(one.converged))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn size(evaluation: &Evaluation, front_ends: usize) -> Markup {
    let arrangements = evaluation.arrangements(front_ends);
    let names: Vec<String> = arrangements.iter().copied().map(name).collect();
    let bars = |title: &str, note: &str, figure: &dyn Fn(&Measured) -> f64, shown: &dyn Fn(f64) -> String| {
        let phases = evaluation.phases(front_ends).into_iter();
        let groups = phases.map(|phase| {
            let of = |&one: &Arrangement| evaluation.of(front_ends, phase, one).map(figure);
            (phase, arrangements.iter().map(of).collect())
        });
        Bars { title, note, arms: &names, groups: groups.collect(), shown }.render()
    };
    let rate = |value: f64| per_second(value);
    let microseconds = |value: f64| time(value * 1e3);
    html! {
        section {
            h2 { (counted(front_ends as u64, "front-end")) }
            (legend(&names))
            (course(evaluation, front_ends, &arrangements, &names))
            div.charts {
                (bars("Served", "Requests a second. Each phase has a scale of its own.", &|one| one.served_per_second, &rate))
                (bars(
                    "99th percentile of latency",
                    "Of the slowest front-end, from when a request was due. Each phase has a scale of its own.",
                    &|one| f64::from(one.p99_us),
                    &microseconds,
                ))
                (bars(
                    "CPU a request",
                    "Of the back-end, its monitor's aside. Each phase has a scale of its own.",
                    &|one| one.cpu_us_per_request,
                    &microseconds,
                ))
            }
        }
    }
}

/// The served share of due requests in each window.
fn course(
    evaluation: &Evaluation,
    front_ends: usize,
    arrangements: &[Arrangement],
    names: &[String],
) -> Markup {
    let phases = evaluation.phases(front_ends);
    let width = 1.0 / phases.len().max(1) as f64;
    let line = |&arrangement: &Arrangement| {
        let of = (0..).zip(&phases).filter_map(|(at, phase)| {
            let one = evaluation.of(front_ends, phase, arrangement)?;
            let due = one.asked_per_second * evaluation.window_seconds;
            let step = width / one.windows.len().max(1) as f64;
            let share = move |&served: &u64| if due > 0.0 { served as f64 / due * 100.0 } else { 0.0 };
            let middle = move |window: usize| f64::from(at) * width + (window as f64 + 0.5) * step;
            Some(one.windows.iter().enumerate().map(move |(window, served)| (middle(window), share(served))))
        });
        of.flatten().collect::<Vec<_>>()
    };
    let begins = phases.iter().enumerate().map(|(at, phase)| (at as f64 * width, (*phase).to_owned()));
    Course {
        title: "Served of what was due",
        note: "Over time, through all phases. Above 100 % is what was late.",
        arms: names,
        phases: begins.collect(),
        lines: arrangements.iter().map(line).collect(),
        shown: &|percent| format!("{percent:.0} %"),
    }
    .render()
}

fn method(evaluation: &Evaluation) -> Markup {
    html! {
        section {
            h2 { "How it was measured" }
            p {
                "Front-ends are libblkio's, each with a null disk, 16 requests at once and requests that are due at a fixed "
                "rate; a phase takes " (time(evaluation.phase_seconds * 1e9)) " and is counted in windows of "
                (time(evaluation.window_seconds * 1e9)) ". Arrangements were measured one after the other, once each. Back-ends and "
                "front-ends shared " (counted(evaluation.cpus as u64, "CPU")) ", so that the arrangements compete with the load itself: "
                "what else ran on the machine meanwhile is in these figures."
            }
        }
    }
}

#[cfg(test)]
#[path = "evaluation_tests.rs"]
mod tests;
