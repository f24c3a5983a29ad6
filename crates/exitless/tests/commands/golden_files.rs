//! Checks of all golden files.

use std::path::{Path, PathBuf};

/// Words that end in s but are not plurals.
const SINGULAR: [&str; 7] = ["process", "class", "address", "s", "ms", "us", "ns"];

fn golden_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            golden_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "snap") {
            found.push(path);
        }
    }
}

/// Counts of one followed by a plural, as in "1 runs".
fn wrong_plurals(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let one = |word: &str| word.trim_start_matches(|c: char| !c.is_alphanumeric()) == "1";
    let plural = |word: &str| {
        let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        word.len() > 1
            && word.ends_with('s')
            && word.chars().all(|c| c.is_ascii_lowercase())
            && !SINGULAR.contains(&word)
    };
    let pairs = words.windows(2).filter(|pair| one(pair[0]) && plural(pair[1]));
    pairs.map(|pair| pair.join(" ")).collect()
}

#[test]
fn one_thing_is_no_plural() {
    let mut files = Vec::new();
    golden_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    assert!(files.len() > 50, "{files:?}");
    for file in files {
        let wrong = wrong_plurals(&std::fs::read_to_string(&file).unwrap());
        assert!(wrong.is_empty(), "{}: {wrong:?}", file.display());
    }
}

#[test]
fn plurals_of_one_are_found() {
    assert_eq!(
        wrong_plurals("after 1 repeats, (1 changes), 11 runs, 1 ms, 1 process"),
        ["1 repeats,", "(1 changes),"]
    );
}
