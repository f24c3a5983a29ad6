//! Tests of files, figures and loads through the crate's public interface.

mod host;
mod load_real;
mod ports;
mod study_coverage;
