//! Tests of pages, terminal output and JSON.

mod advice;
// The tests here use only a part of it.
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
