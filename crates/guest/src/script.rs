//! A script that waits for one byte, which releases it; the same in every shell.

/// The first line of a script that waits: its process group follows.
pub const READY: &str = "exitless-ready ";
/// The first line after its release.
pub const BEGAN: &str = "exitless-began";

/// For `sh -c WAITING sh SCRIPT`: says that it waits and as which process group, reads a line, says that it began, and
/// becomes the script. Only what every POSIX shell has built in stands between the byte and the script.
pub const WAITING: &str = "read -r _ _ _ _ group _ < /proc/$$/stat; echo \"exitless-ready $group\"; \
    read -r _ || exit 125; echo exitless-began; exec < /dev/null; eval \"$1\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_says_what_is_looked_for() {
        assert!(WAITING.contains(READY) && WAITING.contains(BEGAN));
    }
}
