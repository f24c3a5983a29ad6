//! The long version: what a bug report should contain.

use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The commit, if the build sets it (`make build`, `make dist`); cargo rebuilds when it changes.
const COMMIT: Option<&str> = option_env!("EXITLESS_COMMIT");

/// The version, the commit, the date of the rules and the target, one per line.
pub(crate) fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let commit = COMMIT.filter(|commit| !commit.is_empty()).unwrap_or("not recorded");
        let rules = doctor::RULES_DATE;
        let environment = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
        format!(
            "{version}\ncommit: {commit}\nrules:  {rules}\ntarget: {ARCH}-unknown-{OS}-{environment}, {linked}"
        )
    });
    &TEXT
}
