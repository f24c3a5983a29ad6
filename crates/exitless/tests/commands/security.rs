//! Every test that `docs/security.md` names exists.

use std::collections::BTreeSet;
use std::path::Path;

use crate::command::text_files;

/// The words in backquotes that look like names of tests: several words joined by `_`.
fn named(document: &str) -> BTreeSet<&str> {
    let words = document.split('`').skip(1).step_by(2);
    let is_sentence = |word: &&str| {
        word.matches('_').count() >= 3 && word.bytes().all(|one| one.is_ascii_lowercase() || one == b'_')
    };
    words.filter(is_sentence).collect()
}

#[test]
fn every_test_that_is_named_for_a_promise_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(top.join("docs/security.md")).unwrap();
    let named = named(&document);
    assert!(named.len() > 50, "{}", named.len());
    let sources = text_files(&top.join("crates"), "rs");
    let is_there = |name: &&str| {
        let forms = [format!("fn {name}("), format!("(\"{name}\""), format!("        \"{name}\",\n")];
        sources.iter().any(|source| forms.iter().any(|form| source.contains(form)))
    };
    let missing: Vec<_> = named.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "docs/security.md names tests that are not there: {missing:?}");
}
