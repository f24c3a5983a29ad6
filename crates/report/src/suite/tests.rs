use study::analysis::synthetic::{Made, study};
use study::suite::{MadeStudy, Suite, SuiteFolder, outcome};

use super::*;

const SUITE: &str = r#"
name = "small"
title = "Two studies <b>here</b>"
[[studies]]
name = "file-io"
plan = "iozone-apicv"
target = "lab:intel-apicv"
source = "A paper (2013)"
setup = "12 guests | a disk"
[[studies.figures]]
figure = "pread"
workload = "iozone"
metric = "pread.throughput"
published = [0.52, 9.3]
[[studies.figures]]
figure = "iowait"
workload = "iozone"
metric = "cpu.iowait"
published = [-40.0]
[[studies.figures]]
figure = "windows"
workload = "iozone"
metric = "exits.INTERRUPT_WINDOW"
[[studies]]
name = "later"
plan = "iozone-apicv"
target = "lab:intel-apicv"
"#;

fn made() -> SuiteOutcome {
    let mut suite = Suite::read(SUITE, "small.toml").unwrap();
    // Synthetic studies name their workloads, in place of the figures, after IOzone's tests.
    suite.studies[0].figures[0].metric = "throughput".to_owned();
    suite.studies[0].figures.iter_mut().for_each(|figure| figure.workload = "pread".to_owned());
    let folder =
        SuiteFolder::from([("file-io".to_owned(), Ok(MadeStudy::new(study(&Made::default()), false)))]);
    outcome(&suite, &folder)
}

#[test]
fn published_and_measured_figures_stand_beside_each_other() {
    let text = terminal(&made(), 100);
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("pread").contains("+0.52 to +9.3 %") && line("pread").ends_with("agrees"), "{text}");
    assert!(line("iowait").contains("-40 points"), "{text}");
    assert!(line("windows").contains("-100 %"), "{text}");
    assert_eq!(line("Not made yet"), "Not made yet: later", "{text}");
    assert!(text.ends_with("size.\n") || text.ends_with("here.\n"), "{text}");
    assert!(terminal(&made(), 80).lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn a_page_of_markdown_has_the_command_that_makes_each_study_again() {
    let text = markdown(&made(), "exitless experiment run small");
    assert!(text.contains("```sh\nexitless experiment run small --only file-io\n```"), "{text}");
    assert!(text.contains("# Two studies &lt;b>here") && text.contains("12 guests \\| a disk"), "{text}");
    assert!(text.contains("| pread | +0.52 to +9.3 % | ") && text.contains(" | 8 | agrees |"), "{text}");
    assert!(text.ends_with("## Not made yet\n\nlater\n"), "{text}");
}

#[test]
fn a_page_draws_both_on_one_scale_and_links_what_was_made() {
    let text = page(&made(), "again", true);
    assert!(text.contains("href=\"file-io/report.html\"") && !text.contains("href=\"later/"), "{text}");
    assert!(!text.contains("<b>here"), "{text}");
    assert_eq!(text.matches("line class=\"zero\"").count(), 3, "a line of no change in each row");
    assert!(!page(&made(), "again", false).contains("report.html"));
}

#[test]
fn a_suite_without_published_figures_says_so() {
    let mut made = made();
    made.studies.iter_mut().flat_map(|study| &mut study.figures).for_each(|one| {
        one.published.published.clear();
        one.agreement = None;
    });
    assert_eq!(answer(&made), "No figure was published for these settings.");
}
