//! The plan or suite that a command line names.

use std::path::Path;

use study::plan::{BadPlan, Plan, Shipped};
use study::suite::{SUITES, ShippedSuite, Suite};

use crate::commands::paths::{or_standard_input, unread};
use crate::status::Usage;

/// A plan, and the text of its file.
pub(in crate::commands) struct Given {
    /// The name in messages.
    pub(in crate::commands) name: String,
    pub(in crate::commands) text: String,
}

impl Given {
    /// Finds a plan or a suite by its file's path, or a shipped one by its name. A file takes precedence.
    pub(super) fn find(given: &str) -> anyhow::Result<Self> {
        let plan = |name: &str| Shipped::find(name).map(|shipped| shipped.text);
        let suite = |name: &str| ShippedSuite::find(name).map(|shipped| shipped.text);
        let shipped = |name: &str| plan(name).or_else(|| suite(name));
        let known = suite_with(given).map_or_else(
            || "`exitless experiment list` lists them".to_owned(),
            |suite| {
                format!(
                    "it is a study of the suite {suite}: `exitless experiment run {suite} --only {given}` runs it"
                )
            },
        );
        Self::among(given, shipped, &known)
    }

    /// Finds a plan by its file's path or by one of the names in `shipped`; `known` lists those for messages.
    pub(in crate::commands) fn among(
        given: &str,
        shipped: impl Fn(&str) -> Option<&'static str>,
        known: &str,
    ) -> anyhow::Result<Self> {
        let (name, path) = (given.to_owned(), or_standard_input(Path::new(given)));
        if path.exists() && !path.is_dir() {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| unread(&format!("Could not read the plan {given}"), error))?;
            return Ok(Self { name, text });
        }
        match shipped(given) {
            Some(text) => Ok(Self { name, text: text.to_owned() }),
            None if path.is_dir() => {
                Err(Usage(format!("{given} is a directory; name the file of a plan")).into())
            }
            None => Err(Usage(format!("{given}: there is no such file and no such plan; {known}")).into()),
        }
    }

    /// The suite, if the text is one: only suites have studies.
    pub(super) fn suite(&self) -> Result<Option<Suite>, BadPlan> {
        let is_suite = self.text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("studies"));
        is_suite.then(|| Suite::read(&self.text, &self.name)).transpose()
    }

    pub(super) fn plan(&self) -> Result<Plan, BadPlan> {
        Plan::read(&self.text, &self.name)
    }
}

/// The shipped suite that has a study of this name.
fn suite_with(study: &str) -> Option<String> {
    SUITES.into_iter().find_map(|shipped| {
        let suite = shipped.suite().ok()?;
        suite.studies.iter().any(|one| one.name == study).then_some(suite.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plan_is_told_by_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str| {
            let path = folder.path().join(name);
            let error = Given::find(path.to_str().unwrap()).map(|found| found.name).unwrap_err();
            assert!(error.is::<Usage>(), "{error:#}");
            error.to_string()
        };
        std::fs::write(folder.path().join("bytes"), b"name = \"\xff\"").unwrap();
        assert!(told("bytes").contains("UTF-8"), "{}", told("bytes"));
        assert!(told("").ends_with("is a directory; name the file of a plan"), "{}", told(""));
        assert!(told("none").contains("there is no such file"), "{}", told("none"));
    }

    #[test]
    fn a_study_of_a_suite_is_told_with_the_command_that_runs_it() {
        let told = |given: &str| Given::find(given).map(|found| found.name).unwrap_err().to_string();
        let study = told("avic-threads");
        assert!(study.contains("`exitless experiment run seeds --only avic-threads`"), "{study}");
        assert!(told("nothing").ends_with("`exitless experiment list` lists them"), "{}", told("nothing"));
    }
}
