use super::*;
use knobs::{Parameters, Restore, restore};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

/// A machine of plain files, with mocks of modprobe, rmmod, and `sh -c "echo TEXT > /FILE"`.
#[derive(Clone)]
struct Machine {
    root: PathBuf,
    ran: Arc<Mutex<Vec<String>>>,
}

fn error(what: &str) -> knobs::Error {
    let (command, status) = (what.to_owned(), "exit status: 1".to_owned());
    knobs::Error::Command { command, status, said: "no".to_owned() }
}

impl Machine {
    fn note(&self, what: String) {
        self.ran.lock().unwrap().push(what);
    }

    fn ran(&self) -> Vec<String> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }
}

impl Actions for Machine {
    fn load(&mut self, module: &str, parameters: &Parameters) -> Result<(), knobs::Error> {
        self.note(format!("load {module} {parameters:?}"));
        let home = self.root.join("sys/module").join(module);
        fs::create_dir_all(home.join("parameters")).unwrap();
        fs::write(home.join("refcnt"), "0\n").unwrap();
        for (name, default) in [
            ("enable_apicv", "Y"),
            ("nested", "Y"),
            ("ple_gap", "128"),
            ("stubborn", "N"),
            ("enable_ipiv", "N"),
            ("enable_device_posted_irqs", "N"),
        ] {
            let given = parameters.get(name).filter(|_| name != "stubborn").map_or(default, String::as_str);
            let value = match given {
                "1" => "Y",
                "0" => "N",
                other => other,
            };
            let path = home.join("parameters").join(name);
            fs::write(&path, format!("{value}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        }
        Ok(())
    }

    fn unload(&mut self, module: &str) -> Result<(), knobs::Error> {
        self.note(format!("unload {module}"));
        fs::remove_dir_all(self.root.join("sys/module").join(module)).map_err(|_| error("rmmod"))
    }

    fn run(&mut self, command: &[String]) -> Result<(), knobs::Error> {
        self.note(command.join(" "));
        if command.last().is_some_and(|script| script == "false") { Err(error("false")) } else { Ok(()) }
    }

    fn affinity(&self, tid: i32) -> Result<String, knobs::Error> {
        Err(knobs::Error::ThreadGone { tid })
    }

    fn set_affinity(&mut self, tid: i32, _: &str) -> Result<(), knobs::Error> {
        Err(knobs::Error::ThreadGone { tid })
    }
}

/// A host with a module, a kernel setting, and a CPU that has cpufreq.
fn host() -> (tempfile::TempDir, Machine, HostLevels<Machine>) {
    let root = tempfile::tempdir().unwrap();
    let text = "
== /sys/module/kvm/parameters/halt_poll_ns mode=0644
200000
== /proc/sys/kernel/numa_balancing
1
== /proc/sys/kernel/random/boot_id
first
== /sys/kernel/mm/transparent_hugepage/enabled
always [madvise] never
== /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor
powersave
== /sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq
2000000
== /sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq
2700000
";
    host::fake::unpack(text, root.path()).unwrap();
    let mut machine = Machine { root: root.path().to_owned(), ran: Arc::default() };
    machine.load("kvm_intel", &Parameters::new()).unwrap();
    machine.ran();
    let levels =
        HostLevels::new(root.path(), machine.clone(), vec!["exitless".to_owned(), "experiment".to_owned()]);
    (root, machine, levels)
}

fn level(text: &str) -> Level {
    let level: Level = toml::from_str(&format!("name = \"x\"\n{text}")).unwrap();
    level.check().unwrap();
    level
}

fn read(root: &tempfile::TempDir, path: &str) -> String {
    fs::read_to_string(root.path().join(path)).unwrap().trim().to_owned()
}

const PARAMETER: &str = "sys/module/kvm_intel/parameters/enable_apicv";

#[test]
fn a_parameter_goes_there_and_back() {
    let (root, machine, mut levels) = host();
    let off = level("module_parameters = { kvm_intel = { enable_apicv = \"N\" } }");
    levels.apply(&[&off]).unwrap();
    assert_eq!(read(&root, PARAMETER), "N");
    assert_eq!(machine.ran(), ["unload kvm_intel", "load kvm_intel {\"enable_apicv\": \"N\"}"]);
    assert_eq!(levels.undo(), Vec::<String>::new());
    assert_eq!(read(&root, PARAMETER), "Y");
    machine.ran();
    // Values that are already set need no change and no journal.
    levels
        .apply(&[&level("module_parameters = { kvm_intel = { enable_apicv = true, ple_gap = 128 } }")])
        .unwrap();
    assert_eq!(machine.ran(), Vec::<String>::new());
}

#[test]
fn undoing_waits_until_the_kernel_has_destroyed_the_last_vm() {
    let (root, _, mut levels) = host();
    levels.apply(&[&level("module_parameters = { kvm_intel = { enable_apicv = \"N\" } }")]).unwrap();
    let users = root.path().join("sys/module/kvm_intel/refcnt");
    fs::write(&users, "1\n").unwrap();
    let destroyed = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::write(&users, "0\n").unwrap();
    });
    assert_eq!(levels.undo(), Vec::<String>::new());
    destroyed.join().unwrap();
    assert_eq!(read(&root, PARAMETER), "Y");
}

#[test]
fn what_kvm_keeps_cleared_is_given_where_apicv_is_switched_on() {
    let (root, machine, mut levels) = host();
    fs::write(root.path().join(PARAMETER), "N\n").unwrap();
    levels.apply(&[&level("module_parameters = { kvm_intel = { enable_apicv = 1 } }")]).unwrap();
    let posting = "\"enable_device_posted_irqs\": \"1\"";
    let given = format!("load kvm_intel {{\"enable_apicv\": \"1\", {posting}, \"enable_ipiv\": \"1\"}}");
    assert_eq!(machine.ran()[1], given);
    levels.undo();
    fs::write(root.path().join(PARAMETER), "N\n").unwrap();
    machine.ran();
    let without = level("module_parameters = { kvm_intel = { enable_apicv = 1, enable_ipiv = 0 } }");
    levels.apply(&[&without]).unwrap();
    assert_eq!(machine.ran()[1], given.replace("\"enable_ipiv\": \"1\"", "\"enable_ipiv\": \"0\""));
    levels.undo();
    // If APICv was already on, somebody has turned these off on purpose.
    fs::write(root.path().join(PARAMETER), "Y\n").unwrap();
    machine.ran();
    levels.apply(&[&level("module_parameters = { kvm_intel = { enable_apicv = 1, ple_gap = 0 } }")]).unwrap();
    assert!(!machine.ran()[1].contains("enable_ipiv"));
}

#[test]
fn parameters_of_two_factors_are_given_at_once_and_must_agree() {
    let (root, machine, mut levels) = host();
    let one = level("module_parameters = { kvm_intel = { enable_apicv = 0 } }");
    let two = level("module_parameters = { kvm_intel = { ple_gap = 0, enable_apicv = \"N\" } }");
    levels.apply(&[&one, &two]).unwrap();
    assert_eq!(machine.ran().len(), 2, "loaded once");
    assert_eq!(
        (read(&root, PARAMETER), read(&root, "sys/module/kvm_intel/parameters/ple_gap")),
        ("N".into(), "N".into())
    );
    levels.undo();
    let other = level("module_parameters = { kvm_intel = { enable_apicv = 1 } }");
    let error = levels.apply(&[&one, &other]).unwrap_err().to_string();
    assert!(error.contains("enable_apicv of the module kvm_intel, to 0 and to 1"), "{error}");
}

#[test]
fn a_parameter_that_may_be_written_needs_no_reload() {
    let (root, machine, mut levels) = host();
    levels.apply(&[&level("module_parameters = { kvm = { halt_poll_ns = 0 } }")]).unwrap();
    assert_eq!(read(&root, "sys/module/kvm/parameters/halt_poll_ns"), "0");
    levels.undo();
    assert_eq!(read(&root, "sys/module/kvm/parameters/halt_poll_ns"), "200000");
    assert_eq!(machine.ran(), Vec::<String>::new());
}

#[test]
fn a_value_that_the_module_does_not_take_is_an_error_and_is_taken_back() {
    let (root, _, mut levels) = host();
    let error = levels
        .apply(&[&level("module_parameters = { kvm_intel = { enable_apicv = 0, stubborn = 1 } }")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("stubborn of the module kvm_intel is N after it was set to 1"), "{error}");
    assert_eq!(read(&root, PARAMETER), "Y");
    for (text, named) in [
        ("kvm_amd = { avic = 1 }", "kvm_amd is not loaded"),
        ("kvm_intel = { avic = 1 }", "no parameter avic"),
    ] {
        let error =
            levels.apply(&[&level(&format!("module_parameters = {{ {text} }}"))]).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn a_vm_that_runs_is_named() {
    let (root, machine, mut levels) = host();
    host::fake::unpack(crate::sampling::FAKE_GUEST, root.path()).unwrap();
    fs::write(root.path().join("sys/module/kvm_intel/refcnt"), "2\n").unwrap();
    let off = level("module_parameters = { kvm_intel = { enable_apicv = 0 } }");
    let error = levels.apply(&[&off]).unwrap_err().to_string();
    assert!(error.contains("the VM web (process 4000)"), "{error}");
    assert_eq!(machine.ran(), Vec::<String>::new());
}

#[test]
fn files_settings_frequencies_and_commands_are_undone_in_reverse() {
    let (root, machine, mut levels) = host();
    let all = level(
        "files = { \"/sys/kernel/mm/transparent_hugepage/enabled\" = \"never\" }\n\
         kernel_settings = { \"kernel.numa_balancing\" = 0 }\n\
         frequency = { cpus = \"1\", governor = \"performance\", minimum = \"1200MHz\", maximum = \"1200MHz\" }\n\
         commands = [{ before = \"one\", after = \"undo one\" }, { before = \"two\", after = \"undo two\" }]",
    );
    levels.apply(&[&all]).unwrap();
    assert_eq!(read(&root, "proc/sys/kernel/numa_balancing"), "0");
    assert_eq!(read(&root, "sys/kernel/mm/transparent_hugepage/enabled"), "never");
    assert_eq!(read(&root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq"), "1200000");
    assert_eq!(read(&root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"), "performance");
    assert_eq!(levels.undo(), Vec::<String>::new());
    assert_eq!(read(&root, "proc/sys/kernel/numa_balancing"), "1");
    assert_eq!(read(&root, "sys/kernel/mm/transparent_hugepage/enabled"), "madvise");
    assert_eq!(read(&root, "sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq"), "2000000");
    assert_eq!(
        machine.ran(),
        [
            "timeout --kill-after=10 300.000 sh -c one",
            "timeout --kill-after=10 300.000 sh -c two",
            "timeout --kill-after=10 300.000 sh -c undo two",
            "timeout --kill-after=10 300.000 sh -c undo one"
        ]
    );
}

#[test]
fn a_command_that_fails_takes_back_what_came_before_it() {
    let (root, machine, mut levels) = host();
    let bad = level(
        "kernel_settings = { \"kernel.numa_balancing\" = 0 }\ncommands = [{ before = \"false\", after = \"fix\" }]",
    );
    assert!(levels.apply(&[&bad]).is_err());
    assert_eq!(read(&root, "proc/sys/kernel/numa_balancing"), "1");
    assert_eq!(
        machine.ran(),
        ["timeout --kill-after=10 300.000 sh -c false", "timeout --kill-after=10 300.000 sh -c fix"]
    );
}

#[test]
fn what_remains_of_levels_that_could_not_be_applied_is_said() {
    let (_root, _, mut levels) = host();
    let pairs = "{ before = \"true\", after = \"false\" }, { before = \"false\", after = \"fix\" }";
    assert!(levels.apply(&[&level(&format!("commands = [{pairs}]"))]).is_err());
    let left = levels.undo();
    assert!(matches!(&left[..], [only] if only.contains("Change 1 was not undone")), "{left:?}");
    assert_eq!(levels.undo(), Vec::<String>::new());
}

#[test]
fn a_command_ends_with_its_limit_and_that_is_said() {
    let level = level("commands = [{ before = \"sleep 20\", after = \"true\", limit = \"200ms\" }]");
    let pair = &level.commands[0];
    let begun = std::time::Instant::now();
    let error =
        knobs::Actions::run(&mut knobs::RunningHost, &limited(pair, &pair.before).unwrap()).unwrap_err();
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
    let said = ApplyError::of_command(pair, error).to_string();
    assert!(said.contains("\"sleep 20\" of a level was still running after 200ms"), "{said}");
}

#[test]
fn what_others_changed_meanwhile_stays_and_is_said() {
    let (root, _, mut levels) = host();
    levels.apply(&[&level("kernel_settings = { \"kernel.numa_balancing\" = 0 }")]).unwrap();
    fs::write(root.path().join("proc/sys/kernel/numa_balancing"), "2\n").unwrap();
    let left = levels.undo();
    assert!(left[0].contains("numa_balancing is 2"), "{left:?}");
    assert_eq!(read(&root, "proc/sys/kernel/numa_balancing"), "2");
}

#[test]
fn what_a_killed_study_left_is_restored() {
    let (root, mut machine, mut levels) = host();
    let level = level(
        "module_parameters = { kvm_intel = { enable_apicv = 0 } }\n\
         kernel_settings = { \"kernel.numa_balancing\" = 0 }\n\
         commands = [{ before = \"one\", after = \"undo one\" }]",
    );
    levels.apply(&[&level]).unwrap();
    // As if the process had been killed: its destructors do not run.
    std::mem::forget(levels);
    machine.ran();
    // Restoring runs the scripts of a plan only on request.
    let restored = restore(root.path(), &mut machine, Restore::default()).unwrap();
    assert!(restored.incomplete(), "{restored:?}");
    let scripts_too = Restore { run_scripts: true, ..Restore::default() };
    let restored = restore(root.path(), &mut machine, scripts_too).unwrap();
    assert!(!restored.incomplete(), "{restored:?}");
    assert_eq!(
        (read(&root, PARAMETER), read(&root, "proc/sys/kernel/numa_balancing")),
        ("Y".into(), "1".into())
    );
    assert!(machine.ran().contains(&"timeout --kill-after=10 300.000 sh -c undo one".to_owned()));
}

#[test]
fn a_change_that_stays_is_told_with_its_cause() {
    let (root, mut machine, mut levels) = host();
    levels.apply(&[&level("kernel_settings = { \"kernel.numa_balancing\" = 0 }")]).unwrap();
    let only_look = Restore { dry_run: true, ..Restore::default() };
    let restored = restore(root.path(), &mut machine, only_look).unwrap();
    // EBUSY.
    let source = std::io::Error::from_raw_os_error(16);
    let path = PathBuf::from("/proc/sys/kernel/numa_balancing");
    let refused = knobs::Error::Access { doing: "write", path, source };
    let told = left(&restored.changes[0].entry, &Err(refused)).unwrap();
    assert!(told.starts_with("Change 1 was not undone") && told.ends_with("(os error 16)"), "{told}");
}

#[test]
fn a_panic_takes_back_too() {
    let (root, _, mut levels) = host();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        levels.apply(&[&level("kernel_settings = { \"kernel.numa_balancing\" = 0 }")]).unwrap();
        panic!("the study ends here");
    }));
    assert!(panicked.is_err());
    assert_eq!(read(&root, "proc/sys/kernel/numa_balancing"), "1");
}

#[test]
fn changes_of_a_session_whose_process_ended_are_told() {
    let (root, machine, mut levels) = host();
    let level: Level =
        toml::from_str("name = \"x\"\nfiles = { \"/sys/module/kvm/parameters/halt_poll_ns\" = 0 }").unwrap();
    assert_eq!(levels.left_over(), Vec::<String>::new());
    levels.apply(&[&level]).unwrap();
    let command = levels.command.clone();
    std::mem::forget(levels);
    let mut later = HostLevels::new(root.path(), machine.clone(), command);
    assert!(
        matches!(&later.left_over()[..], [only] if only.contains("Change 1 was not undone")),
        "{:?}",
        later.left_over()
    );
    let mut other = HostLevels::new(root.path(), machine.clone(), vec!["other".to_owned()]);
    assert_eq!(other.left_over(), Vec::<String>::new());
    // Values that others have changed since are left out, and so are scripts, which may already have been undone.
    let by_others = |value: &str| {
        fs::write(root.path().join("sys/module/kvm/parameters/halt_poll_ns"), value).unwrap();
    };
    by_others("7\n");
    assert_eq!(later.left_over(), Vec::<String>::new());
    let script: Level =
        toml::from_str("name = \"y\"\ncommands = [{ before = \"true\", after = \"false\" }]").unwrap();
    later.apply(&[&level, &script]).unwrap();
    let command = later.command.clone();
    std::mem::forget(later);
    by_others("9\n");
    assert_eq!(HostLevels::new(root.path(), machine, command).left_over(), Vec::<String>::new());
}

#[test]
fn changes_that_a_running_process_holds_are_told_until_it_has_undone_them() {
    let (root, machine, mut levels) = host();
    let (own, process) = (std::process::id(), 4_194_305);
    for process in [own, process] {
        // The start time is field 22 of proc_pid_stat(5).
        let stat = format!("== /proc/{process}/stat\n{process} (exitless) S{} 341 0\n", " 0".repeat(18));
        host::fake::unpack(&stat, root.path()).unwrap();
    }
    levels.apply(&[&level("kernel_settings = { \"kernel.numa_balancing\" = 0 }")]).unwrap();
    let mut later = HostLevels::new(root.path(), machine, levels.command.clone());
    let by_own = "an earlier study of this command left it";
    assert!(matches!(&later.left_over()[..], [only] if only.ends_with(by_own)), "{:?}", later.left_over());
    let journal = root.path().join("run/exitless-journal/journal");
    let written = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, written.replace(&format!("\"pid\":{own},"), &format!("\"pid\":{process},"))).unwrap();
    let held = format!("process {process} holds change 1, because it makes or ends a study: wait");
    assert!(matches!(&later.left_over()[..], [only] if only.starts_with(&held)), "{:?}", later.left_over());
    fs::write(&journal, written).unwrap();
    drop(levels);
    assert_eq!(later.left_over(), Vec::<String>::new());
}

#[test]
fn a_journal_that_cannot_be_read_is_told() {
    let (root, _, mut levels) = host();
    fs::create_dir_all(root.path().join("var/lib/exitless/journal")).unwrap();
    let told = levels.left_over();
    assert!(matches!(&told[..], [only] if only.contains("var/lib/exitless")), "{told:?}");
}
