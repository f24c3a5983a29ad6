//! Tables in the documentation are those of the code.

mod host_rules_in_docs;
mod rules_in_docs;
