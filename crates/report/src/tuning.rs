//! A tuning: `exitless tune`.

pub mod diff;
mod markdown;
mod terminal;
mod words;

pub use self::markdown::markdown;
pub use self::terminal::{steps, terminal};

#[cfg(test)]
mod tests;
