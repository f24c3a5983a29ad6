//! Tables that `perf kvm stat report` prints.

use serde_json::Value;

/// A row of perf's table, as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) samples: String,
    pub(crate) samples_percent: String,
    pub(crate) time_percent: String,
    pub(crate) min: String,
    pub(crate) max: String,
    pub(crate) mean: String,
    pub(crate) error: String,
}

/// The rows of a printed table, sorted by name: perf's order of rows with equal samples is arbitrary.
pub(crate) fn printed(text: &str) -> Vec<Row> {
    let rows = text.lines().filter_map(|line| {
        let (figures, error) = line.split_once("( +-")?;
        let error = error.trim_end_matches(')').trim().to_owned();
        // Take the figures from the right, because a name may contain spaces.
        let mut words: Vec<String> = figures.split_whitespace().map(str::to_owned).collect();
        let mean = words.pop()?;
        let max = words.pop()?;
        let min = words.pop()?;
        let time_percent = words.pop()?;
        let samples_percent = words.pop()?;
        let samples = words.pop()?;
        Some(Row { name: words.join(" "), samples, samples_percent, time_percent, min, max, mean, error })
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort();
    rows
}

/// The output of the command with `argument`, from a file with several outputs.
pub(crate) fn section(text: &str, argument: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !(line.starts_with('$') && line.contains(argument)));
    let first = lines.next().unwrap_or_else(|| panic!("no output of {argument}"));
    [first].into_iter().chain(lines.take_while(|line| !line.starts_with('$'))).collect::<Vec<_>>().join("\n")
}

/// The program's rows in perf's format; like perf, without rows that have no sample.
pub(crate) fn of_json(rows: &Value) -> Vec<Row> {
    let microseconds = |value: &Value| format!("{:.2}us", value.as_f64().unwrap() / 1e3);
    let percent = |value: &Value| format!("{:.2}%", value.as_f64().unwrap_or(0.0));
    let row = |row: &Value| {
        let name = if row["access"].is_null() { &row["reason"] } else { &row["access"] };
        Row {
            name: name.as_str().unwrap().to_owned(),
            samples: row["samples"].to_string(),
            samples_percent: percent(&row["samples_percent"]),
            time_percent: percent(&row["time_percent"]),
            min: microseconds(&row["min_ns"]),
            max: microseconds(&row["max_ns"]),
            mean: microseconds(&row["mean_ns"]),
            error: percent(&row["error_percent"]),
        }
    };
    let mut rows: Vec<Row> =
        rows.as_array().unwrap().iter().filter(|row| row["samples"] != 0).map(row).collect();
    rows.sort();
    rows
}
