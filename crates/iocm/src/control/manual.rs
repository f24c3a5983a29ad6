//! The manual page of the control tree, made from the table of its attributes.

use super::attribute::Attribute;
use super::error::Errno;
use super::table;
use std::fmt::Write as _;

/// The manual page exitless-iocm(7), in the language of man(7).
#[must_use]
pub fn page() -> String {
    let mut page = String::from(include_str!("manual/head.7"));
    let mut section = None;
    for (of, attribute) in table::attributes() {
        if section != Some(of) {
            let shown = if of.is_empty() { "The daemon" } else { of.trim_end_matches('/') };
            let _ = writeln!(page, ".SS {}", escaped(shown));
            section = Some(of);
        }
        page.push_str(&entry(of, attribute));
    }
    page.push_str(include_str!("manual/middle.7"));
    for errno in Errno::ALL {
        let _ = writeln!(page, ".TP\n.B {}\n{}", errno.name(), escaped(meaning(*errno)));
    }
    page.push_str(include_str!("manual/tail.7"));
    page
}

fn entry(of: &str, attribute: &Attribute) -> String {
    let mut head = format!(".TP\n.BR {} \" (", escaped(&format!("{of}{}", attribute.name)));
    head.push_str(attribute.mode().word());
    if !attribute.unit.is_empty() {
        let _ = write!(head, "; {}", escaped(attribute.unit));
    }
    // Text in backquotes is what a user types.
    let about: Vec<String> = escaped(&attribute.about)
        .split('`')
        .enumerate()
        .map(|(number, part)| if number % 2 == 1 { format!("\\fB{part}\\fR") } else { part.to_owned() })
        .collect();
    format!("{head})\"\n{}\n", about.concat())
}

const fn meaning(errno: Errno) -> &'static str {
    match errno {
        Errno::Invalid => "The value is not valid there.",
        Errno::Missing => "The object does not exist, or no longer exists.",
        Errno::Exists => "A name or a socket already exists.",
        Errno::Busy => "Not possible now: the last I/O worker, or a device that is being removed.",
        Errno::Denied => {
            "The attribute is read-only or write-only; or the peer, or the daemon's user, lacks the permission."
        }
        Errno::Unsupported => "Objects of this kind do not have or support it.",
        Errno::IsDirectory => "It is a directory.",
        Errno::NotDirectory => "It is an attribute, not a directory.",
        Errno::TooLarge => "The value has more than 65536 bytes.",
        Errno::NoSpace => "The disk is full, or there are no more files or threads.",
        Errno::Failed => "The host failed.",
    }
}

/// Escapes text for man(7).
fn escaped(text: &str) -> String {
    let mut all = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => all.push_str("\\e"),
            '-' => all.push_str("\\-"),
            // A leading dot would start a request of man(7).
            '.' if all.is_empty() => all.push_str("\\&."),
            '\'' => all.push_str("\\(aq"),
            letter => all.push(letter),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_documentation_is_this_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man/exitless-iocm.7");
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let how = "make it with `cargo run -p iocm --example manual > docs/man/exitless-iocm.7`";
        assert!(kept == page(), "docs/man/exitless-iocm.7 is not what the code says: {how}");
    }

    #[test]
    fn every_attribute_is_in_the_page() {
        let page = page();
        for (of, attribute) in table::attributes() {
            assert!(page.contains(&escaped(&format!("{of}{}", attribute.name))), "{of}{}", attribute.name);
            assert!(
                attribute.about.ends_with('.') && !attribute.about.contains("  "),
                "{:?}",
                attribute.about
            );
        }
        assert!(!page.contains(".\n.\n") && page.lines().all(|line| line.len() < 500));
    }
}
