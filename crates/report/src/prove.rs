//! The gain of interrupt virtualization on a host: `exitless prove`.

pub(crate) mod evidence;
mod page;
pub(crate) mod tables;
mod terminal;
pub(crate) mod words;

pub use self::page::page;
pub use self::terminal::terminal;
