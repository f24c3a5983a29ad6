//! Tables with names on the left, which are folded if room is short, and figures, which are never folded.

use probe::measure::Measure;
use probe::run::Arm;
use prove::{Cost, Effect, MeasureOutcome, Proof};

use crate::format::{self, NONE};
use crate::prove::words;
use crate::terminal::columns::{self, Column};
use crate::text;

/// Escape codes.
const BOLD: &str = "1";
const GREEN: &str = "32";
const RED: &str = "31";

/// A name and its figures. `bold` applies to the whole row, `colour` to the cell with that index.
pub(crate) struct Line {
    cells: Vec<String>,
    bold: bool,
    colour: Option<(usize, &'static str)>,
}

impl Line {
    pub(crate) fn plain(cells: Vec<String>) -> Self {
        Self { cells, bold: false, colour: None }
    }
}

/// The cost of each operation.
pub(crate) fn costs(outcome: &Proof, width: usize, colour: bool) -> String {
    match words::only_arm(&outcome.arms) {
        None => {
            let lines: Vec<_> = outcome.measures.iter().map(compared).collect();
            let header = ["operation", "off", "on", "change", "95 % interval", "runs"];
            drawn(&header, &lines, width, colour)
        }
        Some(arm) => {
            let lines: Vec<_> = outcome.measures.iter().map(|row| alone(row, arm)).collect();
            let header = ["operation", "median, cycles", "p90", "p99", "mean", "runs"];
            drawn(&header, &lines, width, colour)
        }
    }
}

fn compared(row: &MeasureOutcome) -> Line {
    let median =
        |cost: Option<Cost>| cost.map_or_else(|| NONE.to_owned(), |cost| format::cycles(cost.median));
    let runs = [row.cost.off, row.cost.on].into_iter().flatten().map(|cost| cost.runs).min();
    Line {
        cells: vec![
            row.measure.title().to_owned(),
            median(row.cost.off),
            median(row.cost.on),
            words::percent_of(row.difference),
            words::interval_of(row.difference),
            runs.map_or_else(|| NONE.to_owned(), |runs| runs.to_string()),
        ],
        bold: false,
        colour: match row.effect {
            Effect::Fewer => Some((3, GREEN)),
            Effect::More => Some((3, RED)),
            Effect::Negligible | Effect::Indistinguishable | Effect::Unknown => None,
        },
    }
}

fn alone(row: &MeasureOutcome, arm: Arm) -> Line {
    let mut cells = vec![row.measure.title().to_owned()];
    match row.cost.of(arm) {
        Some(cost) => {
            let pooled = cost.pooled;
            cells.extend([cost.median, pooled.p90, pooled.p99, pooled.mean].map(format::cycles));
            cells.push(cost.runs.to_string());
        }
        None => cells.extend(std::iter::repeat_n(NONE.to_owned(), 5)),
    }
    Line::plain(cells)
}

/// The change of each measure at each cost of a switch between guest and host; `None` if only one cost was measured.
pub(crate) fn over_costs(outcome: &Proof, width: usize, colour: bool) -> Option<String> {
    let rows: Vec<_> = outcome
        .measures
        .iter()
        .map(|row| (row.measure, outcome.over_costs(row.measure)))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    let costs = rows.iter().map(|(_, points)| points).max_by_key(|points| points.len())?;
    let costs: Vec<u32> = costs.iter().map(|(cycles, _)| *cycles).collect();
    let header: Vec<String> = costs.iter().map(|&cycles| format::count(u64::from(cycles))).collect();
    let header: Vec<&str> = ["operation"].into_iter().chain(header.iter().map(String::as_str)).collect();
    let change = |points: &[(u32, &MeasureOutcome)], cost| {
        let found = points.iter().find(|(cycles, _)| *cycles == cost);
        found.map_or_else(|| NONE.to_owned(), |(_, point)| words::percent_of(point.difference))
    };
    let line = |(measure, points): &(Measure, Vec<(u32, &MeasureOutcome)>)| {
        let changes = costs.iter().map(|&cost| change(points, cost));
        Line::plain([measure.title().to_owned()].into_iter().chain(changes).collect())
    };
    Some(drawn(&header, &rows.iter().map(line).collect::<Vec<_>>(), width, colour))
}

/// Exits by reason with their sums; `None` if nothing was counted.
pub(crate) fn exits(outcome: &Proof, width: usize, colour: bool) -> Option<String> {
    let totals = &outcome.exits;
    let only = words::only_arm(&outcome.arms);
    let mut lines: Vec<Line> = totals
        .reasons
        .iter()
        .map(|row| {
            let name = text::printable(&row.reason.to_string());
            Line::plain(match only {
                None => vec![
                    name,
                    format::count_of(row.count.off),
                    format::count_of(row.count.on),
                    format::change(row.change),
                    format::interval_of(row.interval),
                ],
                Some(arm) => vec![
                    name,
                    format::count_of(*row.count.of(arm)),
                    format::per_operation_of(*row.per_operation.of(arm)),
                ],
            })
        })
        .collect();
    for (name, sum, bold) in
        [("all reasons", totals.traced, true), ("KVM's own count", totals.statistics, false)]
    {
        let Some(first) = sum.off.or(sum.on) else { continue };
        let cells = match only {
            None => vec![
                name.to_owned(),
                format::count_of(sum.off),
                format::count_of(sum.on),
                format::change(words::change_between(sum, totals.operations)),
                words::interval_between(sum, totals.operations),
            ],
            Some(arm) => {
                let operations = *totals.operations.of(arm);
                let rate = (operations > 0).then(|| first as f64 / operations as f64);
                vec![name.to_owned(), format::count(first), format::per_operation_of(rate)]
            }
        };
        lines.push(Line { cells, bold, colour: None });
    }
    let header: &[&str] = match only {
        None => &["exit reason", "exits off", "exits on", "change", "95 % interval"],
        Some(_) => &["exit reason", "exits", "an operation"],
    };
    (!lines.is_empty()).then(|| drawn(header, &lines, width, colour))
}

/// A table of names and their figures.
pub(crate) fn drawn(header: &[&str], lines: &[Line], width: usize, colour: bool) -> String {
    let column = |(at, title): (usize, &&str)| {
        let title = (*title).to_owned();
        let cells = lines.iter().map(|line| line.cells[at].clone()).collect();
        let column = if at == 0 { Column::names(title, cells) } else { Column::figures(title, cells) };
        column.coloured(lines.iter().enumerate().filter_map(|(row, line)| {
            let code = line.colour.filter(|(coloured, _)| *coloured == at).map(|(_, code)| code);
            Some((row, code.or(line.bold.then_some(BOLD))?))
        }))
    };
    columns::drawn(header.iter().enumerate().map(column).collect(), width, false, colour)
}
