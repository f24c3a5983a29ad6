//! Reading a plan's file.

use toml::de::{DeTable, DeValue};

use super::{BadPlan, Plan, Problem};

impl Plan {
    /// Reads and checks a plan; `file` is its name in messages.
    ///
    /// # Errors
    /// Every problem, with its line, its field and the expectation. Only the first one if the text is not TOML or a
    /// value has the wrong type.
    pub fn read(text: &str, file: &str) -> Result<Self, BadPlan> {
        let bad = |problems| BadPlan { file: file.to_owned(), problems };
        let plan: Self = from_toml(text).map_err(|problem| bad(vec![problem]))?;
        let mut problems = plan.check();
        problems.extend(plan.check_choices());
        if problems.is_empty() {
            return Ok(plan);
        }
        if let Ok(table) = DeTable::parse(text) {
            for problem in &mut problems {
                problem.line =
                    place(table.get_ref(), &problem.field).map_or(Some(1), |offset| Some(line(text, offset)));
            }
        }
        problems.sort_by(|one, other| (one.line, &one.field).cmp(&(other.line, &other.field)));
        Err(bad(problems))
    }
}

/// Reads a value from TOML.
///
/// # Errors
/// The first problem with its line, if the text is not TOML or a value has the wrong type.
pub(crate) fn from_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Problem> {
    toml::from_str(text).map_err(|error: toml::de::Error| Problem {
        line: error.span().map(|span| line(text, span.start)),
        field: String::new(),
        what: error.message().replace('\n', "; "),
    })
}

fn line(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count()
}

/// The position of a field's value, or of the table that would contain it.
fn place(table: &DeTable<'_>, field: &str) -> Option<usize> {
    let mut found = None;
    let mut table = Some(table);
    let mut list: Option<&toml::de::DeArray<'_>> = None;
    for part in field.split(['.', '[']) {
        let value = match part.strip_suffix(']') {
            Some(index) => list.and_then(|list| list.get(index.parse::<usize>().ok()?)),
            None => table.and_then(|table| table.get(part)),
        };
        let Some(value) = value else { break };
        found = Some(value.span().start);
        (table, list) = match value.get_ref() {
            DeValue::Table(table) => (Some(table), None),
            DeValue::Array(list) => (None, Some(list)),
            _ => (None, None),
        };
    }
    found
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
