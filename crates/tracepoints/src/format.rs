//! The `format` file of a tracepoint, which describes the fields of its records.

use crate::symbols::Symbols;

/// One field of a tracepoint's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its C type as written, without name and array bounds.
    pub kind: String,
    /// Offset in the record, in bytes.
    pub offset: usize,
    /// Size in bytes; of an array, the size of all elements together.
    pub size: usize,
    /// True if it is a signed number.
    pub signed: bool,
    /// True if it is declared with `[...]`.
    pub array: bool,
    /// True if it holds the offset and the length of data after the fixed fields (`__data_loc`, `__rel_loc`).
    pub located: bool,
}

impl Field {
    /// Tests whether [`Self::read`] can give a number: no array, and 1, 2, 4 or 8 bytes.
    #[must_use]
    pub fn is_number(&self) -> bool {
        !self.array && !self.located && matches!(self.size, 1 | 2 | 4 | 8)
    }

    /// The number in a record of this machine's byte order, sign-extended if the field is signed. `None` if the field
    /// is not a number or the record is too short.
    #[must_use]
    pub fn read(&self, record: &[u8]) -> Option<u64> {
        if !self.is_number() {
            return None;
        }
        let bytes = record.get(self.offset..self.offset.checked_add(self.size)?)?;
        let value = match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        };
        let unused = 64 - 8 * self.size;
        Some(if self.signed { (((value << unused) as i64) >> unused) as u64 } else { value })
    }
}

/// A tracepoint as its `format` file in tracefs describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFormat {
    /// The event's name without its system.
    pub name: String,
    /// The ID, which `perf_event_open` takes and records carry in `common_type`.
    pub id: u16,
    /// All fields, the common ones first, in the file's order.
    pub fields: Vec<Field>,
    /// The `print fmt` expression as written, empty when the file has none.
    pub print_fmt: String,
}

/// The reason why a text is not the format of a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A mandatory line is missing.
    #[error("no line that begins with `{0}`")]
    NoLine(&'static str),
    /// The ID is not a 16-bit number.
    #[error("`{0}` is no event ID, expected a number below 65536")]
    Id(String),
    /// A field line lacks a part.
    #[error("field line `{0}` is not of the form `field:TYPE NAME; offset:N; size:N; signed:N;`")]
    Field(String),
}

impl EventFormat {
    /// Parses the text of a `format` file (`kernel/trace/trace_events.c`, `f_show`).
    ///
    /// # Errors
    /// [`FormatError`] if the name or the ID is missing, or a field line lacks a part.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let line = |prefix: &'static str| {
            let found = text.lines().find_map(|line| line.strip_prefix(prefix));
            found.map(str::trim).ok_or(FormatError::NoLine(prefix))
        };
        let name = line("name:")?.to_owned();
        let id = line("ID:")?;
        let id = id.parse().map_err(|_| FormatError::Id(id.to_owned()))?;
        let mut fields = Vec::new();
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("field:")) {
            fields.push(field(line).ok_or_else(|| FormatError::Field(line.to_owned()))?);
        }
        let print_fmt = line("print fmt:").unwrap_or_default().to_owned();
        Ok(Self { name, id, fields, print_fmt })
    }

    /// The field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The symbol tables in `print fmt`, in their order.
    #[must_use]
    pub fn symbols(&self) -> Symbols<'_> {
        Symbols::new(&self.print_fmt)
    }
}

fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let mut number = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix(':')?.parse::<usize>().ok();
    let (offset, size, signed) = (number("offset")?, number("size")?, number("signed")?);
    let (bare, array) = match declaration.split_once('[') {
        // `__data_loc char[] name` has the brackets before the name, `char comm[16]` after it.
        Some((head, tail)) => {
            let behind = tail.split_once(']')?.1.trim();
            let bare = if behind.is_empty() { head.to_owned() } else { format!("{head} {behind}") };
            (bare, true)
        }
        None => (declaration.to_owned(), false),
    };
    let (kind, name) = bare.trim().rsplit_once(|c: char| c.is_whitespace() || c == '*')?;
    Some(Field {
        name: name.to_owned(),
        located: kind.starts_with("__data_loc") || kind.starts_with("__rel_loc"),
        kind: kind.trim().to_owned(),
        offset,
        size,
        signed: signed != 0,
        array,
    })
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
