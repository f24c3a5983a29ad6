//! The step that reloads the module with new parameters.

use super::files::Files;
use super::plan::{Arm, Effect, Standing, Step, Wish, asked};
use super::target::Target;
use host::Inspection;
use knobs::Change;

pub(super) fn step(files: &Files, inspection: &Inspection, target: &Target, wish: Wish) -> Option<Step> {
    if target.is_so() {
        return None;
    }
    // A value in force may have been given by hand, or KVM may have cleared it while the main parameter was off.
    let given = target.switches().iter().filter(|one| !one.is_so() || one.default != Some(one.on));
    let parameters = given.map(|one| (one.name.to_owned(), one.value().to_owned())).collect();
    let change = Change::Load { module: target.module.to_owned(), parameters };
    let standing = match obstacle(files, inspection, target) {
        Some(blocked) if wish.reload => blocked,
        _ => asked(wish.reload, "--reload"),
    };
    let changes = if target.built_in { Vec::new() } else { vec![change] };
    let mut step = Step::of(files, "reload", Effect::Now, standing, changes);
    if !target.loaded {
        step.commands.iter_mut().for_each(|command| {
            *command = command.rsplit("; ").next().unwrap_or_default().to_owned();
        });
    }
    let word = if target.arm == Arm::On { "on" } else { "off" };
    let load = if target.loaded { "Reload" } else { "Load" };
    let title = format!("{load} {} with {} {word}", target.module, target.switch().name);
    Some(step.called(title, "the parameter is read only when the module is loaded"))
}

/// The reason not to reload: the module is built in or in use.
fn obstacle(files: &Files, inspection: &Inspection, target: &Target) -> Option<Standing> {
    let blocked = |why: String, next: &str| Some(Standing::Blocked { why, next: next.to_owned() });
    if target.built_in {
        let why = format!("{} is built into the kernel and cannot be reloaded", target.module);
        return blocked(why, "use --persist, and reboot");
    }
    let vms = inspection.running.vms.get().map_or(&[][..], Vec::as_slice);
    if !vms.is_empty() {
        let names: Vec<_> =
            vms.iter().map(|one| format!("{} (process {})", one.vm.name, one.vm.pid)).collect();
        return blocked(
            format!("VMs run: {}", names.join(", ")),
            "stop or migrate them first, or use --persist and reboot",
        );
    }
    let count = files.shown(&format!("/sys/module/{}/refcnt", target.module));
    match count.trim().parse::<u64>() {
        Ok(users @ 1..) => blocked(
            format!(
                "{} is in use {}",
                target.module,
                if users == 1 { "once".to_owned() } else { format!("{users} times") }
            ),
            "stop what has /dev/kvm open (`fuser -v /dev/kvm`)",
        ),
        _ => None,
    }
}
