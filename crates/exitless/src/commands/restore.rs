//! `exitless restore`: undo the changes that exitless made on this host.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use knobs::{Journal, Restore, RunningHost};

use crate::{console, status};

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only show the changes that would be undone.
    #[arg(long)]
    dry_run: bool,
    /// Show all changes in the journal, including those already undone.
    #[arg(long, conflicts_with_all = ["dry_run", "force", "run_scripts"])]
    list: bool,
    /// Also undo changes that others have modified since.
    #[arg(long)]
    force: bool,
    /// Run the undo scripts of plans whose process could not run them. They may do anything: check them with
    /// --dry-run first.
    #[arg(long)]
    run_scripts: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    let width = console::width();
    if arguments.list {
        let mut listed = Vec::new();
        let status = list(root, arguments.json, width, &mut listed)?;
        crate::output::write(|out| out.write_all(&listed))?;
        return Ok(ExitCode::from(status));
    }
    // A change is undone completely or not at all. A second Ctrl-C still ends the process; the journal then keeps
    // the rest.
    let _signals = crate::interrupt::flag()?;
    let how = Restore {
        force: arguments.force,
        dry_run: arguments.dry_run,
        run_scripts: arguments.run_scripts,
        only_placement: false,
    };
    let restored = knobs::restore(root, &mut RunningHost, how)?;
    let document = || report::restore::json::restored(&restored);
    let text = || report::restore::terminal::restored(&restored, width);
    crate::output::print(arguments.json, document, text)?;
    Ok(ExitCode::from(if restored.incomplete() { status::SOME_FAILED } else { 0 }))
}

/// Shows the whole journal. A last line that a crash truncated is not damage: it announced a change that was
/// never made.
fn list(root: &Path, json: bool, width: usize, out: &mut impl Write) -> anyhow::Result<u8> {
    let recorded = Journal::read(root)?;
    if json {
        crate::json::write_pretty(&mut *out, &report::restore::json::kept(&recorded))?;
    } else {
        out.write_all(report::restore::terminal::kept(&recorded, width).as_bytes())?;
    }
    let is_damaged = recorded.damage.iter().any(|damage| !damage.cut);
    Ok(if is_damaged { status::SOME_FAILED } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and output of `restore --list` for a journal with this content.
    fn listed(bytes: &str, json: bool) -> (u8, String) {
        let root = tempfile::tempdir().unwrap();
        Journal::open(root.path()).unwrap();
        std::fs::write(root.path().join("var/lib/exitless/journal"), bytes).unwrap();
        let mut out = Vec::new();
        let status = list(root.path(), json, 100, &mut out).unwrap();
        (status, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_list_of_a_damaged_journal_says_so_by_its_status_too() {
        for json in [false, true] {
            let (status, said) = listed("{\"format\":1,\"undone\":{\"id\":1,\"how\":\"by hand\"}}\n", json);
            assert_eq!(status, status::SOME_FAILED, "{said}");
            assert!(said.contains("journal, byte 0") || json && said.contains("\"offset\": 0"), "{said}");
            for whole in ["", "{\"format\":1,\"und"] {
                let (status, said) = listed(whole, json);
                assert_eq!(status, 0, "{said}");
            }
        }
    }
}
