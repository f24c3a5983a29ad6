//! Linux namespaces, if this user may create them on this machine.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::geteuid;

/// The words before a command that run it in a new namespace; empty if that is unnecessary or not permitted.
type Words = &'static [&'static str];

const OWN_NETWORK: Words = &["unshare", "--net", "--"];
/// Unprivileged users can create a network namespace only within a user namespace.
const OWN_NETWORK_OF_USER: Words = &["unshare", "--map-root-user", "--net", "--"];
const AS_ROOT: Words = &["unshare", "--map-root-user", "--"];

/// The words that isolate a command's network from all other processes.
pub(crate) fn own_network() -> Words {
    static WORDS: OnceLock<Words> = OnceLock::new();
    WORDS.get_or_init(|| {
        let words = if geteuid().is_root() { OWN_NETWORK } else { OWN_NETWORK_OF_USER };
        if allowed(words) {
            return words;
        }
        tracing::warn!("no network namespace can be made here; the emulator shares this machine's network");
        &[]
    })
}

/// The words that make this user's files look like root's: none for root, otherwise a user namespace in which
/// this user is root.
pub(crate) fn as_root() -> Words {
    if geteuid().is_root() {
        return &[];
    }
    if allowed(AS_ROOT) {
        return AS_ROOT;
    }
    tracing::info!(
        "no user namespace can be made here; the files on the emulated hosts' disk have this user's number"
    );
    &[]
}

fn allowed(words: Words) -> bool {
    let Some((program, arguments)) = words.split_first() else { return true };
    let tried = Command::new(program)
        .args(arguments)
        .arg("true")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}
