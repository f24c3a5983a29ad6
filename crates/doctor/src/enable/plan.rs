//! A plan, as it is shown and made.

use super::files::Files;
use knobs::{Change, Content};
use serde::Serialize;
use similar::TextDiff;
use std::collections::BTreeMap;
use std::path::Path;

/// The arm of a test that the host is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// With interrupt virtualization.
    On,
    /// Without.
    Off,
}

/// A part of interrupt virtualization.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The CPU's, which takes the IOMMU's along.
    #[default]
    Whole,
    /// The IOMMU's alone: interrupts of assigned devices.
    DeviceInterrupts,
}

/// The requested change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The arm.
    pub arm: Arm,
    /// The part of the host that it concerns.
    pub part: Part,
    /// Beyond the next load of the module and the next boot.
    pub persist: bool,
    /// Now, by loading the module again.
    pub reload: bool,
}

/// When a step takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// At once.
    Now,
    /// When the module is loaded next, at the latest at the next boot.
    NextLoad,
    /// At the next boot.
    NextBoot,
}

/// The state of a step: whether it will be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "standing")]
pub enum Standing {
    /// It will be made.
    Ready,
    /// It was not asked for.
    NotAsked {
        /// The option that asks for it: `--persist`, `--reload`.
        option: String,
    },
    /// It was asked for, and something stands in the way.
    Blocked {
        /// The obstacle; `blocked_by` in JSON, where the step has a `why` of its own.
        #[serde(rename = "blocked_by")]
        why: String,
        /// The next step for the user.
        next: String,
    },
    /// It is for people to do.
    Suggested,
}

/// A file before and after, as a unified difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file.
    pub path: String,
    /// `diff -u`, from what is there to what is to be.
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
    /// Why, in one line.
    pub why: String,
    /// The source, where it is not plain: a manual, a file of the kernel.
    pub source: Option<String>,
    /// When it takes effect.
    pub effect: Effect,
    /// Its standing.
    #[serde(flatten)]
    pub standing: Standing,
    /// The files that it changes.
    pub files: Vec<Difference>,
    /// The commands that it runs, as they are typed.
    pub commands: Vec<String>,
    /// The changes, in order.
    #[serde(skip)]
    pub changes: Vec<Change>,
    /// The files that it changes as they were; those that were not there have none.
    #[serde(skip)]
    pub found: BTreeMap<String, Option<Content>>,
}

/// The reason why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Its stable name: `cpu`, `contradiction`, `container`, `module`, `xen`.
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
    /// The file in which the running kernel tells its state.
    pub place: String,
    /// Its value; `None` when the module is not loaded or the file may not be read.
    pub now: Option<String>,
    /// The running kernel has it as wished for.
    pub so_already: bool,
    /// The reason why nothing is done; empty when nothing stands in the way.
    pub refusals: Vec<Refusal>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Further notes.
    pub notes: Vec<String>,
    /// The module whose parameter decides.
    #[serde(skip)]
    pub(super) module: String,
    /// The switch as wished for.
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

    /// Tests whether something that was asked for cannot be done.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let blocked = |step: &Step| matches!(step.standing, Standing::Blocked { .. });
        !self.refusals.is_empty() || self.steps.iter().any(blocked)
    }

    /// Tests whether there are steps that would be made, had they been asked for.
    #[must_use]
    pub fn awaits_options(&self) -> bool {
        self.ready().next().is_none()
            && self.steps.iter().any(|step| matches!(step.standing, Standing::NotAsked { .. }))
    }
}

impl Step {
    /// A step of these changes. A file that is a link is changed by nobody but who made the link.
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
    let Change::File { path, content: Some(Content(new)) } = change else { return None };
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
