//! The tables of a study.

use study::analysis::{
    Comparison, Figure, Findings, Point, Source, accessed, counted_reason, exits_of_which_work,
};

use crate::format::NONE;
use crate::study::figures::{self, Measure};
use crate::terminal::columns::{Column, drawn};
use crate::text;

/// The maximum number of workloads in a table of gains.
const MOST_WORKLOADS: usize = 4;
/// The maximum number of workloads to show exits by reason of all. If there are more, only the first workload's are shown.
/// The page has all.
const FEW_WORKLOADS: usize = 2;
/// Figures of the host that are shown.
const OF_THE_HOST: [&str; 7] =
    ["cpu.busy", "cpu.iowait", "emulator.cpu", "iothread.cpu", "vhost.cpu", "exits.total", "handling.total"];
/// The maximum number of reasons. The page has all.
const MOST_REASONS: usize = 10;

/// All tables with their titles.
pub(super) fn all(findings: &Findings, width: usize, colour: bool) -> Vec<(String, String)> {
    let mut tables = Vec::new();
    let main = findings.main();
    for figure in &main {
        tables.push((title(figure), values(findings, figure, width)));
    }
    if findings.counts.len() > 1 {
        tables.extend(gains(findings, &main, width));
    }
    tables.extend(of_the_host(findings, width));
    let workloads = findings.study.workloads.len();
    for workload in
        findings.study.workloads.iter().take(if workloads > FEW_WORKLOADS { 1 } else { workloads })
    {
        tables.extend(exits(findings, &workload.name, width, colour));
        tables.extend(accesses(findings, &workload.name, width, colour));
    }
    tables
}

fn title(figure: &Figure) -> String {
    let measure = Measure::of_figure(figure);
    if measure.name().is_empty() { figure.name() } else { format!("{}, {}", figure.name(), measure.name()) }
}

/// The column title of the baseline's or another arm's figures.
fn name(findings: &Findings, arm: usize) -> String {
    findings.arms.get(arm).map_or_else(String::new, |arm| text::printable(&arm.name))
}

/// The column title of the baseline's figures: the name of the arm, if all comparisons have the same baseline.
fn baseline<'a>(findings: &Findings, compared: impl Iterator<Item = &'a Comparison>) -> String {
    let mut arms: Vec<usize> = compared.map(|one| one.baseline).collect();
    arms.dedup();
    match arms[..] {
        [] => name(findings, 0),
        [arm] => name(findings, arm),
        _ => "baseline".to_owned(),
    }
}

/// The column title of the compared arm's figures: its name, if it is the only one.
fn changed(findings: &Findings) -> String {
    if findings.arms.len() == 2 { name(findings, 1) } else { "value".to_owned() }
}

/// A figure for each number of guests and arm.
fn values(findings: &Findings, figure: &Figure, width: usize) -> String {
    let measure = Measure::of_figure(figure);
    // With one number of guests the overall row would repeat the only row.
    let overall = figure.overall.iter().filter(|one| figure.counts_of(one.arm).len() > 1);
    let overall = overall.map(|one| (None, Some(one)));
    let rows: Vec<(Option<&Point>, Option<&Comparison>)> = figure
        .points
        .iter()
        .flat_map(|point| {
            let compared: Vec<_> = point.comparisons.iter().map(|one| (Some(point), Some(one))).collect();
            if compared.is_empty() { vec![(Some(point), None)] } else { compared }
        })
        .chain(overall)
        .collect();
    let cells = |of: &dyn Fn(Option<&Point>, Option<&Comparison>) -> String| -> Vec<String> {
        rows.iter().map(|&(point, one)| of(point, one)).collect()
    };
    let level = |point: Option<&Point>, arm: Option<usize>| match (point, arm) {
        (Some(point), Some(arm)) => figures::level(point, arm, &measure),
        (Some(_), None) => NONE.to_owned(),
        (None, _) => String::new(),
    };
    let change = |one: Option<&Comparison>| one.and_then(|one| one.change);
    let guests = if findings.study.are_vms { "VMs" } else { "guests" };
    let mut columns = vec![Column::figures(
        guests,
        cells(&|point, _| point.map_or_else(|| "all".to_owned(), |point| point.guests.to_string())),
    )];
    if findings.arms.len() > 2 {
        let names = cells(&|_, one| one.map_or_else(String::new, |one| name(findings, one.arm)));
        columns.push(Column::names("arm", names));
    }
    let of_baseline = cells(&|point, one| level(point, Some(one.map_or(0, |one| one.baseline))));
    columns.push(Column::named_figures(baseline(findings, rows.iter().filter_map(|row| row.1)), of_baseline));
    if findings.arms.len() > 1 {
        let cells_of_arm = cells(&|point, one| level(point, one.map(|one| one.arm)));
        columns.push(Column::named_figures(changed(findings), cells_of_arm));
        columns.push(Column::figures("change", cells(&|_, one| figures::change(change(one), figure.unit))));
        columns.push(Column::figures(
            "95 % interval",
            cells(&|_, one| figures::interval(change(one), figure.unit)),
        ));
        columns.push(Column::figures("p", cells(&|_, one| figures::p_value(change(one)))).may_go(1));
        columns.push(
            Column::figures(
                "pairs",
                cells(&|_, one| {
                    change(one).map_or_else(|| NONE.to_owned(), |change| change.repeats.to_string())
                }),
            )
            .may_go(0),
        );
        columns.push(Column::whole_names(
            "finding",
            cells(&|_, one| one.map_or("", |one| figures::finding(one.finding, figure.better)).to_owned()),
        ));
    }
    drawn(columns, width, false, false)
}

/// CPU and exits of each workload at its largest number of guests.
fn of_the_host(findings: &Findings, width: usize) -> Option<(String, String)> {
    let of = |metric: &str| {
        let host = |figure: &&Figure| figure.source == Source::Host && figure.metric == metric;
        findings.figures.iter().filter(host).collect::<Vec<_>>()
    };
    let of_work = findings.figures.iter().filter(|figure| figure.is_exit_total_of_work());
    let rows: Vec<(&Figure, &Point, &Comparison)> = OF_THE_HOST
        .iter()
        .flat_map(|metric| of(metric))
        .chain(of_work)
        .filter_map(|figure| Some((figure, figure.points.last()?)))
        .flat_map(|(figure, point)| point.comparisons.iter().map(move |one| (figure, point, one)))
        .collect();
    let guests = rows.first()?.1.guests;
    let level = |(figure, point, _): &(&Figure, &Point, &Comparison), arm: usize| {
        point.level(arm).map_or_else(|| NONE.to_owned(), |level| Measure::of_figure(figure).shown(level))
    };
    let mut columns =
        vec![Column::names("figure", rows.iter().map(|row| text::printable(&row.0.name())).collect())];
    if findings.arms.len() > 2 {
        columns.push(Column::names("arm", rows.iter().map(|row| name(findings, row.2.arm)).collect()));
    }
    columns.extend([
        Column::named_figures(
            baseline(findings, rows.iter().map(|row| row.2)),
            rows.iter().map(|row| level(row, row.2.baseline)).collect(),
        )
        .may_go(1),
        Column::named_figures(changed(findings), rows.iter().map(|row| level(row, row.2.arm)).collect())
            .may_go(2),
        Column::figures("change", rows.iter().map(|row| figures::change(row.2.change, row.0.unit)).collect()),
        Column::figures(
            "95 % interval",
            rows.iter().map(|row| figures::interval(row.2.change, row.0.unit)).collect(),
        )
        .may_go(0),
        Column::whole_names(
            "finding",
            rows.iter().map(|row| figures::finding(row.2.finding, row.0.better).to_owned()).collect(),
        ),
    ]);
    let guests = figures::with_guests(findings, guests);
    Some((format!("The host{guests}"), drawn(columns, width, false, false)))
}

/// The gains in percent for each number of guests and workload. Significant changes are marked.
fn gains(findings: &Findings, main: &[&Figure], width: usize) -> Vec<(String, String)> {
    let guests = if findings.study.are_vms { "VMs" } else { "guests" };
    let mut tables = Vec::new();
    for (at, arm) in findings.arms.iter().enumerate().skip(1) {
        for some in main.chunks(MOST_WORKLOADS) {
            let rows = || findings.counts.iter().map(|count| Some(*count)).chain([None]);
            let mut columns = vec![Column::whole_names(
                guests,
                rows()
                    .map(|count| count.map_or_else(|| "all".to_owned(), |count| count.to_string()))
                    .collect(),
            )];
            for figure in some {
                let cells = rows().map(|count| {
                    let comparisons = match count {
                        Some(count) => figure
                            .points
                            .iter()
                            .find(|point| point.guests == count)
                            .map(|point| &point.comparisons),
                        None => Some(&figure.overall),
                    };
                    comparisons
                        .and_then(|all| all.iter().find(|one| one.arm == at))
                        .map_or_else(|| NONE.to_owned(), gain)
                });
                columns.push(Column::named_figures(text::printable(&figure.workload), cells.collect()));
            }
            let title =
                format!("Change of main figures with {}, in percent; * where all gates hold", arm.full_name);
            tables.push((title, drawn(columns, width, false, false)));
        }
    }
    tables
}

fn gain(one: &Comparison) -> String {
    format!("{}{}", figures::percent(one), if one.finding.is_found() { " *" } else { "  " })
}

/// Exits by reason in each arm, at the largest number of guests: per second, and per unit of work if the workload reports
/// its work.
fn exits(findings: &Findings, workload: &str, width: usize, colour: bool) -> Vec<(String, String)> {
    let a_second = |metric: &str| counted_reason(metric).map(str::to_owned);
    let of_work =
        |metric: &str| Some(exits_of_which_work(metric)?.1.to_owned()).filter(|reason| reason != "total");
    let table = |of: &dyn Fn(&str) -> Option<String>, is_total: &dyn Fn(&Figure) -> bool| {
        rates(findings, workload, "exit reason", of, Some(is_total), (width, colour))
    };
    let tables = [table(&a_second, &Figure::is_exit_total), table(&of_work, &Figure::is_exit_total_of_work)];
    let titled = |(title, table)| (format!("VM exits during {workload}{title}"), table);
    tables.into_iter().flatten().map(titled).collect()
}

/// Accesses by port and page in each arm, if the plan asks for them.
fn accesses(findings: &Findings, workload: &str, width: usize, colour: bool) -> Option<(String, String)> {
    let of = |metric: &str| accessed(metric).map(|place| place.replacen('.', " ", 1));
    let table = rates(findings, workload, "port or page", &of, None, (width, colour))?;
    Some((format!("Accesses by port and page of addresses during {workload}{}", table.0), table.1))
}

/// Rates of a family of the host's figures, the largest first, with names from `of`, and the end of the title.
fn rates(
    findings: &Findings,
    workload: &str,
    heading: &'static str,
    of: &dyn Fn(&str) -> Option<String>,
    is_total: Option<&dyn Fn(&Figure) -> bool>,
    (width, colour): (usize, bool),
) -> Option<(String, String)> {
    // Only figures of the host: a workload of the micro VM counts its own exits, per operation.
    let all = || {
        findings.figures.iter().filter(|figure| figure.workload == workload && figure.source == Source::Host)
    };
    let last = |figure: &'_ Figure| figure.points.last().cloned();
    let mut rows: Vec<(String, &Figure, Point)> =
        all().filter_map(|figure| Some((of(&figure.metric)?, figure, last(figure)?))).collect();
    let largest = |point: &Point| point.arms.iter().flatten().map(|values| values.level).fold(0.0, f64::max);
    rows.sort_by(|a, b| largest(&b.2).total_cmp(&largest(&a.2)));
    rows.truncate(MOST_REASONS);
    let total = is_total.and_then(|is_total| all().find(|figure| is_total(figure)));
    rows.extend(total.and_then(|figure| Some(("all reasons".to_owned(), figure, last(figure)?))));
    let (first, most) = (rows.first()?, rows.iter().map(|row| largest(&row.2)).fold(0.0, f64::max));
    let measure = Measure::of_metric(&first.1.metric, first.1.unit, most);
    let guests = first.2.guests;
    let mut columns = vec![Column::names(heading, rows.iter().map(|row| text::printable(&row.0)).collect())];
    for (at, arm) in findings.arms.iter().enumerate() {
        let cells = rows.iter().map(|(_, _, point)| figures::level(point, at, &measure.of_row(point)));
        columns.push(Column::named_figures(text::printable(&arm.name), cells.collect()));
    }
    for at in 1..findings.arms.len() {
        let cells = rows.iter().map(|(_, _, point)| {
            point
                .comparisons
                .iter()
                .find(|one| one.arm == at)
                .map_or_else(|| NONE.to_owned(), figures::percent)
        });
        columns.push(Column::figures("change", cells.collect()));
    }
    let guests = figures::with_guests(findings, guests);
    Some((format!("{guests}, {}", measure.name()), drawn(columns, width, total.is_some(), colour)))
}
