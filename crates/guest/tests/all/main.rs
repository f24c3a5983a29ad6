//! The agent's program, as somebody who finds it tries it. With a test in this package, cargo builds it for the tests of
//! others.

use std::process::{Command, Stdio};

#[test]
fn outside_of_a_guest_it_says_what_it_is_and_does_nothing() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_exitless-agent")).arg("guest-agent").stdin(Stdio::null()).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("exitless guest run"), "{said}");
}
