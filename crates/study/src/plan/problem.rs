//! The problems of a plan.

use std::fmt;

use serde::Serialize;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The line in the plan's file, counted from 1, if known.
    pub line: Option<usize>,
    /// The field, by its path: `order.repeats`, `factors[0].baseline`.
    pub field: String,
    /// The expectation, and the finding.
    pub what: String,
}

/// A plan that is not valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPlan {
    /// The file, or the shipped plan's name.
    pub file: String,
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for BadPlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(formatter)?;
            }
            write!(formatter, "{}", self.file)?;
            if let Some(line) = problem.line {
                write!(formatter, ":{line}")?;
            }
            write!(formatter, ": ")?;
            if !problem.field.is_empty() {
                write!(formatter, "{}: ", problem.field)?;
            }
            write!(formatter, "{}", problem.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for BadPlan {}
