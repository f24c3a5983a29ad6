//! A plan: its steps, for display and execution.

use super::files::Files;
use knobs::{Change, Content};
use serde::Serialize;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::path::Path;

/// The requested state of interrupt virtualization, as an arm of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Interrupt virtualization is on.
    On,
    /// Interrupt virtualization is off.
    Off,
}

/// A part of interrupt virtualization.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The CPU's part, which includes the IOMMU's.
    #[default]
    Whole,
    /// Only the IOMMU's part: interrupts of assigned devices.
    DeviceInterrupts,
}

/// The requested change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The arm.
    pub arm: Arm,
    /// The part of the host that it concerns.
    pub part: Part,
    /// True if the change must survive a reload of the module and a reboot.
    pub persist: bool,
    /// True if the change must take effect now, by reloading the module.
    pub reload: bool,
}

/// The time at which a step takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Immediately.
    Now,
    /// At the next load of the module, at the latest at the next boot.
    NextLoad,
    /// At the next boot.
    NextBoot,
}

/// The state of a step before the execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "standing")]
pub enum Standing {
    /// It will be made.
    Ready,
    /// It was not asked for.
    NotAsked {
        /// The option that requests it: `--persist`, `--reload`.
        option: String,
    },
    /// It was asked for, but something prevents it.
    Blocked {
        /// The obstacle; `blocked_by` in JSON, because the step already has a `why`.
        #[serde(rename = "blocked_by")]
        why: String,
        /// The next step for the user.
        next: String,
    },
    /// It is left to people.
    Suggested,
}

/// A file before and after, as a unified difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file.
    pub path: String,
    /// The output of `diff -u` from the present to the new content.
    pub diff: String,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its stable name: `modprobe-options`, `kernel-arguments`, `modprobe-obstacle`, `initramfs`,
    /// `reload`, `xen-arguments`.
    pub name: String,
    /// Its effect, in a few words.
    pub title: String,
    /// The reason, in one line.
    pub why: String,
    /// The source if it is not obvious: a manual, a kernel file.
    pub source: Option<String>,
    /// The time at which it takes effect.
    pub effect: Effect,
    /// Its standing.
    #[serde(flatten)]
    pub standing: Standing,
    /// The files that it changes.
    pub files: Vec<Difference>,
    /// The commands that it runs, as one would type them.
    pub commands: Vec<String>,
    /// The changes, in order.
    #[serde(skip)]
    pub changes: Vec<Change>,
    /// The present content of the files that it changes; `None` for files that do not exist.
    #[serde(skip)]
    pub found: BTreeMap<String, Option<Content>>,
}

/// A reason to do nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Its stable name: `cpu`, `erratum`, `contradiction`, `container`, `xen`.
    pub name: String,
    /// The reason.
    pub why: String,
    /// The next step for the user.
    pub next: String,
}

/// The steps that switch interrupt virtualization on or off on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The arm.
    pub arm: Arm,
    /// `APICv`, `AVIC` or `x2AVIC`.
    pub technology: String,
    /// The file in which the running kernel shows the state.
    pub place: String,
    /// Its value; `None` if the module is not loaded or the file cannot be read.
    pub now: Option<String>,
    /// True if the running kernel is already in the requested state.
    pub so_already: bool,
    /// The reasons to do nothing; empty if nothing prevents the plan.
    pub refusals: Vec<Refusal>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Further notes.
    pub notes: Vec<String>,
    /// The module whose parameter decides.
    #[serde(skip)]
    pub(super) module: String,
    /// The requested value of that parameter.
    #[serde(skip)]
    pub(super) wanted: bool,
}

impl Plan {
    /// A plan that does nothing.
    #[must_use]
    pub fn refused(wish: Wish, refusal: Refusal) -> Self {
        Self {
            arm: wish.arm,
            technology: "interrupt virtualization".to_owned(),
            place: String::new(),
            now: None,
            so_already: false,
            refusals: vec![refusal],
            steps: Vec::new(),
            notes: Vec::new(),
            module: String::new(),
            wanted: wish.arm == Arm::On,
        }
    }

    /// Steps that will be made.
    pub fn ready(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.standing == Standing::Ready)
    }

    /// Tests whether something that was requested cannot be done.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let blocked = |step: &Step| matches!(step.standing, Standing::Blocked { .. });
        !self.refusals.is_empty() || self.steps.iter().any(blocked)
    }

    /// Tests whether no step is ready, but some would be with further options.
    #[must_use]
    pub fn awaits_options(&self) -> bool {
        self.ready().next().is_none()
            && self.steps.iter().any(|step| matches!(step.standing, Standing::NotAsked { .. }))
    }
}

impl Step {
    /// A step with these changes. A step on a symbolic link is blocked: the program that created the link
    /// must make the change.
    pub(super) fn of(
        files: &Files,
        name: &str,
        effect: Effect,
        standing: Standing,
        changes: Vec<Change>,
    ) -> Self {
        let found: BTreeMap<String, Option<Content>> =
            changes.iter().filter_map(|change| found(files, change)).collect();
        let standing = match found.keys().find_map(|path| Some((path, files.root.link(path).ok()?))) {
            Some((path, target)) if standing == Standing::Ready => Standing::Blocked {
                why: format!("{path} is a symbolic link to {}", target.display()),
                next: "make the change where that is managed".to_owned(),
            },
            _ => standing,
        };
        let commands = changes.iter().flat_map(|change| commands(&files.directory, change)).collect();
        let files = changes.iter().filter_map(|change| difference(&found, change)).collect();
        let (name, title, why) = (name.to_owned(), String::new(), String::new());
        Self { name, title, why, source: None, effect, standing, files, commands, changes, found }
    }

    pub(super) fn called(self, title: impl Into<String>, why: impl Into<String>) -> Self {
        Self { title: title.into(), why: why.into(), ..self }
    }

    pub(super) fn by(self, source: impl Into<String>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

pub(super) fn asked(asked: bool, option: &str) -> Standing {
    if asked { Standing::Ready } else { Standing::NotAsked { option: option.to_owned() } }
}

fn found(files: &Files, change: &Change) -> Option<(String, Option<Content>)> {
    let Change::File { path, .. } = change else { return None };
    Some((path.clone(), files.root.read(path).ok().map(Content)))
}

fn difference(found: &BTreeMap<String, Option<Content>>, change: &Change) -> Option<Difference> {
    let Change::File { path, content: Content(new) } = change else { return None };
    let old = found.get(path).and_then(Option::as_ref).map(|Content(old)| old.as_slice());
    let was = if old.is_some() { format!("a{path}") } else { "/dev/null".to_owned() };
    let (old, new) = (old.unwrap_or_default(), String::from_utf8_lossy(new));
    let old = String::from_utf8_lossy(old);
    let diff = TextDiff::from_lines(old.as_ref(), new.as_ref());
    let diff = diff.unified_diff().header(&was, &format!("b{path}")).to_string();
    Some(Difference { path: path.clone(), diff })
}

fn commands(root: &Path, change: &Change) -> Vec<String> {
    match change {
        Change::Command { run: Some(words), .. } => {
            let typed = |word: &String| if word.contains(' ') { format!("'{word}'") } else { word.clone() };
            let line = |words: &Vec<String>| words.iter().map(typed).collect::<Vec<_>>().join(" ");
            knobs::commands(root, words).iter().map(line).collect()
        }
        Change::Load { module, parameters } => {
            let given: Vec<_> = parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect();
            vec![format!("rmmod {module}; modprobe {module}{}", given.concat())]
        }
        _ => Vec::new(),
    }
}
