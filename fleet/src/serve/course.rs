//! Exits of a host or VM over time: the columns of a chart, from rows of the data set.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use exits::{ExitReason, printable};
use maud::{Markup, html};
use pages::format::{NONE, count, counted, per_second, share, whole_time};
use pages::stacked::{Layer, MOST_LAYERS, Stacked, legend};
use pages::table::{Cell, Column, render};

use super::rows::{Exits, Observed};

const HEIGHT: u32 = 180;
/// The most tick marks of the time axis.
const MOST_TICKS: i64 = 5;
const SECOND: i64 = 1_000_000;
/// The end of the year 9999, the last of four digits, in microseconds since 1970.
const LATEST: i64 = 253_402_300_800 * SECOND;

/// The time range of a chart, which ends with the newest interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Range {
    /// The last hour.
    Hour,
    /// The last six hours.
    #[default]
    SixHours,
    /// The last day.
    Day,
    /// The last seven days.
    Week,
}

impl Range {
    pub(super) const ALL: [Self; 4] = [Self::Hour, Self::SixHours, Self::Day, Self::Week];

    /// The range with this name, or the default.
    pub(super) fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|range| range.word() == word).unwrap_or_default()
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::SixHours => "6h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hour => "1 hour",
            Self::SixHours => "6 hours",
            Self::Day => "24 hours",
            Self::Week => "7 days",
        }
    }

    fn column(self) -> &'static str {
        match self {
            Self::Hour => "1 minute",
            Self::SixHours => "3 minutes",
            Self::Day => "15 minutes",
            Self::Week => "2 hours",
        }
    }

    /// The length in microseconds.
    fn length(self) -> i64 {
        let hours = match self {
            Self::Hour => 1,
            Self::SixHours => 6,
            Self::Day => 24,
            Self::Week => 7 * 24,
        };
        hours * 3600 * SECOND
    }

    /// The width of a column in microseconds.
    fn width(self) -> i64 {
        let seconds = match self {
            Self::Hour => 60,
            Self::SixHours => 180,
            Self::Day => 900,
            Self::Week => 7200,
        };
        seconds * SECOND
    }
}

/// The columns of a chart: start, end and width, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) width: i64,
    to: i64,
}

impl Window {
    /// The columns of `range` up to `last`; fewer if the data start later, at `first`. Times outside of the
    /// years 1970 to 9999, which a file may contain, are clamped.
    pub(super) fn new(range: Range, first: i64, last: i64) -> Self {
        let width = range.width();
        // Columns of any width divide a whole number of years.
        let (first, last) = (first.clamp(0, LATEST), last.clamp(width, LATEST));
        let to = ((last - 1) / width + 1) * width;
        let begin = (to - range.length()).max(first / width * width);
        Self { from: begin.min(to - width), width, to }
    }

    fn columns(&self) -> usize {
        ((self.to - self.from) / self.width).clamp(1, 1000) as usize
    }

    fn share(&self, time: i64) -> f64 {
        (time - self.from) as f64 / (self.to - self.from) as f64
    }

    /// Tick marks at round times.
    fn ticks(&self) -> Vec<(f64, String)> {
        const STEPS: [i64; 12] = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
        let length = self.to - self.from;
        let step = STEPS.into_iter().map(|step| step * SECOND).find(|step| length / step <= MOST_TICKS);
        let step = step.unwrap_or(86_400 * SECOND * (length / (86_400 * SECOND * MOST_TICKS) + 1));
        let form = if step >= 86_400 * SECOND { "%d %b" } else { "%H:%M" };
        let first = self.from.div_euclid(step) + 1;
        (first..)
            // At the end of the range of numbers, stop instead of overflowing.
            .map_while(|number| number.checked_mul(step))
            .take_while(|time| *time < self.to)
            .map(|time| (self.share(time), clock(time).format(form).to_string()))
            .collect()
    }
}

fn clock(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

/// The exits over time.
#[derive(Debug)]
pub(super) struct Course {
    window: Window,
    /// The observed time of each column, in nanoseconds. If observations are further apart than columns are
    /// wide, columns without one have the value of the next observation. 0 in gaps.
    observed: Vec<i64>,
    /// For each column, the column whose exits it shows.
    shows: Vec<usize>,
    /// The exit reasons, most frequent first.
    reasons: Vec<Reason>,
}

#[derive(Debug)]
struct Reason {
    name: String,
    exits: i64,
    samples: i64,
    handling_ns: i64,
    max_ns: Option<i64>,
    by_column: BTreeMap<usize, (i64, i64)>,
}

impl Reason {
    /// Tests whether the handling time is idle time of the guest.
    fn is_idle(&self) -> bool {
        self.name.parse().is_ok_and(ExitReason::is_sleep)
    }

    /// The mean handling time of the exits for which it is known.
    fn mean_ns(&self) -> Option<i64> {
        self.handling_ns.checked_div(self.samples)
    }
}

impl Course {
    pub(super) fn new(window: Window, exits: &[Exits], observed: &[Observed]) -> Self {
        let columns = window.columns();
        let place = |bin: i64| usize::try_from(bin).ok().filter(|bin| *bin < columns);
        let mut own = vec![0_i64; columns];
        for one in observed {
            if let Some(bin) = place(one.bin) {
                own[bin] = own[bin].saturating_add(one.observed_ns.max(0));
            }
        }
        let (filled, shows) = filled(&own);
        let mut reasons: BTreeMap<&str, Reason> = BTreeMap::new();
        for one in exits {
            let name = one.reason.as_deref().unwrap_or("not named");
            let reason = reasons.entry(name).or_insert_with(|| Reason {
                name: printable(name),
                exits: 0,
                samples: 0,
                handling_ns: 0,
                max_ns: None,
                by_column: BTreeMap::new(),
            });
            let Some(bin) = place(one.bin) else { continue };
            reason.exits = reason.exits.saturating_add(one.exits);
            reason.samples = reason.samples.saturating_add(one.samples);
            reason.handling_ns = reason.handling_ns.saturating_add(one.handling_ns);
            reason.max_ns = reason.max_ns.max(one.max_ns);
            let sums = reason.by_column.entry(bin).or_default();
            *sums = (sums.0.saturating_add(one.exits), sums.1.saturating_add(one.handling_ns));
        }
        let mut reasons: Vec<Reason> = reasons.into_values().collect();
        reasons.sort_by(|one, other| other.exits.cmp(&one.exits).then_with(|| one.name.cmp(&other.name)));
        Self { window, observed: filled, shows, reasons }
    }

    /// The total observed time, in nanoseconds.
    fn total_ns(&self) -> i64 {
        let own = self.shows.iter().enumerate().filter(|(column, shown)| *column == **shown);
        own.map(|(column, _)| self.observed[column]).sum()
    }

    /// The ranges without an observation, as fractions of the window.
    fn gaps(&self) -> Vec<(f64, f64)> {
        let columns = self.observed.len() as f64;
        let mut gaps: Vec<(f64, f64)> = Vec::new();
        for (column, _) in self.observed.iter().enumerate().filter(|(_, observed)| **observed == 0) {
            let (from, to) = (column as f64 / columns, (column + 1) as f64 / columns);
            match gaps.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => gaps.push((from, to)),
            }
        }
        gaps
    }

    /// The layers of a chart. `figure` computes a value from exits and nanoseconds; it is divided by the
    /// observed nanoseconds.
    fn layers(
        &self,
        figure: impl Fn(i64, i64) -> f64,
        shown: impl Fn(f64) -> String,
        idle: bool,
    ) -> Vec<Layer> {
        let mut layers: Vec<(usize, Layer, f64)> = Vec::new();
        let total = self.total_ns().max(1) as f64;
        for (at, reason) in self.reasons.iter().enumerate().filter(|(_, reason)| idle || !reason.is_idle()) {
            let at = at.min(MOST_LAYERS);
            if layers.last().is_none_or(|(last, ..)| *last != at) {
                let (name, class) = if at == MOST_LAYERS {
                    ("other".to_owned(), "rest".to_owned())
                } else {
                    (reason.name.clone(), format!("s{at}"))
                };
                let layer =
                    Layer { name, class, values: vec![0.0; self.observed.len()], figure: String::new() };
                layers.push((at, layer, 0.0));
            }
            let Some((_, layer, sum)) = layers.last_mut() else { continue };
            *sum += figure(reason.exits, reason.handling_ns) / total;
            for (column, value) in layer.values.iter_mut().enumerate() {
                let (exits, ns) = reason.by_column.get(&self.shows[column]).copied().unwrap_or_default();
                if self.observed[column] > 0 {
                    *value += figure(exits, ns) / self.observed[column] as f64;
                }
            }
        }
        layers.into_iter().map(|(_, layer, sum)| Layer { figure: shown(sum), ..layer }).collect()
    }

    fn chart(&self, title: &str, layers: &[Layer], shown: &dyn Fn(f64) -> String) -> Markup {
        let columns = self.observed.len();
        let edges: Vec<f64> = (0..=columns).map(|edge| edge as f64 / columns as f64).collect();
        let sum = |column: usize| layers.iter().map(|layer| layer.values[column]).sum::<f64>();
        let highest = (0..columns).map(sum).fold(0.0, f64::max);
        let (ticks, gaps) = (self.window.ticks(), self.gaps());
        let chart = Stacked {
            title,
            layers,
            ticks: &ticks,
            gaps: &gaps,
            edges: &edges,
            highest,
            height: HEIGHT,
            shown,
        };
        html! { figure.course { figcaption { strong { (title) } } (chart.render()) (legend(layers)) } }
    }

    /// Renders links to other ranges, the charts and the table.
    pub(super) fn render(&self, range: Range, path: &str) -> Markup {
        let day = |micros: i64| clock(micros).format("%Y-%m-%d %H:%M").to_string();
        let per_ns = self.layers(|exits, _| exits as f64 * 1e9, per_second, true);
        let busy = self.layers(|_, ns| ns as f64 * 100.0, share, false);
        let is_gappy = self.observed.contains(&0);
        html! {
            section #course data-region {
                h2 { "Exits over time" }
                (ranges(range, path))
                @if self.reasons.is_empty() {
                    p { "No exits were counted from " (day(self.window.from)) " to " (day(self.window.to)) " UTC." }
                } @else {
                    p.muted {
                        (day(self.window.from)) " to " (day(self.window.to)) " UTC, of which "
                        (whole_time(self.total_ns().unsigned_abs())) " were observed. A column is " (range.column()) "."
                        @if is_gappy { " Nothing was observed in the grey parts." }
                    }
                    (self.chart("Exits a second", &per_ns, &per_second))
                    @if !busy.is_empty() {
                        (self.chart("Handling them, in percent of one CPU, without HLT", &busy, &share))
                    }
                    (self.table())
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let observed = self.total_ns().max(1) as f64;
        let column = |cell: &dyn Fn(&Reason) -> Cell| self.reasons.iter().map(cell).collect::<Vec<_>>();
        let figures = |title, cell: &dyn Fn(&Reason) -> (String, f64)| {
            let cells = column(&|reason| {
                let (text, value) = cell(reason);
                Cell::figure(&text, Some(value))
            });
            Column::figures(title, cells)
        };
        let mean = |mean: Option<i64>| match mean {
            Some(ns) => Cell::figure(&whole_time(ns.unsigned_abs()), Some(ns as f64)),
            None => Cell::figure(NONE, None),
        };
        let ns = |ns: i64| (whole_time(ns.unsigned_abs()), ns as f64);
        let columns = [
            Column::names("Reason", column(&|reason| Cell::name(&reason.name))),
            figures("Exits", &|reason| (count(reason.exits.unsigned_abs()), reason.exits as f64)),
            figures("A second", &|reason| {
                let rate = reason.exits as f64 / observed * 1e9;
                (per_second(rate), rate)
            }),
            figures("Handling", &|reason| ns(reason.handling_ns)),
            Column::figures("Mean", column(&|reason| mean(reason.mean_ns()))),
            figures("Longest", &|reason| ns(reason.max_ns.unwrap_or(0))),
        ];
        render(&format!("Exits by reason: {}", counted(self.reasons.len() as u64, "reason")), &columns, 0)
    }
}

fn ranges(chosen: Range, path: &str) -> Markup {
    html! {
        nav.ranges aria-label="Time shown" {
            @for range in Range::ALL {
                a href={ (path) "&range=" (range.word()) } aria-current=[(range == chosen).then_some("true")] { (range.name()) }
            }
        }
    }
}

/// The observed time of each column, and the column whose exits it shows. If observations regularly are more
/// than a column apart, each also stands for the columns before it.
fn filled(own: &[i64]) -> (Vec<i64>, Vec<usize>) {
    let (mut observed, mut shows) = (own.to_vec(), (0..own.len()).collect::<Vec<_>>());
    let seen: Vec<usize> = (0..own.len()).filter(|column| own[*column] > 0).collect();
    let mut distances: Vec<usize> = seen.windows(2).map(|two| two[1] - two[0]).collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(1);
    for (number, &column) in seen.iter().enumerate().filter(|_| usual > 1) {
        let free = number.checked_sub(1).map_or(0, |before| seen[before] + 1);
        // Allow for some jitter of the distance.
        let from = if column - free < usual * 3 / 2 { free } else { column + 1 - usual };
        for before in from..column {
            (observed[before], shows[before]) = (own[column], column);
        }
    }
    (observed, shows)
}

/// Formats a time in full.
pub(super) fn when(text: &str) -> String {
    let parsed = DateTime::parse_from_rfc3339(text).map(|time| time.with_timezone(&Utc));
    // Arrow formats a time in UTC with a Z.
    parsed.map_or_else(|_| text.to_owned(), |time| time.format("%Y-%m-%d %H:%M:%S UTC").to_string())
}

/// The first of the last `days` days, including today.
pub(super) fn first_day(days: u32) -> String {
    let back = TimeDelta::try_days(i64::from(days.saturating_sub(1))).unwrap_or_default();
    (Utc::now() - back).format("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * SECOND;

    #[test]
    fn columns_end_with_the_newest_interval_and_begin_with_the_first() {
        let window = Window::new(Range::SixHours, 0, 100 * HOUR);
        assert_eq!((window.from, window.to, window.columns()), (94 * HOUR, 100 * HOUR, 120));
        let young = Window::new(Range::Week, 99 * HOUR, 100 * HOUR);
        assert_eq!((young.from, young.to, young.columns()), (98 * HOUR, 100 * HOUR, 1));
        for range in Range::ALL {
            assert_eq!(Range::of(range.word()), range);
            let ends = [
                (0, 0),
                (5, 5),
                (i64::MIN, i64::MAX / 2),
                (10, 3),
                (0, i64::MAX),
                (i64::MAX, i64::MIN),
                (i64::MAX, i64::MAX),
            ];
            for (first, last) in ends {
                let window = Window::new(range, first, last);
                assert!(window.from < window.to && window.columns() <= 120, "{window:?}");
                assert!(window.from >= 0 && window.to <= LATEST, "{window:?}");
                assert!(window.ticks().len() <= 8, "{:?}", window.ticks());
            }
        }
    }

    #[test]
    fn ticks_end_where_numbers_do() {
        let window = Window { from: i64::MAX - HOUR, width: 60 * SECOND, to: i64::MAX };
        assert!((1..=5).contains(&window.ticks().len()), "{:?}", window.ticks());
    }

    #[test]
    fn what_was_not_observed_is_a_gap_and_no_zero() {
        // An observation in every third column, with one long gap.
        let own = [9, 0, 0, 9, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 9];
        let (observed, shows) = filled(&own);
        assert_eq!(observed, [9, 9, 9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9]);
        assert_eq!(shows[..4], [0, 3, 3, 3]);
        // If every column is observed, one without an observation is a gap.
        assert_eq!(filled(&[9, 9, 0, 9, 9]).0, [9, 9, 0, 9, 9]);
        assert_eq!(filled(&[0, 0]).0, [0, 0]);
    }

    #[test]
    fn rates_are_of_the_time_that_was_observed() {
        let window = Window::new(Range::Hour, 0, HOUR);
        let exits = |bin, reason: &str, exits| Exits {
            bin,
            reason: Some(reason.to_owned()),
            exits,
            samples: exits / 2,
            handling_ns: exits * 1000,
            max_ns: Some(7),
        };
        let observed = [0, 1].map(|bin| Observed { bin, observed_ns: 10_000_000_000 });
        let course = Course::new(
            window,
            &[exits(0, "MSR_WRITE", 20), exits(1, "HLT", 40), exits(70, "x", 1)],
            &observed,
        );
        let layers = course.layers(|exits, _| exits as f64 * 1e9, per_second, true);
        assert_eq!(layers[0].name, "HLT");
        assert_eq!((layers[1].values[0], layers[1].values[1]), (2.0, 0.0));
        assert_eq!(layers[1].figure, "1.00/s");
        let busy = course.layers(|_, ns| ns as f64, share, false);
        assert!(busy.iter().all(|layer| layer.name != "HLT"), "{busy:?}");
        let means: Vec<_> = course.reasons.iter().map(|one| (one.name.as_str(), one.mean_ns())).collect();
        assert_eq!(means, [("HLT", Some(2000)), ("MSR_WRITE", Some(2000)), ("x", None)]);
        assert_eq!(course.gaps().len(), 1);
        assert!(
            course
                .render(Range::Hour, "/host?name=a")
                .into_string()
                .contains("Nothing was observed in the grey parts")
        );
    }
}
