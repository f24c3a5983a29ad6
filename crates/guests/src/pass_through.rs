//! A check that the devices of a domain's definition can be passed through.

use doctor::lint::{HostSide, lint};
use doctor::{Fix, State};
use domain::Text;
use host::Root;

/// The rule of `vm lint` that checks the devices.
const RULE: &str = "xl-pass-through";

/// The reason why `xl` could not pass through the devices in a definition (xl.cfg(5)), and what to do about it; `None`
/// if it can, if there are none, or if this is unknown.
pub fn pass_through_obstacle(root: &Root, name: &str, definition: &str) -> Option<String> {
    let vm = domain::xl::read(&Text::new(name, definition)).ok()?;
    // Without devices, skip the slow call of xl.
    vm.has_assigned_device().then_some(())?;
    let found = lint(&vm, &HostSide::of_xen(root));
    let failed = found.into_iter().find(|one| one.rule == RULE && one.state == State::Fail)?;
    let cure = failed.fixes.iter().find_map(|fix| match fix {
        Fix::Advice(text) | Fix::Command(text) => Some(format!("; {text}")),
        Fix::Definition(_) | Fix::Managed(_) => None,
    });
    Some(format!("pci in {name}: {}{}", failed.found, cure.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dom0(assignable: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("proc/xen/capabilities", "control_d\n"),
            ("exitless/commands/xl-info", "virt_caps : pv hvm hvm_directio pv_directio hap\n"),
            ("exitless/commands/xl-pci-assignable-list", assignable),
            ("sys/bus/pci/devices/0000:03:10.0/class", "0x020000\n"),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let function = root.path().join("sys/bus/pci/devices/0000:03:10.0");
        std::os::unix::fs::symlink("../0000:03:00.0", function.join("physfn")).unwrap();
        root
    }

    #[test]
    fn a_function_that_dom0_still_has_is_refused_before_the_start() {
        let definition = "name = \"web\"\ntype = \"hvm\"\npci = [ \"03:10.0\" ]\n";
        let judged = |assignable: &str, definition: &str| {
            let folder = dom0(assignable);
            pass_through_obstacle(&Root::directory(folder.path()), "web.cfg", definition)
        };
        let why = judged("\n", definition).unwrap();
        assert!(why.starts_with("pci in web.cfg: 0000:03:10.0 is not ready for a guest"), "{why}");
        assert!(why.contains("xl pci-assignable-add 0000:03:10.0"), "{why}");
        assert_eq!(judged("0000:03:10.0 \n", definition), None);
        assert_eq!(judged("\n", "name = \"web\"\ntype = \"hvm\"\n"), None);
        let pvh = definition.replace("hvm", "pvh");
        assert!(judged("0000:03:10.0 \n", &pvh).unwrap().contains("PVH"));
    }
}
