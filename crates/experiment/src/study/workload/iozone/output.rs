//! What IOzone 3.x prints: a table outside the throughput mode, paragraphs in it.

use super::{Iozone, IozoneTest};
use crate::study::Metric;
use crate::study::workload::NotUnderstood;
use crate::study::workload::adapter::{Adapter, Figures, Text};

/// Its last line, which is missing where it gave up.
const WHOLE: &str = "iozone test complete.";
/// It can print operations, microseconds or bare numbers instead.
const UNIT: &str = "Output is in kBytes/sec";
const KIBIBYTE: f64 = 1024.0;

pub(super) fn parse(iozone: &Iozone, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let lines = || text.stdout().lines();
    if !lines().any(|line| line.trim() == UNIT) {
        let other = lines().find(|line| line.contains("Output is in")).unwrap_or_default();
        return Err(text.not_understood(UNIT, other));
    }
    if !lines().any(|line| line.trim() == WHOLE) {
        return Err(text.missing(WHOLE));
    }
    let mut figures = Figures::new(iozone.metrics());
    match iozone.processes {
        Some(processes) => throughput(processes, text, &mut figures)?,
        None => table(text, &mut figures)?,
    }
    figures.all(text)
}

fn throughput(processes: u32, text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    for line in text.stdout().lines() {
        let Some(rest) = line.trim_start().strip_prefix("Children see throughput for") else { continue };
        let form = "\"COUNT TEST = NUMBER kB/sec\"";
        let (who, what) = rest.split_once('=').ok_or_else(|| text.not_understood(form, line))?;
        let (count, label) = who.trim().split_once(' ').ok_or_else(|| text.not_understood(form, line))?;
        if count.parse() != Ok(processes) {
            return Err(text.not_understood(format!("{processes} processes"), line));
        }
        let number = what.trim().strip_suffix(" kB/sec").ok_or_else(|| text.not_understood(form, line))?;
        let value = text.number(number.trim(), "a throughput", line)? * KIBIBYTE;
        let label = label.trim();
        if let Some(known) = IozoneTest::KNOWN.iter().find(|known| known.throughput == Some(label)) {
            figures.add(&known.test.metric_name(), value);
        }
    }
    Ok(())
}

/// A cell is empty where its test was not asked for, so cells belong to columns by their place: both the names in the
/// heading and the numbers end where the column ends. One number that is too wide for its column moves all after it.
fn table(text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    let lines: Vec<&str> = text.stdout().lines().collect();
    let heading = lines.iter().position(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("kB") && words.next() == Some("reclen")
    });
    let heading = heading.ok_or_else(|| text.missing("the heading \"kB reclen write\""))?;
    let row = lines.get(heading + 1).copied().unwrap_or_default();
    let columns = words(lines[heading]);
    let above = if heading > 0 { words(lines[heading - 1]) } else { Vec::new() };
    let numbers = words(row);
    let tests: Vec<&str> = columns.iter().skip(2).map(|word| word.text).collect();
    if numbers.len() < 3 || numbers.len() > columns.len() {
        return Err(text.not_understood("kB, reclen and at least one figure", row));
    }
    for number in numbers.iter().skip(2) {
        let value = text.number(number.text, "a throughput", row)? * KIBIBYTE;
        let place = if numbers.len() == columns.len() {
            // Nothing is empty, so nothing needs to be measured.
            numbers.iter().position(|other| other.begin == number.begin)
        } else {
            column_of(&columns, number)
        };
        let place = place.filter(|&place| place >= 2);
        let place = place.ok_or_else(|| text.not_understood("each figure below its name", row))?;
        let second = tests[place - 2];
        let first = above.iter().find(|word| touches(word, &columns[place])).map_or("", |word| word.text);
        let known = IozoneTest::KNOWN.iter().find(|known| known.column == Some((first, second)));
        if let Some(known) = known {
            figures.add(&known.test.metric_name(), value);
        }
    }
    Ok(())
}

struct Word<'a> {
    text: &'a str,
    begin: usize,
    end: usize,
}

fn words(line: &str) -> Vec<Word<'_>> {
    line.split_whitespace()
        .map(|text| {
            let begin = text.as_ptr() as usize - line.as_ptr() as usize;
            Word { text, begin, end: begin + text.len() }
        })
        .collect()
}

/// The column whose name ends where the number does. IOzone's own widths are one off here and there.
fn column_of(columns: &[Word<'_>], number: &Word<'_>) -> Option<usize> {
    columns.iter().position(|column| column.end.abs_diff(number.end) <= 2)
}

fn touches(above: &Word<'_>, below: &Word<'_>) -> bool {
    above.begin < below.end && below.begin < above.end
}
