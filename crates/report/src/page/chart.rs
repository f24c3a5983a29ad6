//! The frame of a chart.

use maud::{Markup, html};

/// A chart's frame: its alternative text, the width of the page, and its height in pixels.
///
/// Horizontal positions are percentages, so that the chart fits any width while its letters keep their size.
pub(crate) fn chart(height: u32, title: &str, description: &str, content: &Markup) -> Markup {
    html! {
        svg role="img" width="100%" height=(height) aria-label=(format!("{title}. {description}")) {
            title { (title) }
            desc { (description) }
            (content)
        }
    }
}
