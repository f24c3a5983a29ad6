//! The command line of this process, as journals and recordings have it.

use std::ffi::OsString;

/// The program and its arguments. What is not UTF-8 has replacement characters, because JSON has no bytes.
pub(crate) fn command_line() -> Vec<String> {
    words(std::env::args_os())
}

fn words(arguments: impl Iterator<Item = OsString>) -> Vec<String> {
    arguments.map(|word| word.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_path_that_is_not_utf8_is_no_panic() {
        let given = [b"record".to_vec(), b"/tmp/\xff".to_vec()].map(OsString::from_vec);
        assert_eq!(words(given.into_iter()), ["record", "/tmp/\u{fffd}"]);
    }
}
