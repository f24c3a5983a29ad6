//! How a script is brought to where one byte releases it, the same in every shell.

/// The first line of a script that waits: its process group follows.
pub(super) const READY: &str = "exitless-ready ";
/// The first line after its release.
pub(super) const BEGAN: &str = "exitless-began";

/// For `sh -c WAITING sh SCRIPT`: says that it waits and as which process group, reads a line, says that it began, and
/// becomes the script. Only what every POSIX shell has built in stands between the byte and the script.
pub(super) const WAITING: &str = "read -r _ _ _ _ group _ < /proc/$$/stat; echo \"exitless-ready $group\"; \
    read -r _ || exit 125; echo exitless-began; exec < /dev/null; eval \"$1\"";

/// A text as one word of a POSIX shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_script_says_what_is_looked_for() {
        assert!(WAITING.contains(READY) && WAITING.contains(BEGAN));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_quoted_text_is_one_word(text in "[^\0]{0,40}") {
            let line = format!("printf %s {}", quoted(&text));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
