//! Hot spots of real exits, in a real KVM.

use serde_json::Value;

use crate::command::{Said, bare, run};

fn document(said: &Said, word: &str) -> Value {
    let lines: Vec<&str> = said.out.lines().filter_map(|line| line.strip_prefix(word)).collect();
    serde_json::from_str(&lines.join("\n"))
        .unwrap_or_else(|error| panic!("{error}: {}\n{}", said.out, said.err))
}

fn reason<'a>(document: &'a Value, reason: &str) -> &'a Value {
    let reasons = document["reasons"].as_array().expect("reasons");
    reasons.iter().find(|row| row["reason"] == reason).unwrap_or_else(|| panic!("no {reason}: {document:#}"))
}

fn functions(row: &Value) -> Vec<(&str, u64)> {
    let each = row["functions"].as_array().expect("functions").iter();
    each.map(|one| (one["symbol"].as_str().unwrap_or("?"), one["total"].as_u64().unwrap())).collect()
}

/// Shell functions. `stop` waits for the first exit of the only VM, `$vm`, and stops it. `during SECONDS OUT
/// COMMAND...` lets it run only while the command observes it: both emulated CPUs run in one thread, so a busy
/// VM doubles the time in which the command attaches and resolves symbols.
const DURING: &str = r#"
    stop() {
        until [ "$(cat /sys/kernel/debug/kvm/*/exits 2>/dev/null || echo 0)" -gt 0 ]; do
            kill -0 $vm || exit 9; sleep 0.1
        done
        kill -STOP $vm
    }
    during() {
        seconds=$1 out=$2; shift 2; : >log
        "$@" >$out 2>log & watcher=$!
        until grep -q 'this host for' log; do kill -0 $watcher || break; sleep 0.1; done
        kill -CONT $vm; sleep $seconds; kill -STOP $vm
        wait $watcher; echo status $?; cat log >&2
    }
"#;

/// A micro VM that only writes to a port, which its own process handles.
#[test]
fn samples_are_of_the_exit_that_is_handled_with_kvms_own_functions() {
    let script = "exitless probe --samples 1000000 --warm-up 5 --blocks 1 --measure pio-user >probe.txt & vm=$!; stop; \
                  during 2 now.json \
                  exitless profile --duration 2 --json --output kept --flame-graph graph.svg --folded lines; \
                  kill -9 $vm; wait $vm; sed 's/^/now /' now.json; \
                  exitless profile kept --json | sed 's/^/kept /'; \
                  exitless profile kept --reason io | sed 's/^/text /'; \
                  head -c -200 kept >cut; exitless profile cut >cut.txt; echo cut $?; \
                  grep -c '^io;' lines; grep -c '<svg' graph.svg";
    let said = bare("amd-svm", &format!("{DURING}{script}"));
    assert!(said.out.contains("status 0") && said.out.contains("cut 4"), "{}\n{}", said.out, said.err);
    let (now, kept) = (document(&said, "now "), document(&said, "kept "));
    // The emulator has no cycle counters.
    assert_eq!(now["event"], "cpu-clock");
    assert_eq!(now["losses"]["lost"], 0);
    let io = reason(&now, "io");
    let samples = io["samples"].as_u64().unwrap();
    assert!(samples > 100, "{io:#}");
    let rows = now["reasons"].as_array().unwrap().iter();
    let all: u64 = rows.map(|row| row["samples"].as_u64().unwrap()).sum();
    assert!(samples * 2 > all, "{samples} of {all}: {now:#}");
    // The functions between the exit of a port access and the process that handles it; which of them are
    // inlined depends on the build.
    let functions = functions(io);
    let on_the_way =
        |name: &str| functions.iter().any(|(function, total)| *function == name && total * 5 > samples);
    assert!(on_the_way("kvm_arch_vcpu_ioctl_run"), "{functions:?}");
    assert!(
        functions.iter().any(|(name, _)| name.contains("pio") || name.contains("io_interception")),
        "{functions:?}"
    );
    // The handling time is about the same by exits and by samples.
    let by_samples = io["sampled_ns"]["value"].as_f64().unwrap();
    let ratio = by_samples / io["on_cpu_ns"].as_f64().unwrap();
    assert!((0.3..3.0).contains(&ratio), "{ratio}: {io:#}");
    assert_eq!(kept["reasons"], now["reasons"]);
    assert!(said.out.contains("text ") && said.out.contains("in KVM"), "{}", said.out);
}

/// Firmware writes its log to a port of QEMU, with an exit for each byte, and starts over when it finds
/// nothing to boot.
#[test]
fn ports_of_a_running_vm_come_out_with_their_devices_and_these_with_their_hot_spots() {
    let qemu = "qemu-system-x86_64 -name guest -accel kvm -M pc,hpet=off -m 32 -display none -nodefaults -vga std \
                -boot reboot-timeout=500 -device isa-debugcon,iobase=0x402,chardev=c -chardev null,id=c";
    let script = format!(
        "{DURING}{qemu} >qemu.txt 2>&1 & vm=$!; stop; \
         during 3 sampled.json exitless advise --profile --duration 3 --json; \
         during 2.5 advice.json exitless advise --duration 2500ms --json; kill -9 $vm; wait $vm; \
         sed 's/^/sampled /' sampled.json; sed 's/^/advice /' advice.json; sed 's/^/qemu /' qemu.txt"
    );
    let said = run(&["lab", "run", "amd-svm", "--", "sh", "-c", &script]);
    assert_eq!(said.out.matches("status 0\n").count(), 2, "{}\n{}", said.out, said.err);
    let sampled = document(&said, "sampled ");
    for advice in [&sampled, &document(&said, "advice ")] {
        let warnings = advice["files"][0]["warnings"].to_string();
        assert!(warnings.contains("AVIC saves nothing here: the underlying hypervisor"), "{warnings}");
        let vms = advice["vms"].as_array().expect("vms");
        let vm =
            vms.iter().find(|vm| vm["name"] == "guest").unwrap_or_else(|| panic!("no guest: {advice:#}"));
        assert_eq!(vm["has_definition"], true);
        let rows = vm["rows"].as_array().expect("rows");
        let row = |device: &str| {
            rows.iter().find(|row| row["device"] == device).unwrap_or_else(|| panic!("no {device}: {vm:#}"))
        };
        for device in ["debug-port", "rtc", "pci-config", "fw-cfg"] {
            assert!(row(device)["exits"].as_u64().expect("exits") > 0, "{device}");
        }
        // SeaBIOS writes its log to the debug port; each byte is an exit.
        assert!(row("debug-port")["exits"].as_u64() > Some(100), "{vm:#}");
    }

    let devices = sampled["hot_spots"].as_array().expect("hot spots");
    let device =
        |name: &str| devices.iter().find(|one| one["name"].as_str().unwrap().to_lowercase().contains(name));
    let debug = device("debug").unwrap_or_else(|| panic!("{devices:#?}"));
    assert!(debug["samples"].as_u64() > Some(50), "{debug:#}");
    let share = |part: &str| debug["parts"][part]["value"].as_f64().unwrap_or(0.0);
    assert!(share("kvm") > 0.02 && share("monitor") > 0.02, "{debug:#}");
    let objects = debug["functions"].as_array().unwrap().iter().map(|one| one["object"].as_str().unwrap());
    assert!(objects.clone().any(|object| object == "qemu-system-x86_64"), "{debug:#}");
    assert!(objects.clone().any(|object| object.starts_with("kvm")), "{debug:#}");
}
