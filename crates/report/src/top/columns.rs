//! The columns of the page: the selection that fits, and their widths.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use textwrap::core::display_width;

use crate::text::elided;

/// The width of the page from which the gap between columns is 2.
const WIDE: usize = 100;

/// The content of a column.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Names, left-aligned, which may be cut to this width.
    Names(Vec<String>, usize),
    /// Figures, right-aligned and never cut. The minimum width prevents columns from moving when figures change.
    Figures(Vec<String>, usize),
    /// Curves over time with a minimum width. Their points are computed when the width is known.
    Curves(usize),
}

/// A column with its title.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) title: String,
    pub(super) content: Content,
    /// The column with the lowest rank is left out first; `None` is always kept.
    pub(super) rank: Option<u8>,
    /// True if the lines are ordered by it.
    pub(super) is_sorted_by: bool,
}

impl Column {
    fn natural(&self) -> usize {
        let widest = |cells: &[String]| cells.iter().map(|cell| display_width(cell)).max().unwrap_or(0);
        let cells = match &self.content {
            Content::Names(cells, _) => widest(cells),
            Content::Figures(cells, least) => widest(cells).max(*least),
            Content::Curves(least) => *least,
        };
        cells.max(display_width(&self.title))
    }

    fn least(&self) -> usize {
        match self.content {
            Content::Names(_, least) => self.natural().min(least.max(display_width(&self.title))),
            Content::Figures(..) | Content::Curves(_) => self.natural(),
        }
    }
}

/// The gap between columns.
pub(super) const fn gap(width: usize) -> usize {
    if width >= WIDE { 2 } else { 1 }
}

/// The columns that fit, each with its width. Names get the width they need, curves the rest.
pub(super) fn fitted(mut columns: Vec<Column>, width: usize) -> Vec<(Column, usize)> {
    let gap = gap(width);
    let least = |columns: &[Column]| {
        columns.iter().map(Column::least).sum::<usize>() + gap * columns.len().saturating_sub(1)
    };
    while least(&columns) > width {
        let ranked = columns.iter().enumerate().filter_map(|(at, column)| Some((column.rank?, at)));
        let Some((_, first)) = ranked.min() else { break };
        columns.remove(first);
    }
    let mut spare = width.saturating_sub(least(&columns));
    let mut fitted: Vec<(Column, usize)> = columns
        .into_iter()
        .map(|column| {
            let wide = column.least();
            (column, wide)
        })
        .collect();
    // Widen columns in turn, so that one column of long names does not take all the room.
    while spare > 0 {
        let short = fitted.iter_mut().filter(|(column, wide)| *wide < column.natural());
        let given = short.take(spare).map(|(_, wide)| *wide += 1).count();
        if given == 0 {
            break;
        }
        spare -= given;
    }
    let curve = fitted.iter_mut().find(|(column, _)| matches!(column.content, Content::Curves(_)));
    if let Some((_, wide)) = curve {
        *wide += spare;
    }
    fitted
}

/// The width of the curves, if there are any.
pub(super) fn curve_width(fitted: &[(Column, usize)]) -> Option<usize> {
    fitted.iter().find(|(column, _)| matches!(column.content, Content::Curves(_))).map(|&(_, wide)| wide)
}

/// Draws the titles and, below them, the lines from `first` on.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    columns: &[(Column, usize)],
    first: usize,
    curves: &[String],
) {
    let gap = gap(area.width.into());
    let mut x = usize::from(area.x);
    for (column, wide) in columns {
        let is_left = matches!(column.content, Content::Names(..) | Content::Curves(_));
        let mut put = |text: &str, y: u16, style: Style| {
            let text = elided(text, *wide);
            let blanks = if is_left { 0 } else { wide.saturating_sub(display_width(&text)) };
            let at = u16::try_from(x + blanks).unwrap_or(u16::MAX);
            if at < area.right() && y < area.bottom() {
                buffer.set_stringn(at, y, text, (area.right() - at).into(), style);
            }
        };
        let title = Style::new().add_modifier(Modifier::BOLD);
        let title = if column.is_sorted_by { title.add_modifier(Modifier::UNDERLINED) } else { title };
        put(&column.title, area.y, title);
        for (y, at) in (area.y + 1..area.bottom()).zip(first..) {
            let cell = match &column.content {
                Content::Names(cells, _) | Content::Figures(cells, _) => cells.get(at).cloned(),
                Content::Curves(_) => curves.get(at).cloned(),
            };
            match cell {
                Some(cell) => put(&cell, y, Style::new()),
                None => break,
            }
        }
        x += wide + gap;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(title: &str, content: Content, rank: Option<u8>) -> Column {
        Column { title: title.to_owned(), content, rank, is_sorted_by: false }
    }

    fn widths(width: usize) -> Vec<(String, usize)> {
        let texts = |text: &str| vec![text.to_owned()];
        let columns = vec![
            column("name", Content::Names(texts("EXTERNAL_INTERRUPT"), 10), None),
            column("pid", Content::Figures(texts("4711"), 0), Some(1)),
            column("rate", Content::Figures(texts("345/s"), 8), None),
            column("curve", Content::Curves(8), Some(2)),
        ];
        fitted(columns, width).into_iter().map(|(column, wide)| (column.title, wide)).collect()
    }

    #[test]
    fn the_curve_takes_what_is_left_and_the_least_column_goes_first() {
        let shown = |width| {
            widths(width).iter().map(|(title, wide)| format!("{title} {wide}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(120), "name 18, pid 4, rate 8, curve 84");
        assert_eq!(shown(41), "name 18, pid 4, rate 8, curve 8");
        assert_eq!(shown(33), "name 10, pid 4, rate 8, curve 8");
        assert_eq!(shown(32), "name 14, rate 8, curve 8");
        assert_eq!(shown(27), "name 18, rate 8");
        assert_eq!(shown(3), "name 10, rate 8");
    }
}
