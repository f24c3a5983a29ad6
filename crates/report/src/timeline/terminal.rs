//! The lines of `exitless timeline`.

use std::collections::BTreeSet;

use exits::{Column as Slices, Dimension, Grouping, Key, Slice, Span, TimelineFigure, TimelineRows, Whose};
use textwrap::core::display_width;
use traces::Recordings;

use crate::format::{counted, whole_time};
use crate::recordings::scale::Scale;
use crate::recordings::terminal::head;
use crate::recordings::words::{notes, vcpus_of, vm, window};
use crate::terminal::columns::{Column, drawn};
use crate::terminal::curve::{curve, levels, with_ascii_symbols};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, wrapped};
use crate::text::printable;

/// The minimum width of a curve, in columns.
const NARROWEST_CURVE: usize = 20;
/// The gap between columns.
const GAP: usize = 2;
const PEAK: &str = "peak";
const MEAN: &str = "mean";
/// The width to which names are cut to make room for the curve.
const WIDEST_NAME: usize = 24;

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// Escape sequences are allowed.
    pub colour: bool,
    /// Draw with ASCII; names keep their letters.
    pub ascii: bool,
}

/// The exits of `recordings` over time: a curve for each of `rows`, which were made from them by `grouping`. `figure` is
/// the rate of exits or the share of handling time.
///
/// No line is wider than the screen if that has at least 80 columns.
#[must_use]
pub fn terminal(
    recordings: &Recordings,
    rows: &TimelineRows,
    grouping: &Grouping,
    figure: TimelineFigure,
    screen: Screen,
) -> String {
    let width = screen.width.max(NARROWEST);
    let mut text = head(recordings, width, screen.colour);
    text.push('\n');
    match recordings.observed().filter(|span| span.length_ns() > 0 && !rows.is_empty()) {
        Some(observed) => {
            text += &curves(recordings, rows, grouping, figure, observed, Screen { width, ..screen })
        }
        // The notes say why.
        None if recordings.have_several_clocks() => {
            text += &wrapped("There is no timeline of recordings of several clocks.", width, "", "");
        }
        None => {
            let when = window(recordings.options).map_or_else(String::new, |window| format!(" ({window})"));
            text += &wrapped(
                &format!("There is nothing to draw{when}; `exitless report` says more."),
                width,
                "",
                "",
            );
        }
    }
    text += &listed("Notes", notes(recordings), width);
    if screen.ascii { with_ascii_symbols(&text) } else { text }
}

struct Line {
    names: [Option<String>; 2],
    whose: BTreeSet<Whose>,
    total: Slice,
    slices: Vec<Slice>,
}

fn lines(recordings: &Recordings, rows: &TimelineRows, grouping: &Grouping) -> Vec<Line> {
    let names = |key: Key| {
        let by_vm = grouping.tells_vms_apart().then(|| vm(key.whose.vm(), &recordings.profile));
        [by_vm, grouping.has(Dimension::Reason).then(|| printable(&key.what.to_string()))]
    };
    let mut lines: Vec<Line> = rows
        .rows()
        .iter()
        .map(|row| Line {
            names: names(row.key),
            whose: BTreeSet::from([row.key.whose]),
            total: row.total,
            slices: row.slices.clone(),
        })
        .collect();
    lines.extend(rows.rest().map(|rest| Line {
        names: [Some(format!("other ({})", counted(rest.rows as u64, "row"))), None],
        whose: rest.whose.clone(),
        total: rest.total,
        slices: rest.slices.clone(),
    }));
    lines
}

fn curves(
    recordings: &Recordings,
    rows: &TimelineRows,
    grouping: &Grouping,
    figure: TimelineFigure,
    observed: Span,
    screen: Screen,
) -> String {
    let lines = lines(recordings, rows, grouping);
    let names = name_columns(&lines, grouping);
    let names_width: usize =
        names.iter().map(|(title, cells)| widest(cells).min(WIDEST_NAME).max(title.len()) + GAP).sum();

    // Columns of shorter time have higher peaks, whose figures are wider.
    let mut figures_width = 0;
    let spans = recordings.spans();
    let (columns, drawn_lines) = loop {
        let room = screen.width.saturating_sub(names_width + figures_width).max(NARROWEST_CURVE);
        let columns = rows.columns(room, &spans);
        let drawn_lines: Vec<Drawn> =
            lines.iter().map(|line| draw(line, &columns, recordings, figure, screen)).collect();
        let wanted = 2 * GAP
            + drawn_lines.iter().map(|line| line.peak.len()).chain([PEAK.len()]).max().unwrap_or(0)
            + drawn_lines.iter().map(|line| line.mean.len()).chain([MEAN.len()]).max().unwrap_or(0);
        if wanted <= figures_width {
            break (columns, drawn_lines);
        }
        figures_width = wanted;
    };
    let title = match figure {
        TimelineFigure::Exits => "exits a second",
        TimelineFigure::Time => "share of time handled",
    };
    let under = |mut cells: Vec<String>, last: String| {
        cells.push(last);
        cells
    };
    let mut table: Vec<Column> =
        names.into_iter().map(|(title, cells)| Column::names(title, under(cells, String::new()))).collect();
    let cells = |cell: &dyn Fn(&Drawn) -> String| drawn_lines.iter().map(cell).collect::<Vec<_>>();
    let curves = under(cells(&|line| line.curve.clone()), axis(observed, columns.len()));
    table.push(Column::whole_names(title, curves));
    table.push(Column::figures(PEAK, under(cells(&|line| line.peak.clone()), String::new())));
    table.push(Column::figures(MEAN, under(cells(&|line| line.mean.clone()), String::new())));
    let mut text = drawn(table, screen.width, false, false);
    text.push('\n');
    text + &wrapped(&legend(&columns, figure), screen.width, "", "")
}

struct Drawn {
    curve: String,
    peak: String,
    mean: String,
}

fn draw(
    line: &Line,
    columns: &[Slices],
    recordings: &Recordings,
    figure: TimelineFigure,
    screen: Screen,
) -> Drawn {
    let scale = Scale::new(recordings, figure, vcpus_of(&line.whose, &recordings.profile));
    let values = scale.values(columns, &line.slices);
    let peak = values.iter().copied().fold(0.0, f64::max);
    let mean = scale.mean(figure.of(line.total));
    Drawn {
        curve: curve(&values, peak, levels(screen.ascii)),
        peak: scale.shown(peak),
        mean: scale.shown(mean),
    }
}

fn name_columns(lines: &[Line], grouping: &Grouping) -> Vec<(&'static str, Vec<String>)> {
    let chosen = [("VM", 0, grouping.tells_vms_apart()), ("exit reason", 1, grouping.has(Dimension::Reason))];
    let mut columns: Vec<(&'static str, Vec<String>)> = chosen
        .into_iter()
        .filter(|&(_, _, is_there)| is_there)
        .map(|(title, at, _)| {
            (title, lines.iter().map(|line| line.names[at].clone().unwrap_or_default()).collect())
        })
        .collect();
    // The name of the rest goes into the first column.
    if let ([only], false) = (&mut columns[..], grouping.tells_vms_apart()) {
        for (cell, line) in only.1.iter_mut().zip(lines) {
            if let [Some(rest), None] = &line.names {
                cell.clone_from(rest);
            }
        }
    }
    columns
}

fn widest(cells: &[String]) -> usize {
    cells.iter().map(|cell| display_width(cell)).max().unwrap_or(0)
}

/// The time axis, from zero to the duration.
fn axis(observed: Span, columns: usize) -> String {
    let end = whole_time(observed.length_ns());
    format!("0{end:>width$}", width = columns.saturating_sub(1))
}

fn legend(columns: &[Slices], figure: TimelineFigure) -> String {
    let widths: BTreeSet<u64> = columns.iter().map(|column| column.span.length_ns()).collect();
    let (Some(&shortest), Some(&longest)) = (widths.first(), widths.last()) else { return String::new() };
    let (shortest, longest) = (whole_time(shortest), whole_time(longest));
    let step = if shortest == longest { longest } else { format!("{shortest} to {longest}") };
    let unit = match figure {
        TimelineFigure::Exits => "",
        TimelineFigure::Time => {
            " 100 % is all the time of the vCPUs. An exit's time counts where the exit began, so a long one can take \
             a column above that."
        }
    };
    format!("A column is {step}; each line has its own scale, up to its peak.{unit}")
}
