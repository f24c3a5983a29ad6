//! Advice with the functions in which its exits spend their time: `exitless advise --profile`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;
