use stats::{Contrast, Interval, Scale};
use study::analysis::Finding;
use study::tuning::{
    AdvisedFor, Carried, Judged, Left, LeftTo, Ruling, Step, TUNING_FORMAT, TunedDefinition, Tuning,
};
use study::{Better, Unit};

use super::*;

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn made() -> Tuning {
    let interval = Some(Interval { low: 80.0, high: 140.0 });
    let change = Contrast {
        scale: Scale::Ratio,
        estimate: 110.0,
        interval,
        p_value: Some(0.01),
        test: None,
        repeats: 3,
        is_paired: true,
    };
    let judged = Judged {
        figure: "write throughput".to_owned(),
        metric: "write.throughput".to_owned(),
        workload: "write".to_owned(),
        unit: Unit::BytesPerSecond,
        better: Better::Higher,
        decides: true,
        before: Some(1e6),
        after: Some(2.1e6),
        change: Some(change),
        finding: Finding::Raised,
    };
    let step = |name: &str, ruling, judged| Step {
        name: name.to_owned(),
        why: "It may | help.".to_owned(),
        advised: None,
        ruling,
        sentence: "So it is.".to_owned(),
        folder: Some(format!("steps/1-{name}")),
        judged,
    };
    Tuning {
        format: TUNING_FORMAT,
        name: "small".to_owned(),
        title: "Small".to_owned(),
        question: "What <b>helps</b>?".to_owned(),
        target: "local".to_owned(),
        complete: true,
        steps: vec![step("virtio", Ruling::Kept, vec![judged]), step("clock", Ruling::Worse, Vec::new())],
        kept: vec!["virtio".to_owned()],
        left: vec![Left {
            advised: AdvisedFor {
                device: "serial".to_owned(),
                cure: "quiet".to_owned(),
                exits_per_second: 100.0,
                host_cpu_percent: 12.34,
            },
            device: "serial port (16550)".to_owned(),
            does: "write less".to_owned(),
            by: LeftTo::Guest,
            changes: vec!["guest: quiet on the kernel's command line".to_owned()],
        }],
        notes: vec!["Nothing more was advised: no exits".to_owned()],
        guests: None,
        definition: Some(TunedDefinition {
            name: "old.xml".to_owned(),
            before: "<a/>\n<b/>\n".to_owned(),
            unlike: vec!["vmxnet3 stands for e1000.".to_owned()],
            carried: Carried {
                text: "<a/>\n<c/>\n".to_owned(),
                notes: vec!["It needs the driver.".to_owned()],
                left: vec!["No such change.".to_owned()],
            },
        }),
        before: lines("qemu\n-machine pc\n-device ide-hd"),
        after: lines("qemu\n-machine pc\n-device virtio-blk-pci"),
    }
}

#[test]
fn kept_changes_end_as_a_difference_that_patch_takes() {
    let made = made();
    let difference = diff::guest(&made.before, &made.after);
    assert!(
        difference.starts_with("--- guest (before)\n+++ guest (tuned)\n@@ -1,3 +1,3 @@\n"),
        "{difference}"
    );
    assert!(
        difference.contains("\n-device ide-hd\n") || difference.contains("\n--device ide-hd\n"),
        "{difference}"
    );
    assert_eq!(diff::guest(&made.before, &made.before), "");
}

#[test]
fn the_page_names_each_change_its_figures_and_its_study() {
    let page = markdown(&made());
    for part in [
        "1 of 2 changes kept: virtio.",
        "## 1. virtio: kept",
        "## 2. clock: reverted: worse",
        "| write throughput (decides) | 1.00 MB/s | 2.10 MB/s | +110 % |",
        "[steps/1-virtio](steps/1-virtio/report.html)",
        "````diff\n--- guest",
        "It may \\| help.",
        "&lt;b>",
    ] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
}

#[test]
fn a_definition_does_not_leave_its_block_or_control_a_terminal() {
    let mut made = made();
    let hostile = "<b>\u{1b}[2J\u{202e}\n````\n\t</b>\r\n";
    made.definition.as_mut().unwrap().before = format!("<a/>\n{hostile}");
    made.definition.as_mut().unwrap().carried.text = format!("<c/>\n{hostile}");
    made.before.push("`````".to_owned());
    made.after.push("`````".to_owned());
    let page = markdown(&made);
    for (fence, last) in [
        ("``````", "+-device virtio-blk-pci\n `````"),
        ("`````", " <b>\u{fffd}[2J\u{fffd}\n ````\n     </b>"),
    ] {
        let begins = format!("\n{fence}diff\n");
        let (_, rest) = page.split_once(&begins).unwrap_or_else(|| panic!("no {fence} in\n{page}"));
        let (block, _) = rest.split_once(&format!("\n{fence}\n")).unwrap();
        assert!(block.ends_with(last), "{block}");
    }
    let text = terminal(&made, 80);
    for text in [page, text] {
        assert!(!text.contains(|one: char| one != '\n' && exits::is_harmful(one)), "{text:?}");
    }
}

#[test]
fn the_terminal_has_the_answer_last() {
    let mut made = made();
    made.complete = false;
    let text = terminal(&made, 80);
    assert!(text.trim_end().ends_with("The tuning is not at its end."), "{text}");
    assert!(text.contains("1. virtio: kept") && text.contains("+-device virtio-blk-pci"), "{text}");
}

#[test]
fn a_confirmation_that_failed_is_no_change_and_nothing_was_reverted() {
    let mut made = made();
    let failed = Step { name: "tuned".to_owned(), ruling: Ruling::Failed, ..made.steps[1].clone() };
    made.steps.push(failed);
    for text in [markdown(&made), terminal(&made, 200)] {
        for part in [
            "1 of 2 changes kept: virtio. All of them together were not compared with the baseline, because runs failed.",
            "3. tuned: not confirmed: failed",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}

#[test]
fn the_answer_says_whether_a_second_measurement_confirms_it() {
    let mut made = made();
    let judged = made.steps[0].judged.clone();
    made.steps[1].judged = judged;
    assert!(words::answer(&made).ends_with("virtio. This was not confirmed by a second measurement."));
    for (ruling, says, head) in [
        (Ruling::Confirmed, "virtio.", "confirmed"),
        (Ruling::NotConfirmed, "are not better than the baseline.", "not confirmed"),
        (Ruling::Worse, "are worse than the baseline.", "not confirmed: worse"),
        (Ruling::Mixed, "are better in some figures and worse in others.", "not confirmed: better and worse"),
    ] {
        let mut made = made.clone();
        let confirmation = Step { name: "tuned".to_owned(), ruling, ..made.steps[1].clone() };
        made.steps.push(confirmation);
        assert!(words::answer(&made).ends_with(says), "{}", words::answer(&made));
        assert_eq!(words::ruling(&made.steps[2]), head);
    }
}

#[test]
fn a_question_of_two_lines_is_shown_in_one() {
    let mut made = made();
    made.question = "Is it\nfaster?".to_owned();
    for text in [markdown(&made), terminal(&made, 200)] {
        assert!(text.contains("Is it faster?"), "{text}");
    }
}

#[test]
fn what_was_not_tried_is_told_with_who_is_to_make_it() {
    for text in [markdown(&made()), terminal(&made(), 200)] {
        for part in [
            "serial port (16550) (12.3 % of a CPU), quiet: write less; not tried: must be done in the guest",
            "guest: quiet on the kernel's command line",
            "Nothing more was advised: no exits",
            "--- old.xml\n+++ old.xml (fixed)",
            "-<b/>\n+<c/>",
            "It needs the driver.",
            "No such change.",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
