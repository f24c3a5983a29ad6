//! Parts of pages that results share: each page is one file, without scripts, fonts or pictures from elsewhere.

pub(crate) mod axis;
pub(crate) mod chart;
pub(crate) mod document;
pub(crate) mod eyebrow;
pub(crate) mod histogram;
pub(crate) mod stacked;
pub(crate) mod table;
