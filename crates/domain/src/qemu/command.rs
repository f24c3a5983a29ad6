//! Finds the QEMU command in a text, and its options.

use super::argument::{Argument, Quote};
use super::arrays;
use super::options;
use super::words::{Token, Words};
use crate::{Error, Text};
use std::path::Path;

/// The largest number of doubts about a command's words.
const DOUBTS: usize = 20;

/// An option of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    /// The index of the option among the arguments.
    pub(super) option: usize,
    /// The index of its argument.
    pub(super) argument: Option<usize>,
}

/// A QEMU command.
#[derive(Debug, Clone, Default)]
pub(super) struct Command {
    /// All arguments, in order, including the program.
    pub(super) arguments: Vec<Argument>,
    /// The index of the program; `None` for a text that begins with options.
    pub(super) program: Option<usize>,
    /// Options that QEMU has, in order.
    pub(super) given: Vec<Given>,
    /// Arguments that are not options: disk images.
    pub(super) images: Vec<usize>,
    /// Options that QEMU does not have, with their assumed argument.
    pub(super) unknown: Vec<Given>,
    /// Doubts about parts that were not understood.
    pub(super) doubts: Vec<String>,
    /// True for a process: each argument ends with a NUL.
    pub(super) process: bool,
}

impl Command {
    /// The name of an option as given, without dashes.
    pub(super) fn name(&self, given: Given) -> &str {
        options::name(&self.arguments[given.option].text).unwrap_or_default()
    }

    /// The argument of an option.
    pub(super) fn said(&self, given: Given) -> &str {
        given.argument.map_or("", |argument| &self.arguments[argument].text)
    }

    /// Sorts the arguments after the program into options and images, as `qemu_init` in QEMU's `system/vl.c` does.
    fn sort(&mut self) {
        let mut next = self.program.map_or(0, |program| program + 1);
        while next < self.arguments.len() {
            let argument = &self.arguments[next];
            let Some(name) = options::name(&argument.text) else {
                if argument.text.starts_with('$') && self.doubts.len() >= DOUBTS {
                    // The limit of doubts is reached.
                } else if argument.text.starts_with('$') {
                    let doubt = "is known only to the shell; options in it were not read";
                    self.doubts.push(format!("Line {}: {} {doubt}.", argument.line, cut(&argument.text)));
                } else {
                    self.images.push(next);
                }
                next += 1;
                continue;
            };
            let known = options::takes_argument(name);
            let follows = self.arguments.get(next + 1);
            // The word after an unknown option is more likely its argument than a disk.
            let takes = known.unwrap_or_else(|| follows.is_some_and(|after| !after.text.starts_with('-')));
            let given = Given { option: next, argument: (takes && follows.is_some()).then_some(next + 1) };
            if known.is_some() {
                if takes && given.argument.is_none() {
                    self.doubts.push(format!("Line {}: -{name} lacks its argument.", argument.line));
                }
                self.given.push(given);
            } else {
                self.unknown.push(given);
            }
            next += if given.argument.is_some() { 2 } else { 1 };
        }
    }

    fn of(arguments: Vec<Argument>, program: Option<usize>, process: bool) -> Self {
        let mut command = Self { arguments, program, process, ..Self::default() };
        command.sort();
        command
    }
}

/// Tests whether a word is QEMU's program, by its name or as a shell variable with such a name.
fn is_program(word: &str) -> bool {
    if word.starts_with('$') {
        return word.len() < 64 && word.to_ascii_lowercase().contains("qemu") && !word.contains("[@]");
    }
    let name = Path::new(word).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_suffix("-wrapped").unwrap_or(name);
    match name.strip_prefix("qemu-system-") {
        Some(target) => {
            !target.is_empty()
                && target.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        }
        None => matches!(name, "qemu-kvm" | "kvm" | "qemu"),
    }
}

/// Indices of words that may be QEMU's program, by the names that `name` finds in the words.
///
/// The argument of an option is none, such as `kvm` in `-accel kvm`. Some options of wrappers have the name of one of
/// QEMU's, as in `perf record -g qemu-kvm`; in QEMU's own, the argument of these is a resolution, log items, a size or a
/// keyboard.
fn programs(arguments: &[Argument], name: fn(&str) -> &str) -> impl Iterator<Item = usize> + '_ {
    let awaits = |word: &Argument| {
        let option = options::name(&word.text).filter(|option| !matches!(*option, "g" | "d" | "m" | "k"));
        option.and_then(options::takes_argument) == Some(true)
    };
    (0..arguments.len())
        .filter(move |&at| is_program(name(&arguments[at].text)) && (at == 0 || !awaits(&arguments[at - 1])))
}

/// The index of QEMU's program: the first such word with an option behind it, or else the first one. Those that can be
/// the name of a user or a group come last: `sudo -u qemu -g kvm qemu-system-x86_64 -m 4G`.
fn program(arguments: &[Argument], name: fn(&str) -> &str) -> Option<usize> {
    let followed = |at: &usize| arguments.get(at + 1).is_some_and(is_option);
    let is_plain = |at: &usize| matches!(name(&arguments[*at].text), "qemu" | "kvm");
    let first = programs(arguments, name).find(|at| followed(at) && !is_plain(at));
    first.or_else(|| programs(arguments, name).find(followed)).or_else(|| programs(arguments, name).next())
}

/// Tests whether a word is an option, or a variable of the shell that may contain some.
fn is_option(word: &Argument) -> bool {
    word.text.starts_with('$') || options::name(&word.text).is_some()
}

/// Finds the QEMU command.
///
/// # Errors
///
/// If there is none, or a quotation mark in it is not closed.
pub(super) fn find(text: &Text) -> Result<Command, Error> {
    if text.bytes.contains(&0) {
        let arguments = text.bytes.iter().filter(|&&byte| byte == 0).count();
        if arguments > ARGUMENTS {
            return Err(too_many(text, arguments, "arguments", ARGUMENTS));
        }
        return process(&text.bytes).ok_or_else(|| missing(text));
    }
    let bare = bare_options(&text.bytes);
    // Options alone have words such as `kvm`, which would begin a command on a line of their own.
    let alone = bare.as_ref().is_some_and(|command| {
        // The word behind an unknown option may be an argument of it, or the program.
        let behind = command.unknown.iter().filter_map(|given| given.argument);
        !command.images.iter().copied().chain(behind).any(|at| is_program(&command.arguments[at].text))
    });
    let mut found = if alone { Found::default() } else { statements(text)? };
    if found.best.is_none() {
        found.best = bare;
    }
    let mut command = found.best.ok_or_else(|| missing(text))?;
    for line in found.others {
        command.doubts.push(format!("Line {line} has another QEMU command, which was not read."));
    }
    if command.arguments.len() > ARGUMENTS {
        return Err(too_many(text, command.arguments.len(), "arguments or more", ARGUMENTS));
    }
    Ok(command)
}

/// The error for a text without a QEMU command; it depends on what the text contains instead.
fn missing(text: &Text) -> Error {
    let found = String::from_utf8_lossy(&text.bytes);
    let lines = |known: &[&str]| {
        let key = |line: &str| line.split_once(": ").is_some_and(|(key, _)| known.contains(&key));
        found.lines().filter(|line| key(line)).count()
    };
    let error = |problem: &str, advice: &str| Error::new(&*text.name, problem, advice);
    if text.bytes.contains(&0) {
        let problem = "no QEMU command line was found in it";
        error(problem, "Name a process of QEMU, or a file with the VM's definition")
    } else if found.trim().is_empty() {
        error("it is empty", "Name a file with a definition")
    } else if found.lines().any(|line| line.trim_end().starts_with("kind: VirtualMachine")) {
        let advice = "Where the VM runs, use `exitless vm lint NAMESPACE/NAME`";
        error("this is KubeVirt's, which is not read", advice)
    } else if lines(&PROXMOX) > 1 {
        let id = Path::new(&*text.name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let id = if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) { id } else { "VMID" };
        let advice = format!(
            "Use `qm showcmd {id} | exitless vm lint -`, or `exitless vm lint {id}` while the VM runs"
        );
        error("this is Proxmox VE's, which is not read", &advice)
    } else {
        let problem = "it is neither libvirt's XML, Xen's xl.cfg nor a QEMU command line (a program such as \
            qemu-system-x86_64 or qemu-kvm, with options)";
        error(problem, "Name a file or a process that has one of them")
    }
}

/// Keys of a VM configuration of Proxmox VE.
const PROXMOX: [&str; 14] = [
    "boot", "cores", "cpu", "ide2", "memory", "net0", "ostype", "sata0", "scsi0", "scsihw", "smbios1",
    "sockets", "virtio0", "vmgenid",
];

/// The largest number of arguments of a command; real ones have hundreds.
const ARGUMENTS: usize = 1 << 17;

fn too_many(text: &Text, count: usize, what: &str, most: usize) -> Error {
    let problem = format!("it has {count} {what}, and no more than {most} are read");
    Error::new(&*text.name, problem, "Name a file with the command line of one VM")
}

/// The commands of a text: the best one so far, and the lines of the others.
#[derive(Debug, Default)]
struct Found {
    best: Option<Command>,
    others: Vec<usize>,
}

impl Found {
    /// The largest number of other commands to report.
    const TOLD: usize = 10;

    /// Takes the command if it has more options than the best one so far. A libvirt log has a command for
    /// every start; there the last one is taken.
    fn consider(&mut self, command: Command, log: bool) {
        let better = self.best.as_ref().is_none_or(|best| log || command.given.len() > best.given.len());
        let other = if better { self.best.replace(command) } else { Some(command) };
        if let (Some(other), false) = (other, log || self.others.len() >= Self::TOLD) {
            self.others.push(other.arguments.first().map_or(1, |first| first.line));
            self.others.sort_unstable();
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The arguments of a process.
fn process(bytes: &[u8]) -> Option<Command> {
    let mut arguments = Vec::new();
    let mut start = 0;
    let whole = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    for part in whole.split(|&byte| byte == 0) {
        let mut argument = Argument::new(start, 1);
        argument.take(part, start, Quote::Plain);
        arguments.push(argument);
        start += part.len() + 1;
    }
    // A disk image may be the first argument.
    let is_first = arguments.first().is_some_and(|first| is_program(&first.text));
    let named = if is_first { Some(0) } else { program(&arguments, |word| word) };
    // A wrapper such as `sudo` or `sh -c` has QEMU's name among its arguments; QEMU itself may have any name.
    let command = Command::of(arguments, Some(named.unwrap_or(0)), true);
    let telling =
        |given: &&Given| matches!(command.name(**given), "machine" | "M" | "m" | "smp" | "cpu" | "device");
    let by_options = command.unknown.is_empty() && command.given.iter().filter(telling).count() > 1;
    (named.is_some() || by_options).then_some(command)
}

/// The number of passes over a text: lines of a statement may be parsed again in search of a command.
const READINGS: usize = 8;

/// The QEMU commands of a script, log or unit file.
fn statements(text: &Text) -> Result<Found, Error> {
    let bytes = &text.bytes;
    let log = contains(bytes, b": starting up libvirt version");
    let mut found = Found::default();
    let mut unclosed = None;
    let (mut at, mut line) = (0, 1);
    let mut budget = READINGS * bytes.len() + 4096;
    while at < bytes.len() {
        let end =
            bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| at + length + 1);
        let (mut next, mut next_line) = (end, line + 1);
        if mentions_program(&bytes[at..end]) {
            let mut words = Words::new(bytes, at, line);
            match statement(&mut words, bytes) {
                Ok(commands) => {
                    budget = budget.saturating_sub(words.at - at);
                    if !commands.is_empty() || budget == 0 {
                        (next, next_line) = (words.at, words.line);
                    }
                    commands.into_iter().for_each(|command| found.consider(command, log));
                }
                Err(problem) => {
                    unclosed.get_or_insert(problem);
                    // The search went to the end of the text.
                    budget = budget.saturating_sub(bytes.len() - at);
                    if budget == 0 {
                        break;
                    }
                }
            }
        }
        (at, line) = (next, next_line);
    }
    match unclosed {
        Some((what, line)) if found.best.is_none() => {
            let problem = format!("a {what} is opened here and never closed");
            Err(Error::new(&*text.name, problem, "Close it, and try again").at_line(line))
        }
        _ => Ok(found),
    }
}

/// Tests whether a line may contain QEMU's program. A cheap test before parsing.
fn mentions_program(line: &[u8]) -> bool {
    let comment = line.trim_ascii_start().first().is_none_or(|&byte| byte == b'#');
    !comment && line.windows(3).any(|part| part.eq_ignore_ascii_case(b"qem") || part == b"kvm")
}

/// The commands of a line and its continuation lines.
fn statement(words: &mut Words<'_>, bytes: &[u8]) -> Result<Vec<Command>, (&'static str, usize)> {
    let mut found = Vec::new();
    let mut arguments: Vec<Argument> = Vec::new();
    let own = |arguments: &[Argument]| programs(arguments, bare).next().is_some();
    loop {
        match words.next() {
            // More arguments than allowed.
            Some(Token::Word(_)) if arguments.len() > ARGUMENTS => break,
            Some(Token::Word(word)) => arguments.push(word),
            Some(Token::Operator(_)) => found.extend(command(std::mem::take(&mut arguments), bytes)),
            Some(Token::Unclosed { what, line }) => {
                // An unclosed quotation mark after a QEMU command does not matter.
                return if own(&arguments) || found.is_empty() { Err((what, line)) } else { Ok(found) };
            }
            Some(Token::LineEnd) => {
                if !own(&arguments) || !continues(words, &mut arguments) {
                    break;
                }
            }
            None => break,
        }
    }
    found.extend(command(arguments, bytes));
    Ok(found)
}

/// Tests whether the line that begins here continues the command before it, as in files with one argument on
/// each line.
fn continues(words: &mut Words<'_>, arguments: &mut Vec<Argument>) -> bool {
    words.skip_to_word();
    let awaits =
        arguments.last().and_then(|last| options::name(&last.text)).and_then(options::takes_argument);
    if awaits == Some(true) && arguments.len() > 1 {
        // An argument on a line of its own is not quoted.
        arguments.extend(words.whole_line());
        return true;
    }
    // No shell command starts with a dash.
    words.begins_with_option()
}

/// The program without the prefixes of a unit file.
fn bare(word: &str) -> &str {
    let word = word.strip_prefix("ExecStart=").unwrap_or(word);
    word.trim_start_matches(['-', '@', ':', '+', '!', '|'])
}

/// The command in a statement's words, if it is QEMU's.
fn command(mut arguments: Vec<Argument>, bytes: &[u8]) -> Option<Command> {
    let program = program(&arguments, bare)?;
    let word = &arguments[program].text;
    let extra = word.len() - bare(word).len();
    if extra > 0 {
        arguments[program] = std::mem::take(&mut arguments[program]).without_first(extra);
    }
    let arguments = arrays::expanded(arguments, bytes);
    let follows = arguments.get(program + 1)?;
    let option = is_option(follows);
    let image = program == 0 && !option && arguments.len() == 2;
    if !option && !image {
        return None;
    }
    let command = Command::of(arguments, Some(program), false);
    (image || !command.given.is_empty()).then_some(command)
}

/// A text with options and without a program.
fn bare_options(bytes: &[u8]) -> Option<Command> {
    let mut words = Words::new(bytes, 0, 1);
    words.skip_to_word();
    if !words.begins_with_option() {
        return None;
    }
    let mut arguments: Vec<Argument> = Vec::new();
    while let Some(token) = words.next() {
        match token {
            Token::Word(word) => arguments.push(word),
            Token::LineEnd => {
                let awaits = arguments
                    .last()
                    .and_then(|last| options::name(&last.text))
                    .and_then(options::takes_argument);
                words.skip_to_word();
                if awaits == Some(true) {
                    arguments.extend(words.whole_line());
                }
            }
            Token::Operator(_) | Token::Unclosed { .. } => return None,
        }
    }
    let command = Command::of(arguments, None, false);
    (!command.given.is_empty()).then_some(command)
}

/// A text, shortened for use in a sentence.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
