//! Tables that adapt to the width: first the least important columns are left out, then names are folded into several
//! lines.

use std::borrow::Cow;
use std::collections::BTreeMap;

use textwrap::core::display_width;

use crate::text::{folded, longest_word};

/// The gap between columns.
const GAP: usize = 2;
/// The minimum width to which names are folded.
const NARROWEST_NAME: usize = 10;
/// The width to which names are folded before columns are left out. `EXTERNAL_INTERRUPT` fits.
const WIDEST_NAME: usize = 18;

/// A column with its cells from top to bottom.
pub(crate) struct Column {
    title: Cow<'static, str>,
    cells: Vec<String>,
    on_the_left: bool,
    /// The part that may be folded into several lines.
    folds: Folds,
    /// The width to which names are folded.
    limit: usize,
    /// The column with the lowest rank is left out first; `None` is always kept.
    rank: Option<u8>,
    /// Escape codes of cells, by row.
    codes: BTreeMap<usize, &'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Folds {
    Nothing,
    Title,
    Cells,
}

impl Column {
    fn new(title: Cow<'static, str>, cells: Vec<String>, on_the_left: bool, folds: Folds) -> Self {
        Self { title, cells, on_the_left, folds, limit: usize::MAX, rank: None, codes: BTreeMap::new() }
    }

    /// Texts, left-aligned; long ones are folded.
    pub(crate) fn names(title: impl Into<Cow<'static, str>>, cells: Vec<String>) -> Self {
        Self::new(title.into(), cells, true, Folds::Cells)
    }

    /// Texts, left-aligned, each in one line.
    pub(crate) fn whole_names(title: &'static str, cells: Vec<String>) -> Self {
        Self::new(title.into(), cells, true, Folds::Nothing)
    }

    /// Figures, which are never folded.
    pub(crate) fn figures(title: impl Into<Cow<'static, str>>, cells: Vec<String>) -> Self {
        Self::new(title.into(), cells, false, Folds::Nothing)
    }

    /// Figures with a title that is only known at run time, and is folded if it is long.
    pub(crate) fn named_figures(title: String, cells: Vec<String>) -> Self {
        Self::new(title.into(), cells, false, Folds::Title)
    }

    /// Lets the column be left out if room is short, the lowest `rank` first.
    pub(crate) fn may_go(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Gives cells an escape code, by row.
    pub(crate) fn coloured(self, codes: impl IntoIterator<Item = (usize, &'static str)>) -> Self {
        Self { codes: codes.into_iter().collect(), ..self }
    }

    /// The lines of a cell.
    fn lines(&self, cell: &str) -> Vec<String> {
        if self.folds == Folds::Cells { folded(cell, self.limit) } else { vec![cell.to_owned()] }
    }

    fn title_lines(&self) -> Vec<String> {
        if self.folds == Folds::Title {
            folded(&self.title, self.limit)
        } else {
            vec![self.title.to_string()]
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| widest(&self.lines(cell)));
        cells.chain([widest(&self.title_lines())]).max().unwrap_or(0)
    }

    /// The minimum width after folding.
    fn narrowest(&self) -> usize {
        let whole = || self.cells.iter().map(|cell| display_width(cell));
        match self.folds {
            Folds::Nothing => self.width(),
            Folds::Title => whole().chain([longest_word(&self.title)]).max().unwrap_or(0),
            Folds::Cells => {
                let words = self.cells.iter().map(|cell| longest_word(cell));
                words.chain([display_width(&self.title), NARROWEST_NAME]).max().unwrap_or(0)
            }
        }
    }

    /// The width to which it is folded before less important columns are left out.
    fn wanted(&self) -> usize {
        match self.folds {
            Folds::Nothing => self.width(),
            Folds::Title => self.narrowest(),
            Folds::Cells => self.width().min(WIDEST_NAME.max(self.narrowest())),
        }
    }
}

fn widest(lines: &[String]) -> usize {
    lines.iter().map(|line| display_width(line)).max().unwrap_or(0)
}

/// The table in at most `width` columns if possible. Its last line is bold if `colour` and `sum_last` are set.
pub(crate) fn drawn(mut columns: Vec<Column>, width: usize, sum_last: bool, colour: bool) -> String {
    let total = |columns: &[Column], width_of: &dyn Fn(&Column) -> usize| {
        columns.iter().map(width_of).sum::<usize>() + GAP * columns.len().saturating_sub(1)
    };
    while total(&columns, &Column::wanted) > width {
        let ranked = columns.iter().enumerate().filter_map(|(at, column)| Some((column.rank?, at)));
        let Some((_, least)) = ranked.min() else { break };
        columns.remove(least);
    }
    while total(&columns, &Column::width) > width {
        let wide = columns.iter_mut().filter(|column| column.width() > column.narrowest());
        let Some(widest) = wide.max_by_key(|column| column.width()) else { break };
        // What is wider than the whole table would take a step for each column.
        widest.limit = (widest.width() - 1).min(width.max(widest.narrowest()));
    }
    render(&columns, sum_last, colour)
}

fn render(columns: &[Column], sum_last: bool, colour: bool) -> String {
    let widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let line = |row: Option<usize>, cell: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for (at, (column, &width)) in columns.iter().zip(&widths).enumerate() {
            let mut cell = cell(at);
            let blanks = " ".repeat(width.saturating_sub(display_width(&cell)));
            if let Some(code) =
                row.filter(|_| colour && !cell.is_empty()).and_then(|row| column.codes.get(&row))
            {
                cell = format!("\u{1b}[{code}m{cell}\u{1b}[0m");
            }
            let gap = if text.is_empty() { "" } else { "  " };
            text += gap;
            text += &if column.on_the_left { cell + &blanks } else { blanks + &cell };
        }
        text.trim_end().to_owned()
    };
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let length = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    let titles: Vec<Vec<String>> = columns.iter().map(Column::title_lines).collect();
    let highest = |cells: &[Vec<String>]| cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    let height = highest(&titles);
    for at in 0..height {
        // Titles are aligned at the bottom.
        let of = |column: usize| {
            let above = height - titles[column].len();
            at.checked_sub(above).and_then(|at| titles[column].get(at).cloned()).unwrap_or_default()
        };
        text += &line(None, &of);
        text.push('\n');
    }
    text += &"─".repeat(length);
    text.push('\n');
    for row in 0..rows {
        let of = |column: &Column| column.cells.get(row).map_or_else(Vec::new, |cell| column.lines(cell));
        let cells: Vec<Vec<String>> = columns.iter().map(of).collect();
        for at in 0..highest(&cells) {
            let line = line(Some(row), &|column| cells[column].get(at).cloned().unwrap_or_default());
            if colour && sum_last && row + 1 == rows {
                text += &format!("\u{1b}[1m{line}\u{1b}[0m\n");
            } else {
                text += &line;
                text.push('\n');
            }
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
        // Names are only folded after separators.
        assert!(
            table(20).contains("\nEXTERNAL_       5\nINTERRUPT\n+0x4000000\nHLT             6"),
            "{}",
            table(20)
        );
    }

    #[test]
    fn half_an_address_is_never_shown() {
        let columns = vec![Column::whole_names("address", texts(&["0xfffffffffffff000:W"]))];
        assert!(drawn(columns, 12, false, false).contains("0xfffffffffffff000:W"));
    }

    #[test]
    fn characters_of_two_columns_are_measured_as_such() {
        let name = "虚拟机-".repeat(12);
        let columns = |name: &str| {
            vec![Column::names("VM", texts(&[name])), Column::figures("exits", texts(&["1,234"]))]
        };
        let table = drawn(columns(&name), 40, false, false);
        assert!(table.lines().all(|line| display_width(line) <= 40), "{table}");
        assert_eq!(table.matches("虚拟机-").count(), 12, "{table}");
        // A name that cannot be folded is wider than the table.
        let name = "日".repeat(40);
        let table = drawn(columns(&name), 60, false, false);
        assert!(table.contains(&format!("\n{name}  1,234")), "{table}");
    }

    #[test]
    fn long_titles_are_folded_before_columns_go() {
        let columns = vec![
            Column::whole_names("n", texts(&["1"])),
            Column::named_figures("apicv on, irqchip split".to_owned(), texts(&["12"])),
            Column::figures("p", texts(&["0.1"])).may_go(0),
        ];
        let table = drawn(columns, 18, false, false);
        let heading: Vec<&str> = table.lines().take(4).map(str::trim).collect();
        assert_eq!(heading, ["apicv on,", "irqchip", "n      split    p", "─────────────────"]);
    }

    #[test]
    fn figures_stand_on_the_right() {
        let table = table(60);
        assert_eq!(table.lines().nth(3).unwrap(), "HLT                               22       4      6");
    }

    #[test]
    fn a_coloured_cell_takes_the_room_of_a_plain_one() {
        let table = |colour| {
            let figures = Column::figures("b", texts(&["1", "22"])).coloured([(0, "32")]);
            drawn(vec![Column::names("a", texts(&["x", "y"])), figures], 80, false, colour)
        };
        assert_eq!(table(true), "a   b\n─────\nx   \u{1b}[32m1\u{1b}[0m\ny  22\n");
        assert_eq!(table(false), "a   b\n─────\nx   1\ny  22\n");
    }

    #[test]
    fn only_the_sum_is_bold() {
        let columns = || vec![Column::names("a", texts(&["x", "all"]))];
        assert_eq!(drawn(columns(), 80, true, true), "a\n───\nx\n\u{1b}[1mall\u{1b}[0m\n");
        assert!(!drawn(columns(), 80, false, true).contains('\u{1b}'));
    }
}
