//! Tests of the pages of `report`, `timeline` and `diff`: their content, resources that they must not load, and hostile
//! text.

use crate::pairs::{OFF, Pair, doubtful, empty, reading, recordings, repeated, virtualized};
use crate::synthetic;
use conclusions::profile_comparison::ComparisonOrder;
use exits::{Dimension, Grouping};
use report::{comparison, profile, timeline};
use traces::{Damage, Origin};

fn pages() -> Vec<String> {
    let mut pages: Vec<String> = [virtualized(), doubtful(), repeated(), empty()]
        .iter()
        .map(|pair| comparison::page(&pair.compared()))
        .collect();
    let all = [
        synthetic::whole(),
        synthetic::broken(),
        synthetic::part(),
        synthetic::without_exits(),
        synthetic::after_the_end(),
    ];
    for recordings in all {
        for by in [&[Dimension::Reason][..], &[Dimension::Vcpu, Dimension::Reason], &[Dimension::Port]] {
            let grouping = Grouping::new(by.iter().copied()).unwrap();
            pages.push(profile::page(&recordings, &exits::Table::new(&recordings.profile, grouping)));
        }
        for figure in [exits::TimelineFigure::Exits, exits::TimelineFigure::Time] {
            let grouping = Grouping::new([Dimension::Vm, Dimension::Reason]).unwrap();
            let mut rows = exits::TimelineRows::new(&recordings.profile.timeline, &grouping, figure);
            rows.keep_top(4);
            pages.push(timeline::page(&recordings, &rows, &grouping, figure));
        }
    }
    pages
}

#[test]
fn nothing_is_loaded_and_no_script_runs_but_the_one_that_sorts() {
    for page in pages() {
        for load in ["http://", "https://", "//cdn", "<link", "<img", "@import", "url(", "src="] {
            assert!(!page.contains(load), "{load}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("default-src 'none'") && page.contains("script-src 'sha256-"));
    }
}

#[test]
fn no_figure_is_nonsense() {
    for page in pages() {
        // The script contains the word NaN.
        let page = page.split("<script").next().unwrap();
        for nonsense in ["NaN", "inf%", "inf\"", "infH", "-nan", "18,446,744,073"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
    }
}

#[test]
fn every_chart_has_words() {
    for page in pages() {
        for chart in page.split("<svg role=\"img\"").skip(1) {
            let label = chart.split("aria-label=\"").nth(1).and_then(|label| label.split('"').next());
            assert!(label.is_some_and(|label| !label.is_empty()), "{chart:.200}");
        }
    }
}

#[test]
fn a_share_of_a_vm_is_of_its_own_vcpus_as_on_a_terminal() {
    // Two VMs with the same load on two vCPUs each.
    let mut all = recordings("one", reading(3, 60, OFF));
    let alone = mean_of(&all, "3", 1);
    all.add("two".to_owned(), reading(3_000, 60, OFF));
    assert_eq!(mean_of(&all, "3", 2), alone);
    // If only one has a row, the rest is the other one alone.
    let both = [mean_of(&all, "3", 2), mean_of(&all, "3000", 2)];
    assert!(both.contains(&mean_of(&all, "other", 1)), "{both:?}");
}

/// The mean share of the time of the vCPUs of the row that begins with a word, which the page and the terminal show.
fn mean_of(recordings: &traces::Recordings, word: &str, top: usize) -> String {
    let (by_vm, figure) = (Grouping::new([Dimension::Vm]).unwrap(), exits::TimelineFigure::Time);
    let mut rows = exits::TimelineRows::new(&recordings.profile.timeline, &by_vm, figure);
    rows.keep_top(top);
    let page = timeline::page(recordings, &rows, &by_vm, figure);
    let name = format!("<strong><code>{word} ");
    let chart = page.split("<figcaption>").find(|chart| chart.starts_with(&name)).unwrap();
    let mean = chart.split("mean ").nth(1).unwrap().split(',').next().unwrap().to_owned();
    let screen = timeline::Screen { width: 100, colour: false, ascii: false };
    let text = timeline::terminal(recordings, &rows, &by_vm, figure, screen);
    let line = text.lines().find(|line| line.starts_with(&format!("{word} "))).unwrap();
    assert!(line.trim_end().ends_with(&mean), "{mean}: {line}");
    mean
}

#[test]
fn hostile_text_stays_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";
    let hostile = |vm| {
        let mut one = reading(vm, 60, OFF);
        one.profile.names.insert(vm, HOSTILE.to_owned());
        one.profile.events.insert(HOSTILE.to_owned(), 1);
        one.profile.losses.lost_events = 1;
        one.origin = Origin {
            version: Some(HOSTILE.to_owned()),
            host: Some(format!("{HOSTILE}{vm}")),
            kernel: Some(format!("{HOSTILE}{vm}")),
            processor: Some(format!("{HOSTILE}{vm}")),
            command: Some(HOSTILE.to_owned()),
            ..one.origin
        };
        one.warnings.push(HOSTILE.to_owned());
        one.damage = Some(Damage { offset: 1, what: HOSTILE.to_owned() });
        recordings(HOSTILE, one)
    };
    let one = hostile(3);
    let by_vcpu = Grouping::new([Dimension::Vcpu, Dimension::Reason]).unwrap();
    let rows = exits::TimelineRows::new(&one.profile.timeline, &by_vcpu, exits::TimelineFigure::Exits);
    let pages = [
        profile::page(&one, &exits::Table::new(&one.profile, by_vcpu.clone())),
        timeline::page(&one, &rows, &by_vcpu, exits::TimelineFigure::Exits),
        comparison::page(
            &Pair::new(vec![hostile(1)], vec![hostile(2)], &[Dimension::Vm, Dimension::Reason], None)
                .compared(),
        ),
    ];
    for page in pages {
        assert_eq!(page.matches("<script").count(), 1);
        assert!(!page.contains("<img") && page.contains("&lt;img"));
    }
}

#[test]
fn a_page_of_a_comparison_as_it_was_when_it_was_last_looked_at() {
    let mut pair = virtualized();
    pair.comparison.keep_top(2, ComparisonOrder::Time);
    insta::assert_snapshot!(lines(&comparison::page(&pair.compared())));
}

#[test]
fn a_page_of_a_profile_as_it_was_when_it_was_last_looked_at() {
    let recordings = synthetic::broken();
    let table = exits::Table::new(&recordings.profile, Grouping::by_reason());
    insta::assert_snapshot!(lines(&profile::page(&recordings, &table)));
}

/// The page with one element per line, so that changes are easy to see, and without styles, script and outlines.
fn lines(page: &str) -> String {
    let body = page.split("<body>").nth(1).unwrap_or_default().split("<script>").next().unwrap_or_default();
    let mut text = String::new();
    for line in body.replace("><", ">\n<").lines() {
        let outline = line.split_once(" d=\"");
        text += outline.map_or(line, |(before, _)| before);
        text.push('\n');
    }
    text
}
