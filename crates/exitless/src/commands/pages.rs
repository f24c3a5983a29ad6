//! The manual pages and completions of a distribution, from the definition of the command line.
//!
//! A hidden command instead of a separate program: the pages always match the installed binary.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgGroup, Args, Command, Id};
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use exits::Dimension;
use lab::LABS;
use live::trace::EventKind;
use probe::measure::Measure;

use crate::help::examples_of;

/// Arguments of the command that writes them.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder; it gets folders `man` and `completions`.
    folder: PathBuf,
    /// The date of the pages.
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "")]
    date: String,
}

/// Referenced pages of other sections; this module does not make them.
const OTHERS: &[&str] = &["exitless-iocm(7)"];
/// The start of the paragraph of a description that becomes a section of its own.
const EXIT_STATUS: &str = "Exit status: ";

/// Writes the pages and the completions.
pub(crate) fn run(arguments: &Arguments, command: Command) -> anyhow::Result<ExitCode> {
    let (manual, completions) = (arguments.folder.join("man"), arguments.folder.join("completions"));
    for folder in [&manual, &completions] {
        fs::create_dir_all(folder).with_context(|| format!("Could not create {}", folder.display()))?;
    }
    let mut command = command.disable_help_subcommand(true);
    let mut shown = shown(&command).disable_help_subcommand(true);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut shown, "exitless", &completions)
            .with_context(|| format!("Could not write completions for {shell}"))?;
    }
    command.build();
    write_pages(&command, &[], &manual, &arguments.date)
        .with_context(|| format!("Could not write pages into {}", manual.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// A copy of a command for completions, without its hidden subcommands and arguments, which would otherwise be completed.
fn shown(command: &Command) -> Command {
    // clap wants static strings; leaking is fine because the program ends soon.
    let lasting = |text: &str| -> &'static str { text.to_owned().leak() };
    let below = command.get_subcommands().filter(|one| !one.is_hide_set()).map(shown);
    let mut copy = Command::new(lasting(command.get_name())).subcommands(below);
    let arguments = command.get_arguments().filter(|one| !one.is_hide_set());
    copy = copy.args(arguments.map(|one| with_words(command.get_name(), one))).groups(shown_groups(command));
    copy = copy.visible_aliases(command.get_visible_aliases().map(lasting).collect::<Vec<_>>());
    copy = command.get_about().into_iter().fold(copy, |copy, about| copy.about(about.clone()));
    copy = command.get_long_about().into_iter().fold(copy, |copy, about| copy.long_about(about.clone()));
    command.get_version().into_iter().fold(copy, |copy, version| copy.version(lasting(version)))
}

/// The groups of a command's arguments, without those that are hidden: a copy does not have them.
fn shown_groups(command: &Command) -> Vec<ArgGroup> {
    let is_hidden = |id: &Id| command.get_arguments().any(|one| one.is_hide_set() && one.get_id() == id);
    let shown = |group: &ArgGroup| {
        let kept: Vec<Id> = group.get_args().filter(|&id| !is_hidden(id)).cloned().collect();
        let copy = ArgGroup::new(group.get_id().clone()).args(kept).required(group.is_required_set());
        copy.multiple(group.clone().is_multiple())
    };
    command.get_groups().map(shown).collect()
}

/// A copy of an argument for completions, with the words that it takes if these are fixed. The parser of the argument
/// itself explains a wrong word better than a list of all.
fn with_words(command: &str, argument: &Arg) -> Arg {
    let words: Vec<&'static str> = match argument.get_id().as_str() {
        "lab" | "name" | "names" => LABS.iter().map(|lab| lab.name).collect(),
        "by" if command == "timeline" => vec!["reason", "vm"],
        "by" => Dimension::ALL.map(Dimension::name).to_vec(),
        "events" => EventKind::all().map(EventKind::name).chain(["all"]).collect(),
        "measures" => Measure::ALL.map(Measure::name).to_vec(),
        _ => Vec::new(),
    };
    if words.is_empty() {
        argument.clone()
    } else {
        argument.clone().value_parser(PossibleValuesParser::new(words))
    }
}

/// Writes the pages of a command and its subcommands.
fn write_pages(command: &Command, above: &[&str], folder: &Path, date: &str) -> io::Result<()> {
    let file = folder.join(format!("{}.1", page_name(above)));
    File::create(file)?.write_all(page(command, above, date)?.as_bytes())?;
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_pages(subcommand, &[above, &[subcommand.get_name()]].concat(), folder, date)?;
    }
    Ok(())
}

/// The name of the page of the command with these words after `exitless`.
fn page_name(words: &[&str]) -> String {
    [&["exitless"], words].concat().join("-")
}

fn page(command: &Command, words: &[&str], date: &str) -> io::Result<String> {
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let (exit_statuses, description): (Vec<_>, Vec<_>) =
        long.split("\n\n").partition(|paragraph| paragraph.starts_with(EXIT_STATUS));
    let man = Man::new(command.clone().long_about(description.join("\n\n")))
        .title(page_name(words).to_uppercase())
        .date(date)
        .source(concat!("exitless ", env!("CARGO_PKG_VERSION")))
        .manual("exitless");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    for section in [exit_status(&exit_statuses), examples_section(words), see_also(command, words)] {
        section.to_writer(&mut text)?;
    }
    // Remove the definition of the apostrophe that every rendered section begins with.
    let text = String::from_utf8_lossy(&text);
    let definition = Roff::new().render();
    Ok(format!("{definition}{}", text.replace(&definition, "")))
}

fn exit_status(paragraphs: &[&str]) -> Roff {
    let mut section = Roff::new();
    if let [paragraph] = paragraphs {
        section.control("SH", ["EXIT STATUS"]);
        section.text([roman(&paragraph[EXIT_STATUS.len()..])]);
    }
    section
}

fn examples_section(words: &[&str]) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]);
    for example in examples_of(&words.join(" ")) {
        section.control("PP", []);
        section.text([roman(example.says)]);
        section.control("RS", ["4"]);
        section.control("nf", []);
        section.text([bold(example.line)]);
        section.control("fi", []);
        section.control("RE", []);
    }
    section
}

fn see_also(command: &Command, words: &[&str]) -> Roff {
    let mut pages = Vec::new();
    if let [above @ .., _] = words {
        pages.push(format!("{}(1)", page_name(above)));
    }
    let own = command.get_subcommands().filter(|one| !one.is_hide_set());
    pages.extend(own.map(|one| format!("{}(1)", page_name(&[words, &[one.get_name()]].concat()))));
    let topic = page_name(words.get(..1).unwrap_or_default());
    pages.extend(OTHERS.iter().filter(|other| other.starts_with(&topic)).map(|other| (*other).to_owned()));
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    section.text([roman(pages.join(", "))]);
    section
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::examples::EXAMPLES;

    /// All commands that help shows, by their words.
    fn commands(command: &Command, above: &str, found: &mut Vec<String>) {
        found.push(above.to_owned());
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            commands(one, format!("{above} {}", one.get_name()).trim(), found);
        }
    }

    fn all() -> Vec<String> {
        let mut found = Vec::new();
        commands(&crate::Arguments::command(), "", &mut found);
        found
    }

    #[test]
    fn every_command_has_an_example_and_every_example_a_command() {
        let commands = all();
        assert!(commands.len() > 50, "{commands:?}");
        let without: Vec<_> = commands.iter().filter(|one| examples_of(one).is_empty()).collect();
        assert!(without.is_empty(), "no example in examples.rs: {without:?}");
        let unknown = EXAMPLES.iter().filter(|(name, _)| !commands.iter().any(|one| one == name));
        assert_eq!(unknown.count(), 0);
        for (name, own) in EXAMPLES {
            assert!(own.iter().any(|one| one.line.contains(name)), "no example of {name} is one");
        }
    }

    #[test]
    fn every_example_is_accepted() {
        use clap::Parser as _;
        for example in EXAMPLES.iter().flat_map(|(_, own)| *own) {
            let parsed = crate::Arguments::try_parse_from(example.line.split(' '));
            assert!(parsed.is_ok(), "{}: {}", example.line, parsed.unwrap_err());
            assert!(example.says.ends_with('.') && example.line.len() <= 90, "{example:?}");
        }
    }

    #[test]
    fn hidden_arguments_are_not_completed_and_fixed_words_are() {
        fn check(command: &Command) {
            assert!(command.get_arguments().all(|one| !one.is_hide_set()), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        let shown = shown(&crate::Arguments::command());
        check(&shown);
        let words = |command: &[&str], id: &str| -> Vec<String> {
            let found = command.iter().fold(&shown, |at, name| at.find_subcommand(name).unwrap());
            let argument = found.get_arguments().find(|one| one.get_id() == id).unwrap();
            argument.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect()
        };
        assert_eq!(words(&["timeline"], "by"), ["reason", "vm"]);
        assert!(words(&["report"], "by").contains(&"msr".to_owned()));
        assert!(words(&["trace"], "events").contains(&"all".to_owned()));
        for (command, id) in
            [(&["lab", "run"][..], "name"), (&["lab", "build"][..], "names"), (&["prove"][..], "lab")]
        {
            assert!(words(command, id).contains(&"amd-avic".to_owned()), "{command:?}");
        }
        assert!(words(&["probe"], "measures").contains(&"cpuid".to_owned()));
    }

    #[test]
    fn a_page_has_its_sections_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = Arguments { folder: folder.path().to_owned(), date: "2026-11-26".to_owned() };
        run(&arguments, crate::Arguments::command()).unwrap();
        let page = fs::read_to_string(folder.path().join("man/exitless-stat.1")).unwrap();
        let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let expected =
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""];
        assert_eq!(sections, expected, "{page}");
        assert!(page.starts_with(".ie") && page.matches(".ie").count() == 1, "{page}");
        assert!(
            page.contains(".TH EXITLESS\\-STAT 1 2026\\-11\\-26")
                || page.contains(".TH EXITLESS-STAT 1 2026-11-26"),
            "{page}"
        );
        assert!(page.contains("exitless stat \\-\\-json \\-\\- sleep 10"), "{page}");
        let pages = fs::read_dir(folder.path().join("man")).unwrap().count();
        assert_eq!(pages, all().len());
        for shell in ["exitless.bash", "_exitless", "exitless.fish"] {
            let text = fs::read_to_string(folder.path().join("completions").join(shell)).unwrap();
            for hidden in ["guard", "lab-self-test", "'pages'", " pages", "__pages"] {
                assert!(!text.contains(hidden), "{shell}: {hidden}");
            }
            for offered in ["self-test", "get", "record", "json", "version"] {
                assert!(text.contains(offered), "{shell}: {offered}");
            }
        }
        let group = fs::read_to_string(folder.path().join("man/exitless-iocm.1")).unwrap();
        assert!(
            group.contains("exitless\\-iocm(7)") && group.contains("exitless\\-iocm\\-serve(1)"),
            "{group}"
        );
    }
}
