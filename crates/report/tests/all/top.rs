//! The page of `exitless top`, against snapshots, and at every size.

use crate::counted::{SECOND, WEB, after, second, source};
use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use report::top::Action::{Back, Down, Help, Open, Pause, Reverse, Sort, Sum, Turn};
use report::top::{Action, Look, Observation, Top, draw};

const PLAIN: Look = Look { colour: false, ascii: false };

fn drawn(top: &Top, width: u16, height: u16, look: Look) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, top, look)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let lines = buffer.content.chunks(usize::from(buffer.area.width));
    let line =
        |cells: &[ratatui_core::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    lines.map(|cells| line(cells).trim_end().to_owned() + "\n").collect()
}

fn screen(top: &Top, width: u16, height: u16) -> String {
    text(&drawn(top, width, height, PLAIN))
}

fn with(seconds: u64, actions: &[Action]) -> Top {
    let mut top = after(seconds);
    actions.iter().for_each(|&action| top.act(action));
    top
}

#[test]
fn all_vms_in_80_columns() {
    insta::assert_snapshot!(screen(&after(30), 80, 24));
}

#[test]
fn all_vms_in_60_columns() {
    insta::assert_snapshot!(screen(&with(30, &[Down]), 60, 15));
}

#[test]
fn all_vms_in_120_columns() {
    let mut observation = second(7);
    observation.cost_ns_per_exit = Some(412.0);
    let mut top = after(7);
    top.observe(observation);
    insta::assert_snapshot!(screen(&top, 120, 40));
}

#[test]
fn the_reasons_of_a_vm_in_80_columns() {
    insta::assert_snapshot!(screen(&with(30, &[Open]), 80, 24));
}

#[test]
fn the_reasons_of_a_vm_in_60_columns() {
    insta::assert_snapshot!(screen(&with(30, &[Open, Sort, Reverse]), 60, 15));
}

#[test]
fn the_reasons_of_a_vm_in_120_columns() {
    insta::assert_snapshot!(screen(&with(150, &[Open, Sum]), 120, 40));
}

#[test]
fn the_vcpus_of_a_vm_in_80_columns() {
    insta::assert_snapshot!(screen(&with(30, &[Down, Open, Turn]), 80, 24));
}

#[test]
fn the_accesses_of_a_reason_in_80_columns() {
    insta::assert_snapshot!(screen(&with(30, &[Open, Open]), 80, 24));
}

#[test]
fn the_accesses_of_a_reason_in_120_columns() {
    insta::assert_snapshot!(screen(&with(150, &[Open, Open]), 120, 40));
}

#[test]
fn a_reason_without_accesses_is_shown_by_vcpu() {
    let top = with(30, &[Open, Down, Open, Pause]);
    assert!(!top.wants_accesses());
    insta::assert_snapshot!(screen(&top, 80, 24));
}

#[test]
fn the_help_lies_over_the_page() {
    insta::assert_snapshot!(screen(&with(30, &[Help]), 80, 24));
}

#[test]
fn ascii_alone_where_nothing_else_is_shown() {
    let shown = text(&drawn(&with(30, &[Open]), 80, 24, Look { colour: false, ascii: true }));
    assert!(shown.is_ascii(), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn before_the_first_interval_and_without_vms() {
    let mut top = Top::new(source(), SECOND);
    assert!(screen(&top, 80, 24).contains("Counting for the first 1.00 s."));
    let mut nothing = Observation::default();
    nothing.profile.span = second(0).profile.span;
    top.observe(nothing);
    let shown = screen(&top, 80, 24);
    assert!(shown.contains("exits 0/s of 0 VMs") && shown.contains("This page waits for one."), "{shown}");
}

#[test]
fn losses_are_loud() {
    let mut top = after(3);
    let mut lossy = second(3);
    lossy.profile.losses.lost_events = 1_234;
    top.observe(lossy);
    top.observe(second(4));
    let buffer = drawn(&top, 80, 24, Look { colour: true, ascii: false });
    let shown = text(&buffer);
    let at = shown.find("LOST 1,234").unwrap_or_else(|| panic!("{shown}"));
    let style = buffer.content[at].style();
    assert_eq!(style.fg, Some(Color::Red));
    assert!(style.add_modifier.contains(Modifier::BOLD));
}

#[test]
fn without_colours_the_cursor_is_reversed_and_an_ended_vm_faint() {
    let buffer = drawn(&with(6, &[Down]), 80, 24, PLAIN);
    assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let with_modifier = |modifier| -> Vec<String> {
        let lines = text(&buffer);
        let rows = buffer.content.chunks(80).zip(lines.lines());
        rows.filter(|(cells, _)| cells.iter().all(|cell| cell.modifier.contains(modifier)))
            .map(|(_, line)| line.split_whitespace().next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(with_modifier(Modifier::REVERSED).len(), 1);
    assert_eq!(with_modifier(Modifier::DIM), ["pid"]);
}

#[test]
fn a_long_list_follows_the_cursor() {
    let mut top = after(1);
    let mut observation = second(1);
    for vm in 100..180 {
        let vcpu = exits::Vcpu { vm: Some(vm), number: Some(0), thread: Some(vm) };
        observation.profile.vcpu(vcpu).reasons.entry(exits::ExitReason::vmx(12)).or_default().count = 1;
    }
    top.observe(observation);
    top.act(Action::Last);
    let shown = screen(&top, 80, 24);
    assert!(shown.contains("pid 179") && !shown.contains("web"), "{shown}");
    top.act(Action::First);
    assert!(screen(&top, 80, 24).contains("web"));
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let mut top = after(1);
    let mut observation = second(1);
    observation.facts.get_mut(&WEB).unwrap().name = Some("a\u{1b}[31mb".to_owned());
    top.observe(observation);
    let shown = screen(&top, 80, 24);
    assert!(shown.contains("a\u{fffd}[31mb") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn there_is_no_size_and_no_page_for_which_drawing_fails() {
    let ways: [&[Action]; 7] =
        [&[], &[Open], &[Open, Turn], &[Open, Open], &[Open, Down, Open], &[Help], &[Open, Open, Back]];
    for actions in ways {
        let top = with(12, actions);
        for width in (0..130).step_by(7).chain([1, 2, 3, 59, 60, 61]) {
            for height in [0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 19, 20, 24, 50] {
                if width > 0 && height > 0 {
                    drawn(&top, width, height, Look { colour: true, ascii: true });
                }
            }
        }
    }
}
