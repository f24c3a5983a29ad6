//! `exitless exporter` without KVM.

use std::path::Path;
use std::process::{Command, Output};

fn listening_at(socket: &Path, arguments: &[&str]) -> Output {
    let listen = format!("unix:{}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    command.args(["exporter", "-v", "--listen", &listen]).args(arguments).output().unwrap()
}

#[test]
fn no_socket_is_left_by_an_exporter_that_could_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let output = listening_at(&socket, &["--vm", "of-no-such-name"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Metrics are at") && said.contains("of-no-such-name"), "{said}");
    assert!(!socket.exists(), "{said}");
}
