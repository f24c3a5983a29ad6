//! Recordings for spreadsheets: comma-separated values (RFC 4180) with one line of titles. Titles do not
//! depend on the options; fields that a row does not have are empty.

mod comparison;
mod study;

use std::fmt::{Display, Write};

use exits::{Profile, Slice, Table, TimelineRows};

use crate::rows::{Figures, Names, rest_row, table_rows};
use crate::text::printable;

pub use comparison::comparison;
pub use study::study;

const PROFILE: &str = "vm,vm_name,vcpu,thread,isa,reason,reason_code,access_kind,access,rows,exits,samples,\
    samples_percent,time_ns,time_percent,min_ns,max_ns,mean_ns,deviation_ns,error_percent,p50_ns,p99_ns,p999_ns";
const TIMELINE: &str = "start_ns,end_ns,vm,vm_name,isa,reason,reason_code,rows,exits,time_ns";

/// The rows of `table`, which was made of `profile`, and in a last line the rows that it leaves out: its
/// `rows` is above 1 and it has no names.
#[must_use]
pub fn profile(profile: &Profile, table: &Table) -> String {
    let mut text = format!("{PROFILE}\n");
    for row in table_rows(table, profile) {
        profile_line(&mut text, &row.names, 1, &row.figures);
    }
    if let Some(rest) = rest_row(table) {
        profile_line(&mut text, &Names::default(), rest.rows, &rest.figures);
    }
    text
}

fn profile_line(text: &mut String, names: &Names, rows: usize, figures: &Figures) {
    let Names { vm, vm_name, vcpu, thread, isa, reason, reason_code, access_kind, access } = names;
    let mut line = Line::default();
    line.optional(*vm).optional(vm_name.as_deref()).optional(*vcpu).optional(*thread).optional(*isa);
    line.optional(*reason).optional(*reason_code);
    line.optional(access_kind.map(access_kind_name)).optional(access.as_deref()).field(rows);
    line.field(figures.exits).field(figures.samples).optional(figures.samples_percent);
    line.field(figures.time_ns).optional(figures.time_percent);
    line.optional(figures.min_ns).optional(figures.max_ns).optional(figures.mean_ns);
    line.optional(figures.deviation_ns).optional(figures.error_percent);
    line.optional(figures.p50_ns).optional(figures.p99_ns).optional(figures.p999_ns);
    line.end(text);
}

/// The name as in JSON.
fn access_kind_name(kind: exits::AccessKind) -> String {
    serde_json::to_value(kind).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A line for every slice with exits of every row, by row and by time.
#[must_use]
pub fn timeline(profile: &Profile, rows: &TimelineRows) -> String {
    let mut text = format!("{TIMELINE}\n");
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

/// A line of fields; fields with special characters are quoted.
#[derive(Default)]
struct Line {
    text: String,
    fields: usize,
}

impl Line {
    fn field(&mut self, value: impl Display) -> &mut Self {
        if self.fields > 0 {
            self.text.push(',');
        }
        self.fields += 1;
        // Names come from the recording, and the text may go to a terminal, so control characters and line
        // breaks are removed.
        let mut value = printable(&value.to_string());
        // A spreadsheet would evaluate such a text as a formula, unless it is a number.
        if value.starts_with(['=', '+', '-', '@']) && value.parse::<f64>().is_err() {
            value.insert(0, '\'');
        }
        if value.contains([',', '"']) {
            // Writing to a String cannot fail.
            let _ = write!(self.text, "\"{}\"", value.replace('"', "\"\""));
        } else {
            self.text += &value;
        }
        self
    }

    fn optional(&mut self, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.field(value),
            None => self.field(""),
        }
    }

    fn end(self, text: &mut String) {
        text.push_str(&self.text);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_taken_apart_is_quoted() {
        let mut line = Line::default();
        line.field("a,b").field("say \"x\"").optional(None::<u32>).field("two\nlines").field(1.5);
        let mut text = String::new();
        line.end(&mut text);
        assert_eq!(text, "\"a,b\",\"say \"\"x\"\"\",,two\u{fffd}lines,1.5\n");
    }

    #[test]
    fn names_are_no_formulas() {
        let mut line = Line::default();
        for name in ["=1+1", "+A1", "-A1", "@SUM(A1)", "-1.5", "web=1", "=cmd|'/C calc'!A0,\"x"] {
            line.field(name);
        }
        let mut text = String::new();
        line.end(&mut text);
        assert_eq!(text, "'=1+1,'+A1,'-A1,'@SUM(A1),-1.5,web=1,\"'=cmd|'/C calc'!A0,\"\"x\"\n");
    }

    #[test]
    fn every_line_has_a_field_for_every_title() {
        let mut text = String::new();
        let nothing = exits::Exits::default();
        let table = Table::new(&Profile::new(), exits::Grouping::by_reason());
        profile_line(&mut text, &Names::default(), 1, &Figures::new(&nothing, &table));
        assert_eq!(text.matches(',').count(), PROFILE.matches(',').count());
    }
}
