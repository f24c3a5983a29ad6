//! Changes in percent drawn beside their figures, as points with their intervals.

use maud::{Markup, html};
use stats::Interval;

use crate::page::axis::percent;
use crate::text::minus;

/// The drawn range of changes, in percent.
pub(crate) struct Span {
    low: f64,
    high: f64,
}

impl Span {
    /// The range of the changes and their intervals, rounded to multiples of ten. It includes zero and ends at +100 %,
    /// because larger changes would hide the other rows.
    pub(crate) fn new(drawn: impl Iterator<Item = (Option<f64>, Option<Interval>)>) -> Self {
        let ends = drawn.flat_map(|(change, interval)| {
            [change, interval.map(|interval| interval.low), interval.map(|interval| interval.high)]
        });
        let (low, high) =
            ends.flatten().fold((-10.0, 10.0), |(low, high), end| (f64::min(low, end), f64::max(high, end)));
        let (low, high) = (low.max(-100.0), high.min(100.0));
        Self { low: (low / 10.0).floor() * 10.0, high: (high / 10.0).ceil() * 10.0 }
    }

    fn across(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The title of the column: the ends of the range, with `unit` after each.
    pub(crate) fn labels(&self, unit: &str) -> Markup {
        html! {
            svg width="100%" height="14" aria-hidden="true" {
                text.tick x="0" y="11" { (minus(&format!("{:.0}{unit}", self.low))) }
                @if (0.4..0.7).contains(&self.across(0.0)) {
                    text.tick x=(percent(self.across(0.0))) y="11" text-anchor="middle" { "0" }
                }
                text.tick x="100%" y="11" text-anchor="end" { (format!("+{:.0}{unit}", self.high)) }
            }
        }
    }

    /// One row; `label` has its name and figures in words.
    pub(crate) fn plot(&self, label: &str, change: Option<f64>, interval: Option<Interval>) -> Markup {
        let zero = percent(self.across(0.0));
        let ends = [change, interval.map(|interval| interval.high)];
        html! {
            svg role="img" width="100%" height="18" aria-label=(label) {
                title { (label) }
                line.axis x1=(zero) x2=(zero) y1="0" y2="18" {}
                @if let Some(interval) = interval {
                    line.interval x1=(percent(self.across(interval.low))) x2=(percent(self.across(interval.high))) y1="9" y2="9" {}
                }
                // An arrow if it goes on beyond the range.
                @if ends.into_iter().flatten().any(|end| end > self.high) {
                    svg x="100%" y="4" width="1" height="10" overflow="visible" { path.best d="M-7 0l7 5-7 5z" {} }
                }
                @if let Some(change) = change.filter(|&change| change <= self.high) {
                    circle.best cx=(percent(self.across(change))) cy="9" r="3.5" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_range_is_an_arrow() {
        let wide = Interval { low: -20.0, high: 400.0 };
        let span = Span::new(
            [(Some(50.0), Some(wide)), (None, Some(Interval { low: -3.0, high: f64::INFINITY }))].into_iter(),
        );
        assert_eq!((span.low, span.high), (-20.0, 100.0));
        for (change, interval, point, arrow) in [
            (Some(50.0), Some(Interval { low: 40.0, high: 60.0 }), true, false),
            (Some(50.0), Some(wide), true, true),
            (Some(250.0), Some(wide), false, true),
            (Some(250.0), None, false, true),
            (None, None, false, false),
        ] {
            let drawn = span.plot("EOI", change, interval).into_string();
            assert_eq!((drawn.contains("<circle"), drawn.contains("<path")), (point, arrow), "{drawn}");
        }
    }

    #[test]
    fn a_change_without_an_interval_is_in_the_range() {
        let span = Span::new([(Some(-71.0), None)].into_iter());
        assert_eq!((span.low, span.high), (-80.0, 10.0));
    }
}
