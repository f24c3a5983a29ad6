//! Checks that commands in messages, fixes and tables exist.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::{Arguments, Command};

/// Sources and tables of all crates, without tests.
fn sources() -> Vec<PathBuf> {
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "benches", "target", "fixtures", "snapshots"].contains(&&name[..])
            {
                open.push(path);
            } else if (name.ends_with(".rs") || name.ends_with(".toml"))
                && !name.contains("test")
                && name != "named_commands.rs"
            {
                found.push(path);
            }
        }
    }
    found
}

/// Texts that begin like a command and are not: lines of a guest's console, and headers of files.
const OTHERS: &[&str] = &["exitless agent:", "exitless guest up", "exitless recording", "exitless {"];

/// The commands in a text: after a quotation mark or a backquote, or as a word of a fix, up to a character
/// that cannot be part of one.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A string in a source continues on the next line after a backslash.
    let text = text.replace("\\\n", " ");
    for (at, _) in text.match_indices("exitless ") {
        let opened = text[..at].chars().next_back();
        let closing = match opened {
            Some('`') => "`\n",
            Some('"') => "\"\n",
            // In the middle of a fix: `..., then exitless verify`.
            Some(' ') if text[..at].ends_with("then ") => "\",;`\n",
            _ => continue,
        };
        let rest = &text[at..];
        if OTHERS.iter().any(|other| rest.starts_with(other)) {
            continue;
        }
        let end = rest.find(|one| closing.contains(one)).unwrap_or(rest.len());
        let command = rest[..end].split([',', ';', '(', '\\']).next().unwrap_or_default();
        found.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    found
}

fn check(command: &str) -> Result<(), String> {
    // A placeholder is replaced by any word.
    let words = command.split_whitespace().map(|word| if word.contains(['{', '}']) { "1" } else { word });
    match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Command::Enable(how) | Command::Disable(how), .. }) => how.says_what(),
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            // A mention of a command, not one to type.
            ErrorKind::InvalidValue if error.to_string().contains("a value is required") => Ok(()),
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(()),
            _ => Err(error.to_string()),
        },
    }
}

#[test]
fn every_command_that_is_named_can_be_typed() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        // Tests are at the end of a file.
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for command in commands(code) {
            checked += 1;
            if let Err(why) = check(&command) {
                wrong.push(format!("{}: {command}: {why}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 80, "{checked}");
}

#[test]
fn a_cure_that_is_refused_is_found() {
    for wrong in
        ["exitless enable --apply", "exitless enable --fast", "exitless fix", "exitless stat --over 3"]
    {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    check("exitless enable --persist --reload --apply").unwrap();
    assert_eq!(commands("host = \"exitless a --b, then exitless c\""), ["exitless a --b", "exitless c"]);
}
