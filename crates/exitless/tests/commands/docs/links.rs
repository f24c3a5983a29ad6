//! Links have targets, and the book has each page once.

use super::pages::{all, book, top};

#[test]
fn every_link_between_pages_leads_to_a_file_and_a_heading() {
    let pages = all();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in &pages {
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.path.parent().unwrap();
            let target = if path.is_empty() { page.path.clone() } else { folder.join(path) };
            let Ok(target) = top().join(target).canonicalize() else {
                wrong.push(format!("{}: {link}: there is no such file", page.name()));
                continue;
            };
            if !anchor.is_empty() {
                let other = pages.iter().find(|other| top().join(&other.path) == target);
                if !other.is_some_and(|other| other.anchors().iter().any(|own| own == anchor)) {
                    wrong.push(format!("{}: {link}: there is no such heading", page.name()));
                }
            }
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 200, "{checked}");
}

#[test]
fn every_file_of_ours_that_a_page_names_is_there() {
    let mut checked = 0;
    for page in all() {
        for name in page.text.split('`').skip(1).step_by(2) {
            let is_path = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
            // Not `fleet` and `fuzz`, which also contain folders that builds make.
            let is_ours =
                ["crates/", "packaging/", "plans/", "scripts/"].iter().any(|at| name.starts_with(at));
            if is_path && is_ours {
                assert!(top().join(name).exists(), "{}: {name}: there is no such file", page.name());
                checked += 1;
            }
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn every_page_of_the_book_is_once_in_its_table_of_contents() {
    let pages = book();
    let (contents, others): (Vec<_>, Vec<_>) =
        pages.iter().partition(|page| page.path.ends_with("SUMMARY.md"));
    let mut listed = contents[0].links();
    listed.sort();
    let names: Vec<String> =
        others.iter().map(|page| page.path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(listed, names);
}

#[test]
fn the_readme_is_short() {
    let readme = std::fs::read_to_string(top().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120, "{} lines: the rest belongs into docs/", readme.lines().count());
}
