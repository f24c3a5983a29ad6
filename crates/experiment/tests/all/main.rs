//! Files, figures and loads from outside the crate.

mod coverage;
mod files;
mod host;
mod load_real;
mod one_cause;
mod study_coverage;
