//! The long version: what a report of a fault should name.

use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The commit, where the build names it (`make build`, `make dist`); cargo builds anew when it changes.
const COMMIT: Option<&str> = option_env!("EXITLESS_COMMIT");

/// Version, commit, date of the rules and target, a line each.
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
