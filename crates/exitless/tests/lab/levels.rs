//! Levels of factors on a real KVM. Each test starts itself inside a laboratory, because it examines that
//! kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use knobs::RunningHost;
use probe::{Config, MicroVm};
use study::factor::{HostLevels, Level, in_force};
use study::sampling::SampledGuest;

use crate::command::run;

/// Set inside a laboratory.
const INSIDE: &str = "EXITLESS_TEST_INSIDE";

/// Runs `test` of this program inside a laboratory, where it calls `look`.
pub(crate) fn in_laboratory(test: &str, lab: &str, look: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return look();
    }
    let own = format!("{}:tests", std::env::current_exe().unwrap().display());
    let inside = format!("{INSIDE}=1");
    let words = ["--put", &own, "--", "env", &inside, "./tests", "--nocapture", "--exact", test];
    let said = run(&[&["lab", "run", lab][..], &words[..]].concat());
    println!("{}", said.out);
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    assert!(said.out.contains("1 passed"), "{test} is not the test's name: {}", said.out);
}

/// On emulated Intel, the module is loaded again, twice.
#[test]
fn interrupt_virtualization_goes_off_and_on_by_the_module() {
    let test = "levels::interrupt_virtualization_goes_off_and_on_by_the_module";
    in_laboratory(test, "intel-apicv", switch_by_the_module);
}

/// On emulated AMD, where KVM is forced to use AVIC, because inhibit reasons are recorded only then. No vCPU
/// runs.
#[test]
fn qemu_sets_the_reasons_that_levels_name() {
    in_laboratory("levels::qemu_sets_the_reasons_that_levels_name", "amd-svm", look_at_vms_under_qemu);
}

fn switch_by_the_module() {
    let root = Path::new("/");
    let read = || std::fs::read_to_string("/sys/module/kvm_intel/parameters/enable_apicv").unwrap();
    let before = read();
    let level: Level = toml::from_str(
        "name = \"off\"\nmodule_parameters = { kvm_intel = { enable_apicv = 0 } }\n\
         commands = [{ before = \"touch /run/level\", after = \"rm -f /run/level\" }]",
    )
    .unwrap();
    let mut levels = HostLevels::new(root, RunningHost, vec!["test".to_owned()]);
    levels.apply(&[&level]).unwrap();
    assert_eq!((before.trim(), read().trim()), ("Y", "N"));
    assert!(Path::new("/run/level").exists());
    let vm = MicroVm::new(&Config::default()).unwrap();
    let this = SampledGuest { name: "micro".into(), process: i32::try_from(std::process::id()).unwrap() };
    let found = in_force(root, &[&level], std::slice::from_ref(&this));
    println!("off: {found:?}");
    assert_eq!(found.contradictions, Vec::<String>::new());
    let on = Level { commands: Vec::new(), ..toml::from_str("name = \"on\"\ninhibit = \"none\"").unwrap() };
    let found = in_force(root, &[&on], &[this]);
    println!("asked to be active: {found:?}");
    assert!(found.contradictions[0].contains("inhibited by"), "{found:?}");
    let error = HostLevels::new(root, RunningHost, Vec::new())
        .apply(&[&toml::from_str("name = \"x\"\nmodule_parameters = { kvm_intel = { enable_apicv = 1 } }")
            .unwrap()])
        .unwrap_err()
        .to_string();
    println!("{error}");
    assert!(error.contains("is in use by the VM"), "{error}");
    drop(vm);
    assert_eq!(levels.undo(), Vec::<String>::new());
    assert_eq!(read(), before);
    assert!(!Path::new("/run/level").exists());
}

/// A QEMU whose vCPUs are created but never run.
struct Paused(std::process::Child);

impl Paused {
    fn start(arguments: &[&str]) -> std::io::Result<Self> {
        let mut command = std::process::Command::new("qemu-system-x86_64");
        command.args(["-accel", "kvm", "-S", "-display", "none", "-nodefaults", "-m", "64"]).args(arguments);
        command.stdin(std::process::Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn look_at_vms_under_qemu() {
    for arguments in [&["-r", "kvm_amd"][..], &["kvm_amd", "avic=1", "force_avic=1"]] {
        assert!(std::process::Command::new("modprobe").args(arguments).status().unwrap().success());
    }
    let root = Path::new("/");
    let isa = host::kvm::vendor_module(root).and_then(host::kvm::isa_of).unwrap();
    // The laboratory's QEMU supports no userspace local APIC for a VM, so both machines must contradict that
    // level.
    let machines: [(&str, &[&str]); 2] = [
        ("pit-reinject", &["-machine", "q35,kernel-irqchip=on", "-global", "kvm-pit.lost_tick_policy=delay"]),
        ("none", &["-machine", "q35,kernel-irqchip=on", "-global", "kvm-pit.lost_tick_policy=discard"]),
    ];
    let ways = ["pit-reinject", "none", "userspace-irqchip"];
    let levels =
        ways.map(|way| toml::from_str::<Level>(&format!("name = \"x\"\ninhibit = \"{way}\"")).unwrap());
    for (at, (way, arguments)) in machines.iter().enumerate() {
        let qemu = Paused::start(arguments).unwrap();
        let process = i32::try_from(qemu.0.id()).unwrap();
        let guest = SampledGuest { name: "web".to_owned(), process };
        let look = |level: &Level| in_force(root, &[level], std::slice::from_ref(&guest));
        let end = Instant::now() + Duration::from_secs(20);
        while !look(&levels[at]).unverified.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        for (wanted, level) in levels.iter().enumerate() {
            let found = look(level);
            println!("{way}, asked for {}: {found:?}", ways[wanted]);
            assert_eq!(found.unverified, Vec::<String>::new());
            let possible = level.inhibit.unwrap().works_on(isa);
            assert_eq!(found.contradictions.is_empty(), at == wanted && possible, "{way}: {found:?}");
        }
    }
}
