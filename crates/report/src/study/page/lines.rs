//! A figure by number of guests: each arm's levels with their intervals, and the changes below them.

use maud::{Markup, html};
use stats::{Interval, Scale};
use study::Unit;
use study::analysis::{Comparison, Figure, Findings, Point};

use super::marks::{class, guests, mark};
use super::tables;
use crate::page::axis::{linear_ticks, percent};
use crate::page::chart::chart;
use crate::study::figures::{self, Measure};
use crate::text::minus;

/// Vertical positions in pixels: the values, then the changes, then the numbers of guests.
const VALUES: [f64; 2] = [10.0, 170.0];
const CHANGES: [f64; 2] = [196.0, 260.0];
/// The horizontal margin as a share of the width, so that marks at the ends are not cut off.
const MARGIN: f64 = 0.07;
/// The horizontal offset between arms in pixels, so that their whiskers do not hide each other.
const APART: f64 = 7.0;
/// The ratio of the lowest value to the highest above which the axis does not begin at 0.
const FAR_FROM_NOTHING: f64 = 0.5;
/// The minimum distance of labels of numbers of guests, as a share of the width.
const LABELS_APART: f64 = 0.06;

/// The minimum ratio of the figures' highest values for figures of one unit to share an axis. With a smaller ratio, some
/// charts would be flat.
const ALIKE: f64 = 0.25;

/// A scale from values to pixels.
#[derive(Clone)]
struct Axis {
    low: f64,
    high: f64,
    ends: [f64; 2],
}

impl Axis {
    fn y(&self, value: f64) -> f64 {
        let share = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        self.ends[1] - share * (self.ends[1] - self.ends[0])
    }

    /// An axis over the values. It begins at 0 unless all values are far from it.
    fn of_values(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
        // Avoid an empty axis if all values are zero.
        let high = if high <= 0.0 { 1.0 } else { high };
        let room = (high - low).max(high.abs() * 0.02).max(1e-12) * 0.08;
        let begins =
            if low > high * FAR_FROM_NOTHING && low > 0.0 { (low - room).max(0.0) } else { low.min(0.0) };
        Self { low: begins, high: high + room, ends: VALUES }
    }

    /// An axis around 0.
    fn of_changes(values: impl Iterator<Item = f64> + Clone) -> Self {
        let low = values.clone().filter(|value| value.is_finite()).fold(0.0, f64::min);
        let high = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        // Avoid an empty axis if there is no change.
        let room = if high > low { (high - low) * 0.12 } else { 1.0 };
        Self { low: low - room, high: high + room, ends: CHANGES }
    }
}

/// The axes of a chart: one of its values, and one of the changes if there are any.
pub(super) struct Axes {
    values: Axis,
    changes: Option<Axis>,
}

/// Figures with their axes. Figures with the same workload, unit and scale of changes share the axis of changes, and the
/// axis of values if their values are similar, so that they can be compared at a glance.
pub(super) fn with_axes<'a>(figures: &[&'a Figure]) -> Vec<(&'a Figure, Axes)> {
    let highest = |figure: &Figure| values(figure).into_iter().fold(0.0, f64::max);
    let kind = |figure: &Figure| (figure.workload.clone(), figure.unit, scale(figure));
    let axes = |figure: &Figure| {
        let kin = || figures.iter().copied().filter(|other| kind(other) == kind(figure));
        let tops = || kin().map(highest);
        let alike = tops().fold(f64::INFINITY, f64::min) >= ALIKE * tops().fold(0.0, f64::max);
        let shown: Vec<f64> = if alike { kin().flat_map(values).collect() } else { values(figure) };
        let changed: Vec<f64> = kin().flat_map(changes).collect();
        let has_changes = !changes(figure).is_empty();
        Axes {
            values: Axis::of_values(shown.into_iter()),
            changes: has_changes.then(|| Axis::of_changes(changed.into_iter())),
        }
    };
    figures.iter().map(|&figure| (figure, axes(figure))).collect()
}

/// The values of single runs, and the ends of the levels' intervals.
fn values(figure: &Figure) -> Vec<f64> {
    let arms = figure.points.iter().flat_map(|point| point.arms.iter().flatten());
    arms.flat_map(|arm| arm.values.iter().map(|value| value.1).chain(interval_ends(arm.level_interval)))
        .collect()
}

fn changes(figure: &Figure) -> Vec<f64> {
    let changes = comparisons(figure).filter_map(|one| one.change);
    changes.flat_map(|change| interval_ends(change.interval).chain([change.estimate])).collect()
}

fn scale(figure: &Figure) -> Option<Scale> {
    comparisons(figure).find_map(|one| one.change).map(|change| change.scale)
}

/// The chart with its table; empty without values.
pub(super) fn figure(findings: &Findings, figure: &Figure, axes: &Axes) -> Markup {
    if figure.points.is_empty() {
        return html! {};
    }
    let measure = Measure::of_figure(figure);
    let title = figure.name();
    let Axes { values: axis, changes: strip } = axes;
    let bottom = if strip.is_some() { CHANGES[1] } else { VALUES[1] };
    let height = (bottom + 36.0) as u32;
    let content = html! {
        (grid(axis, &measure))
        @for arm in 0..findings.arms.len() { (arm_values(figure, arm, findings.arms.len(), axis)) }
        @if let Some(strip) = strip {
            @for tick in strip_ticks(strip) {
                line.grid x1="0" x2="100%" y1=(px(strip.y(tick))) y2=(px(strip.y(tick))) {}
            }
            line.zero x1="0" x2="100%" y1=(px(strip.y(0.0))) y2=(px(strip.y(0.0))) {}
            @for point in &figure.points {
                @for one in &point.comparisons { (changed(figure, point, one, findings.arms.len(), strip)) }
            }
        }
        line.axis x1="0" x2="100%" y1=(px(bottom + 8.0)) y2=(px(bottom + 8.0)) {}
        (numbers(figure, bottom + 8.0))
    };
    html! {
        figure.lines {
            figcaption {
                strong { (title) }
                span.muted { (caption(findings, figure, &measure, axis, strip.is_some())) }
            }
            div.scaled {
                svg width="100%" height=(height) aria-hidden="true" { (labels(axis, &measure, strip.as_ref())) }
                (chart(height, &title, &description(findings, figure, &measure), &content))
            }
            (tables::behind(findings, figure, &measure))
        }
    }
}

fn comparisons(figure: &Figure) -> impl Iterator<Item = &Comparison> {
    figure.points.iter().flat_map(|point| &point.comparisons)
}

fn interval_ends(interval: Option<Interval>) -> impl Iterator<Item = f64> {
    interval.into_iter().flat_map(|interval| [interval.low, interval.high])
}

/// The horizontal position of a number of guests.
fn across(figure: &Figure, guests: u32) -> f64 {
    let of = |point: Option<&Point>| point.map_or(0.0, |point| f64::from(point.guests));
    let (first, last) = (of(figure.points.first()), of(figure.points.last()));
    if last <= first {
        0.5
    } else {
        MARGIN + (f64::from(guests) - first) / (last - first) * (1.0 - 2.0 * MARGIN)
    }
}

fn shift(arm: usize, arms: usize) -> String {
    format!("translate({:.1} 0)", (arm as f64 - (arms as f64 - 1.0) / 2.0) * APART)
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn value_ticks(axis: &Axis, measure: &Measure) -> Vec<f64> {
    let size = measure.size();
    linear_ticks(axis.low / size, axis.high / size).into_iter().map(|tick| tick * size).collect()
}

fn strip_ticks(strip: &Axis) -> Vec<f64> {
    let ticks = linear_ticks(strip.low, strip.high);
    // There is room for four ticks only.
    if ticks.len() > 4 {
        ticks
            .into_iter()
            .enumerate()
            .filter(|(at, tick)| at % 2 == 0 || *tick == 0.0)
            .map(|(_, tick)| tick)
            .collect()
    } else {
        ticks
    }
}

fn grid(axis: &Axis, measure: &Measure) -> Markup {
    html! {
        @for tick in value_ticks(axis, measure) {
            line.grid x1="0" x2="100%" y1=(px(axis.y(tick))) y2=(px(axis.y(tick))) {}
        }
    }
}

fn labels(axis: &Axis, measure: &Measure, strip: Option<&Axis>) -> Markup {
    let ticks = value_ticks(axis, measure);
    let step = ticks.get(1).zip(ticks.first()).map_or(axis.high, |(second, first)| second - first);
    html! {
        @for tick in ticks {
            text.tick x="100%" y=(px(axis.y(tick))) dy="4" text-anchor="end" { (minus(&measure.tick(tick, step))) }
        }
        @if let Some(strip) = strip {
            @let ticks = strip_ticks(strip);
            @let step = ticks.get(1).zip(ticks.first()).map_or(1.0, |(second, first)| second - first);
            @for tick in ticks {
                text.tick x="100%" y=(px(strip.y(tick))) dy="4" text-anchor="end" { (minus(&signed_tick(tick, step))) }
            }
        }
    }
}

fn signed_tick(tick: f64, step: f64) -> String {
    if tick.abs() < step * 1e-6 {
        return "0".to_owned();
    }
    if tick.abs() >= 1e4 {
        return format!("{tick:+.0e}");
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{tick:+.decimals$}")
}

fn arm_values(figure: &Figure, arm: usize, arms: usize, axis: &Axis) -> Markup {
    let points: Vec<_> =
        figure.points.iter().filter_map(|point| Some((point, point.arms.get(arm)?.as_ref()?))).collect();
    html! {
        g class=(class(arm)) transform=(shift(arm, arms)) {
            @for pair in points.windows(2) {
                @let [(from, first), (to, second)] = [pair[0], pair[1]];
                line.between x1=(percent(across(figure, from.guests))) y1=(px(axis.y(first.level)))
                    x2=(percent(across(figure, to.guests))) y2=(px(axis.y(second.level))) {}
            }
            @for (point, values) in points {
                @let x = percent(across(figure, point.guests));
                @for (_, value) in &values.values { circle.run cx=(x) cy=(px(axis.y(*value))) r="1.8" {} }
                @if let Some(interval) = values.level_interval { (whisker(&x, axis, interval)) }
                svg x=(x) y=(px(axis.y(values.level))) width="1" height="1" { (mark(arm)) }
            }
        }
    }
}

fn changed(figure: &Figure, point: &Point, one: &Comparison, arms: usize, strip: &Axis) -> Markup {
    let Some(change) = one.change else { return html! {} };
    let x = percent(across(figure, point.guests));
    html! {
        g class=(class(one.arm)) transform=(shift(one.arm, arms)) {
            @if let Some(interval) = change.interval { (whisker(&x, strip, interval)) }
            svg x=(x) y=(px(strip.y(change.estimate))) width="1" height="1" { (mark(one.arm)) }
        }
    }
}

fn whisker(x: &str, axis: &Axis, interval: Interval) -> Markup {
    html! {
        line.spread x1=(x) x2=(x) y1=(px(axis.y(interval.low))) y2=(px(axis.y(interval.high))) {}
        svg x=(x) y="0" width="1" height="1" {
            @for end in [interval.low, interval.high] {
                line.spread x1="-3" x2="3" y1=(px(axis.y(end))) y2=(px(axis.y(end))) {}
            }
        }
    }
}

/// The numbers of guests below the chart.
fn numbers(figure: &Figure, y: f64) -> Markup {
    let mut last = f64::NEG_INFINITY;
    let labelled = figure.points.iter().map(|point| {
        let share = across(figure, point.guests);
        let has_room = share - last >= LABELS_APART;
        if has_room {
            last = share;
        }
        (point.guests, share, has_room)
    });
    html! {
        @for (guests, share, has_room) in labelled {
            line.axis x1=(percent(share)) x2=(percent(share)) y1=(px(y)) y2=(px(y + 4.0)) {}
            @if has_room { text.tick x=(percent(share)) y=(px(y + 17.0)) text-anchor="middle" { (guests) } }
        }
    }
}

fn caption(
    findings: &Findings,
    figure: &Figure,
    measure: &Measure,
    axis: &Axis,
    has_changes: bool,
) -> String {
    let unit = if measure.name().is_empty() { "count" } else { measure.name() };
    let mut text = format!("{unit}, against the number of {}", guests(findings));
    if axis.low > 0.0 {
        text += "; the axis does not begin at 0";
    }
    if has_changes {
        text += match (scale(figure), figure.unit) {
            (Some(Scale::Difference), Unit::Percent) => ". Below: change in percentage points",
            (Some(Scale::Difference), _) => ". Below: change in plain units",
            _ => ". Below: change in %",
        };
    }
    text
}

fn description(findings: &Findings, figure: &Figure, measure: &Measure) -> String {
    let points = figure.points.iter().map(|point| {
        let arms =
            findings.arms.iter().enumerate().filter_map(|(at, arm)| {
                Some(format!("{} {}", arm.full_name, measure.shown(point.level(at)?)))
            });
        let changes = point.comparisons.iter().filter_map(|one| {
            one.change?;
            let arm = findings.arms.get(one.arm)?;
            let (change, within) =
                (figures::change(one.change, figure.unit), figures::interval(one.change, figure.unit));
            Some(format!("change with {} {change} ({within})", arm.full_name))
        });
        let all: Vec<String> = arms.chain(changes).collect();
        format!("{}: {}", figures::guests(findings, point.guests), all.join(", "))
    });
    points.collect::<Vec<_>>().join("; ")
}
