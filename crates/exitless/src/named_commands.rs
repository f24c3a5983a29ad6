//! Checks that commands in messages, fixes, tables and the documentation exist.

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

/// Texts that begin like a command but are none: lines of a guest's console, and headers of files.
const OTHERS: &[&str] = &["exitless agent:", "exitless guest up", "exitless recording", "exitless {"];

/// The commands in a text: each after a quotation mark, a backquote or the `then` of a fix, up to a character
/// that ends it.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // A string in a source file continues after a backslash at the end of the line.
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
        let command = rest[..end].split([',', ';', '(', '\\', '|']).next().unwrap_or_default();
        found.push(command.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    found
}

fn check(command: &str) -> Result<(), String> {
    // Replace placeholders by a word that parses; `--kernel` takes only versions that exist.
    let mut before = "";
    let words = command.split_whitespace().map(|word| match std::mem::replace(&mut before, word) {
        _ if !word.contains(['{', '[']) => word,
        "--kernel" => "5.10",
        _ => "1",
    });
    match Arguments::try_parse_from(words) {
        Ok(Arguments { command: Command::Enable(how) | Command::Disable(how), .. }) => how.says_what(),
        Ok(_) => Ok(()),
        Err(error) => match error.kind() {
            // Names the command only, not meant to be typed.
            ErrorKind::InvalidValue if error.to_string().contains("a value is required") => Ok(()),
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
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

/// The words of a shell command, up to the end of the line, an operator or a comment.
fn shell_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\\', None) => {
                letters.next();
            }
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('\n' | '|' | ';' | '&' | '>' | '<', None) => break,
            ('#', None) if word.is_none() => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The commands in the blocks of a page: after a prompt, an operator, `sudo` or `--`, or at the start of a line.
fn commands_to_type(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let mut found = Vec::new();
    for block in blocks {
        let (language, block) = block.split_once('\n').unwrap_or_default();
        for (at, _) in block.match_indices("exitless ") {
            let line = block[..at].rsplit('\n').next().unwrap_or_default();
            let before = line.trim_end_matches("sudo ");
            let begins = match language {
                "sh" => before.is_empty() || ["&& ", "| ", "; "].iter().any(|end| before.ends_with(end)),
                "text" | "console" | "" => ["$ ", "# "].contains(&before) || before.ends_with(" -- "),
                _ => false,
            };
            if begins {
                found.push(shell_words(&block[at..]));
            }
        }
    }
    found
}

/// README and the pages in `docs/`, with their names.
fn pages() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = std::fs::read_dir(top.join("docs")).unwrap().map(|file| file.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|own| own == "md"));
    pages
        .chain([top.join("README.md")])
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn every_command_in_a_block_of_the_documentation_can_be_typed() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        for words in commands_to_type(&text) {
            checked += 1;
            if let Err(error) = Arguments::try_parse_from(&words) {
                wrong.push(format!("{name}: {}: {error}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 150, "{checked}");
}

#[test]
fn every_command_in_the_text_of_the_documentation_exists() {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for (name, text) in pages() {
        // A command in backquotes may continue on the next line.
        let text: String = text.split("\n```").step_by(2).collect::<String>().replace('\n', " ");
        for command in commands(&text) {
            checked += 1;
            if let Err(why) = check(&command) {
                wrong.push(format!("{name}: {command}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 120, "{checked}");
}

#[test]
fn commands_of_a_page_are_found_as_a_shell_reads_them() {
    let page = "\n```sh\nsudo exitless stat --by 'a b' # all\nperf record && exitless report x >y\n```\n\
                \n```text\n$ exitless lab run xen -- exitless top\nexitless top  2 VMs\n```\n";
    let found: Vec<String> = commands_to_type(page).iter().map(|words| words.join("_")).collect();
    let expected = [
        "exitless_stat_--by_a b",
        "exitless_report_x",
        "exitless_lab_run_xen_--_exitless_top",
        "exitless_top",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_fix_that_is_refused_is_found() {
    for wrong in
        ["exitless enable --apply", "exitless enable --fast", "exitless fix", "exitless stat --over 3"]
    {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    check("exitless enable --persist --reload --apply").unwrap();
    assert_eq!(commands("host = \"exitless a --b, then exitless c\""), ["exitless a --b", "exitless c"]);
}
