//! A profile for spreadsheets.

use exits::{Profile, Table};

use crate::csv::Line;
use crate::recordings::rows::{Figures, Names, rest_row, table_rows};

const TITLES: &str = "vm,vm_name,vcpu,thread,isa,reason,reason_code,access_kind,access,rows,exits,samples,\
    samples_percent,time_ns,time_percent,min_ns,max_ns,mean_ns,deviation_ns,error_percent,p50_ns,p99_ns,p999_ns";

/// The rows of `table`, which was made from `profile`. The rows that the table leaves out are one last line without names,
/// whose `rows` is their number.
#[must_use]
pub fn csv(profile: &Profile, table: &Table) -> String {
    let mut text = format!("{TITLES}\n");
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
    line.word(access_kind.as_ref()).optional(access.as_deref()).field(rows);
    line.field(figures.exits).field(figures.samples).optional(figures.samples_percent);
    line.field(figures.time_ns).optional(figures.time_percent);
    line.optional(figures.min_ns).optional(figures.max_ns).optional(figures.mean_ns);
    line.optional(figures.deviation_ns).optional(figures.error_percent);
    line.optional(figures.p50_ns).optional(figures.p99_ns).optional(figures.p999_ns);
    line.end(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_field_for_every_title() {
        let mut text = String::new();
        let nothing = exits::Exits::default();
        let table = Table::new(&Profile::new(), exits::Grouping::by_reason());
        profile_line(&mut text, &Names::default(), 1, &Figures::new(&nothing, &table));
        assert_eq!(text.matches(',').count(), TITLES.matches(',').count());
    }
}
