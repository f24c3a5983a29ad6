//! Checks of `Cargo.toml`: which libraries have unit tests, and which have examples in their documentation.

use std::path::Path;

use serde_json::Value;

use crate::command::text_files;
use crate::floors::metadata;

fn libraries(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    targets.filter(|target| target["kind"][0] == "lib").collect()
}

/// Tests whether rustdoc would run a part of a source file as an example: a code block in the documentation
/// that is not marked as text.
fn has_example(source: &str) -> bool {
    let (mut in_block, mut after_blank) = (false, true);
    for line in source.lines() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            (in_block, after_blank) = (false, true);
            continue;
        };
        match text.trim().strip_prefix("```") {
            Some(_) if in_block => in_block = false,
            Some("text") => in_block = true,
            Some(_) => return true,
            // A block of code may also be marked by indentation.
            None if !in_block && after_blank && text.starts_with("     ") => return true,
            None => {}
        }
        after_blank = text.trim().is_empty();
    }
    false
}

#[test]
fn every_library_has_unit_tests_with_which_it_is_linted() {
    for manifest in ["Cargo.toml", "fleet/Cargo.toml"] {
        let metadata = metadata(manifest);
        let libraries = libraries(&metadata);
        assert!(!libraries.is_empty(), "{manifest}");
        for library in libraries {
            let name = &library["name"];
            assert_eq!(
                library["test"], true,
                "{name} in {manifest}: remove test = false; .ci/rustc lints a library only with its unit tests"
            );
        }
    }
}

#[test]
fn the_libraries_that_rustdoc_tests_are_those_with_examples() {
    let metadata = metadata("Cargo.toml");
    for library in libraries(&metadata) {
        let source = Path::new(library["src_path"].as_str().unwrap()).parent().unwrap();
        let examples = text_files(source, "rs").iter().any(|text| has_example(text));
        let name = &library["name"];
        assert_eq!(
            library["doctest"], examples,
            "{name}: set doctest = false in [lib] exactly if its documentation has no examples"
        );
    }
}

#[test]
fn examples_are_blocks_of_code() {
    for example in
        ["/// ```\n/// f();\n/// ```\n", "//! So:\n//! ```no_run\n", "/// So:\n///\n///     f();\n"]
    {
        assert!(has_example(example), "{example}");
    }
    for other in
        ["//! ```text\n//!\n//!     a\n//! ```\n//! End.\n", "/// * An item,\n///     long.\n", "// ```\n"]
    {
        assert!(!has_example(other), "{other}");
    }
}
