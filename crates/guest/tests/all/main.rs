//! Runs the agent's program by hand, outside a guest. A test in this package also makes cargo build the program for the
//! tests of other packages.

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
