//! The results of a study (`exitless experiment`), and of two studies with the same plan side by side.

mod csv;
pub mod difference;
pub(crate) mod figures;
mod page;
mod tables;
mod terminal;

pub use self::csv::csv;
pub use self::page::page;
pub use self::terminal::terminal;
