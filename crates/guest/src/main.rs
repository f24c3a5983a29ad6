//! The first process of a guest, and nothing else: small, because each guest unpacks it when it boots.

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
