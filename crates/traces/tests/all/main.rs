//! Tests of readers and writers with complete files.

mod exitless_foreign;
mod exitless_profiles;
mod exitless_recordings;
mod found;
mod perf_data;
mod text;
mod trace_dat;
mod truth;
mod xenalyze;
mod xentrace;
