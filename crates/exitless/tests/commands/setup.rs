//! `scripts/setup` installs what the workspaces need.

/// The version that follows `before` in a file.
fn version<'a>(file: &'a str, before: &str) -> &'a str {
    let (_, rest) = file.split_once(before).unwrap_or_else(|| panic!("{before} is not there"));
    rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next().unwrap()
}

#[test]
fn each_workspace_names_the_rust_that_setup_wants_for_it() {
    let setup = include_str!("../../../../scripts/setup");
    let root = include_str!("../../../../Cargo.toml");
    let fleet = include_str!("../../../../fleet/Cargo.toml");
    let wanted = "\nrust-version = \"";
    assert_eq!(version(setup, "\noldest_rust="), version(root, wanted));
    assert_eq!(version(setup, r#"*" fleet "* ]] || oldest_rust="#), version(fleet, wanted));
}
