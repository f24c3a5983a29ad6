//! The plan that a command line names.

use std::path::Path;

use anyhow::Context as _;
use experiment::study::plan::{BadPlan, Plan, Shipped};

use crate::status::Usage;

/// A plan, and its file as it is.
pub(super) struct Given {
    /// How messages name it.
    pub(super) name: String,
    pub(super) text: String,
}

impl Given {
    /// By the file's path, or by the name of a shipped plan. A file wins.
    pub(super) fn find(given: &str) -> anyhow::Result<Self> {
        let path = Path::new(given);
        if path.is_file() {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("Could not read the plan {given}"))?;
            return Ok(Self { name: given.to_owned(), text });
        }
        match Shipped::find(given) {
            Some(shipped) => Ok(Self { name: given.to_owned(), text: shipped.text.to_owned() }),
            None => Err(Usage(format!(
                "{given}: there is no such file and no such plan; `exitless experiment list` names those there are"
            ))
            .into()),
        }
    }

    pub(super) fn plan(&self) -> Result<Plan, BadPlan> {
        Plan::read(&self.text, &self.name)
    }
}
