//! A definition's text before and after its changes, as lines.

use exits::is_harmful;
use similar::TextDiff;

use crate::text::printable;

/// The number of context lines around a change.
const AROUND: usize = 3;

/// The text in lines. The arguments of a running process, which are separated by NUL bytes, become a shell command with one
/// option per line.
pub(crate) fn in_lines(bytes: &[u8]) -> String {
    if bytes.contains(&0) { command(bytes) } else { String::from_utf8_lossy(bytes).into_owned() }
}

/// The arguments of a running process, as text.
pub(crate) fn arguments(bytes: &[u8]) -> Vec<String> {
    each_argument(bytes).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

fn each_argument(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.strip_suffix(b"\0").unwrap_or(bytes).split(|&byte| byte == 0)
}

/// Lines for people, without control characters; tabs become spaces.
pub(crate) fn readable(text: &str) -> String {
    text.lines().map(|line| printable(&line.replace('\t', "    ")) + "\n").collect()
}

/// A unified diff for `patch`; empty without differences.
pub(crate) fn unified_diff(name: &str, old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(AROUND)
        .header(name, &format!("{name} (fixed)"))
        .to_string()
}

fn command(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, argument) in each_argument(bytes).enumerate() {
        if number > 0 {
            text += if argument.starts_with(b"-") { " \\\n  " } else { " " };
        }
        text += &quoted(argument);
    }
    text.push('\n');
    text
}

/// The argument, quoted for a shell. What people cannot be shown as it is, such as control characters and bytes that are no
/// UTF-8, is written as bash and POSIX.1-2024 read it: `$'a\tb\xff'`.
#[must_use]
pub fn quoted(argument: &[u8]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=,./:+@%".contains(c);
    match std::str::from_utf8(argument) {
        Ok(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Ok(text) if !text.contains(is_harmful) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => escaped(argument),
    }
}

fn escaped(argument: &[u8]) -> String {
    let mut text = "$'".to_owned();
    let numbers = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    for chunk in argument.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\t' => text += "\\t",
                '\n' => text += "\\n",
                '\'' | '\\' => text.extend(['\\', character]),
                _ if is_harmful(character) => {
                    text += &numbers(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => text.push(character),
            }
        }
        text += &numbers(chunk.invalid());
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_process_is_a_command_with_an_option_a_line() {
        let bytes = b"qemu-system-x86_64\0-name\0a b\0-accel\0kvm\0-append\0it's\0\0";
        assert_eq!(
            in_lines(bytes),
            "qemu-system-x86_64 \\\n  -name 'a b' \\\n  -accel kvm \\\n  -append 'it'\\''s' ''\n"
        );
        assert_eq!(arguments(bytes).len(), 8);
    }

    #[test]
    fn a_command_for_people_is_the_same_command() {
        let bytes = b"qemu\0-append\0a\tb\r\n'\\\x1b[2J\0-drive\0file=\xe9\0\xe2\x80\xaeo\0";
        let command = in_lines(bytes);
        assert_eq!(
            command,
            "qemu \\\n  -append $'a\\tb\\x0d\\n\\'\\\\\\x1b[2J' \\\n  -drive $'file=\\xe9' $'\\xe2\\x80\\xaeo'\n"
        );
        assert_eq!(readable(&command), command);
    }

    #[test]
    fn a_diff_has_three_lines_around_a_change() {
        let old: String = (0..20).map(|line| format!("{line}\n")).collect();
        let diff = unified_diff("vm.xml", &old, &old.replace("10\n", "ten\n"));
        assert!(diff.starts_with("--- vm.xml\n+++ vm.xml (fixed)\n@@ -8,7 +8,7 @@\n 7\n"), "{diff}");
        assert!(diff.contains("\n-10\n+ten\n"), "{diff}");
        assert_eq!(unified_diff("vm.xml", &old, &old), "");
    }

    proptest! {
        #[test]
        fn the_shell_gets_back_what_was_quoted(argument in "[a-zA-Z'\"$ \\\\*;&-]{0,20}") {
            let script = format!("printf %s {}", quoted(argument.as_bytes()));
            let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8(said.stdout).unwrap(), argument);
        }

        #[test]
        fn bash_gets_back_every_byte_from_a_line_for_people(
            argument in proptest::collection::vec(1_u8..=255, 0..20)
        ) {
            let quoted = quoted(&argument);
            let script = format!("printf %s {quoted}");
            let said = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(said.stdout, argument);
            let shown = readable(&quoted);
            prop_assert_eq!(shown.trim_end_matches('\n'), quoted);
        }
    }
}
