//! Axes: the position of a value across a chart, in percent, and the values written below it.

use maud::{Markup, html};

/// Axes whose ends have at least this ratio get logarithmic ticks.
const WIDE: f64 = 4.0;
/// The most ticks of an axis.
const MOST_TICKS: usize = 6;

/// A logarithmic axis of positive values.
#[derive(Debug, Clone, Copy)]
pub struct LogAxis {
    low: f64,
    high: f64,
}

impl LogAxis {
    /// An axis from `low` to `high`, with a margin at both ends.
    pub fn new(low: f64, high: f64) -> Self {
        let low = low.max(1.0);
        let high = high.max(low);
        let room = (high / low).powf(0.04).max(1.02);
        Self { low: low / room, high: high * room }
    }

    /// The length of the axis, as a natural logarithm.
    pub fn span(&self) -> f64 {
        (self.high / self.low).ln()
    }

    /// The position from 0 at the low end to 1 at the high one; values outside are clamped.
    pub fn share(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / self.span();
        share.clamp(0.0, 1.0)
    }

    /// Round values within the axis.
    pub fn ticks(&self) -> Vec<f64> {
        if self.high / self.low < WIDE {
            return linear_ticks(self.low, self.high);
        }
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let of = |multiples: &[f64]| -> Vec<f64> {
            decades
                .clone()
                .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10_f64.powi(decade)))
                .filter(|&tick| self.low <= tick && tick <= self.high)
                .collect()
        };
        let fine = of(&[1.0, 2.0, 5.0]);
        if fine.len() <= MOST_TICKS { fine } else { of(&[1.0]) }
    }

    /// Ticks and values below a chart whose bottom is at `y`.
    pub fn render(&self, y: u32, value: impl Fn(f64) -> String) -> Markup {
        html! {
            line.axis x1="0" x2="100%" y1=(y) y2=(y) {}
            @for tick in self.ticks() {
                @let share = self.share(tick);
                line.axis x1=(percent(share)) x2=(percent(share)) y1=(y) y2=(y + 4) {}
                text.tick x=(percent(share)) y=(y + 16) text-anchor=(anchor(share)) { (value(tick)) }
            }
        }
    }
}

/// Round values from `low` to `high`, evenly spaced.
pub fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return vec![low];
    }
    let rough = span / 4.0;
    let magnitude = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(magnitude);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// A share as an SVG length.
pub fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// The `text-anchor` that keeps labels near the ends of an axis within the chart.
pub fn anchor(share: f64) -> &'static str {
    if share < 0.06 {
        "start"
    } else if share > 0.94 {
        "end"
    } else {
        "middle"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(LogAxis::new(130.0, 5_100.0).ticks(), [200.0, 500.0, 1000.0, 2000.0, 5000.0]);
        assert_eq!(LogAxis::new(10.0, 1e6).ticks(), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(linear_ticks(1180.0, 1260.0), [1180.0, 1200.0, 1220.0, 1240.0, 1260.0]);
    }

    #[test]
    fn one_value_alone_has_an_axis() {
        let axis = LogAxis::new(42.0, 42.0);
        assert!((axis.share(42.0) - 0.5).abs() < 0.01);
        assert!(axis.ticks().len() <= MOST_TICKS);
    }

    #[test]
    fn nothing_leaves_the_axis() {
        let axis = LogAxis::new(100.0, 1000.0);
        assert_eq!((axis.share(0.0), axis.share(1e9)), (0.0, 1.0));
    }
}
