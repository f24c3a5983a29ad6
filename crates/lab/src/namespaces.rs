//! Linux namespaces, if this machine allows this user to create them.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::geteuid;

/// Words in front of a command that run it in a namespace of its own; empty if that is not needed or not
/// allowed.
type Words = &'static [&'static str];

const OWN_NETWORK: Words = &["unshare", "--net", "--"];
/// A user who is not root can create a network namespace only inside a user namespace.
const OWN_NETWORK_OF_USER: Words = &["unshare", "--map-root-user", "--net", "--"];
const AS_ROOT: Words = &["unshare", "--map-root-user", "--"];

/// Words that give a command a network that no other process reaches.
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

/// Words that make files of this user appear as root's: empty for root, otherwise a user namespace in which
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
