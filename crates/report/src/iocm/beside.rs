//! Charts of arms side by side: bars of one figure in several groups, and lines over time.

use maud::{Markup, html};

use crate::format::NONE;
use crate::page::axis::{anchor, linear_ticks, percent};
use crate::page::chart::chart;

/// The end of the longest bar, as a share of the width, so that its figure fits behind it.
const LONGEST: f64 = 0.8;
const BAR: u32 = 12;
const LABEL: u32 = 18;
const GAP: u32 = 12;
/// The top margin of lines.
const TOP: f64 = 10.0;
const BOTTOM: f64 = 170.0;
/// The minimum distance of labels below a chart, as a share of the width.
const LABELS_APART: f64 = 0.12;

/// The class of an arm's colour, as in `study.css`.
fn class(arm: usize) -> String {
    format!("arm{}", arm % 7)
}

/// The legend of the arms' colours.
pub(super) fn legend(arms: &[String]) -> Markup {
    html! {
        p.legend {
            @for (at, arm) in arms.iter().enumerate() {
                span {
                    svg width="12" height="12" aria-hidden="true" {
                        g class=(class(at)) { rect.arm x="0" y="1" width="11" height="10" {} }
                    }
                    (arm)
                }
            }
        }
    }
}

/// A figure of arms in several groups, one below the other.
pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    /// The text below the title: the unit, and notes.
    pub(super) note: &'a str,
    pub(super) arms: &'a [String],
    /// The name of each group, with the value of each arm if it has one.
    pub(super) groups: Vec<(&'a str, Vec<Option<f64>>)>,
    /// Formats a value with its unit.
    pub(super) shown: &'a dyn Fn(f64) -> String,
}

impl Bars<'_> {
    /// The chart, followed by its table.
    pub(super) fn render(&self) -> Markup {
        // Each group has its own scale. Otherwise an idle phase would have no visible bars.
        let height = LABEL + self.arms.len() as u32 * BAR + GAP;
        let content = html! {
            @for (at, (name, values)) in (0..).zip(&self.groups) {
                @let top = at * height;
                @let most = values.iter().flatten().copied().fold(0.0, f64::max);
                text.name x="0" y=(top + 13) { (name) }
                @for (arm, value) in values.iter().enumerate() {
                    @if let Some(value) = value {
                        @let y = top + LABEL + arm as u32 * BAR;
                        @let width = if most > 0.0 { value / most * LONGEST } else { 0.0 };
                        g class=(class(arm)) { rect.arm x="0" y=(y) width=(percent(width)) height=(BAR - 2) {} }
                        text.value.halo x=(percent(width)) dx="5" y=(y + 9) { ((self.shown)(*value)) }
                    }
                }
            }
        };
        html! {
            figure {
                figcaption { strong { (self.title) } span.muted { (self.note) } }
                (chart(self.groups.len() as u32 * height, self.title, &self.description(), &content))
                details { summary { "Table" } (self.table()) }
            }
        }
    }

    fn description(&self) -> String {
        let groups = self.groups.iter().map(|(name, values)| {
            let of = self.arms.iter().zip(values);
            let arms = of.filter_map(|(arm, value)| Some(format!("{arm} {}", (self.shown)((*value)?))));
            format!("{name}: {}", arms.collect::<Vec<_>>().join(", "))
        });
        groups.collect::<Vec<_>>().join("; ")
    }

    fn table(&self) -> Markup {
        html! {
            div.wide tabindex="0" role="region" aria-label=(self.title) {
                table {
                    thead { tr { th scope="col" { "phase" } @for arm in self.arms { th scope="col" { (arm) } } } }
                    tbody {
                        @for (name, values) in &self.groups {
                            tr {
                                th scope="row" { (name) }
                                @for value in values { td { (value.map_or_else(|| NONE.to_owned(), self.shown)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Arms over time, in phases.
pub(super) struct Course<'a> {
    pub(super) title: &'a str,
    pub(super) note: &'a str,
    pub(super) arms: &'a [String],
    /// The start of each phase, as a share of the whole time, and its name.
    pub(super) phases: Vec<(f64, String)>,
    /// The points of each arm: the time as a share of the whole, and the value. Two points at the same time are a step.
    pub(super) lines: Vec<Vec<(f64, f64)>>,
    /// Formats a value with its unit.
    pub(super) shown: &'a dyn Fn(f64) -> String,
}

impl Course<'_> {
    /// The chart.
    pub(super) fn render(&self) -> Markup {
        let values = self.lines.iter().flatten().map(|point| point.1);
        let highest = values.fold(0.0, f64::max) * 1.05;
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let y = |value: f64| BOTTOM - value / highest * (BOTTOM - TOP);
        let ticks = linear_ticks(0.0, highest);
        let mut last = f64::NEG_INFINITY;
        let named: Vec<(f64, Option<&str>)> = self
            .phases
            .iter()
            .map(|(begin, name)| {
                let has_room = begin - last >= LABELS_APART;
                last = if has_room { *begin } else { last };
                (*begin, has_room.then_some(name.as_str()))
            })
            .collect();
        let content = html! {
            @for tick in &ticks { line.grid x1="0" x2="100%" y1=(px(y(*tick))) y2=(px(y(*tick))) {} }
            @for (begin, name) in &named {
                line.axis x1=(percent(*begin)) x2=(percent(*begin)) y1=(px(TOP)) y2=(px(BOTTOM + 4.0)) stroke-dasharray="2 4" {}
                @if let Some(name) = name {
                    text.tick x=(percent(*begin)) dx="3" y=(px(BOTTOM + 17.0)) text-anchor=(if *begin < 0.5 { "start" } else { anchor(*begin) }) { (name) }
                }
            }
            svg x="0" y="0" width="100%" height=(px(BOTTOM)) viewBox=(format!("0 0 1000 {BOTTOM}")) preserveAspectRatio="none" {
                @for (arm, line) in self.lines.iter().enumerate() {
                    g class=(class(arm)) { path.course d=(path(line, &y)) { title { (self.arms[arm]) } } }
                }
            }
            line.axis x1="0" x2="100%" y1=(px(BOTTOM)) y2=(px(BOTTOM)) {}
        };
        let height = (BOTTOM + 26.0) as u32;
        html! {
            figure.lines {
                figcaption { strong { (self.title) } span.muted { (self.note) } }
                div.scaled {
                    svg width="100%" height=(height) aria-hidden="true" {
                        @for tick in &ticks {
                            text.tick x="100%" y=(px(y(*tick))) dy="4" text-anchor="end" { ((self.shown)(*tick)) }
                        }
                    }
                    (chart(height, self.title, &self.description(), &content))
                }
            }
        }
    }

    fn description(&self) -> String {
        let arms = self.arms.iter().zip(&self.lines).map(|(arm, line)| {
            let lowest = line.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
            let highest = line.iter().map(|point| point.1).fold(0.0, f64::max);
            match lowest.is_finite() {
                true => format!("{arm}: from {} to {}", (self.shown)(lowest), (self.shown)(highest)),
                false => format!("{arm}: nothing"),
            }
        });
        arms.collect::<Vec<_>>().join("; ")
    }
}

fn path(line: &[(f64, f64)], y: &impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (at, (x, value)) in line.iter().enumerate() {
        let word = if at == 0 { 'M' } else { 'L' };
        path.push_str(&format!("{word}{:.1} {:.1}", x * 1000.0, y(*value)));
    }
    path
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}
