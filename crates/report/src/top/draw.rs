//! Draws the page.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use textwrap::core::display_width;

use super::page::Page;
use super::state::Top;
use super::{cells, columns, texts};
use crate::terminal::curve::{curve, levels, with_ascii_symbols};
use crate::text::{elided, elided_at_end};

/// The capabilities of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Colours are allowed.
    pub colour: bool,
    /// Draw with ASCII; names keep their letters.
    pub ascii: bool,
}

/// The height of the page below which only the lines and the totals are shown.
const LOW: u16 = 10;
/// The height of the page from which there are empty lines between its parts.
const HIGH: u16 = 20;

/// The width of the peak's figure beside a chart.
const PEAK: usize = 14;

/// Draws the page at any size. It is complete from 60 columns and 10 lines on.
pub fn draw(frame: &mut Frame<'_>, top: &Top, look: Look) {
    let area = frame.area();
    let mut page = Drawing { buffer: frame.buffer_mut(), area, look, y: area.y };
    page.draw(top);
    if top.shows_help {
        page.help();
    }
    if look.ascii {
        for cell in &mut page.buffer.content {
            if !cell.symbol().is_ascii() {
                let symbol = with_ascii_symbols(cell.symbol());
                cell.set_symbol(&symbol);
            }
        }
    }
}

struct Drawing<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    look: Look,
    /// The next free line.
    y: u16,
}

impl Drawing<'_> {
    fn draw(&mut self, top: &Top) {
        let height = self.area.height;
        self.totals(top);
        if height >= LOW {
            self.line(&texts::source(top), self.faint());
        }
        if height >= HIGH {
            self.y += 1;
        }
        if height >= LOW / 2 {
            if top.shows_io {
                self.line("I/O cores", self.coloured(Color::Cyan));
            } else {
                self.place(top);
            }
        }
        if top.shows_io {
            self.io_cores(top);
        } else if let (Page::Reason(whose, reason), true) = (top.view().page, height >= LOW) {
            self.line(&texts::reason(top, whose, reason), Style::new());
            if height >= HIGH {
                let key = texts::of_reason(whose, reason);
                let wide = usize::from(self.area.width).saturating_sub(PEAK);
                self.chart(&top.courses.rates(key, wide), wide);
            }
        }
        let foot = u16::from(height >= LOW);
        if !top.shows_io {
            self.lines(top, self.area.bottom().saturating_sub(foot));
        }
        if foot > 0 {
            self.y = self.area.bottom() - 1;
            match top.notice() {
                Some(notice) => self.line(notice, self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)),
                None => self.line(texts::keys(self.area.width.into()), self.faint()),
            }
        }
    }

    fn io_cores(&mut self, top: &Top) {
        for line in top.io.lines(self.area.width.into()) {
            self.line(&line, Style::new());
        }
    }

    fn totals(&mut self, top: &Top) {
        let lost = texts::lost(top);
        let style = Style::new().add_modifier(Modifier::BOLD);
        let is_whole = top.lost() == 0 && top.without_vcpu() == 0;
        let alarming = if is_whole { Style::new() } else { self.coloured(Color::Red) };
        let pieces = [
            ("exitless top".to_owned(), self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)),
            (texts::pace(top), style),
            (lost, alarming.add_modifier(if is_whole { Modifier::empty() } else { Modifier::BOLD })),
        ];
        let mut x = 0;
        for (text, style) in pieces {
            self.text(x, &text, style);
            x += display_width(&text) + 2;
        }
        self.on_the_right(&texts::when(top), x, top.is_paused());
        self.y += 1;
    }

    fn place(&mut self, top: &Top) {
        self.line(&texts::place(top), self.coloured(Color::Cyan));
    }

    /// Writes text on the right, if there is room after the text on the left.
    fn on_the_right(&mut self, text: &str, from: usize, is_loud: bool) {
        let at = usize::from(self.area.width).saturating_sub(display_width(text));
        if at >= from {
            let style = if is_loud {
                self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
            } else {
                self.faint()
            };
            self.text(at, text, style);
        }
    }

    fn lines(&mut self, top: &Top, bottom: u16) {
        let rows = top.rows();
        let area = Rect { y: self.y, height: bottom.saturating_sub(self.y), ..self.area };
        if area.height == 0 {
            return;
        }
        if rows.is_empty() {
            self.y += u16::from(self.area.height >= LOW);
            if self.y < bottom {
                self.line(&texts::nothing(top), Style::new());
            }
            return;
        }
        let width = usize::from(area.width);
        let mut fitted = columns::fitted(cells::columns(top, &rows), width);
        let mut curves = Vec::new();
        if let Some(wide) = columns::curve_width(&fitted) {
            curves.extend(rows.iter().map(|row| self.curve(&top.courses.rates(row.key, wide), wide)));
            let title = texts::curve_title(top, wide);
            let titles = fitted.iter_mut().filter(|(column, _)| column.title.is_empty());
            titles.for_each(|(column, _)| column.title = format!("{title:>wide$}"));
        }
        // The lines are below the titles. The line under the cursor is always visible.
        let seen = usize::from(area.height).saturating_sub(1);
        let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
        let cursor = top.view().cursor(&keys);
        let first = (cursor + 1).saturating_sub(seen.max(1));
        columns::draw(self.buffer, area, &fitted, first, &curves);
        for (at, y) in (first..rows.len()).zip(area.y + 1..bottom) {
            let mut style = Style::new();
            if rows[at].has_ended {
                style = style.add_modifier(Modifier::DIM);
            }
            if at == cursor {
                style = style.add_modifier(Modifier::REVERSED);
            }
            self.buffer.set_style(Rect { y, height: 1, ..area }, style);
        }
        self.y = bottom;
    }

    fn curve(&self, rates: &[f64], width: usize) -> String {
        let peak = rates.iter().copied().fold(0.0, f64::max);
        format!("{:>width$}", curve(rates, peak, levels(self.look.ascii)))
    }

    /// A chart of three lines, with the peak on its left.
    fn chart(&mut self, rates: &[f64], width: usize) {
        const HEIGHT: u16 = 3;
        let peak = rates.iter().copied().fold(0.0, f64::max);
        let part = peak / f64::from(HEIGHT);
        self.text(0, &texts::peak(rates), self.faint());
        for from_top in 0..HEIGHT {
            let below = f64::from(HEIGHT - 1 - from_top) * part;
            let heights: Vec<f64> = rates.iter().map(|rate| (rate - below).min(part)).collect();
            let line = curve(&heights, part, levels(self.look.ascii));
            self.text(PEAK, &format!("{line:>width$}"), self.coloured(Color::Cyan));
            self.y += 1;
        }
    }

    fn help(&mut self) {
        let lines = texts::help();
        let wide = lines.iter().map(|line| display_width(line)).max().unwrap_or(0) + 4;
        let width = u16::try_from(wide).unwrap_or(u16::MAX).min(self.area.width);
        let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(self.area.height);
        let middle = |whole: u16, part: u16| (whole - part) / 2;
        let area = Rect {
            x: self.area.x + middle(self.area.width, width),
            y: self.area.y + middle(self.area.height, height),
            width,
            height,
        };
        let blank = " ".repeat(width.into());
        let mut ruled = format!("{:─^1$}", " any key closes this ", usize::from(width));
        ruled = elided(&ruled, width.into());
        for (at, y) in (area.y..area.bottom()).enumerate() {
            let last = at + 1 == usize::from(height);
            self.buffer.set_stringn(area.x, y, &blank, width.into(), Style::reset());
            let text = match at.checked_sub(1).and_then(|at| lines.get(at)) {
                Some(line) if !last => format!("  {line}"),
                _ => {
                    if at == 0 {
                        ruled.clone()
                    } else {
                        "─".repeat(width.into())
                    }
                }
            };
            self.buffer.set_stringn(area.x, y, text, width.into(), Style::reset());
        }
    }

    /// Writes a line and advances to the next one.
    fn line(&mut self, text: &str, style: Style) {
        self.text(0, text, style);
        self.y += 1;
    }

    fn text(&mut self, x: usize, text: &str, style: Style) {
        let width = usize::from(self.area.width);
        if self.y < self.area.bottom() && x < width {
            let shown = elided_at_end(text, width - x);
            let at = self.area.x + u16::try_from(x).unwrap_or(u16::MAX);
            self.buffer.set_stringn(at, self.y, shown, width - x, style);
        }
    }

    fn coloured(&self, colour: Color) -> Style {
        if self.look.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn faint(&self) -> Style {
        if self.look.colour { Style::new().add_modifier(Modifier::DIM) } else { Style::new() }
    }
}
