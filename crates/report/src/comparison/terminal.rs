//! The tables of `exitless diff`.

use conclusions::profile_comparison::{
    ComparedRow, Effect, Estimate, Figures, Overall, Per, SideSummary, Sum,
};
use traces::Recordings;

use super::compared::Compared;
use super::{doubts, figures, verdict};
use crate::format::{NONE, count, counted, rate_over, share_of, time, time_of, whole_time};
use crate::recordings::terminal::named;
use crate::recordings::words::part;
use crate::terminal::columns::{Column, drawn};
use crate::terminal::labels::listed;
use crate::terminal::{NARROWEST, emphasised, wrapped};

/// The width of the labels on the left.
const LABEL: usize = 11;

/// The changes between two sides: rates of exits, handling time, and the time of a single exit.
///
/// No line is wider than `width` columns if `width` is at least 80; less important columns are left out if needed. Without
/// `colour` it has no escape sequences.
#[must_use]
pub fn terminal(compared: &Compared<'_>, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    let comparison = compared.comparison;
    let mut text = head(compared, width);
    let unit = figures::unit(comparison.per);
    if comparison.verdict != Overall::Nothing {
        let page = Page { compared, width, colour };
        let title = match comparison.per {
            Per::Recording => "Exits".to_owned(),
            _ => format!("Exits {unit}"),
        };
        text += &format!("\n{title}\n\n{}", page.rates());
        if comparison.total.time.is_some() {
            text += &format!("\nHandling time {unit}{}\n\n{}", page.apart(), page.times());
        }
        if comparison.has_times() {
            text += &format!("\nHandling time of one exit\n\n{}", page.means());
        }
        text += &page.methods();
    }
    text += &listed("Doubts", doubts::doubts(compared), width);
    text.push('\n');
    text + &emphasised(&wrapped(&verdict::verdict(compared), width, "", ""), tone(comparison.verdict), colour)
}

fn head(compared: &Compared<'_>, width: usize) -> String {
    let mut text = String::new();
    for (name, recordings) in compared.sides() {
        for (number, file) in recordings.iter().flat_map(|one| &one.files).enumerate() {
            let label = if number == 0 { name } else { "" };
            text += &line(label, &named(file), width);
        }
    }
    if let Some(part) = compared.any().and_then(part) {
        text += &line("only", &part, width);
    }
    let comparison = compared.comparison;
    let sides = [(&comparison.before, compared.before), (&comparison.after, compared.after)];
    let exits = [comparison.total.before.exits, comparison.total.after.exits];
    for ((label, (summary, recordings)), exits) in ["exits", ""].into_iter().zip(sides).zip(exits) {
        text += &line(label, &counted_exits(summary, recordings, exits), width);
    }
    text
}

fn line(label: &str, said: &str, width: usize) -> String {
    wrapped(said, width, &format!("{label:LABEL$}"), &" ".repeat(LABEL))
}

fn counted_exits(summary: &SideSummary, recordings: &[Recordings], exits: u64) -> String {
    let ns = recordings.iter().map(Recordings::observed_ns).fold(0, u64::saturating_add);
    let operations = summary
        .operations
        .map_or_else(String::new, |operations| format!("; {}", counted(operations, "operation")));
    format!(
        "{} in {} ({}) of {} with {}{operations}",
        count(exits),
        whole_time(ns),
        rate_over(exits, ns),
        counted(summary.vms as u64, "VM"),
        counted(summary.vcpus as u64, "vCPU"),
    )
}

struct Page<'a> {
    compared: &'a Compared<'a>,
    width: usize,
    colour: bool,
}

impl Page<'_> {
    /// The total and the listed rows.
    fn rows(&self) -> impl Iterator<Item = &ComparedRow> {
        [&self.compared.comparison.total].into_iter().chain(&self.compared.comparison.rows)
    }

    fn rest(&self) -> Option<[Sum; 2]> {
        self.compared.comparison.rest.map(|rest| [rest.before, rest.after])
    }

    /// The table of rates.
    fn rates(&self) -> String {
        let per = self.compared.comparison.per;
        let mut columns = self.names();
        let shown = |figures: &Figures| match figures.rate_bound {
            Some(bound) => format!("<{}", figures::rate(bound, per)),
            None => figures::rate(figures.rate, per),
        };
        columns.extend(self.both(["before", "after"], shown, |sum| figures::rate(sum.rate, per)));
        columns.push(self.changes(|row| Some(row.rate)));
        columns.push(self.intervals(|row| Some(row.rate)));
        columns.push(self.bases(|row| Some(row.rate)));
        if per != Per::Recording || self.recordings_differ() {
            columns
                .push(self.pair("exits", |figures| count(figures.exits), |sum| count(sum.exits)).may_go(3));
        }
        self.drawn(columns)
    }

    /// The table of host time.
    fn times(&self) -> String {
        let mut columns = self.names();
        let shown = |figures: &Figures| time(figures.time_rate_ns);
        columns.extend(self.both(["before", "after"], shown, |sum| time(sum.time_rate_ns)));
        columns.push(self.changes(|row| row.time));
        columns.push(self.intervals(|row| row.time));
        columns.push(self.bases(|row| row.time));
        let shares = |figures: &Figures| share_of(figures.time_percent);
        columns.push(self.pair("share", shares, |_| String::new()).may_go(4));
        let totals = |figures: &Figures| whole_time(figures.time_ns);
        columns.push(self.pair("in all", totals, |sum| whole_time(sum.time_ns)).may_go(2));
        self.drawn(columns)
    }

    /// The table of times of a single exit.
    fn means(&self) -> String {
        let mut columns = self.names();
        let mean = |figures: &Figures| figures.mean_ns.map_or_else(|| NONE.to_owned(), time);
        columns.extend(self.both(["mean before", "after"], mean, |_| String::new()));
        columns.push(self.changes(|row| row.mean));
        columns.push(self.intervals(|row| row.mean));
        columns.push(self.bases(|row| row.mean));
        columns.push(self.pair("p99", |figures| time_of(figures.p99_ns), |_| String::new()).may_go(4));
        columns.push(self.pair("p50", |figures| time_of(figures.p50_ns), |_| String::new()).may_go(3));
        self.drawn(columns)
    }

    fn names(&self) -> Vec<Column> {
        let titles = self.compared.titles();
        let rest =
            self.compared.comparison.rest.map(|rest| format!("other ({})", counted(rest.rows as u64, "row")));
        let columns = titles.iter().enumerate().map(|(at, &title)| {
            let sum = |name: &str| if at == 0 { name.to_owned() } else { String::new() };
            let mut cells = vec![sum("all")];
            cells.extend(
                self.compared.comparison.rows.iter().map(|row| self.compared.names(&row.subject)[at].clone()),
            );
            cells.extend(rest.iter().map(|rest| sum(rest)));
            Column::names(title, cells)
        });
        columns.collect()
    }

    fn both(
        &self,
        titles: [&'static str; 2],
        shown: impl Fn(&Figures) -> String,
        rest: impl Fn(Sum) -> String,
    ) -> [Column; 2] {
        [0, 1].map(|side: usize| {
            let of = |row: &ComparedRow| shown(if side == 0 { &row.before } else { &row.after });
            let mut cells: Vec<String> = self.rows().map(of).collect();
            cells.extend(self.rest().map(|sums| rest(sums[side])));
            Column::figures(titles[side], cells)
        })
    }

    /// Both sides in one column, so that they are left out together if room is short.
    fn pair(
        &self,
        title: &'static str,
        shown: impl Fn(&Figures) -> String,
        rest: impl Fn(Sum) -> String,
    ) -> Column {
        let joined = |before: String, after: String| match (before.as_str(), after.as_str()) {
            ("", "") => String::new(),
            _ => format!("{before} → {after}"),
        };
        let both = self.rows().map(|row| joined(shown(&row.before), shown(&row.after)));
        let rest = self.rest().map(|[before, after]| joined(rest(before), rest(after)));
        Column::figures(title, both.chain(rest).collect())
    }

    fn column(&self, title: &'static str, shown: impl Fn(&ComparedRow) -> String) -> Column {
        let mut cells: Vec<String> = self.rows().map(shown).collect();
        cells.extend(self.rest().map(|_| String::new()));
        Column::figures(title, cells)
    }

    fn changes(&self, of: impl Fn(&ComparedRow) -> Option<Estimate>) -> Column {
        self.column("change", |row| {
            let estimate = of(row);
            self.coloured(&figures::change(estimate), estimate.filter(|_| !row.idle))
        })
    }

    fn intervals(&self, of: impl Fn(&ComparedRow) -> Option<Estimate>) -> Column {
        self.column("95 % interval", |row| figures::interval(of(row)))
    }

    fn bases(&self, of: impl Fn(&ComparedRow) -> Option<Estimate>) -> Column {
        self.column("by", |row| figures::basis(of(row)).to_owned()).may_go(5)
    }

    fn coloured(&self, text: &str, estimate: Option<Estimate>) -> String {
        let code = match estimate.map(|estimate| estimate.effect()) {
            Some(Effect::Less) if self.colour => "32",
            Some(Effect::More) if self.colour => "31",
            _ => return text.to_owned(),
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Draws the table, with the total in bold if there is colour.
    fn drawn(&self, columns: Vec<Column>) -> String {
        let table = drawn(columns, self.width, false, self.colour);
        if !self.colour {
            return table;
        }
        let bold = |(number, line): (usize, &str)| match number {
            // The code that ends the change's colour would also end bold.
            2 => format!("\u{1b}[1m{}\u{1b}[0m\n", line.replace("\u{1b}[0m", "\u{1b}[39m")),
            _ => format!("{line}\n"),
        };
        table.lines().enumerate().map(bold).collect()
    }

    fn recordings_differ(&self) -> bool {
        let comparison = self.compared.comparison;
        comparison.before.recordings != comparison.after.recordings
    }

    /// A note that the total excludes sleep, if there is any.
    fn apart(&self) -> &'static str {
        let comparison = self.compared.comparison;
        let idle = [&comparison.before, &comparison.after].map(|side| side.idle.handling.count());
        if idle == [0, 0] { "" } else { " (all: without sleeping in HLT)" }
    }

    fn methods(&self) -> String {
        let comparison = self.compared.comparison;
        let mut text = String::new();
        let methods = figures::methods(comparison);
        if !methods.is_empty() {
            text += &format!("\n{}", wrapped("How intervals were made", self.width, "", ""));
            methods.iter().for_each(|method| text += &wrapped(method, self.width, "  ", "    "));
        }
        if let Some(scope) = figures::scope(comparison) {
            text += &wrapped(scope, self.width, "", "");
        }
        text
    }
}

/// The escape code of a verdict.
const fn tone(verdict: Overall) -> &'static str {
    match verdict {
        Overall::Less => "1;32",
        Overall::More => "1;31",
        _ => "1",
    }
}
