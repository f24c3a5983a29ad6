//! Examples of each command, for its help and its manual page.
//!
//! Tests check that each command has at least one, that the parser accepts every example, and that those with
//! `runs` work.

/// A command line and its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Example {
    /// The command line, without quotation marks: words are separated by spaces.
    pub(crate) line: &'static str,
    /// The result, in a sentence.
    pub(crate) says: &'static str,
    /// Tests run the command on any machine, in a directory with the files that it names.
    #[allow(dead_code, reason = "tests read it")]
    pub(crate) runs: bool,
}

/// An example that needs VMs, a daemon, a lab or time, or changes the host.
const fn shown(line: &'static str, says: &'static str) -> Example {
    Example { line, says, runs: false }
}

/// An example that tests run.
const fn run(line: &'static str, says: &'static str) -> Example {
    Example { line, says, runs: true }
}

/// The commands, each by its words after `exitless`, with their examples.
pub(crate) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            run("exitless self-test", "Show which commands work on this host, and what the others lack."),
            run("exitless doctor", "Examine this host and its running VMs."),
            shown("exitless stat --duration 10s", "Count the exits of all VMs for ten seconds."),
            shown("exitless prove --lab intel-apicv", "Measure in an emulated host, without the hardware."),
        ],
    ),
    (
        "doctor",
        &[
            run("exitless doctor", "Examine this host and its running VMs."),
            shown("exitless doctor --vm web", "Examine the host and one VM."),
            run("exitless doctor --root host.tar.zst", "Judge another host by its snapshot."),
            run(
                "exitless doctor --baseline host.tar.zst",
                "Also show what changed since a snapshot of this host.",
            ),
            run("exitless --verbose doctor --json", "Print all findings as JSON."),
        ],
    ),
    (
        "self-test",
        &[
            run(
                "exitless self-test",
                "Show which commands work for this user on this host, and why others do not.",
            ),
            run(
                "exitless self-test --verbose",
                "Also show the capabilities, and the lines of setcap and systemd.",
            ),
            run("exitless self-test stat record", "Look only at two commands."),
            run("exitless self-test --json", "Print the same as JSON."),
        ],
    ),
    (
        "prove",
        &[
            shown("exitless prove", "Measure both arms on this host's /dev/kvm, and write exitless-report/."),
            shown("exitless prove --lab amd-avic", "Measure in an emulated AMD host."),
            shown("exitless prove --lab intel-apicv --switch-cycles 0", "Charge nothing for a VM exit."),
        ],
    ),
    (
        "probe",
        &[
            shown("exitless probe", "Measure the cost of interrupts and exits in this host's present state."),
            shown("exitless probe --arm off --json", "Measure with interrupt virtualization inhibited."),
        ],
    ),
    (
        "stat",
        &[
            shown("exitless stat", "Print a table of all VMs' exits by reason each second."),
            shown("exitless stat --vm web --by vcpu,reason --count 1", "Show one table of a VM, by vCPU."),
            shown("exitless stat --by port,mmio,msr --duration 10s", "Name ports, addresses and registers."),
            shown(
                "exitless stat --threshold 50us",
                "Count the exits of each reason that took 50 µs or longer.",
            ),
            shown("exitless stat --json -- sleep 10", "Count while a command runs."),
        ],
    ),
    (
        "exporter",
        &[
            shown("exitless exporter", "Serve metrics at http://127.0.0.1:19170/metrics."),
            shown("exitless exporter --listen 192.0.2.10:19170", "Serve them to other machines."),
            shown("exitless exporter --listen unix:/run/metrics.sock", "Serve them at a UNIX socket."),
        ],
    ),
    (
        "record",
        &[
            shown("exitless record --duration 10s", "Record every exit into recording.exits."),
            shown(
                "exitless record --profile --duration 2h -o day.profile",
                "Record totals and histograms only.",
            ),
            shown("exitless record --vm web -- sleep 10", "Record a VM while a command runs."),
        ],
    ),
    (
        "top",
        &[
            shown("exitless top", "Watch the exits of all VMs; q ends it."),
            shown("exitless top --vm web --interval 500ms", "Watch one VM, twice a second."),
        ],
    ),
    (
        "verify",
        &[
            shown("exitless verify", "Show for each VM whether interrupt virtualization is active now."),
            shown("exitless verify --vm web --duration 10s", "Observe one VM for longer."),
        ],
    ),
    (
        "report",
        &[
            run("exitless report perf.data", "Show the exits by reason, as perf kvm stat report does."),
            run("exitless report before.exits --by port,msr --top 10", "Show ports and registers."),
            run("exitless report before.exits --html exits.html", "Write a page with charts too."),
            run(
                "exitless report perf.data --parquet exits.parquet",
                "Write every exit into a Parquet table.",
            ),
            run(
                "exitless report perf.data --longer-than 1ms",
                "Show the exits that took 1 ms or longer, one by one.",
            ),
        ],
    ),
    (
        "predict",
        &[
            run("exitless predict perf.data", "Predict which exits of a recording would go away."),
            shown("exitless predict --duration 10s", "Observe this host instead."),
            run("exitless predict perf.data --for x2avic --json", "Predict for AMD's x2AVIC."),
        ],
    ),
    (
        "advise",
        &[
            shown("exitless advise", "Observe this host for 10 s, and name the devices that cause exits."),
            shown("exitless advise --idle --budget 50", "Find what wakes VMs that should be idle."),
            run(
                "exitless advise perf.data --definition web.xml",
                "Use a recording, and the VM's definition.",
            ),
        ],
    ),
    (
        "profile",
        &[
            shown("exitless profile --duration 30s", "Sample the host's work during exits."),
            shown("exitless profile --vm web --flame-graph exits.svg", "Draw a flame graph of one VM."),
            run(
                "exitless profile perf.data --guest-symbols System.map",
                "Show the guest's code at recorded exits.",
            ),
        ],
    ),
    (
        "timeline",
        &[
            run("exitless timeline perf.data", "Draw the rate of exits over time."),
            run("exitless timeline perf.data --by vm --share", "Draw the share of time that handling took."),
        ],
    ),
    (
        "diff",
        &[
            run("exitless diff before.exits after.exits", "Compare two recordings."),
            run(
                "exitless diff before.exits after.exits --sort rate --json",
                "Sort by the change of the rate.",
            ),
            shown(
                "exitless diff a1.exits,a2.exits b1.exits,b2.exits",
                "Compare sets of recordings, with intervals.",
            ),
        ],
    ),
    (
        "vms",
        &[
            run("exitless vms", "List the VMs that run here."),
            run("exitless vms --statistics --interval 1s", "Show KVM's counters over a second."),
        ],
    ),
    (
        "vm",
        &[
            run("exitless vm lint web.xml", "Check a definition."),
            run("exitless vm fix web.xml", "Show the fixes."),
        ],
    ),
    (
        "vm lint",
        &[
            run("exitless vm lint web.xml --for amd", "Check a definition for AMD hosts."),
            shown("exitless vm lint libvirt:web", "Check a domain of libvirt."),
            run("exitless vm lint web.sh --json", "Check a script that starts QEMU."),
        ],
    ),
    (
        "vm fix",
        &[
            run("exitless vm fix web.xml", "Show the changes as a diff."),
            run("exitless vm fix web.xml --apply", "Write them into the file."),
            shown(
                "exitless vm fix libvirt:web --all --apply",
                "Define the domain anew, also where the guest must change.",
            ),
        ],
    ),
    (
        "enable",
        &[
            run("exitless enable", "Show the steps, and change nothing."),
            shown("exitless enable --reload --apply", "Switch it on now, until the next boot."),
            shown("exitless enable --persist --apply", "Switch it on from the next boot."),
        ],
    ),
    (
        "disable",
        &[
            run("exitless disable", "Show the steps."),
            shown("exitless disable --reload --apply", "Switch it off now."),
        ],
    ),
    (
        "restore",
        &[
            run("exitless restore --list", "List the changes in the journal."),
            run("exitless restore --dry-run", "Show what would be undone."),
            shown("exitless restore", "Undo the changes, the newest first."),
        ],
    ),
    (
        "snapshot",
        &[
            run("exitless snapshot host.tar.zst", "Save the facts about this host."),
            run("exitless doctor --root host.tar.zst", "Judge it elsewhere."),
        ],
    ),
    (
        "collect-script",
        &[
            run("exitless collect-script", "Print the script; redirect it into a file, collect.sh."),
            shown("exitless doctor --root host.tar", "Judge the host where `sh collect.sh > host.tar` ran."),
        ],
    ),
    (
        "trace",
        &[
            shown("exitless trace", "Show inhibit changes and other rare events until Ctrl-C."),
            shown(
                "exitless trace --vm web --duration 1min --json",
                "Print those of a VM as JSON, for a minute.",
            ),
            shown(
                "exitless trace --longer-than 50us --vm web",
                "Show a VM's exits that take 50 µs or longer, and what the host did meanwhile.",
            ),
        ],
    ),
    (
        "experiment",
        &[
            run("exitless experiment list", "List the plans that come with exitless."),
            shown("exitless experiment run iozone-apicv", "Run one of them on this host."),
        ],
    ),
    (
        "experiment check",
        &[
            run("exitless experiment check iozone-apicv", "Check a plan, and what this host lacks for it."),
            run("exitless experiment check --schema", "Print the JSON Schema of plans."),
        ],
    ),
    ("experiment list", &[run("exitless experiment list", "List the plans that come with exitless.")]),
    (
        "experiment run",
        &[
            shown("exitless experiment run iozone-apicv --output result", "Run a shipped plan on this host."),
            shown(
                "exitless experiment run plan.toml --target ssh://root@host",
                "Run a plan on another host.",
            ),
            shown("exitless experiment run sysbench-avic-lab --target lab:amd-avic", "Run a plan in a lab."),
        ],
    ),
    (
        "experiment report",
        &[
            shown("exitless experiment report result", "Show the effects, and write result/report.html."),
            shown("exitless experiment report result --csv", "Print every comparison as CSV."),
        ],
    ),
    (
        "experiment diff",
        &[
            shown("exitless experiment diff january february", "Compare two results of the same plan."),
            shown(
                "exitless experiment diff off1,off2,off3 on1,on2,on3",
                "Compare three boots with three others.",
            ),
        ],
    ),
    (
        "tune",
        &[
            run("exitless tune tune-advised --dry-run", "Show the steps."),
            shown("exitless tune tune-old-guest-lab --target lab:intel-apicv", "Try them in a lab."),
            shown("exitless tune tune-advised --definition web.xml", "Tune a copy of a definition."),
        ],
    ),
    (
        "iocm",
        &[
            shown("exitless iocm serve --config /etc/exitless/iocm.toml", "Serve the devices of a file."),
            shown("exitless iocm watch", "Watch the rates of a running daemon."),
        ],
    ),
    (
        "iocm serve",
        &[
            shown("exitless iocm serve --config /etc/exitless/iocm.toml", "Serve the devices of a file."),
            shown("exitless iocm serve --config iocm.toml --every 10s", "Also print counters as JSON."),
            shown("exitless iocm serve --config iocm.toml --check", "Check the file before a restart."),
        ],
    ),
    (
        "iocm device",
        &[
            shown(
                "exitless iocm device --socket-path /run/disk.sock --blk-file disk.raw",
                "Serve a disk to the front-end that connects to a socket.",
            ),
            shown("exitless iocm device --fd 3 --tap tap0", "Serve a network device on an inherited socket."),
            run("exitless iocm device --type block --print-capabilities", "Show what the back-end supports."),
        ],
    ),
    (
        "iocm ls",
        &[
            shown("exitless iocm ls", "List the root of the control tree."),
            shown("exitless iocm ls w.0 --json", "List a worker."),
        ],
    ),
    ("iocm get", &[shown("exitless iocm get w.0/load d.0", "Read an attribute, and all of a device.")]),
    ("iocm set", &[shown("exitless iocm set w.0/cpu 3", "Move a worker to CPU 3.")]),
    ("iocm create", &[shown("exitless iocm create workers", "Add an I/O worker.")]),
    (
        "iocm remove",
        &[shown("exitless iocm remove w.1", "Remove a worker; its queues move to others first.")],
    ),
    ("iocm move", &[shown("exitless iocm move d.0 w.1", "Let another worker serve a device's queues.")]),
    ("iocm watch", &[shown("exitless iocm watch --every 5s --count 12", "Show the rates for a minute.")]),
    (
        "iocm monitor",
        &[
            shown(
                "exitless iocm monitor --cores 2-7",
                "Let the daemon's I/O cores follow the load, on CPUs 2 to 7.",
            ),
            shown("exitless iocm monitor --vhost", "Show decisions for the kernel's vhost threads."),
            shown(
                "exitless iocm monitor --vhost --apply",
                "Place them, and restore their places at the end.",
            ),
        ],
    ),
    ("iocm status", &[shown("exitless iocm status", "Show I/O cores, their load, and the last decision.")]),
    (
        "iocm simulate",
        &[
            run("exitless iocm simulate --made diurnal --devices 8 --cores 4", "Replay a synthetic load."),
            shown("exitless iocm simulate load.trace --report policy.html", "Replay a recorded load."),
        ],
    ),
    (
        "iocm report",
        &[shown("exitless iocm report dynamic-load.json", "Make a page of the bench's results.")],
    ),
    (
        "guest",
        &[
            shown("exitless guest build", "Build the image of guests."),
            shown("exitless guest run -- uname -r", "Run a script in one guest."),
        ],
    ),
    ("guest build", &[shown("exitless guest build", "Build the image from which guests of studies start.")]),
    (
        "guest run",
        &[
            shown("exitless guest run -- uname -r", "Run a script in one guest."),
            shown(
                "exitless guest run --count 2 --set vcpus=2 -- nproc",
                "Run it in two guests of two vCPUs.",
            ),
        ],
    ),
    (
        "load",
        &[shown(
            "exitless load http --rate 100 http://192.0.2.7:8080/document",
            "Send 100 requests a second.",
        )],
    ),
    (
        "load http",
        &[
            shown(
                "exitless load http --rate 100 http://192.0.2.7:8080/document",
                "Send 100 requests a second.",
            ),
            shown(
                "exitless load http --rate 5000 --connections 64 --duration 1min http://192.0.2.7/",
                "Use 64 connections, for a minute.",
            ),
        ],
    ),
    (
        "load mqtt",
        &[shown(
            "exitless load mqtt --rate 600 --subscribers 4 192.0.2.7:1883",
            "Publish 600 messages a second.",
        )],
    ),
    (
        "lab",
        &[
            run("exitless lab list", "List the labs."),
            shown("exitless lab run intel-apicv -- exitless verify", "Run a command in an emulated host."),
        ],
    ),
    ("lab list", &[run("exitless lab list", "List the labs, and what they need.")]),
    ("lab kernels", &[run("exitless lab kernels", "List the kernels that labs can boot.")]),
    ("lab build", &[shown("exitless lab build intel-apicv", "Build a lab, before it is needed.")]),
    (
        "lab run",
        &[
            shown("exitless lab run intel-apicv -- exitless doctor", "Run a command in an emulated host."),
            shown("exitless lab run amd-svm --put plan.toml -- cat plan.toml", "Copy a file in first."),
            shown(
                "exitless lab run amd-avic --kernel 5.10 -- exitless verify",
                "Boot an older kernel of Debian's.",
            ),
        ],
    ),
    ("lab shell", &[shown("exitless lab shell xen", "Open a shell in dom0 of an emulated Xen host.")]),
    (
        "lab switch-cycles",
        &[shown(
            "exitless lab run amd-svm -- exitless lab switch-cycles 1350",
            "Charge 1,350 cycles an exit, inside.",
        )],
    ),
    ("lab clean", &[shown("exitless lab clean", "Remove labs and snapshots from the cache.")]),
];
