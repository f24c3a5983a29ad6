//! Arguments as a command for a shell.

use std::fmt::Write;

/// The command, with an option and its argument on each line.
pub(super) fn command(environment: &[(String, String)], arguments: &[String]) -> String {
    let mut text = String::new();
    for (name, value) in environment {
        let _ = writeln!(text, "{name}={} \\", quoted(value));
    }
    for (number, argument) in arguments.iter().enumerate() {
        let option = argument.starts_with('-') && argument.len() > 1;
        if number > 0 {
            let after_option = arguments[number - 1].starts_with('-') && number > 1;
            text.push_str(if after_option && !option { " " } else { " \\\n  " });
        }
        text.push_str(&quoted(argument));
    }
    text.push('\n');
    text
}

/// An argument quoted for a shell; control characters are written as escapes, so that they do not reach a
/// terminal.
pub(super) fn quoted(text: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_=,./:+@%".contains(one);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.chars().any(char::is_control) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut whole = String::from("$'");
    for one in text.chars() {
        match one {
            '\'' | '\\' => whole.extend(['\\', one]),
            '\n' => whole.push_str("\\n"),
            '\t' => whole.push_str("\\t"),
            _ if one.is_control() => {
                let _ = write!(whole, "\\u{:04x}", u32::from(one));
            }
            _ => whole.push(one),
        }
    }
    whole.push('\'');
    whole
}
