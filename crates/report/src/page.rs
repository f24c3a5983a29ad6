//! Parts of pages that results share. Each page is one file that loads no scripts, fonts or images.

pub(crate) use pages::format::round;
pub(crate) use pages::{axis, chart, document, stacked, table};

pub(crate) mod eyebrow;
pub(crate) mod histogram;
pub(crate) mod span;
