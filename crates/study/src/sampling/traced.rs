//! VM exits over a run on a Xen host, counted with xentrace.

use std::path::Path;
use std::time::Duration;

use exits::{Isa, Profile, counted, with_causes_in_brackets};
use host::{Root, XenControl};
use live::Following;
use traces::{Options, Reading, Sums};

use super::access;
use super::exit_figures::{ExitsSeen, metrics};

/// A running xentrace, and the exits found in its records.
pub(super) struct Traced {
    root: Root,
    control: XenControl,
    following: Following<Result<Reading, traces::Error>>,
    sums: Sums,
    profile: Profile,
    accesses: bool,
}

impl Traced {
    /// Starts xentrace if this is a control domain of Xen, otherwise returns `None`. `Err` if xentrace cannot be
    /// started.
    pub(super) fn start(root: &Path, accesses: bool) -> Option<Result<Self, String>> {
        let root = if root == Path::new("/") { Root::live() } else { Root::directory(root) };
        let control = XenControl::read(&root)?;
        let options = Options { tsc_hz: control.tsc_hz, isa: control.isa, ..Options::default() };
        let (program, sums) = (live::xentrace_program(control.version.as_deref()), Sums::default());
        let name = program.display().to_string();
        let mut sink = sums.clone();
        let following = Following::start(&program, move |output| {
            traces::follow_xentrace(Box::new(output), &name, &options, &mut sink)
        });
        let started = |following| Self { root, control, following, sums, profile: Profile::new(), accesses };
        Some(following.map(started).map_err(|error| with_causes_in_brackets(&error)))
    }

    /// All exits so far.
    pub(super) fn take(&mut self) -> &Profile {
        self.profile.merge(&self.sums.take());
        &self.profile
    }

    /// CPU time so far of xentrace and of the threads that read its records.
    pub(super) fn cpu_time(&self) -> Duration {
        self.following.cpu_time()
    }

    /// Stops xentrace. `elapsed_ns` is the time for which it ran.
    pub(super) fn finish(mut self, elapsed_ns: u64) -> ExitsSeen {
        let mut warnings = Vec::new();
        match self.following.finish() {
            Ok(Some(Ok(reading))) => {
                warnings.extend(reading.warnings);
                warnings.extend(reading.damage.map(|damage| damage.to_string()));
                self.profile.losses.merge(&reading.profile.losses);
            }
            Ok(Some(Err(error))) => {
                warnings.push(format!("The last exits are missing: {}", with_causes_in_brackets(&error)))
            }
            Ok(None) => {
                warnings.push("Exits are missing: the reader of xentrace's records failed".to_owned())
            }
            Err(error) => warnings.push(format!("Exits are missing: {}", with_causes_in_brackets(&error))),
        }
        self.profile.merge(&self.sums.take());
        let profile = &mut self.profile;
        profile.set_length(elapsed_ns);
        let lost = profile.losses.lost_events;
        if lost > 0 {
            warnings.push(format!(
                "Xen's trace buffers had no room for {}; exits are missing",
                counted(lost, "record")
            ));
        }
        let mut figures = metrics(profile, elapsed_ns);
        if self.accesses {
            let (by_place, left_out) = access::metrics(profile, elapsed_ns);
            figures.extend(by_place);
            warnings.extend(left_out);
        }
        profile.names.extend(XenControl::domain_names(&self.root));
        let isa = self.control.isa.unwrap_or(Isa::Vmx);
        let profile = Some((isa, self.profile));
        ExitsSeen { metrics: figures, warnings, profile, seconds: None, cost_ns: None }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_xentrace_that_ends_early_makes_the_exits_of_the_run_doubtful() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("xentrace");
        std::fs::write(&program, "#!/bin/sh\nprintf records\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let sums = Sums::default();
        let mut sink = sums.clone();
        let following = Following::start(&program, move |output| {
            traces::follow_xentrace(Box::new(output), "xentrace", &Options::default(), &mut sink)
        });
        let traced = Traced {
            root: Root::directory(folder.path()),
            control: XenControl::default(),
            following: following.unwrap(),
            sums,
            profile: Profile::new(),
            accesses: false,
        };
        while !traced.following.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let warnings = traced.finish(1_000_000_000).warnings;
        assert!(warnings.iter().any(|warning| warning.contains("ended early")), "{warnings:?}");
    }
}
