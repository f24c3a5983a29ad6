//! Tests of pages, terminal output and JSON.

mod advice;
// The pages of the report need less of it.
#[allow(dead_code)]
mod browser;
mod comparison;
mod counted;
mod pages;
mod pairs;
mod prove;
mod prove_page;
mod recordings;
mod study;
mod synthetic;
mod top;
mod trace;
