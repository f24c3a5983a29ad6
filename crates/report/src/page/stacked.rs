//! Exits over time as stacked layers.

use std::fmt::Write;

use maud::{Markup, html};

use crate::page::axis::{anchor, linear_ticks, percent};
use crate::page::chart::chart;
use crate::page::histogram::round;

/// The most layers: more colours could not be distinguished. The rest is one more layer.
pub(crate) const MOST_LAYERS: usize = 7;
/// Room for letters above the highest column.
const HEADROOM: f64 = 1.06;

/// One layer.
pub(crate) struct Layer {
    pub(crate) name: String,
    /// The class of its colour.
    pub(crate) class: String,
    /// The height of the layer in each column.
    pub(crate) values: Vec<f64>,
    /// The legend's text after its name.
    pub(crate) figure: String,
}

/// A chart of layers, the first at the bottom.
pub(crate) struct Stacked<'a> {
    pub(crate) title: &'a str,
    pub(crate) layers: &'a [Layer],
    /// The duration of all columns, in nanoseconds.
    pub(crate) length_ns: f64,
    /// The starts of the columns, as shares of the duration, and 1 at the end.
    pub(crate) edges: &'a [f64],
    /// The highest sum of a column, of this chart or of another one on the same scale.
    pub(crate) highest: f64,
    pub(crate) height: u32,
    /// Formats a value.
    pub(crate) shown: &'a dyn Fn(f64) -> String,
}

impl Stacked<'_> {
    pub(crate) fn render(&self) -> Markup {
        let most = if self.highest > 0.0 { self.highest * HEADROOM } else { 1.0 };
        let height = f64::from(self.height);
        let y = |value: f64| format!("{:.1}", height - value / most * height);
        let description = self.layers.iter().map(|layer| format!("{}: {}", layer.name, layer.figure));
        let ticks = linear_ticks(0.0, most);
        let labels = html! {
            @for &tick in &ticks {
                text.tick x="100%" y=(y(tick)) dy="4" text-anchor="end" { @if tick == 0.0 { "0" } @else { (bare((self.shown)(tick))) } }
            }
        };
        let content = html! {
            @for &tick in &ticks {
                line.grid x1="0" x2="100%" y1=(y(tick)) y2=(y(tick)) {}
            }
            svg x="0" y="0" width="100%" height=(self.height) viewBox="0 0 1000 1000" preserveAspectRatio="none" {
                @for (layer, path) in self.layers.iter().zip(self.paths(most)) {
                    path class={ "layer " (layer.class) } d=(path) { title { (layer.name) ": " (layer.figure) } }
                }
            }
            line.axis x1="0" x2="100%" y1=(self.height) y2=(self.height) {}
            @for tick in linear_ticks(0.0, self.length_ns) {
                @let share = tick / self.length_ns.max(1.0);
                line.axis x1=(percent(share)) x2=(percent(share)) y1=(self.height) y2=(self.height + 4) {}
                text.tick x=(percent(share)) y=(self.height + 16) text-anchor=(anchor(share)) {
                    @if tick == 0.0 { "0" } @else { (round(tick)) }
                }
            }
        };
        // Letters keep their size at any width of the page, so they have their own column.
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
            // Along the top, and back along the bottom. Writing to a string cannot fail.
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

/// A round number needs no zeros after its point.
fn bare(shown: String) -> String {
    shown.replace(".00", "").replace(".0 ", " ").replace(".0/", "/")
}

/// The legend of colours, the lowest layer first.
pub(crate) fn legend(layers: &[Layer]) -> Markup {
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
