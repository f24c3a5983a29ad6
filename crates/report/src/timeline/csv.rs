//! A timeline for spreadsheets.

use exits::{Profile, Slice, TimelineRows};

use crate::csv::Line;
use crate::recordings::rows::Names;

const TITLES: &str = "start_ns,end_ns,vm,vm_name,isa,reason,reason_code,rows,exits,time_ns";

/// A line for each slice that has exits of a row, by row, then by time.
#[must_use]
pub fn csv(profile: &Profile, rows: &TimelineRows) -> String {
    let mut text = format!("{TITLES}\n");
    for row in rows.rows() {
        slices(&mut text, &Names::new(row.key, profile), 1, &row.slices, rows);
    }
    if let Some(rest) = rows.rest() {
        slices(&mut text, &Names::default(), rest.rows, &rest.slices, rows);
    }
    text
}

fn slices(text: &mut String, names: &Names, rows: usize, slices: &[Slice], timeline: &TimelineRows) {
    let mut start_ns = timeline.start_ns();
    for slice in slices {
        let end_ns = start_ns.saturating_add(timeline.width_ns());
        if *slice != Slice::default() {
            let mut line = Line::default();
            line.field(start_ns).field(end_ns).optional(names.vm).optional(names.vm_name.as_deref());
            line.optional(names.isa).optional(names.reason).optional(names.reason_code).field(rows);
            line.field(slice.count).field(slice.handling_ns);
            line.end(text);
        }
        start_ns = end_ns;
    }
}
