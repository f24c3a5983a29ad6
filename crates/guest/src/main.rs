//! The first process of a guest. A program of its own, to be small: each guest unpacks it at boot.

use std::process::ExitCode;

fn main() -> ExitCode {
    if guest::is_agent() {
        guest::run();
    }
    eprintln!(
        "exitless-agent: This is the first process of a guest; exitless starts guests with it: exitless guest run"
    );
    ExitCode::from(2)
}
