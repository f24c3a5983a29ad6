//! Tables whose columns give way where room is short: first those that matter least, then names.

use std::borrow::Cow;

use textwrap::core::display_width;

use crate::figure;

/// Columns are this far apart.
const GAP: usize = 2;
/// Names are not shortened below this.
const NARROWEST_NAME: usize = 10;
/// For longer names than this no column of figures gives way: `EXTERNAL_INTERRUPT` fits.
const WIDEST_NAME: usize = 18;

/// A column with its cells from top to bottom.
pub(super) struct Column {
    title: Cow<'static, str>,
    cells: Vec<String>,
    on_the_left: bool,
    may_be_shortened: bool,
    /// The lowest goes first; `None` stays.
    rank: Option<u8>,
}

impl Column {
    /// Texts, on the left. The middle of long ones gives way.
    pub(super) fn names(title: &'static str, cells: Vec<String>) -> Self {
        Self { title: title.into(), cells, on_the_left: true, may_be_shortened: true, rank: None }
    }

    /// Texts, on the left, that mean nothing when they are not whole.
    pub(super) fn whole_names(title: &'static str, cells: Vec<String>) -> Self {
        Self { title: title.into(), cells, on_the_left: true, may_be_shortened: false, rank: None }
    }

    /// Figures, which are never shortened.
    pub(super) fn figures(title: &'static str, cells: Vec<String>) -> Self {
        Self { title: title.into(), cells, on_the_left: false, may_be_shortened: false, rank: None }
    }

    /// Figures below a title that is known at run time only.
    pub(super) fn named_figures(title: String, cells: Vec<String>) -> Self {
        Self { title: title.into(), cells, on_the_left: false, may_be_shortened: false, rank: None }
    }

    /// The column may be left out where room is short, the lowest `rank` first.
    pub(super) fn may_go(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| display_width(cell));
        cells.chain([display_width(&self.title)]).max().unwrap_or(0)
    }
}

/// The table in at most `width` columns if it can be; its last line is bold where there is colour and
/// `sum_last` says that it is a sum.
pub(super) fn drawn(mut columns: Vec<Column>, width: usize, sum_last: bool, colour: bool) -> String {
    let wanted = |column: &Column| {
        if column.may_be_shortened { column.width().min(WIDEST_NAME) } else { column.width() }
    };
    let total = |columns: &[Column], width_of: &dyn Fn(&Column) -> usize| {
        columns.iter().map(width_of).sum::<usize>() + GAP * columns.len().saturating_sub(1)
    };
    while total(&columns, &wanted) > width {
        let ranked = columns.iter().enumerate().filter_map(|(at, column)| Some((column.rank?, at)));
        let Some((_, least)) = ranked.min() else { break };
        columns.remove(least);
    }
    while total(&columns, &Column::width) > width {
        let names =
            columns.iter_mut().filter(|column| column.may_be_shortened && column.width() > NARROWEST_NAME);
        let Some(widest) = names.max_by_key(|column| column.width()) else { break };
        let shorter = widest.width() - 1;
        widest.cells.iter_mut().for_each(|cell| *cell = figure::elided(cell, shorter));
        if widest.width() > shorter {
            break;
        }
    }
    render(&columns, sum_last, colour)
}

fn render(columns: &[Column], sum_last: bool, colour: bool) -> String {
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let line = |cell: &dyn Fn(&Column) -> String| {
        let mut text = String::new();
        for (column, &width) in columns.iter().zip(&widths) {
            let cell = cell(column);
            let blanks = " ".repeat(width.saturating_sub(display_width(&cell)));
            let gap = if text.is_empty() { "" } else { "  " };
            text += gap;
            text += &if column.on_the_left { cell + &blanks } else { blanks + &cell };
        }
        text.trim_end().to_owned()
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let length = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let mut text = format!("{}\n{}\n", line(&|column| column.title.to_string()), "─".repeat(length));
    for row in 0..rows {
        let line = line(&|column| column.cells.get(row).cloned().unwrap_or_default());
        if colour && sum_last && row + 1 == rows {
            text += &format!("\u{1b}[1m{line}\u{1b}[0m\n");
        } else {
            text += &line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    fn table(width: usize) -> String {
        let columns = vec![
            Column::names("name", texts(&["EXTERNAL_INTERRUPT +0x4000000", "HLT"])),
            Column::figures("first", texts(&["1", "22"])).may_go(2),
            Column::figures("second", texts(&["333", "4"])).may_go(1),
            Column::figures("third", texts(&["5", "6"])),
        ];
        drawn(columns, width, true, false)
    }

    fn title(width: usize) -> String {
        let table = table(width);
        assert!(table.lines().all(|line| display_width(line) <= width), "{table}");
        table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_least_column_goes_first_and_names_give_way_last() {
        assert_eq!(title(60), "name first second third");
        assert_eq!(title(40), "name first second third");
        assert_eq!(title(39), "name first third");
        assert_eq!(title(31), "name third");
        assert_eq!(title(20), "name third");
        assert!(table(20).contains("EXTERN…000000"));
    }

    #[test]
    fn half_an_address_is_never_shown() {
        let columns = vec![Column::whole_names("address", texts(&["0xfffffffffffff000:W"]))];
        assert!(drawn(columns, 12, false, false).contains("0xfffffffffffff000:W"));
    }

    #[test]
    fn figures_stand_on_the_right() {
        let table = table(60);
        assert_eq!(table.lines().nth(3).unwrap(), "HLT                               22       4      6");
    }

    #[test]
    fn only_the_sum_is_bold() {
        let columns = || vec![Column::names("a", texts(&["x", "all"]))];
        assert_eq!(drawn(columns(), 80, true, true), "a\n───\nx\n\u{1b}[1mall\u{1b}[0m\n");
        assert!(!drawn(columns(), 80, false, true).contains('\u{1b}'));
    }
}
