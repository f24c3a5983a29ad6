use std::path::PathBuf;

use knobs::{Before, Owner};

use super::*;

fn entry(change: Change) -> Entry {
    Entry {
        id: 3,
        time: 1_700_000_000,
        owner: Owner { pid: 7, start_ticks: 1, boot: String::new() },
        command: vec!["exitless".to_owned(), "enable".to_owned()],
        temporary: false,
        change,
        before: Before::Unknown,
        progress: Progress::Intended,
    }
}

#[test]
fn every_outcome_and_every_change_has_its_line() {
    let file = || Change::File { path: "/etc/x".to_owned(), content: "x\n".into() };
    let command = |run: Option<&str>, undo: Option<&str>| Change::Command {
        run: run.map(|word| vec![word.to_owned()]),
        undo: undo.map(|word| vec![word.to_owned()]),
    };
    let load = Change::Load {
        module: "kvm_amd".to_owned(),
        parameters: [("avic".to_owned(), "1".to_owned())].into(),
    };
    let affinity = Change::Affinity { tid: 41, start_ticks: 341, cpus: "2-3".to_owned() };
    let value = Change::Value { path: "/sys/x".to_owned(), value: "1".to_owned() };
    let why = || "because".to_owned();
    let of = |entry, outcome| RestoredChange { entry, outcome };
    let outcomes = Restored {
        changes: vec![
            of(entry(file()), Outcome::Undone),
            of(entry(load), Outcome::WouldUndo),
            of(entry(value), Outcome::ChangedSince { what: "/sys/x is 2".to_owned() }),
            of(entry(command(Some("update-grub"), None)), Outcome::Already { why: why() }),
            of(entry(command(None, Some("update-grub"))), Outcome::Failed { why: why() }),
            of(entry(affinity), Outcome::Held { pid: 9 }),
            of(entry(command(Some("one"), Some("two"))), Outcome::Script { script: "two".to_owned() }),
        ],
        damage: vec![Damage {
            path: PathBuf::from("/run/exitless-journal/journal"),
            offset: 12,
            why: "cut".to_owned(),
            cut: true,
        }],
    };
    insta::assert_snapshot!(restored(&outcomes, 80));
    let document = crate::restore::json::restored(&outcomes);
    insta::assert_snapshot!("programs", serde_json::to_string_pretty(&document).unwrap());
    let recorded = Recorded { entries: vec![entry(file())], damage: Vec::new() };
    let expected = "3 2023-11-14T22:13:20Z (begun): /etc/x written\n  by exitless enable, process 7\n";
    assert_eq!(kept(&recorded, 80), expected);
    let document = crate::restore::json::kept(&recorded);
    insta::assert_snapshot!("programs-kept", serde_json::to_string_pretty(&document).unwrap());
}
