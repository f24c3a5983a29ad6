//! A script that waits for one line as its release; it runs in any POSIX shell.

/// The start of the first line of a waiting script; its process group follows.
pub const READY: &str = "exitless-ready ";
/// The first line after the release.
pub const BEGAN: &str = "exitless-began";

/// For `sh -c WAITING sh SCRIPT`: prints that it waits and its process group, reads a line, prints that it began, and
/// runs SCRIPT. Uses only shell builtins, so no program has to start between the release and the script.
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
