//! The distributions of handling times, as histograms over a logarithmic axis ("hills").

use exits::{ExitReason, HandlingTime};
use maud::{Markup, html};

use crate::format::whole_time;
use crate::page::axis::{LogAxis, percent};
use crate::page::chart::{self, chart};
use crate::page::round;

/// The maximum number of reasons on a page: those with the most time.
pub(crate) const MOST_REASONS: usize = 9;
const LANE: u32 = 56;
const GAP: u32 = 8;
const BINS: usize = 72;
/// The quantile up to which times are drawn: outliers would take up most of the axis.
const DRAWN: f64 = 0.9999;

/// One hill.
pub(crate) struct Lane<'a> {
    /// Its colour.
    pub(crate) class: &'static str,
    /// Its name, if there is more than one.
    pub(crate) name: &'static str,
    /// The times.
    pub(crate) times: &'a HandlingTime,
}

/// A section with the hills of each reason.
pub(crate) fn section(reasons: &[(ExitReason, Vec<Lane<'_>>)]) -> Markup {
    html! {
        @if !reasons.is_empty() {
            section {
                h2 { "How long one exit takes" }
                p.muted {
                    "Handling times on a logarithmic axis, of the reasons that took most time; each hill is scaled to its own "
                    "peak. The solid line is the median, the broken one the 99th percentile. The slowest exit of ten thousand is "
                    "not drawn."
                }
                div.multiples { @for (reason, lanes) in reasons { (render(&reason.to_string(), lanes)) } }
            }
        }
    }
}

/// The hills of one reason, one above the other on a common axis; empty without times.
fn render(title: &str, lanes: &[Lane<'_>]) -> Markup {
    let lanes: Vec<&Lane<'_>> = lanes.iter().filter(|lane| lane.times.count() > 0).collect();
    if lanes.is_empty() {
        return html! {};
    }
    let low = lanes.iter().filter_map(|lane| lane.times.min_ns()).min().unwrap_or(1);
    let high = lanes.iter().filter_map(|lane| lane.times.quantile_ns(DRAWN)).max().unwrap_or(1);
    let axis = LogAxis::new(low as f64, high as f64);
    let bottom = lanes.len() as u32 * (LANE + GAP);
    let words = |lane: &Lane<'_>| {
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|at| lane.times.quantile_ns(at).map_or_else(String::new, whole_time));
        let name = if lane.name.is_empty() { String::new() } else { format!("{}: ", lane.name) };
        format!("{name}p50 {p50}, p99 {p99}, p99.9 {p999}")
    };
    let content = html! {
        @for (number, lane) in (0..).zip(&lanes) {
            @let top = number * (LANE + GAP);
            (hill(lane, &axis, top))
            @for (class, at) in [("median", 0.5), ("p99", 0.99)] {
                @if let Some(ns) = lane.times.quantile_ns(at) {
                    @let x = percent(axis.share(ns as f64));
                    line class={ (class) " " (lane.class) } x1=(x) x2=(x) y1=(top) y2=(top + LANE) {}
                }
            }
        }
        (axis.render(bottom, round))
    };
    let description = lanes.iter().map(|lane| words(lane)).collect::<Vec<_>>().join("; ");
    html! {
        figure {
            figcaption {
                strong { code { (title) } }
                @for lane in &lanes { span.(lane.class) { (words(lane)) } }
            }
            (chart(bottom + 20, &format!("Handling times of {title}"), &description, &content))
        }
    }
}

/// The outline of a histogram with bins of equal width on the axis, scaled to its peak.
fn hill(lane: &Lane<'_>, axis: &LogAxis, top: u32) -> Markup {
    let mut bins = vec![0.0_f64; BINS];
    let place = |ns: f64| axis.share(ns) * BINS as f64;
    let mut below = 0;
    for (upper_end, count) in lane.times.buckets() {
        // Distribute a bucket over the bins that it overlaps. Its lower end is a 32nd below the upper one.
        let lower_end = (upper_end - upper_end / 32).max(below);
        below = upper_end;
        let (from, to) = (place(lower_end as f64), place(upper_end as f64 + 1.0));
        if axis.share(upper_end as f64) >= 1.0 {
            continue;
        }
        let width = (to - from).max(1e-9);
        let (first, last) = ((from as usize).min(BINS - 1), (to as usize).min(BINS - 1));
        for (bin, sum) in bins.iter_mut().enumerate().take(last + 1).skip(first) {
            let part = (to.min(bin as f64 + 1.0) - from.max(bin as f64)).max(0.0) / width;
            *sum += count as f64 * part;
        }
    }
    let peak = bins.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    chart::hill(lane.class, top, LANE, &bins, peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_times_are_drawn() {
        for all in [vec![0], vec![u64::MAX], vec![0, u64::MAX], vec![5, 5, 5]] {
            let mut times = HandlingTime::new();
            all.iter().for_each(|&ns| times.add(ns));
            let drawn = render("x", &[Lane { class: "off", name: "", times: &times }]).into_string();
            assert!(drawn.contains("<path") && !drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        }
    }
}
