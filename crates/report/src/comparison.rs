//! Two sides of recordings: `exitless diff`.

mod compared;
mod csv;
mod doubts;
mod figures;
mod json;
mod page;
mod terminal;
mod verdict;

pub use self::compared::Compared;
pub use self::csv::csv;
pub use self::doubts::doubts;
pub use self::json::json;
pub use self::page::page;
pub use self::terminal::terminal;
