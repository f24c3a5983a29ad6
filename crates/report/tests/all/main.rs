//! Tests of pages, terminal output and JSON.

mod advice;
mod browser;
mod comparison;
mod counted;
mod html;
mod pages;
mod pairs;
mod recordings;
mod study;
mod synthetic;
mod terminal;
mod top;
mod trace;
mod vm_page;
