//! The examination of a host: `exitless doctor`.

mod json;
mod terminal;

pub use self::json::json;
pub use self::terminal::terminal;

#[cfg(test)]
mod tests;
