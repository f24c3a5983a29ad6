//! Builds parts of labs while the main program is still being compiled: `lab-build NAME...`.
//!
//! It does not run the self-test, which needs the main program inside a lab. Ctrl-C ends this program and its
//! child processes.

use std::process::ExitCode;

use lab::{Cache, Error, Lab, Progress, Step, XenImage};

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    for name in &names {
        if let Err(error) = build(name) {
            eprintln!("lab-build: {name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn build(name: &str) -> Result<(), Error> {
    let lab = Lab::find(name)?;
    let cache = Cache::of_user()?;
    let mut said = Vec::new();
    // One line per step, because cargo writes to the same output.
    let mut say = |progress: Progress| {
        if !said.contains(&progress.step) {
            said.push(progress.step);
            eprintln!("lab-build: {name}: {}", in_words(progress.step));
        }
    };
    lab::build(&cache, lab, &mut say)?;
    if lab.is_xen() {
        XenImage::find_or_build(&cache, &mut say)?;
    }
    Ok(())
}

fn in_words(step: Step) -> &'static str {
    match step {
        Step::Waiting => "waiting for another build",
        Step::Lists => "reading the package lists",
        Step::Download => "downloading packages",
        Step::Unpack => "unpacking packages",
        Step::Assemble => "assembling the image",
        Step::Compile => "compiling the emulator",
        Step::SelfTest => "testing the lab",
        Step::Snapshot => "making a snapshot",
    }
}
