//! Quoting for `sh -c`.

/// The word, quoted for the shell if necessary (POSIX.1-2017, Shell Command Language, 2.2.2).
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command line of quoted words.
pub fn line<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    words.into_iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// The command line that runs a script by sh, for ssh. Any program can be the login shell there, so it gets only words and
/// quotes.
pub fn by_sh(script: &str) -> String {
    format!("exec sh -c {}", quoted(script))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn plain_words_stay_readable() {
        assert_eq!(
            line(["iozone", "-s", "102400k", "-f", "/var/tmp/a b"]),
            "iozone -s 102400k -f '/var/tmp/a b'"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_shell_reads_back_any_word(word in "[^\0]{0,20}") {
            let script = format!("printf %s {}", quoted(&word));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
