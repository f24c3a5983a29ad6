//! Parts of pages that results share: each page is one file, without scripts, fonts or pictures from elsewhere.

pub(crate) use pages::format::round;
pub(crate) use pages::{axis, chart, document, stacked, table};

pub(crate) mod eyebrow;
pub(crate) mod histogram;
