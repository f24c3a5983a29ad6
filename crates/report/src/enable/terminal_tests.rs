use doctor::enable::{AppliedStep, Difference, Refusal};

use super::*;

fn shown() -> Plan {
    let step = |name: &str, standing, effect, diff: &str, command: &str| Step {
        name: name.to_owned(),
        title: format!("The step {name}"),
        why: "the parameter is read only when the module is loaded; it is longer than one line".to_owned(),
        source: Some("modprobe.d(5)".to_owned()),
        effect,
        standing,
        files: vec![Difference { path: "/etc/x".to_owned(), diff: diff.to_owned() }],
        commands: vec![command.to_owned()],
        changes: Vec::new(),
        found: [].into(),
    };
    let blocked =
        Standing::Blocked { why: "VMs run: web (process 7)".to_owned(), next: "end them".to_owned() };
    let diff = "--- a/etc/x\n+++ b/etc/x\n@@ -1 +1 @@\n-old\n+n\u{1b}[2Jew\n";
    let mut plan = Plan::refused(
        doctor::enable::Wish { arm: Arm::On, part: doctor::enable::Part::Whole, persist: true, reload: true },
        Refusal {
            name: "cpu".to_owned(),
            why: "the CPU lacks it".to_owned(),
            next: "buy another".to_owned(),
        },
    );
    plan.technology = "AVIC".to_owned();
    plan.place = "/sys/module/kvm_amd/parameters/avic".to_owned();
    plan.now = Some("N".to_owned());
    plan.steps = vec![
        step("one", Standing::Ready, Effect::NextLoad, diff, "update-grub"),
        step("two", blocked, Effect::Now, "", "rmmod kvm_amd; modprobe kvm_amd avic=1"),
    ];
    plan.notes = vec!["A note.".to_owned()];
    plan
}

#[test]
fn a_plan_is_shown_with_what_it_changes() {
    insta::assert_snapshot!(plan(&shown(), 80, false));
}

#[test]
fn a_files_escape_sequences_do_not_reach_the_terminal() {
    let text = plan(&shown(), 80, true);
    assert!(!text.contains("\u{1b}[2J") && text.contains("\u{1b}[31m-old\u{1b}[0m"), "{text}");
}

fn step(name: &str, outcome: StepOutcome) -> AppliedStep {
    AppliedStep { name: name.to_owned(), outcome }
}

fn outcomes() -> Applied {
    Applied {
        steps: vec![
            step("one", StepOutcome::Made),
            step("two", StepOutcome::Failed { why: "no room".to_owned() }),
            step("three", StepOutcome::NotReached),
        ],
        reads: Some("Y".to_owned()),
        notes: Vec::new(),
    }
}

#[test]
fn a_plan_and_its_outcomes_for_programs() {
    let (plan, applied) = (shown(), outcomes());
    let document = crate::enable::json(&plan, Some("steps are blocked"), Some(&applied));
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).unwrap());
}

#[test]
fn each_outcome_is_told() {
    let expected = "Done: The step one.\nFailed, and undone: The step two. no room.\nNot reached: three.\n\
        /sys/module/kvm_amd/parameters/avic is Y.\n";
    assert_eq!(applied(&shown(), &outcomes(), 80), expected);
}

#[test]
fn a_step_that_was_asked_for_and_is_blocked_is_told_beside_those_that_were_made() {
    let outcomes = Applied { steps: vec![step("one", StepOutcome::Made)], ..Applied::default() };
    let expected = "Done: The step one.\n\
        Not done: The step two. It is blocked: VMs run: web (process 7); end them.\n";
    assert_eq!(applied(&shown(), &outcomes, 80), expected);
}
