//! XML with the place of every part, for texts in which only a few bytes change.

mod node;
mod pieces;
mod style;
mod tag;
mod tree;

pub(crate) use node::{Node, SECRET, Value};
pub(crate) use pieces::Pieces;
#[cfg(test)]
pub(crate) use style::escape;
pub(crate) use style::{New, Replacement, Style};
pub(crate) use tree::Tree;
