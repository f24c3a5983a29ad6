//! Tables in the documentation are those of the code, and definitions in both forms have the same findings.

mod host_rules_in_docs;
mod managers;
mod pairs;
mod rules_in_docs;
