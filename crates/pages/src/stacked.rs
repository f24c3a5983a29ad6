//! Exits over time as a stacked chart.

use std::fmt::Write;

use maud::{Markup, html};

use crate::axis::{anchor, linear_ticks, percent};
use crate::chart::chart;
use crate::format::{bare, round};

/// The most layers with their own colours: more could not be distinguished. The rest becomes one more layer.
pub const MOST_LAYERS: usize = 7;
/// The height of the chart relative to the highest column: room for labels.
const HEADROOM: f64 = 1.06;

/// One layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The name in the legend.
    pub name: String,
    /// The CSS class of its colour.
    pub class: String,
    /// The height of the layer in each column.
    pub values: Vec<f64>,
    /// The text after the name in the legend.
    pub figure: String,
}

/// A stacked chart, the first layer at the bottom.
#[derive(Clone, Copy)]
pub struct Stacked<'a> {
    /// The title, for those who cannot see the chart.
    pub title: &'a str,
    /// The layers, the lowest first.
    pub layers: &'a [Layer],
    /// The ticks of the time axis: positions from 0 to 1, and labels.
    pub ticks: &'a [(f64, String)],
    /// The gaps in the recording, as shares of the duration.
    pub gaps: &'a [(f64, f64)],
    /// The starts of the columns as shares of the duration, followed by 1.
    pub edges: &'a [f64],
    /// The largest sum of a column, in this chart or in another one with the same scale.
    pub highest: f64,
    /// The height in pixels, without the axis.
    pub height: u32,
    /// Formats a value.
    pub shown: &'a dyn Fn(f64) -> String,
}

/// Ticks for an axis of elapsed time from 0 to `length_ns`.
#[must_use]
pub fn elapsed(length_ns: f64) -> Vec<(f64, String)> {
    let text = |ns: f64| if ns == 0.0 { "0".to_owned() } else { round(ns) };
    linear_ticks(0.0, length_ns).into_iter().map(|ns| (ns / length_ns.max(1.0), text(ns))).collect()
}

impl Stacked<'_> {
    /// The chart without its legend.
    #[must_use]
    pub fn render(&self) -> Markup {
        let most = if self.highest > 0.0 { self.highest * HEADROOM } else { 1.0 };
        let height = f64::from(self.height);
        let y = |value: f64| format!("{:.1}", height - value / most * height);
        let description = self.layers.iter().map(|layer| format!("{}: {}", layer.name, layer.figure));
        let ticks = linear_ticks(0.0, most);
        let labels = html! {
            @for &tick in &ticks {
                text.tick x="100%" y=(y(tick)) dy="4" text-anchor="end" { @if tick == 0.0 { "0" } @else { (bare(&(self.shown)(tick))) } }
            }
        };
        let content = html! {
            @for &tick in &ticks {
                line.grid x1="0" x2="100%" y1=(y(tick)) y2=(y(tick)) {}
            }
            @for (from, to) in self.gaps {
                rect.gap x=(percent(*from)) y="0" width=(percent(to - from)) height=(self.height) {}
            }
            svg x="0" y="0" width="100%" height=(self.height) viewBox="0 0 1000 1000" preserveAspectRatio="none" {
                @for (layer, path) in self.layers.iter().zip(self.paths(most)) {
                    path class={ "layer " (layer.class) } d=(path) { title { (layer.name) ": " (layer.figure) } }
                }
            }
            line.axis x1="0" x2="100%" y1=(self.height) y2=(self.height) {}
            @for (share, text) in self.ticks {
                line.axis x1=(percent(*share)) x2=(percent(*share)) y1=(self.height) y2=(self.height + 4) {}
                text.tick x=(percent(*share)) y=(self.height + 16) text-anchor=(anchor(*share)) { (text) }
            }
        };
        // Labels have their own column, because they keep their size at any page width.
        html! {
            div.scaled {
                svg width="100%" height=(self.height + 20) aria-hidden="true" { (labels) }
                (chart(self.height + 20, self.title, &description.collect::<Vec<_>>().join("; "), &content))
            }
        }
    }

    fn paths(&self, most: f64) -> Vec<String> {
        let columns = self.edges.len().saturating_sub(1);
        let mut below = vec![0.0; columns];
        let y = |value: f64| 1000.0 - value / most * 1000.0;
        let x = |edge: usize| self.edges[edge] * 1000.0;
        let mut paths = Vec::new();
        for layer in self.layers {
            let mut path = format!("M{:.1} {:.1}", 0.0, y(below.first().copied().unwrap_or(0.0)));
            // Along the top, then back along the bottom. Writing to a string cannot fail.
            for (column, bottom) in below.iter().enumerate() {
                let top = bottom + layer.values.get(column).copied().unwrap_or(0.0);
                let _ = write!(path, "V{:.1}H{:.1}", y(top), x(column + 1));
            }
            for column in (0..columns).rev() {
                let _ = write!(path, "V{:.1}H{:.1}", y(below[column]), x(column));
                below[column] += layer.values.get(column).copied().unwrap_or(0.0);
            }
            path.push('Z');
            paths.push(path);
        }
        paths
    }
}

/// The legend, the lowest layer first.
pub fn legend(layers: &[Layer]) -> Markup {
    html! {
        ul.legend {
            @for layer in layers {
                li {
                    svg width="12" height="12" aria-hidden="true" { rect.layer.(layer.class) x="0" y="0" width="12" height="12" {} }
                    code { (layer.name) } " " span.muted { (layer.figure) }
                }
            }
        }
    }
}
