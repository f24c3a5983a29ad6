//! XML with the place of every part, for texts of which only a few bytes shall change.

mod node;
mod pieces;
mod style;
mod tag;
mod tree;

pub(crate) use node::{Node, SECRET, Value};
pub(crate) use pieces::Pieces;
pub(crate) use style::{New, Replacement, Style, escape};
pub(crate) use tree::Tree;
