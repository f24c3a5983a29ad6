//! Decided terms, checked in pages and help texts.

use super::pages::{for_users, top};
use crate::command::{out, run, text_files};

/// Words not to use, each with the word to use instead.
const WORDS: &[(&str, &str)] = &[
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("cure", "fix"),
    ("cures", "fixes"),
    ("cured", "fixed"),
    ("laboratory", "lab, or emulated host"),
    ("laboratories", "labs, or emulated hosts"),
    ("told apart", "no significant difference; or distinguished"),
    ("tell the arms apart", "no significant difference"),
    ("tell the sides apart", "no significant difference"),
    ("tells them apart", "distinguishes them"),
    ("a disk that forgets", "null disk"),
    ("who is where", "placement"),
    ("takes away", "removes"),
    ("took away", "removed"),
    ("taken away", "removed"),
    ("stands still", "hangs"),
    ("stood still", "hung"),
    ("for ever", "forever"),
    ("dearer", "more expensive"),
    ("dearest", "most expensive"),
    ("spares", "saves"),
    ("at rest", "idle"),
    ("laid over", "merged over"),
    ("beforehand", "before"),
    ("resp", "respectively, or two sentences"),
    ("whoever", "anyone who"),
    ("wholly", "fully"),
    ("looked into", "inspected"),
];

/// The listed words found in a text as whole words, ignoring case, each with its replacement.
fn found(text: &str) -> Vec<String> {
    let mut words = String::from(" ");
    for word in text.split(|one: char| !one.is_alphanumeric()).filter(|word| !word.is_empty()) {
        words.push_str(&word.to_lowercase());
        words.push(' ');
    }
    let listed = WORDS.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
    listed.map(|(word, instead)| format!("`{word}`: write {instead}")).collect()
}

/// The help texts of a command and its subcommands.
fn helps(path: &[&str], texts: &mut Vec<(String, String)>) {
    let text = out(&run(&[path, &["--help"]].concat()));
    let below = text.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let below: Vec<String> = below
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    for name in &below {
        helps(&[path, &[name]].concat(), texts);
    }
    texts.push((format!("exitless {} --help", path.join(" ")), text));
}

#[test]
fn pages_and_helps_use_the_decided_terms() {
    let mut texts: Vec<(String, String)> =
        for_users().iter().map(|page| (page.name(), page.prose())).collect();
    helps(&[], &mut texts);
    assert!(texts.len() > 85, "{}", texts.len());
    let wrong: Vec<String> = texts
        .iter()
        .flat_map(|(name, text)| found(text).into_iter().map(move |what| format!("{name}: {what}")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A golden file without the names of JSON fields, which are published and cannot change.
fn without_field_names(text: &str) -> String {
    let pieces: Vec<&str> = text.split("\":").collect();
    let (last, others) = pieces.split_last().unwrap();
    others
        .iter()
        .map(|piece| piece.rsplit_once('"').map_or(*piece, |(before, _)| before))
        .chain([*last])
        .collect()
}

#[test]
fn a_command_that_runs_another_says_whose_status_it_returns() {
    let mut texts = Vec::new();
    helps(&[], &mut texts);
    let page = std::fs::read_to_string(top().join("docs/exit-status.md")).unwrap();
    let paragraph = page.split("\n\n").find(|one| one.contains("`-- COMMAND`")).unwrap();
    let runs =
        |text: &str| text.lines().any(|line| line.starts_with("Usage:") && line.contains("-- <COMMAND>..."));
    let running: Vec<_> = texts.iter().filter(|(_, text)| runs(text)).collect();
    assert!(running.len() >= 3, "{}", running.len());
    for (name, text) in running {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("Exit status: ") && text.contains("that of the command"), "{name}: {text}");
        let words = name.strip_prefix("exitless ").and_then(|name| name.strip_suffix(" --help")).unwrap();
        assert!(paragraph.contains(&format!("`{words}`")), "docs/exit-status.md: {words}");
    }
}

/// Without a file name, perf writes such a recording to perf.data.guest, which the next command does not
/// read.
#[test]
fn commands_that_record_with_perf_name_the_file() {
    let mut texts = text_files(&top().join("docs"), "md");
    for folder in std::fs::read_dir(top().join("crates")).unwrap() {
        let sources = folder.unwrap().path().join("src");
        texts.extend(if sources.exists() { text_files(&sources, "rs") } else { Vec::new() });
    }
    let commands =
        texts.iter().flat_map(|text| text.lines()).filter(|line| line.contains("kvm stat record -"));
    let commands: Vec<_> = commands.collect();
    assert!(commands.len() > 5, "{commands:?}");
    let unnamed: Vec<_> = commands.iter().filter(|line| !line.contains(" -o ")).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn golden_files_use_the_decided_terms() {
    let files = text_files(&top().join("crates"), "snap");
    assert!(files.len() > 50, "{}", files.len());
    let wrong: Vec<String> = files.iter().flat_map(|text| found(&without_field_names(text))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_listed_word_is_found_whole_and_in_either_case() {
    assert_eq!(found("It mends the\nhost."), ["`mends`: write fixes"]);
    assert_eq!(
        found("Cannot be told\n  apart."),
        ["`told apart`: write no significant difference; or distinguished"]
    );
    assert!(found("It recommends a secure fix; commence.").is_empty());
}
