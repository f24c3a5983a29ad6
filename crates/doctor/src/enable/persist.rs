//! Persistent parameters: lines of modprobe.d, or kernel arguments.

use super::boot::{Boot, Taken, Whose};
use super::files::Files;
use super::harmful;
use super::modprobe::Modprobe;
use super::plan::{Arm, Effect, Standing, Step, Wish, asked};
use super::target::{Switch, Target};
use super::words::{self, WordChange};
use host::{Inspection, switch};
use knobs::{Change, Content};

pub(super) fn steps(
    files: &Files,
    boot: &Boot,
    inspection: &Inspection,
    target: &Target,
    wish: Wish,
) -> Vec<Step> {
    let command_line = inspection.fingerprint.cmdline.as_deref().unwrap_or_default();
    // Do not use /proc/cmdline if the configuration is known: a word may have been typed for this boot only.
    let lines = boot.lines_or(Whose::Linux, command_line);
    let mut modprobe = Modprobe::read(&files.root);
    let mut arguments = Vec::new();
    for one in target.switches() {
        let contradicting = contradicting(&lines, target.module, one);
        let said = !contradicting.is_empty() || lines.iter().all(|line| said(line, target.module, one));
        arguments.extend(contradicting);
        if target.built_in {
            if !said && one.default != Some(one.on) {
                arguments.push(WordChange::add(format!("{}.{}={}", target.module, one.name, one.value())));
            }
            continue;
        }
        let so = match modprobe.setting(target.module, one.name) {
            Some(setting) => switch(&setting.value) == Some(one.on),
            None => said || one.default == Some(one.on),
        };
        if !so {
            modprobe.set(target.module, one.name, one.value());
        }
    }
    let mut steps: Vec<Step> = options(files, &modprobe, target, wish).into_iter().collect();
    let mut reasons = Vec::new();
    if !arguments.is_empty() {
        let module = target.module;
        reasons.push(if target.built_in {
            format!(
                "{module} is built into the kernel, so only the kernel's command line sets its parameters"
            )
        } else {
            format!("kernel arguments for {module} come after modprobe.d, and the last value counts")
        });
    }
    let mut source = vec!["kmod, libkmod/libkmod-config.c"; reasons.len()];
    if target.arm == Arm::On {
        // Posting alone is a choice of its own, which `--device-interrupts` changes.
        for found in harmful::find(&lines).into_iter().filter(|found| !found.posting) {
            let old = found.change.old.as_deref().unwrap_or_default();
            reasons.push(format!("with {old}, {}", found.why));
            source.push(found.source);
            arguments.push(found.change);
        }
    }
    source.dedup();
    // One step for all: the arguments are in one file, from which one program generates the rest.
    let step = if arguments.is_empty() { None } else { by_boot_loader(files, boot, &arguments, wish) };
    steps.extend(step.map(|step| step.called(title(&arguments), reasons.join("; ")).by(source.join("; "))));
    steps.extend(obstacles(files, &modprobe, target));
    steps
}

/// A note on arguments of this boot that are not in the boot loader's configuration.
pub(super) fn note(boot: &Boot, inspection: &Inspection, target: &Target) -> Option<String> {
    let line = [inspection.fingerprint.cmdline.clone().unwrap_or_default()];
    let switches = target.switches().iter();
    let mut typed: Vec<_> = switches.flat_map(|one| contradicting(&line, target.module, one)).collect();
    if target.arm == Arm::On {
        let found = harmful::find(&line).into_iter().filter(|found| !found.posting);
        typed.extend(found.map(|found| found.change));
    }
    boot.of_this_boot(Whose::Linux, &typed)
}

/// A note on an argument that disables only posting: the plan leaves it where it is.
pub(super) fn of_posting(boot: &Boot, inspection: &Inspection, target: &Target) -> Option<String> {
    if target.arm == Arm::Off {
        return None;
    }
    let running = inspection.fingerprint.cmdline.as_deref().unwrap_or_default();
    let lines = boot.lines_or(Whose::Linux, running);
    let found = harmful::find(&lines).into_iter().find(|found| found.posting)?;
    Some(format!(
        "With {}, {}. That is left as it is; `exitless enable --device-interrupts --persist` ends it.",
        found.change.old?, found.why
    ))
}

fn options(files: &Files, modprobe: &Modprobe, target: &Target, wish: Wish) -> Option<Step> {
    let change = |(path, content)| Change::File { path, content: Content(content) };
    let changes: Vec<Change> = modprobe.changes().into_iter().map(change).collect();
    let blocked = |why: String, next: &str| Some(Standing::Blocked { why, next: next.to_owned() });
    let obstacle = match modprobe.unread() {
        _ if !wish.persist || target.built_in => None,
        Some((why, next)) => blocked(why, next),
        None if changes.is_empty() => None,
        None if files.are_of_nixos() => blocked(
            "NixOS makes modprobe.d from its configuration".to_owned(),
            "add the line to boot.extraModprobeConfig there, and run nixos-rebuild",
        ),
        None => None,
    };
    if changes.is_empty() && obstacle.is_none() {
        return None;
    }
    let word = if target.arm == Arm::On { "on" } else { "off" };
    let title = format!("Tell modprobe to load {} with {} {word}", target.module, target.switch().name);
    let standing = obstacle.unwrap_or_else(|| asked(wish.persist, "--persist"));
    let step = Step::of(files, "modprobe-options", Effect::NextLoad, standing, changes);
    Some(step.called(title, "so that the setting survives a reboot").by("modprobe.d(5)"))
}

/// Steps for lines of modprobe.d that stop the module from being loaded, but are not changed here.
fn obstacles(files: &Files, modprobe: &Modprobe, target: &Target) -> Vec<Step> {
    let found = modprobe.obstacles(target.module);
    let step = |(path, line): (String, String)| {
        let step = Step::of(files, "modprobe-obstacle", Effect::NextLoad, Standing::Suggested, Vec::new());
        step.called(
            format!("Look at `{line}` in {path}"),
            "it prevents the module from being loaded with its options",
        )
        .by("modprobe.d(5)")
    };
    found.into_iter().map(step).collect()
}

pub(super) fn by_boot_loader(files: &Files, boot: &Boot, changes: &[WordChange], wish: Wish) -> Option<Step> {
    let (standing, name) = (asked(wish.persist, "--persist"), "kernel-arguments");
    match boot.take(Whose::Linux, changes) {
        Taken::Nothing => None,
        Taken::Changes(changes) => Some(Step::of(files, name, Effect::NextBoot, standing, changes)),
        Taken::ByHand(why, next) => {
            let standing = if wish.persist { Standing::Blocked { why, next } } else { standing };
            Some(Step::of(files, name, Effect::NextBoot, standing, Vec::new()))
        }
    }
}

pub(super) fn title(changes: &[WordChange]) -> String {
    let told = changes.iter().map(|change| match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("Change the argument {old} to {new}"),
        (Some(old), None) => format!("Remove the argument {old}"),
        (None, new) => format!("Add the kernel argument {}", new.as_deref().unwrap_or_default()),
    });
    told.collect::<Vec<_>>().join("; ")
}

/// The module's arguments with this name, as written, each with its value; `-` and `_` are equal.
fn arguments<'a>(line: &'a str, module: &str, name: &str) -> Vec<(&'a str, &'a str)> {
    let full = format!("{module}.{name}");
    let all = words::words(line).into_iter().map(|range| &line[range]);
    let before_init = all.take_while(|word| *word != "--");
    let named = before_init.filter_map(|word| {
        let (name, value) = word.split_once('=').unwrap_or((word, "1"));
        (name.replace('-', "_") == full).then_some((word, value))
    });
    named.collect()
}

fn contradicting(lines: &[String], module: &str, one: &Switch) -> Vec<WordChange> {
    let wrong = lines.iter().flat_map(|line| arguments(line, module, one.name));
    let wrong = wrong.filter(|(_, value)| switch(value) != Some(one.on));
    let change = |(word, _): (&str, &str)| WordChange {
        old: Some(word.to_owned()),
        new: Some(format!("{module}.{}={}", one.name, one.value())),
    };
    let mut changes: Vec<WordChange> = wrong.map(change).collect();
    changes.dedup();
    changes
}

fn said(line: &str, module: &str, one: &Switch) -> bool {
    arguments(line, module, one.name).last().is_some_and(|(_, value)| switch(value) == Some(one.on))
}
