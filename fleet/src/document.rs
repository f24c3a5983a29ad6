//! Reads outputs of `exitless ... --json`, which are not trusted, and turns them into rows of the data set.

mod doctor;
mod experiment;
mod fingerprint;
mod profile;
mod prove;
mod verify;
mod vms;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The largest file that is read, in bytes.
pub const LARGEST_FILE: u64 = 32 << 20;
/// The most rows that a file may give. Documents of exitless have so many bytes for a row that the largest file has
/// fewer.
pub const MOST_ROWS: usize = 200_000;
/// The most bytes of texts that the rows of a file may have. A text that a document has once, such as the kernel, is in
/// each of its rows.
const MOST_TEXT: usize = 4 * LARGEST_FILE as usize;
/// The longest name of a host, in bytes: `HOST_NAME_MAX` is 64, and DNS has 253.
pub const LONGEST_HOST: usize = 253;
/// The longest text of a column, in bytes; for a list, of all its texts together. Longer ones are truncated,
/// not refused: a process chooses the length of its command line, and must not be able to keep its host out
/// of reports.
pub const LONGEST_TEXT: usize = 64 << 10;
/// The format number of the documents that are understood.
const FORMAT: i64 = 1;

/// The reason why a file is refused, as a whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is too large.
    #[error("{file} has more than {LARGEST_FILE} bytes; a document of exitless is smaller")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The file is not JSON.
    #[error("{file} is not JSON: {why}")]
    Json {
        /// The file.
        file: String,
        /// The parser's message, with line and column.
        why: String,
    },
    /// The file has no document.
    #[error("{file} is empty")]
    Empty {
        /// The file.
        file: String,
    },
    /// The document is JSON, but not of a known command.
    #[error(
        "{file}, document {number}: this is not the --json output of doctor, verify, vms, stat, report, probe, prove or \
         `experiment report`"
    )]
    Unknown {
        /// The file.
        file: String,
        /// The number of the document in it, from 1.
        number: usize,
    },
    /// A field has a wrong value.
    #[error("{file}, document {number} ({command}): field {field}: {why}")]
    Field {
        /// The file.
        file: String,
        /// The number of the document in it, from 1.
        number: usize,
        /// The command that writes such documents.
        command: &'static str,
        /// The path of the field.
        field: String,
        /// The problem with the value.
        why: String,
    },
    /// The document does not name its host.
    #[error("{file}, document {number} ({command}) does not name its host; give --host NAME")]
    NoHost {
        /// The file.
        file: String,
        /// The number of the document in it, from 1.
        number: usize,
        /// The command that writes such documents.
        command: &'static str,
    },
    /// The name of the host is empty or too long.
    #[error("{file}: the host's name has {length} bytes; it may have 1 to {LONGEST_HOST}")]
    HostName {
        /// The file.
        file: String,
        /// The length of the name.
        length: usize,
    },
}

/// Facts about a file that it does not contain itself.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The name of the file, for messages.
    pub file: String,
    /// The host, if the user named it; takes precedence over the documents.
    pub host: Option<String>,
    /// The time of observation, for documents that do not have it; for several intervals, the end of the
    /// last.
    pub time: DateTime<Utc>,
}

/// A row of a table.
pub type Row = Map<String, Value>;
/// Rows by table.
pub type Rows = BTreeMap<&'static str, Vec<Row>>;

/// A problem with a document: the field, and the reason.
#[derive(Debug)]
struct Fault {
    field: String,
    why: String,
}

impl Fault {
    fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

/// The contents of a document.
#[derive(Debug, Default)]
struct Gathered {
    /// The host that it names.
    host: Option<String>,
    /// The time of observation, if the document has it.
    time: Option<DateTime<Utc>>,
    /// The version of exitless that wrote it.
    version: Option<String>,
    /// Its end in nanoseconds on its host's clock. Among the documents of one run, a later one has a higher
    /// value.
    clock_ns: Option<i64>,
    rows: Rows,
    size: Size,
}

impl Gathered {
    /// Adds a row, whose texts are truncated if they are too long; an error if it is one too many.
    fn row(&mut self, table: &'static str, row: Value) -> Result<(), Fault> {
        let Value::Object(mut row) = row else { return Ok(()) };
        row.values_mut().for_each(shorten);
        let own: usize = row.values().map(length).sum();
        // Each row gets the version, too.
        let text = own + self.version.as_ref().map_or(0, String::len);
        self.size.add(&Size { rows: 1, text })?;
        self.rows.entry(table).or_default().push(row);
        Ok(())
    }
}

/// The size of rows.
#[derive(Debug, Default)]
struct Size {
    rows: usize,
    /// The bytes of their texts.
    text: usize,
}

impl Size {
    /// Adds the size of more rows; an error if a file may not give that many.
    fn add(&mut self, more: &Self) -> Result<(), Fault> {
        self.rows += more.rows;
        self.text += more.text;
        let most = match (self.rows > MOST_ROWS, self.text > MOST_TEXT) {
            (true, _) => format!("{MOST_ROWS} rows"),
            (_, true) => format!("{MOST_TEXT} bytes of texts"),
            _ => return Ok(()),
        };
        let why = format!("the file gives more than {most}; add its documents as several files");
        Err(Fault::new("(all)", why))
    }
}

/// A kind of document.
struct Kind {
    /// The command that writes it.
    command: &'static str,
    /// The fields by which the kind is recognised.
    marks: &'static [&'static str],
    gather: fn(&Value) -> Result<Gathered, Fault>,
}

const KINDS: &[Kind] = &[
    Kind { command: "doctor", marks: &["conclusion", "sections"], gather: doctor::gather },
    Kind { command: "verify", marks: &["watched_ns", "vms", "status"], gather: verify::gather },
    Kind { command: "vms", marks: &["vms", "unreadable"], gather: vms::gather },
    Kind { command: "stat", marks: &["rows", "by", "totals", "cost"], gather: profile::gather },
    Kind { command: "report", marks: &["rows", "by", "totals"], gather: profile::gather },
    Kind { command: "probe", marks: &["result", "recording"], gather: prove::gather_probe },
    Kind { command: "prove", marks: &["judgement", "measures", "arms"], gather: prove::gather },
    Kind { command: "experiment", marks: &["verdict", "study", "figures"], gather: experiment::gather },
];

/// The rows of a file with one or more concatenated documents. An error in one document refuses the whole
/// file.
///
/// # Errors
/// The reason why the file is refused: see [`Error`].
pub fn rows(bytes: &[u8], origin: &Origin) -> Result<Rows, Error> {
    let file = || origin.file.clone();
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(Error::TooLarge { file: file() });
    }
    let mut documents = Vec::new();
    let mut size = Size::default();
    let mut stream = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    let mut began = 0;
    while let Some(value) = stream.next() {
        let mut value = value.map_err(|error| Error::Json { file: file(), why: error.to_string() })?;
        let number = documents.len() + 1;
        let kind = kind_of(&value).ok_or_else(|| Error::Unknown { file: file(), number })?;
        let fault = |fault: Fault| Error::Field {
            file: file(),
            number,
            command: kind.command,
            field: fault.field,
            why: fault.why,
        };
        let digest = digest(bytes[began..stream.byte_offset()].trim_ascii());
        began = stream.byte_offset();
        shorten_all(&mut value);
        let gathered = (kind.gather)(&value).map_err(fault)?;
        size.add(&gathered.size).map_err(fault)?;
        documents.push((kind, gathered, digest));
    }
    if documents.is_empty() {
        return Err(Error::Empty { file: file() });
    }

    // This clock starts at the host's boot, so only within one run are its differences intervals of time:
    // `stat` prints a document for each interval. Recordings may be from different boots.
    let clock = |kind: &Kind, gathered: &Gathered| gathered.clock_ns.filter(|_| kind.command == "stat");
    let mut ends: BTreeMap<Option<String>, i64> = BTreeMap::new();
    for (kind, gathered, _) in &documents {
        if let Some(clock) = clock(kind, gathered) {
            let end = ends.entry(gathered.host.clone()).or_insert(clock);
            *end = clock.max(*end);
        }
    }
    let mut all = Rows::new();
    for (number, (kind, gathered, digest)) in (1..).zip(documents) {
        let last = ends.get(&gathered.host);
        let earlier =
            last.zip(clock(kind, &gathered)).map_or(0, |(last, own)| last.saturating_sub(own) / 1000);
        let named = origin.host.clone().or(gathered.host);
        let host = named.ok_or_else(|| Error::NoHost { file: file(), number, command: kind.command })?;
        if host.is_empty() || host.len() > LONGEST_HOST {
            return Err(Error::HostName { file: file(), length: host.len() });
        }
        let time = gathered.time.unwrap_or(origin.time).timestamp_micros() - earlier;
        for (table, rows) in gathered.rows {
            let into = all.entry(table).or_default();
            for mut row in rows {
                if let Some(length) = row.remove(LENGTH_US).and_then(|length| length.as_i64()) {
                    row.insert("interval_start".to_owned(), json!(time.saturating_sub(length)));
                    row.insert("interval_end".to_owned(), json!(time));
                }
                row.insert("host_name".to_owned(), json!(host));
                row.insert("time".to_owned(), json!(time));
                row.insert("source".to_owned(), json!(kind.command));
                row.insert("document".to_owned(), json!(digest));
                row.insert("tool_version".to_owned(), json!(gathered.version));
                into.push(row);
            }
        }
    }
    Ok(all)
}

/// In the row of an interval, its length in microseconds, from which start and end are computed.
const LENGTH_US: &str = "length_us";

/// The first 16 hex digits of a SHA-256.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn kind_of(value: &Value) -> Option<&'static Kind> {
    let fields = value.as_object()?;
    KINDS.iter().find(|kind| kind.marks.iter().all(|mark| fields.contains_key(*mark)))
}

/// Deserializes a value. An error names the full path of the field.
fn typed<'a, T: Deserialize<'a>>(value: &'a Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| Fault::new(error.path().to_string(), error.inner().to_string()))
}

/// The fields that all documents have.
#[derive(Deserialize)]
struct Head {
    format: i64,
    version: Option<String>,
}

/// The version of exitless that wrote the document; an error if the document's format is unknown.
fn version(value: &Value) -> Result<Option<String>, Fault> {
    typed::<Head>(value)?.version()
}

impl Head {
    fn version(self) -> Result<Option<String>, Fault> {
        if self.format == FORMAT {
            Ok(self.version)
        } else {
            Err(Fault::new("format", format!("it is {}, and this program reads {FORMAT}", self.format)))
        }
    }
}

/// Converts seconds since 1970 to a time.
fn seconds(field: &str, since_1970: i64) -> Result<DateTime<Utc>, Fault> {
    // 9999 is the last year of four digits, as paths require.
    let last = 253_402_300_799;
    DateTime::from_timestamp(since_1970, 0)
        .filter(|_| (0..=last).contains(&since_1970))
        .ok_or_else(|| Fault::new(field, format!("{since_1970} is not a time between 1970 and 9999")))
}

/// The bytes of the texts of a row's value.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(texts) => texts.iter().map(length).sum(),
        _ => 0,
    }
}

/// Truncates each text of a document to [`LONGEST_TEXT`], before it is copied into rows.
fn shorten_all(value: &mut Value) {
    match value {
        Value::String(_) => shorten(value),
        Value::Array(values) => values.iter_mut().for_each(shorten_all),
        Value::Object(fields) => fields.values_mut().for_each(shorten_all),
        _ => {}
    }
}

/// Truncates a text, or the texts of a list together, to [`LONGEST_TEXT`]; the end of a list is removed
/// first.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) => truncate(text, LONGEST_TEXT),
        Value::Array(texts) => {
            let mut room = LONGEST_TEXT;
            texts.retain_mut(|text| {
                let Value::String(text) = text else { return true };
                let length = text.len();
                truncate(text, room);
                // After a truncated text, drop the rest.
                room = if text.len() == length { room - length } else { 0 };
                length == 0 || !text.is_empty()
            });
        }
        _ => {}
    }
}

/// Truncates a text, and frees the memory of the rest.
fn truncate(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
