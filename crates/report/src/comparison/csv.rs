//! The rows of a comparison as comma-separated values, the total first.

use conclusions::RelativeChange;
use conclusions::profile_comparison::{Basis, ComparedRow, Estimate, Figures, Remainder};

use super::compared::{Compared, vm};
use crate::csv::Line;

const TITLES: &str = "vm,vcpu,thread,reason,access,idle,\
    exits_before,exits_after,rate_before,rate_after,rate_bound_before,rate_bound_after,\
    rate_percent,rate_low,rate_high,rate_method,\
    time_ns_before,time_ns_after,time_rate_ns_before,time_rate_ns_after,time_percent_before,time_percent_after,\
    time_change,time_low,time_high,time_method,\
    mean_ns_before,mean_ns_after,mean_change,mean_low,mean_high,mean_method,\
    p50_ns_before,p50_ns_after,p99_ns_before,p99_ns_after,rows";

/// A line for each row. The first line, without names, is the total. Changes and the ends of their 95 % intervals are in
/// percent. They are empty for rows that were zero before, as is the upper end of an unbounded interval. The rows that the
/// comparison leaves out are one last line without names, whose `rows` is their number.
#[must_use]
pub fn csv(compared: &Compared<'_>) -> String {
    let comparison = compared.comparison;
    let mut text = format!("{TITLES}\n");
    for row in [&comparison.total].into_iter().chain(&comparison.rows) {
        let vm = row.subject.vm.map(|_| vm(&row.subject, &comparison.vms));
        let mut line = Line::default();
        line.optional(vm).optional(row.subject.vcpu).optional(row.subject.thread);
        line.optional(row.subject.reason).optional(row.subject.access).field(row.idle);
        figures(&mut line, row);
        line.field(1);
        line.end(&mut text);
    }
    if let Some(rest) = &comparison.rest {
        sums(rest).end(&mut text);
    }
    text
}

/// The line of rows that are left out. What cannot be added up is empty.
fn sums(rest: &Remainder) -> Line {
    let Remainder { rows, before, after } = rest;
    let mut line = Line::default();
    for title in TITLES.split(',') {
        match title {
            "exits_before" => line.field(before.exits),
            "exits_after" => line.field(after.exits),
            "rate_before" => line.field(before.rate),
            "rate_after" => line.field(after.rate),
            "time_ns_before" => line.field(before.time_ns),
            "time_ns_after" => line.field(after.time_ns),
            "time_rate_ns_before" => line.field(before.time_rate_ns),
            "time_rate_ns_after" => line.field(after.time_rate_ns),
            "rows" => line.field(rows),
            _ => line.field(""),
        };
    }
    line
}

fn figures(line: &mut Line, row: &ComparedRow) {
    let both = |line: &mut Line, figure: fn(&Figures) -> Option<f64>| {
        line.optional(figure(&row.before)).optional(figure(&row.after));
    };
    line.field(row.before.exits).field(row.after.exits);
    both(line, |figures| Some(figures.rate));
    both(line, |figures| figures.rate_bound);
    estimate(line, Some(row.rate));
    line.field(row.before.time_ns).field(row.after.time_ns);
    both(line, |figures| Some(figures.time_rate_ns));
    both(line, |figures| figures.time_percent);
    estimate(line, row.time);
    both(line, |figures| figures.mean_ns);
    estimate(line, row.mean);
    both(line, |figures| figures.p50_ns.map(|ns| ns as f64));
    both(line, |figures| figures.p99_ns.map(|ns| ns as f64));
}

fn estimate(line: &mut Line, estimate: Option<Estimate>) {
    let percent = estimate.and_then(|estimate| match estimate.change {
        RelativeChange::Percent(percent) => Some(percent),
        RelativeChange::StillNothing => Some(0.0),
        RelativeChange::FromNothing => None,
    });
    let interval = estimate.and_then(|estimate| estimate.interval);
    line.optional(percent).optional(interval.map(|interval| interval.low));
    line.optional(interval.map(|interval| interval.high).filter(|high| high.is_finite()));
    line.optional(estimate.and_then(|estimate| estimate.basis).map(|basis| match basis {
        Basis::Recordings { .. } => "recordings",
        Basis::Blocks { .. } => "blocks",
        Basis::Poisson { .. } => "poisson",
        Basis::Times => "times",
    }));
}
