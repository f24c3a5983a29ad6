//! Tests of studies on the terminal and as a page: their content, resources that pages must not load, and their display in
//! a browser.

use std::path::{Path, PathBuf};

use crate::browser::Browser;
use report::study::{csv, difference as side_by_side, page, terminal};
use study::analysis::synthetic::{Made, of_two_kinds, study};
use study::analysis::{Collected, Findings, analyse, difference};
use study::{Better, Combine, Metric, Unit};

fn findings(made: &Made) -> Findings {
    analyse(&study(made), false).unwrap()
}

#[test]
fn the_page_tells_that_exits_were_counted_apart() {
    let told = |samples: &str| {
        let mut collected = study(&Made { counts: vec![1], workloads: vec!["pread"], ..Made::default() });
        collected.facts.samples = samples.to_owned();
        page(&analyse(&collected, false).unwrap(), None).contains("counted in a repetition of each run")
    };
    assert!(told(r#"{"exits":"apart"}"#) && !told(r#"{"exits":true}"#) && !told(""));
}

/// The size of the largest planned study: 12 VMs and six tests.
fn large() -> Findings {
    findings(&Made {
        counts: (1..=12).collect(),
        workloads: vec!["random-read", "random-write", "pread", "pwrite", "fread", "fwrite"],
        percent: 2.0,
        ..Made::default()
    })
}

/// A study with a failed run, an emulated CPU, rates that were not attained, three arms, and few blocks.
fn troubled() -> Collected {
    let mut collected =
        study(&Made { blocks: 4, counts: vec![1, 2], workloads: vec!["http"], ..Made::default() });
    let third: Vec<_> = collected
        .runs
        .iter()
        .filter(|stored| stored.run.cell.arm["apicv"] == "on")
        .map(|stored| {
            let mut stored = stored.clone();
            stored.run.cell.arm.insert("apicv".to_owned(), "off-again".to_owned());
            stored
        })
        .collect();
    collected.runs.extend(third);
    let mut again = collected.facts.factors[0].levels[0].clone();
    again.name = "off-again".to_owned();
    collected.facts.factors[0].levels.push(again);
    for stored in &mut collected.runs {
        let value = 93.5;
        stored.run.guests[0].push(Metric {
            name: "attained".to_owned(),
            unit: Unit::Percent,
            better: Better::Higher,
            combine: Combine::Mean,
            value,
        });
        for guest in stored.run.guests.iter_mut().skip(1) {
            guest.push(Metric {
                name: "attained".to_owned(),
                unit: Unit::Percent,
                better: Better::Higher,
                combine: Combine::Mean,
                value,
            });
        }
        stored.run.warnings.push("12 events were lost".to_owned());
    }
    collected.facts.emulated = Some("QEMU's TCG".to_owned());
    collected.facts.target = "lab:amd-svm".to_owned();
    let mut failed = collected.runs.remove(3);
    failed.run.failure = Some("iozone ended with status 1".to_owned());
    failed.folder = "failed/0003-0".to_owned();
    collected.failed.push(failed);
    collected
}

fn all() -> [Findings; 5] {
    [
        findings(&Made::default()),
        findings(&Made { percent: 0.0, ..Made::default() }),
        findings(&Made { is_aa: true, ..Made::default() }),
        findings(&Made { blocks: 1, counts: vec![1], ..Made::default() }),
        analyse(&troubled(), false).unwrap(),
    ]
}

#[test]
fn each_figure_is_beside_that_of_the_arm_it_is_compared_with() {
    let findings = analyse(&of_two_kinds(), false).unwrap();
    let text = csv(&findings);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let column = |name: &str| names.iter().position(|one| *one == name).unwrap();
    // Names of arms contain a comma, which shifts the following columns by one.
    let (guests, mean) = (column("guests"), column("baseline_mean") + 1);
    let of_each = lines.filter(|line| !line[guests].is_empty());
    assert!(of_each.clone().count() > 2 && of_each.clone().all(|line| !line[mean].is_empty()), "{text}");
    let shown = terminal(&findings, 80, false);
    let (table, _) = shown.split_once("\n\nrandom-write throughput").unwrap();
    let rows: Vec<&str> = table.lines().skip_while(|line| !line.starts_with('─')).collect();
    assert!(rows.len() > 2 && table.contains("baseline") && !table.contains('–'), "{shown}");
    assert!(rows.iter().all(|row| !row.starts_with("all")), "a sum over one number of guests: {shown}");
    assert!(!findings.verdict.sentences.concat().contains("with 1 and 6 VMs"), "{shown}");
}

#[test]
fn each_test_of_a_workload_has_its_chart_and_its_column() {
    let mut made = study(&Made { counts: vec![1, 2], ..Made::default() });
    for guest in made.runs.iter_mut().flat_map(|stored| &mut stored.run.guests) {
        let second = Metric { name: "second.throughput".to_owned(), ..guest[0].clone() };
        guest.push(second);
    }
    let findings = analyse(&made, false).unwrap();
    let workloads = findings.study.workloads.len();
    let page = page(&findings, None);
    let section = |title: &str| {
        let (_, rest) = page.split_once(title).unwrap();
        rest.split_once("</section>").unwrap().0.to_owned()
    };
    assert_eq!(section("<h2>Throughput").matches("<figure class=\"lines\"").count(), 2 * workloads);
    assert!(section("<h2>Change of each workload").contains("second"));
}

#[test]
fn a_study_in_80_columns() {
    insta::assert_snapshot!(terminal(
        &findings(&Made { workloads: vec!["random-read", "pread"], ..Made::default() }),
        80,
        false
    ));
}

#[test]
fn a_troubled_study_in_80_columns() {
    insta::assert_snapshot!(terminal(&analyse(&troubled(), false).unwrap(), 80, false));
}

#[test]
fn two_results_in_80_columns() {
    let before =
        study(&Made { workloads: vec!["pread"], counts: vec![1, 2], shared: 0.01, ..Made::default() });
    let mut after = study(&Made {
        workloads: vec!["pread"],
        counts: vec![1, 2],
        shared: 0.01,
        percent: 8.0,
        seed: 5,
        ..Made::default()
    });
    after.facts.target = "ssh://other".to_owned();
    after
        .runs
        .iter_mut()
        .for_each(|stored| stored.run.fingerprint.kernel_release = Some("6.18.0".to_owned()));
    let shown = |before: &[Collected], after: &[Collected]| {
        side_by_side::terminal(&difference(before, after, false).unwrap(), 80)
    };
    let several = shown(&vec![before.clone(); 3], &vec![after.clone(); 3]);
    assert!(
        several.starts_with(
            "APICv and file I/O: local (3 results, 96 runs) before, ssh://other (3 results,\n96 runs) after\n"
        ),
        "{several}"
    );
    assert!(!several.contains("Warnings"), "{several}");
    let shown = shown(&[before], &[after]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn no_line_is_wider_than_80_columns() {
    for findings in all() {
        for line in terminal(&findings, 80, false).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn colour_is_only_there_when_asked_for_and_names_cannot_speak_to_the_terminal() {
    let mut collected = troubled();
    collected.facts.title = "\u{1b}]0;owned\u{7}".to_owned();
    collected.failed[0].run.failure = Some("\u{1b}[2J".to_owned());
    let findings = analyse(&collected, false).unwrap();
    assert!(!terminal(&findings, 80, false).contains('\u{1b}'));
    assert!(terminal(&findings, 80, true).contains('\u{1b}'));
}

#[test]
fn sampling_costs_a_share_of_all_the_hosts_cpus_in_each_arm() {
    let mut made = study(&Made { counts: vec![1], ..Made::default() });
    for run in made.runs.iter_mut().map(|stored| &mut stored.run) {
        let value = if run.cell.arm["apicv"] == "off" { 0.5 } else { 0.3 };
        run.host.push(Metric {
            name: "sampling.cpu".to_owned(),
            unit: Unit::Percent,
            better: Better::Lower,
            combine: Combine::Single,
            value,
        });
    }
    let page = page(&analyse(&made, false).unwrap(), None);
    assert!(page.contains("off 0.50 %, on 0.30 % of the host's CPUs on average; 0.50 % at most in a run"));
}

#[test]
fn nothing_is_loaded_and_no_figure_is_nonsense() {
    for findings in all() {
        let page = page(&findings, Some(""));
        for load in ["http://", "https://", "//cdn", "<link", "<img", "@import", "url(", "src="] {
            assert!(!page.contains(load), "{load}");
        }
        assert_eq!(page.matches("<script").count(), 1);
        let page = page.split("<script").next().unwrap();
        for nonsense in ["NaN", "inf%", "inf\"", "-nan", "18,446,744,073"] {
            assert!(!page.contains(nonsense), "{nonsense}");
        }
    }
}

#[test]
fn every_chart_has_words_and_a_table() {
    let page = page(&large(), Some(""));
    let charts = page.matches("<svg role=\"img\"").count();
    // Per workload: throughput, latency, CPU, iowait, total exits, exits by reason.
    assert_eq!(charts, 6 * 6);
    for chart in page.split("<svg role=\"img\"").skip(1) {
        let chart = chart.split("</figure>").next().unwrap();
        assert!(
            chart.contains("<title>") && chart.contains("<desc>") && chart.contains("<table>"),
            "{chart:.200}"
        );
    }
}

#[test]
fn hostile_text_stays_text() {
    const HOSTILE: &str = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>";
    let mut collected = troubled();
    collected.facts.title = HOSTILE.to_owned();
    collected.facts.question = HOSTILE.to_owned();
    collected.facts.workloads[0].settings = HOSTILE.to_owned();
    collected.failed[0].run.failure = Some(HOSTILE.to_owned());
    collected.failed[0].folder = format!("failed/\"><script>{HOSTILE}");
    for stored in &mut collected.runs {
        stored.run.warnings.push(HOSTILE.to_owned());
        stored.run.fingerprint.cmdline = Some(HOSTILE.to_owned());
        stored.run.guest_facts[0].insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        stored.run.host[0].name = HOSTILE.to_owned();
    }
    let page = page(&analyse(&collected, false).unwrap(), Some(""));
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.contains("<img") && page.contains("&lt;img"));
}

#[test]
fn runs_are_linked_only_where_the_page_knows_the_way() {
    let findings = findings(&Made::default());
    assert!(page(&findings, Some("../result/")).contains("href=\"../result/runs/0000/\""));
    assert!(!page(&findings, None).contains("href="));
}

/// The folder of pictures, below `target`.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("study-pages").join(name)
}

#[test]
fn a_browser_shows_the_page_whole_at_every_width_in_light_and_dark() {
    let Some(mut browser) = Browser::start() else {
        println!("not tested: there is no Chromium on PATH; scripts/setup test installs one");
        return;
    };
    let all = [(1440, false), (1440, true), (1280, false), (390, false), (390, true)];
    let troubled = analyse(&troubled(), false).unwrap();
    // The large page is slow. In the other looks it does not differ from the small one.
    for (name, findings, looks) in
        [("troubled", troubled, &all[..]), ("large", large(), &[all[0], all[4], all[2]])]
    {
        let file = kept(&format!("{name}.html"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, page(&findings, Some(""))).unwrap();
        let mut backgrounds = Vec::new();
        for &(width, is_dark) in looks {
            browser.look(width, is_dark);
            browser.open(&file);
            let wide = browser.evaluate("document.documentElement.scrollWidth");
            assert!(
                wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                "{name}: {wide} of {width} pixels"
            );
            let drawn = browser.evaluate("[...document.querySelectorAll('svg[role=img] path.mark')].filter(mark => mark.getBoundingClientRect().width > 3).length");
            // Five charts for each of six workloads, with marks of two arms and a change at twelve numbers of VMs.
            let least = if name == "large" { 6 * 5 * 12 * 3 } else { 4 * 2 * 3 };
            assert!(drawn.as_u64().is_some_and(|drawn| drawn >= least), "{name}: {drawn} marks of {least}");
            let bars = browser.evaluate("[...document.querySelectorAll('rect.arm')].filter(bar => bar.getBoundingClientRect().width > 0).length");
            assert!(bars.as_u64().is_some_and(|bars| bars > 5), "{name}: {bars} bars");
            // Text in charts must be within the page.
            let outside = browser.evaluate(
                "[...document.querySelectorAll('figure svg text')].filter(text => { const box = text.getBoundingClientRect(); \
                 return box.width > 0 && (box.left < 0 || box.right > innerWidth + 1); }).map(text => text.textContent).join('|')",
            );
            assert_eq!(outside, "", "{name} at {width}");
            if width == 1280 {
                // No name of a figure is cut off at the edge.
                let cut = browser.evaluate(
                    "[...document.querySelectorAll('table.gains')].filter(table => table.scrollWidth > table.parentElement.clientWidth).length",
                );
                assert_eq!(cut, 0, "{name}: tables of changes are wider than the page");
            }
            backgrounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
            browser.picture(&kept(&format!("{name}-{width}-{}.png", if is_dark { "dark" } else { "light" })));
        }
        assert_ne!(backgrounds[0], backgrounds[1]);
        if name == "troubled" {
            assert!(browser.print(&kept("troubled.pdf")) > 10_000);
        }
    }
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}
