//! Bochs with APICv: properties that hold with any correct KVM.

use crate::arms::{exits, measure, median, near};
use crate::command::{bare, probe_with, run};

#[test]
fn apicv_takes_away_the_exits_of_interrupts_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let said = run(&["prove", "--lab", "intel-apicv", "--json", "--timings", "--output", output]);
    assert_eq!(said.status, 0, "{}", said.err);
    let result = said.json();
    eprintln!("{}\n{}", result["verdict"], said.err);

    // One VM measured both arms; an inhibit reason that the kernel reported separates them.
    assert_eq!(result["judgement"], "worth-it");
    assert_eq!(result["evidence"]["reason"], "BLOCKIRQ");
    assert!(result["evidence"]["inhibit_events"].as_u64().unwrap() >= 32, "{}", result["evidence"]);
    assert_eq!(result["evidence"]["checked"], serde_json::json!({"off": "confirmed", "on": "confirmed"}));

    // For an IPI to a running vCPU with APICv, the ICR write still exits, the EOI does not, and no kicks are
    // needed.
    let (off, on) = exits(&result, "ipi-running", "MSR_WRITE");
    assert!(near(off, 2.0) && near(on, 1.0), "MSR_WRITE an IPI: {off} off, {on} on");
    // The host's own interrupts, its timer's mostly, exit in both arms: a few in a run, however long it is.
    let (off, on) = exits(&result, "ipi-running", "EXTERNAL_INTERRUPT");
    assert!(off > 0.9 && off - on > 0.8, "EXTERNAL_INTERRUPT an IPI: {off} off, {on} on");
    assert_eq!(exits(&result, "ipi-running", "INTERRUPT_WINDOW").1, 0.0);
    assert!(median(&result, "ipi-running", "on") < 0.7 * median(&result, "ipi-running", "off"));
    let upper = measure(&result, "ipi-running")["difference"]["interval"]["high"].as_f64().unwrap();
    assert!(upper < -30.0, "{upper}");

    // An interrupt that arrives while the guest has interrupts disabled needs an interrupt window, unless its
    // delivery is virtualized.
    let (off, on) = exits(&result, "hlt", "INTERRUPT_WINDOW");
    assert!(near(off, 1.0) && on == 0.0, "INTERRUPT_WINDOW a halt: {off} off, {on} on");

    for name in ["self-ipi", "eoi"] {
        let (off, on) = exits(&result, name, "MSR_WRITE");
        assert!(near(off, 2.0) && on < 0.05, "MSR_WRITE of {name}: {off} off, {on} on");
        assert!(median(&result, name, "on") * 10.0 < median(&result, name, "off"));
    }

    // Operations that APICv does not affect take the same exits, and the same cycles within ten percent.
    for (name, reason) in [("cpuid", "CPUID"), ("msr-read", "MSR_READ"), ("mmio-user", "EPT_MISCONFIG")] {
        let (off, on) = exits(&result, name, reason);
        assert!(near(off, 1.0) && near(on, 1.0), "{reason}: {off} off, {on} on");
        let ratio = median(&result, name, "on") / median(&result, name, "off");
        assert!((0.9..1.1).contains(&ratio), "{name}: {ratio}");
    }
    assert_eq!(result["exits"]["lost"], serde_json::json!({"off": 0, "on": 0}));
}

#[test]
fn xapic_registers_are_virtualized_too_and_three_vcpus_answer() {
    let all = probe_with("intel-apicv", "xapic", "kernel", "2");
    let result = &all["result"];
    for name in ["ipi-running", "ipi-halted", "eoi", "tpr-write"] {
        assert!(median(result, name, "on") < median(result, name, "off"), "{name}");
    }
    let targets = all["recording"]["timed"].as_array().unwrap().iter();
    let mut seen: Vec<u64> = targets.filter_map(|timed| timed["run"]["target"].as_u64()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [1, 2]);
}

#[test]
fn apicv_switched_off_by_the_module_leaves_one_arm() {
    let script = "rmmod kvm_intel; insmod /exitless/modules/kvm-intel.ko enable_apicv=N; \
                  exitless probe --json --measure eoi --samples 40 --blocks 1";
    let said = bare("intel-apicv", script);
    assert_eq!(said.status, 0, "{}", said.err);
    let arms = said.json()["result"]["arms"].to_string();
    assert!(arms.contains("enable_apicv is N"), "{arms}");
}

#[test]
fn the_disk_is_there_as_well() {
    let said = run(&["lab", "run", "intel-apicv", "--", "sh", "-c", "perf --version && touch /opt/written"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.out.starts_with("perf version"), "{}", said.out);
}

/// Sets 200 timers of 60 us, each at another moment between two ticks of the keyboard's timer (150 us), and
/// waits for them without a pause. Prints how many microseconds later each signal came, including the system
/// calls: clock_gettime and setitimer.
const TIMERS: &str = r#"
my ($time, $soon) = ("\0" x 16, pack("q4", 0, 0, 0, 60));
sub now { syscall(228, 1, $time); my ($s, $ns) = unpack("q2", $time); return $s * 1e6 + $ns / 1e3 }
$SIG{ALRM} = sub { $fired = now() };
for my $n (1 .. 200) {
    my $until = now() + $n * 37 % 150;
    1 while now() < $until;
    $fired = 0;
    my $set = now();
    syscall(38, 0, $soon, 0) == 0 or die "setitimer: $!";
    1 until $fired;
    print $fired - $set - 60, "\n";
}
"#;

/// Some are later, because a tick of the kernel's came in between.
#[test]
fn a_timer_that_is_set_for_soon_comes_in_time_beside_a_busy_cpu() {
    let said = run(&["lab", "run", "intel-apicv", "--", "perl", "-e", TIMERS]);
    assert_eq!(said.status, 0, "{}", said.err);
    let mut late: Vec<f64> = said.out.lines().map(|line| line.parse().unwrap()).collect();
    late.sort_unstable_by(f64::total_cmp);
    assert_eq!(late.len(), 200, "{}", said.out);
    let (tenth, ninetieth) = (late[19], late[179]);
    assert!(ninetieth - tenth < 20.0, "{tenth} to {ninetieth} us");
}
