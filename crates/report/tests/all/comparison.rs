//! The output of `exitless diff`, against snapshots and limits of width.

use crate::pairs::{OFF, Pair, REASON, doubtful, empty, reading, recordings, repeated, virtualized};
use conclusions::profile_comparison::ComparisonOrder;
use report::comparison::{csv, doubts, json, terminal};

fn shown(pair: &Pair, width: usize) -> String {
    let text = terminal(&pair.compared(), width, false);
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    text
}

#[test]
fn a_comparison_in_80_columns() {
    insta::assert_snapshot!(shown(&virtualized(), 80));
}

#[test]
fn a_comparison_in_120_columns() {
    insta::assert_snapshot!(shown(&virtualized(), 120));
}

#[test]
fn whatever_is_doubtful_is_said() {
    insta::assert_snapshot!(shown(&doubtful(), 120));
}

#[test]
fn repeated_recordings_by_operation() {
    insta::assert_snapshot!(shown(&repeated(), 80));
}

#[test]
fn a_share_of_lost_events_does_not_overflow() {
    let side = || {
        let mut one = reading(1, 20, OFF);
        one.profile.events = [("a".to_owned(), u64::MAX), ("b".to_owned(), 1)].into();
        one.profile.losses.lost_events = u64::MAX;
        vec![recordings("x.profile", one)]
    };
    let pair = Pair::new(side(), side(), REASON, None);
    let doubts = doubts(&pair.compared());
    assert!(doubts.iter().any(|doubt| doubt.contains("lost (50")), "{doubts:?}");
}

#[test]
fn exits_without_their_vm_are_a_doubt_of_the_side() {
    let side = |without_vcpu| {
        let mut one = reading(1, 20, OFF);
        one.profile.losses.exits_without_vcpu = without_vcpu;
        vec![recordings("x.profile", one)]
    };
    let pair = Pair::new(side(0), side(12_345), REASON, None);
    let doubts = doubts(&pair.compared());
    let told = |doubt: &String| doubt.starts_with("after: 12,345 exits could not be attributed to a VM");
    assert_eq!(doubts.iter().filter(|doubt| told(doubt)).count(), 1, "{doubts:?}");
}

#[test]
fn nothing_on_either_side() {
    insta::assert_snapshot!(shown(&empty(), 80));
}

#[test]
fn the_top_and_the_rest() {
    let mut pair = virtualized();
    pair.comparison.keep_top(3, ComparisonOrder::Time);
    insta::assert_snapshot!(shown(&pair, 80));
}

#[test]
fn only_changes_that_are_certain_have_a_colour() {
    let text = terminal(&virtualized().compared(), 120, true);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("vintr").contains("\u{1b}[32m"));
    assert!(line("avic_incomplete_ipi").contains("\u{1b}[31m"));
    assert!(!line("pause").contains('\u{1b}'), "{}", line("pause"));
    assert!(!terminal(&virtualized().compared(), 120, false).contains('\u{1b}'));
}

#[test]
fn csv_of_a_comparison() {
    let text = csv(&virtualized().compared());
    let fields = text.lines().next().unwrap().split(',').count();
    assert!(text.lines().all(|line| line.split(',').count() == fields), "{text}");
    insta::assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"));
}

#[test]
fn rows_that_are_left_out_are_the_last_line_of_csv() {
    let mut pair = virtualized();
    pair.comparison.keep_top(2, ComparisonOrder::Time);
    let text = csv(&pair.compared());
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let [titles, total, rows @ ..] = &lines[..] else { panic!("{text}") };
    assert!(lines.iter().all(|line| line.len() == titles.len()), "{text}");
    for title in ["exits_before", "exits_after", "time_ns_before", "time_ns_after"] {
        let at = titles.iter().position(|&one| one == title).unwrap();
        let number = |line: &Vec<&str>| line[at].parse::<u64>().unwrap();
        // The time asleep is in no sum.
        let is_counted = |line: &&Vec<&str>| title.starts_with("exits") || line[5] != "true";
        let sum: u64 = rows.iter().filter(is_counted).map(number).sum();
        assert_eq!(sum, number(total), "{title}");
    }
    let filled = |line: &Vec<&str>| -> Vec<String> {
        let named = titles.iter().zip(line).filter(|(_, value)| !value.is_empty());
        named.map(|(title, _)| (*title).to_owned()).collect()
    };
    let [.., rest] = rows else { panic!("{text}") };
    assert_eq!(
        filled(rest).join(" "),
        "exits_before exits_after rate_before rate_after time_ns_before time_ns_after time_rate_ns_before \
         time_rate_ns_after rows"
    );
    assert_eq!(rest.last(), Some(&"6"));
}

#[test]
fn json_of_a_comparison() {
    let mut pair = virtualized();
    pair.comparison.keep_top(1, ComparisonOrder::Time);
    insta::assert_json_snapshot!(json(&pair.compared()));
}
