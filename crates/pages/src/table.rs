//! Tables, which can be sorted if scripts may run.

use maud::{Markup, Render, html};

use crate::axis::percent;
use crate::format::minus;

/// The type of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Names,
    Figures,
    Drawings,
}

/// A cell: its content, and its sort key.
#[derive(Debug, Clone)]
pub struct Cell {
    shown: Markup,
    value: Option<f64>,
    class: &'static str,
}

impl Cell {
    /// A name, in a monospaced font because names of exits are identifiers.
    pub fn name(text: &str) -> Self {
        Self { shown: html! { code { (text) } }, value: None, class: "" }
    }

    /// A number with its sort key; `None` is sorted last.
    pub fn figure(text: &str, value: Option<f64>) -> Self {
        Self { shown: html! { (minus(text)) }, value, class: "" }
    }

    /// Any other text with its sort key.
    #[must_use]
    pub fn of(shown: Markup, value: Option<f64>) -> Self {
        Self { shown, value, class: "" }
    }

    /// A bar whose length is this share of the column's width, 0 to 1.
    pub fn bar(share: f64, label: &str) -> Self {
        let share = share.clamp(0.0, 1.0);
        let shown = html! {
            svg role="img" width="100%" height="14" aria-label=(label) {
                title { (label) }
                rect.track x="0" y="2" width="100%" height="10" {}
                rect.bar x="0" y="2" width=(percent(share)) height="10" {}
            }
        };
        Self { shown, value: Some(share), class: "plot" }
    }

    /// Any drawing.
    pub fn drawing(shown: Markup) -> Self {
        Self { shown, value: None, class: "plot" }
    }

    /// Sets the CSS class of the cell.
    #[must_use]
    pub fn class(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

/// A column with its cells from top to bottom.
#[derive(Debug)]
pub struct Column {
    title: Markup,
    kind: Kind,
    cells: Vec<Cell>,
}

impl Column {
    /// A column of names.
    #[must_use]
    pub fn names(title: &str, cells: Vec<Cell>) -> Self {
        Self { title: html! { (title) }, kind: Kind::Names, cells }
    }

    /// A column of figures.
    #[must_use]
    pub fn figures(title: &str, cells: Vec<Cell>) -> Self {
        Self { title: html! { (title) }, kind: Kind::Figures, cells }
    }

    /// A column of drawings, which cannot be sorted.
    pub fn drawings(title: Markup, cells: Vec<Cell>) -> Self {
        Self { title, kind: Kind::Drawings, cells }
    }
}

/// The table. The last `sums` rows are sums, which stay at the bottom when the table is sorted.
pub fn render(caption: &str, columns: &[Column], sums: usize) -> Markup {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let body = rows.saturating_sub(sums);
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table.sortable {
                caption.hidden { (caption) }
                thead { tr { @for column in columns { (head(column)) } } }
                tbody { @for row in 0..body { tr { @for (at, column) in columns.iter().enumerate() { (cell(column, row, at == 0)) } } } }
                @if sums > 0 {
                    tfoot { @for row in body..rows { tr { @for (at, column) in columns.iter().enumerate() { (cell(column, row, at == 0)) } } } }
                }
            }
        }
    }
}

fn head(column: &Column) -> Markup {
    match column.kind {
        Kind::Names => html! { th.text scope="col" data-kind="names" { (column.title) } },
        Kind::Figures => html! { th scope="col" data-kind="figures" { (column.title) } },
        Kind::Drawings => html! { th.plot.fixed scope="col" { (column.title) } },
    }
}

fn cell(column: &Column, row: usize, is_first: bool) -> Markup {
    let Some(cell) = column.cells.get(row) else { return html! { td {} } };
    let class = match column.kind {
        Kind::Names => format!("name {}", cell.class),
        Kind::Figures | Kind::Drawings => cell.class.to_owned(),
    };
    let class = (!class.is_empty()).then_some(class);
    html! {
        @if is_first {
            th scope="row" class=[class] { (cell.shown) }
        } @else {
            td class=[class] data-value=[cell.value] { (cell.shown) }
        }
    }
}

/// A table of facts, one name and value per row; `class` is the CSS class of the values.
pub fn facts<N: Render, V: Render>(rows: impl IntoIterator<Item = (N, V)>, class: Option<&str>) -> Markup {
    html! {
        div.wide {
            table.facts {
                tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td class=[class] { (value) } } } }
            }
        }
    }
}
