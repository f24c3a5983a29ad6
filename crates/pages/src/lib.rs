//! Parts of pages: the frame, tables, axes, charts, and figures as text. Pages load nothing from elsewhere.

pub mod axis;
pub mod chart;
pub mod document;
pub mod format;
pub mod stacked;
pub mod table;
