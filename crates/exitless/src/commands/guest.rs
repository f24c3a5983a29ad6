//! `exitless guest`: the image of guests in studies, and a test run of guests.

mod run;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::Subcommand;
use guests::GuestFiles;
use lab::{Cache, GUEST_BUILD_EFFORT, GuestImage};
use report::json::Document;

use super::lab::unless_stopped;
use crate::console::{self, BuildProgress};
use crate::interrupt;

/// Operations on the guest image.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build the image from which guests of studies are started: Debian's kernel and the tools that plans
    /// run.
    ///
    /// Exit status: 0 when it exists; 2 for a wrong command line; 125 when it could not be built; 130 when
    /// interrupted.
    Build {
        /// Print JSON: its path and its contents.
        #[arg(long)]
        json: bool,
    },
    /// Start guests, run a script in all of them at the same time, show its output, and stop them.
    ///
    /// Exit status: 0 when the script succeeded in all; 1 when it failed in one; 2 for a wrong command line; 125 when the
    /// guests could not be started or reached; 130 when interrupted.
    Run(run::Arguments),
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Build { json } => build(json),
        Command::Run(arguments) => run::run(&arguments),
    }
}

fn build(json: bool) -> anyhow::Result<ExitCode> {
    let stop = interrupt::flag()?;
    let image = image(&mut BuildProgress::new(), &stop)?;
    if json {
        let document = serde_json::json!({
            "kernel": image.kernel(),
            "compressed_kernel": image.compressed_kernel(),
            "initial_ram_disk": image.initial_ram_disk(),
            "root": image.root(),
            "disk_usage_bytes": image.disk_usage(),
            "manifest": image.manifest(),
        });
        crate::json::write_pretty(std::io::stdout(), &Document::new(document))?;
    } else {
        writeln!(std::io::stdout(), "{}", ready(&image))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line about a finished image.
pub(crate) fn ready(image: &GuestImage) -> String {
    format!(
        "The guest image is ready: Linux {}, {} packages, {} MiB",
        image.manifest().kernel_release,
        image.manifest().packages.len(),
        image.disk_usage() >> 20
    )
}

/// The guest image. If it does not exist, says what building costs and builds it.
pub(crate) fn image(progress: &mut BuildProgress, stop: &Arc<AtomicBool>) -> anyhow::Result<GuestImage> {
    let cache = Cache::of_user()?.stopped_by(Arc::clone(stop));
    if GuestImage::find(&cache)?.is_none() {
        console::say(format_args!(
            "Building the guest image: {} MiB to download, or 4 MiB if the labs' packages are there; {} MiB on disk, \
             about {} s plus the download. It is kept in {}.",
            GUEST_BUILD_EFFORT.download_mib,
            GUEST_BUILD_EFFORT.disk_mib,
            GUEST_BUILD_EFFORT.time.as_secs(),
            cache.root().display()
        ));
    }
    let built = GuestImage::find_or_build(&cache, &mut |step| progress.show(step));
    Ok(unless_stopped(built, stop)?)
}

/// The files from which guests are started, with the agent in their initial RAM disk, in `folder`.
pub(crate) fn files(image: GuestImage, folder: &Path) -> anyhow::Result<GuestFiles> {
    let kernels = [image.kernel(), image.compressed_kernel()];
    let program = lab::guest_program()?;
    let files = GuestFiles::prepare(kernels, &image.initial_ram_disk(), image.root(), &program.bytes, folder)
        .context("Could not prepare the files that guests start from")?;
    Ok(files.without_agent(program.without_agent).kept_by(image))
}
