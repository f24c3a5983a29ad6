//! The output of recordings, against snapshots and limits of width.

use crate::synthetic::{after_the_end, broken, hostile, part, whole, without_exits};
use exits::{Dimension, Grouping, Hypervisor, Order, Table, TimelineFigure, TimelineRows};
use report::timeline::Screen;
use report::{profile, timeline};
use traces::{Format, Recordings};

fn grouping(dimensions: &[Dimension]) -> Grouping {
    Grouping::new(dimensions.iter().copied()).unwrap()
}

fn table(recordings: &Recordings, dimensions: &[Dimension]) -> Table {
    Table::new(&recordings.profile, grouping(dimensions))
}

fn shown(recordings: &Recordings, dimensions: &[Dimension], width: usize) -> String {
    let text = profile::terminal(recordings, &table(recordings, dimensions), width, false);
    assert_fits(&text, width);
    text
}

fn drawn(recordings: &Recordings, dimensions: &[Dimension], figure: TimelineFigure, width: usize) -> String {
    let screen = Screen { width, colour: false, ascii: false };
    let text = on_screen(recordings, dimensions, figure, screen);
    assert_fits(&text, width);
    text
}

fn on_screen(
    recordings: &Recordings,
    dimensions: &[Dimension],
    figure: TimelineFigure,
    screen: Screen,
) -> String {
    let grouping = grouping(dimensions);
    let mut rows = TimelineRows::new(&recordings.profile.timeline, &grouping, figure);
    rows.keep_top(5);
    timeline::terminal(recordings, &rows, &grouping, figure, screen)
}

fn assert_fits(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= width, "{line}");
    }
}

const REASON: &[Dimension] = &[Dimension::Reason];
const EVERYTHING: &[Dimension] = &[Dimension::Vcpu, Dimension::Reason];

#[test]
fn by_reason_in_80_columns() {
    insta::assert_snapshot!(shown(&whole(), REASON, 80));
}

#[test]
fn exits_that_belong_to_no_vm_are_told_in_every_medium() {
    let mut recordings = whole();
    assert!(report::recordings::doubts(&recordings).is_empty());
    recordings.profile.losses.exits_without_vcpu = 12_345;
    let on_screen = shown(&recordings, REASON, 80).split_whitespace().collect::<Vec<_>>().join(" ");
    let table = table(&recordings, REASON);
    let page = profile::page(&recordings, &table);
    let doubts = report::recordings::doubts(&recordings);
    for text in [on_screen, page, doubts.concat()] {
        assert!(text.contains("12,345 exits could not be attributed to a VM"), "{text}");
    }
}

#[test]
fn by_reason_in_120_columns() {
    insta::assert_snapshot!(shown(&whole(), REASON, 120));
}

#[test]
fn by_vcpu_and_reason_in_80_columns() {
    insta::assert_snapshot!(shown(&whole(), EVERYTHING, 80));
}

#[test]
fn by_vcpu_and_reason_in_120_columns() {
    insta::assert_snapshot!(shown(&whole(), EVERYTHING, 120));
}

#[test]
fn accesses_and_the_rest() {
    let recordings = whole();
    let mut table = table(&recordings, &[Dimension::Port, Dimension::Msr, Dimension::Apic]);
    table.sort(Order::Time);
    table.keep_top(3);
    insta::assert_snapshot!(profile::terminal(&recordings, &table, 80, false));
}

#[test]
fn whatever_is_wrong_is_said() {
    insta::assert_snapshot!(shown(&broken(), REASON, 120));
}

#[test]
fn what_was_asked_for_is_said() {
    insta::assert_snapshot!(shown(&part(), &[Dimension::Vm], 80));
}

#[test]
fn an_empty_table_is_explained() {
    let texts = [
        shown(&without_exits(), REASON, 80),
        shown(&after_the_end(), REASON, 80),
        shown(&whole(), &[Dimension::Ipi], 80),
        drawn(&without_exits(), REASON, TimelineFigure::Exits, 80),
    ];
    insta::assert_snapshot!(texts.join("----\n"));
}

#[test]
fn an_empty_table_is_explained_by_where_exits_come_from() {
    let last_lines = |mut recordings: Recordings, format, dimensions| {
        recordings.files[0].origin.format = format;
        let text = shown(&recordings, dimensions, 80);
        let paragraph = text.split("\n\n").find(|paragraph| paragraph.starts_with("There is"));
        format!("{format}: {}\n", paragraph.unwrap().trim_end())
    };
    let texts = [Format::Live, Format::Exits, Format::Xentrace].map(|format| {
        last_lines(without_exits(), format, REASON) + &last_lines(whole(), format, &[Dimension::Ipi])
    });
    insta::assert_snapshot!(texts.join("----\n"));
}

#[test]
fn xen_is_named_beside_its_control_domains_kernel() {
    let mut recordings = whole();
    let origin = &mut recordings.files[0].origin;
    (origin.hypervisor, origin.xen_version) = (Hypervisor::Xen, Some("4.20.1".to_owned()));
    origin.kernel = None;
    let head = |recordings: &Recordings| shown(recordings, REASON, 200).lines().next().unwrap().to_owned();
    assert!(
        head(&recordings).contains("Xen 4.20.1") && !head(&recordings).contains("Linux"),
        "{}",
        head(&recordings)
    );
    let page = profile::page(&recordings, &table(&recordings, REASON));
    assert!(page.contains("Xen 4.20.1") && !page.contains("Linux Xen"));
    recordings.files[0].origin.kernel = Some("6.12.90".to_owned());
    assert!(head(&recordings).contains("Xen 4.20.1; Linux 6.12.90"), "{}", head(&recordings));
}

#[test]
fn json_of_a_profile() {
    let recordings = broken();
    let mut table = table(&recordings, &[Dimension::Vm, Dimension::Reason]);
    table.keep_top(3);
    insta::assert_json_snapshot!(profile::json(&recordings, &table));
}

#[test]
fn csv_of_a_profile() {
    let recordings = whole();
    let mut of_exits = table(&recordings, EVERYTHING);
    of_exits.keep_top(7);
    let of_accesses = table(&recordings, &[Dimension::Mmio, Dimension::Apic]);
    let texts = [&of_exits, &of_accesses].map(|table| profile::csv(&recordings.profile, table));
    insta::assert_snapshot!(texts.join("----\n"));
}

#[test]
fn a_timeline_in_80_columns() {
    insta::assert_snapshot!(drawn(&whole(), REASON, TimelineFigure::Exits, 80));
}

#[test]
fn a_timeline_of_shares_in_120_columns() {
    let dimensions = [Dimension::Vm, Dimension::Reason];
    insta::assert_snapshot!(drawn(&whole(), &dimensions, TimelineFigure::Time, 120));
}

#[test]
fn a_timeline_in_ascii() {
    let screen = Screen { width: 80, colour: false, ascii: true };
    let text = on_screen(&whole(), &[Dimension::Vm], TimelineFigure::Exits, screen);
    assert!(text.is_ascii());
    insta::assert_snapshot!(text);
}

#[test]
fn a_curve_begins_where_the_exits_do() {
    // The VM started in the middle of the recording.
    let mut recordings = whole();
    let observed = recordings.files[0].observed.as_mut().unwrap();
    observed.first_ns -= observed.length_ns();
    let text = drawn(&recordings, REASON, TimelineFigure::Exits, 80);
    let title = text.lines().find(|line| line.starts_with("exit reason")).unwrap();
    let start = title.find("exits a second").unwrap();
    let row = text.lines().find(|line| line.starts_with("MSR_WRITE")).unwrap();
    let curve: Vec<char> = row.chars().skip(start).take(40).collect();
    assert!(curve[..15].iter().all(|&column| column == ' ') && curve[25] != ' ', "{text}");
}

#[test]
fn between_recordings_nothing_is_drawn() {
    // An hour later nothing happened.
    const HOUR: u64 = 3_600_000_000_000;
    let mut recordings = whole();
    let mut later = recordings.files[0].clone();
    let observed = later.observed.as_mut().unwrap();
    (observed.first_ns, observed.last_ns) = (observed.first_ns + HOUR, observed.last_ns + HOUR);
    recordings.files.push(later);
    let text = drawn(&recordings, REASON, TimelineFigure::Exits, 80);
    let row: Vec<&str> =
        text.lines().find(|line| line.starts_with("MSR_WRITE")).unwrap().split_whitespace().collect();
    // The rate of the first column is over the 5.19 s of it that were recorded.
    assert_eq!(row, ["MSR_WRITE", "█", "2,336/s", "1,168/s"], "{text}");
}

#[test]
fn recordings_of_several_clocks_have_no_common_timeline() {
    let text = drawn(&broken(), REASON, TimelineFigure::Exits, 120);
    assert!(text.contains("There is no timeline of recordings of several clocks."), "{text}");
    assert!(text.contains("not known to be of one clock") && !text.contains("peak"), "{text}");
}

#[test]
fn a_timeline_for_programs() {
    let recordings = part();
    let rows = TimelineRows::new(&recordings.profile.timeline, &grouping(REASON), TimelineFigure::Exits);
    let document = serde_json::to_value(timeline::json(&recordings, &rows, &grouping(REASON))).unwrap();
    let slices = document["rows"][0]["exits_by_slice"].as_array().unwrap();
    assert_eq!(slices.len() as u64, document["slices"].as_u64().unwrap());
    let sum: u64 = slices.iter().map(|slice| slice.as_u64().unwrap()).sum();
    assert_eq!(Some(sum), document["rows"][0]["exits"].as_u64());
    let csv = timeline::csv(&recordings.profile, &rows);
    let counted: u64 =
        csv.lines().skip(1).map(|line| line.split(',').nth(8).unwrap().parse::<u64>().unwrap()).sum();
    let rows: u64 =
        document["rows"].as_array().unwrap().iter().map(|row| row["exits"].as_u64().unwrap()).sum();
    assert_eq!(counted, rows);
    insta::assert_snapshot!(csv.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn colour_is_only_there_when_asked_for() {
    let recordings = broken();
    let table = table(&recordings, REASON);
    assert!(!profile::terminal(&recordings, &table, 80, false).contains('\u{1b}'));
    assert!(profile::terminal(&recordings, &table, 80, true).contains('\u{1b}'));
}

#[test]
fn a_hostile_name_cannot_speak_to_the_terminal() {
    let recordings = hostile();
    let table = table(&recordings, EVERYTHING);
    let curves = drawn(&recordings, &[Dimension::Vm], TimelineFigure::Time, 160);
    for text in [
        profile::terminal(&recordings, &table, 160, false),
        profile::csv(&recordings.profile, &table),
        curves,
    ] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
        assert!(text.contains("owned"));
    }
    let csv = profile::csv(&recordings.profile, &table);
    assert_eq!(csv.lines().count(), 1 + table.rows().len());
}
