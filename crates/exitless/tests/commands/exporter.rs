//! `exitless exporter` without KVM.

use std::process::Command;

#[test]
fn no_socket_is_left_by_an_exporter_that_could_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let listen = format!("unix:{}", socket.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_exitless"));
    let output =
        command.args(["exporter", "-v", "--listen", &listen, "--vm", "of-no-such-name"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Metrics are at") && said.contains("of-no-such-name"), "{said}");
    assert!(!socket.exists(), "{said}");
}
