//! A definition's text before and after its changes, as lines.

use similar::TextDiff;

use crate::text::printable;

/// The number of context lines around a change.
const AROUND: usize = 3;

/// The text in lines. The arguments of a running process, which are separated by NUL bytes, become a shell command with one
/// option per line.
pub(crate) fn in_lines(bytes: &[u8]) -> String {
    if bytes.contains(&0) {
        return command(&arguments(bytes));
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// The arguments of a running process.
pub(crate) fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    bytes.split(|&byte| byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
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

fn command(arguments: &[String]) -> String {
    let mut text = String::new();
    for (number, argument) in arguments.iter().enumerate() {
        if number > 0 {
            text += if argument.starts_with('-') { " \\\n  " } else { " " };
        }
        text += &quoted(argument);
    }
    text.push('\n');
    text
}

/// The argument, quoted for a shell.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=,./:+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
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
            let script = format!("printf %s {}", quoted(&argument));
            let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8(said.stdout).unwrap(), argument);
        }
    }
}
