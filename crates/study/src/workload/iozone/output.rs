//! Parsing the output of IOzone 3.x: paragraphs in throughput mode, otherwise a table.

use super::{Iozone, IozoneTest};
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

/// The last line, which is missing if IOzone gave up.
const WHOLE: &str = "iozone test complete.";
/// The line that states the unit; IOzone can print operations, microseconds or bare numbers instead.
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
            return Err(text.not_understood(
                format!("{processes} {}", exits::agree(processes.into(), "process", "processes")),
                line,
            ));
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

/// The `-i` number of the test in each column of the table; the last four columns are those of `-E`.
const FILLED_BY: [u8; 17] = [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 6, 7, 7, 9, 9, 10, 10];

/// Parses the table. The cell of a test that was not requested is empty, and its width depends on its neighbours, so
/// the numbers are assigned in order to the columns of the requested tests, which IOzone lists itself.
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
    let asked = asked(&lines);
    let filled = |&place: &usize| asked.is_empty() || asked.contains(&FILLED_BY[place]);
    let places: Vec<usize> = (0..tests.len().min(FILLED_BY.len())).filter(filled).collect();
    if numbers.len() != places.len() + 2 || places.is_empty() {
        return Err(text.not_understood(format!("kB, reclen and {} figures", places.len()), row));
    }
    for (number, place) in numbers.iter().skip(2).zip(places) {
        let value = text.number(number.text, "a throughput", row)? * KIBIBYTE;
        let second = tests[place];
        let first = above.iter().find(|word| touches(word, &columns[place + 2])).map_or("", |word| word.text);
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

/// The numbers of the requested tests; empty if all were.
fn asked(lines: &[&str]) -> Vec<u8> {
    let command = lines.iter().find_map(|line| line.trim_start().strip_prefix("Command line used:"));
    let words: Vec<&str> = command.unwrap_or_default().split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == "-i").filter_map(|pair| pair[1].parse().ok()).collect()
}

fn touches(above: &Word<'_>, below: &Word<'_>) -> bool {
    above.begin < below.end && below.begin < above.end
}
