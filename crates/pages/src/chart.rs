//! The frame of a chart, and the area chart that is drawn in it.

use std::fmt::Write;

use maud::{Markup, html};

/// A chart's frame, as wide as the page, with a height in pixels and an alternative text.
///
/// Horizontal positions are percentages: the chart fits any width, and letters keep their size.
pub fn chart(height: u32, title: &str, description: &str, content: &Markup) -> Markup {
    html! {
        svg role="img" width="100%" height=(height) aria-label=(format!("{title}. {description}")) {
            title { (title) }
            desc { (description) }
            (content)
        }
    }
}

/// Neighbouring columns as one filled outline, scaled to `peak`, `height` pixels high and `top` pixels from the top.
pub fn hill(class: &str, top: u32, height: u32, values: &[f64], peak: f64) -> Markup {
    let mut path = String::from("M0 100");
    for (at, value) in values.iter().enumerate() {
        let height = if peak > 0.0 { 100.0 - 100.0 * value / peak } else { 100.0 };
        // Writing to a string cannot fail.
        let _ = write!(path, "V{height:.1}H{:.2}", (at + 1) as f64 * 100.0 / values.len() as f64);
    }
    path.push_str("V100Z");
    html! {
        svg x="0" y=(top) width="100%" height=(height) viewBox="0 0 100 100" preserveAspectRatio="none" {
            path class={ "hill " (class) } d=(path) {}
        }
    }
}
