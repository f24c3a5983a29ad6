//! Tests of files, figures and loads through the crate's public interface.

mod coverage;
mod files;
mod host;
mod load_real;
mod one_cause;
mod study_coverage;
