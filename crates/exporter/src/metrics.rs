//! The metric families, each with its help, unit and labels.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conclusions::activation::Status;
use doctor::Tally;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Histogram, Info};
use prometheus_client::registry::{Registry, Unit};

use crate::io_workers::{Cpu, Device, IoWorkers};
use crate::named::Names;
use crate::totals::{BOUNDS_NS, Totals, VmIdentity};

/// Interrupt virtualization of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The verdict of `verify`.
    pub status: Status,
    /// Names of the inhibit reasons in force.
    pub reasons: Vec<String>,
}

/// Halt polling of a VM's vCPUs: KVM polls for a while when a vCPU halts, before it gives the CPU away
/// (Documentation/virt/kvm/halt-polling.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HaltPolling {
    /// Polls.
    pub attempted: u64,
    /// The polls during which the vCPU was woken.
    pub successful: u64,
    /// The time spent in successful polls.
    pub success_ns: u64,
    /// The time spent in failed polls, after which the vCPU slept.
    pub fail_ns: u64,
}

/// The facts of a VM from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmHost {
    /// Its VMM, in lower case.
    pub vmm: &'static str,
    /// Further names: label and value.
    pub names: Names,
    /// The number of its vCPUs.
    pub vcpus: usize,
    /// The CPU time of its vCPU threads, including time in the guest; `None` if it is not known of any of them.
    pub ran_ns: Option<u64>,
    /// The time for which its vCPU threads were runnable but waited for a CPU; `None` likewise.
    pub waited_ns: Option<u64>,
    /// `None` if debugfs cannot be read.
    pub halt_polling: Option<HaltPolling>,
    /// `None` until it is known.
    pub state: Option<State>,
}

/// The cost of the exporter itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OwnCost {
    /// The CPU time of this process.
    pub cpu_seconds: f64,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// The time that the last collection took.
    pub collection_seconds: f64,
}

/// Everything that one answer says.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The exits.
    pub totals: Arc<Totals>,
    /// The running VMs that have series of their own.
    pub vms: BTreeMap<VmIdentity, VmHost>,
    /// The number of further running VMs.
    pub other_vms: usize,
    /// The daemon of I/O workers; `None` without one.
    pub io_workers: Option<IoWorkers>,
    /// The findings of `doctor`; `None` until they are known.
    pub findings: Option<Tally>,
    /// The cost of the exporter.
    pub own: OwnCost,
    /// The version of the program.
    pub version: &'static str,
}

/// The answer in OpenMetrics' text format, which ends with `# EOF`.
#[must_use]
pub fn text(host: Host) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(host)));
    let mut text = String::new();
    // Writing to a string cannot fail.
    encode(&mut text, &registry).unwrap_or_default();
    text
}

/// An answer of [`text`] in Prometheus' text format 0.0.4, for those who do not read OpenMetrics
/// (prometheus.io/docs/instrumenting/exposition_formats). Samples are the same. Families have the names of their
/// samples; there are neither units nor the type info, and nothing ends the text.
pub(crate) fn plain(openmetrics: &str) -> String {
    let mut plain = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some((_, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = text;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            plain.extend(["# HELP ", name, suffix, " ", help, "\n# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            plain.extend([line, "\n"]);
        }
    }
    plain
}

#[derive(Debug)]
struct Families(Host);

type Labels<'a> = Vec<(&'static str, &'a str)>;
/// Name, help, unit and value.
type DeviceCounter<'a> = (&'a str, &'a str, Option<&'a Unit>, fn(&Device) -> f64);

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(host) = self;
        let mut out = Out(encoder);
        let processes: BTreeMap<&VmIdentity, String> =
            host.vms.keys().chain(host.totals.vms.keys()).map(|vm| (vm, vm.process.to_string())).collect();
        let labels = |vm: &VmIdentity| -> Labels<'_> {
            let (vm, process) = processes.get_key_value(vm).map_or(("", ""), |(vm, id)| (&vm.name, id));
            vec![("vm", vm), ("pid", process)]
        };
        out.exits(host, &labels)?;
        out.vms(host, &labels)?;
        out.halt_polling(host, &labels)?;
        out.io_workers(host.io_workers.as_ref().unwrap_or(&IoWorkers::default()))?;
        out.rest(host)
    }
}

/// Nanoseconds as seconds, the base unit of time.
fn seconds(ns: impl Into<u128>) -> f64 {
    let ns: u128 = ns.into();
    ns as f64 / 1e9
}

/// Writes families of one value for each set of labels.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &'s str,
        unit: Option<&'s Unit>,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, unit, kind)
    }

    /// Writes a family of counters or of gauges.
    fn values<'a>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        let counts = matches!(kind, Counter);
        let mut family = self.family(name, help, unit, kind)?;
        for (labels, value) in values {
            let mut one = family.encode_family(&labels)?;
            match counts {
                true => one.encode_counter::<Labels<'_>, _, f64>(&value, None)?,
                false => one.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn exits<'a>(&mut self, host: &'a Host, labels: &impl Fn(&'a VmIdentity) -> Labels<'a>) -> fmt::Result {
        let series = || {
            host.totals.vms.iter().flat_map(|(vm, totals)| {
                let of = move |reason: &'a String| {
                    let mut labels = labels(vm);
                    labels.push(("reason", reason));
                    labels
                };
                totals.reasons.iter().map(move |(reason, sum)| (of(reason), *sum))
            })
        };
        let counts = series().map(|(labels, sum)| (labels, sum.count as f64));
        self.values(Counter, "exitless_exits", "VM exits", None, counts)?;
        let times = series().map(|(labels, sum)| (labels, seconds(sum.handling_ns)));
        let help = "Time from exits to the next entry of the same vCPU; of HLT, the guest's idle time";
        self.values(Counter, "exitless_exit_handling", help, Some(&Unit::Seconds), times)?;
        let help = "Time from an exit to the next entry, without exits of HLT";
        let mut family = self.family("exitless_exit_duration", help, Some(&Unit::Seconds), Histogram)?;
        for (vm, totals) in &host.totals.vms {
            let bounds = BOUNDS_NS.iter().map(|&bound| seconds(bound)).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(totals.times.buckets).collect();
            let labels = labels(vm);
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<Labels<'_>>(
                seconds(totals.times.total_ns),
                totals.times.count,
                &buckets,
                None,
            )?;
        }
        let alone = |value: u64| [(Labels::new(), value as f64)].into_iter();
        let help = "VM exits that could not be counted";
        self.values(Counter, "exitless_lost_exits", help, None, alone(host.totals.lost))?;
        let help = "VM exits counted as those of VM other because the kernel's maps were full";
        self.values(Counter, "exitless_exits_without_vm", help, None, alone(host.totals.without_vcpu))?;
        let help = "Collections that failed, whose VM exits are missing";
        self.values(Counter, "exitless_failed_collections", help, None, alone(host.totals.failed))
    }

    fn vms<'a>(&mut self, host: &'a Host, labels: &impl Fn(&'a VmIdentity) -> Labels<'a>) -> fmt::Result {
        let series = |value: fn(&VmHost) -> Option<f64>| {
            host.vms.iter().filter_map(move |(vm, facts)| Some((labels(vm), value(facts)?)))
        };
        let vcpus = series(|vm| Some(vm.vcpus as f64));
        self.values(Gauge, "exitless_vm_vcpus", "vCPUs of a VM", None, vcpus)?;
        let help = "Time of vCPUs on a CPU, the guest's included";
        let ran = series(|vm| vm.ran_ns.map(seconds));
        self.values(Counter, "exitless_vcpu_run", help, Some(&Unit::Seconds), ran)?;
        let help = "Time in which vCPUs were runnable and waited for a CPU";
        let waited = series(|vm| vm.waited_ns.map(seconds));
        self.values(Counter, "exitless_vcpu_wait", help, Some(&Unit::Seconds), waited)?;
        let infos = host.vms.iter().map(|(vm, facts)| {
            let mut labels = labels(vm);
            labels.push(("vmm", facts.vmm));
            labels.extend(facts.names.iter().map(|(label, name)| (*label, name.as_str())));
            labels
        });
        let mut family = self.family(
            "exitless_vm",
            "The VMM of a VM, the program that made it, and its names there",
            None,
            Info,
        )?;
        for labels in infos {
            family.encode_info(&labels)?;
        }
        let known = || host.vms.iter().filter_map(|(vm, facts)| Some((vm, facts.state.as_ref()?)));
        let states = known().flat_map(|(vm, state)| {
            STATES.iter().map(move |(name, status)| {
                let mut labels = labels(vm);
                labels.push(("state", name));
                (labels, f64::from(u8::from(state.status == *status)))
            })
        });
        let help = "State of APICv or AVIC for a VM: one of the states is 1";
        self.values(Gauge, "exitless_interrupt_virtualization", help, None, states)?;
        let inhibits = known().flat_map(|(vm, state)| {
            state.reasons.iter().map(move |reason| {
                let mut labels = labels(vm);
                labels.push(("reason", reason));
                (labels, 1.0)
            })
        });
        let help = "Reasons in force for which KVM inhibits APICv or AVIC";
        self.values(Gauge, "exitless_inhibit_reason", help, None, inhibits)
    }

    fn halt_polling<'a>(
        &mut self,
        host: &'a Host,
        labels: &impl Fn(&'a VmIdentity) -> Labels<'a>,
    ) -> fmt::Result {
        let known = host.vms.iter().filter_map(|(vm, facts)| Some((vm, facts.halt_polling?)));
        let series = |value: fn(&HaltPolling) -> [f64; 2]| {
            known.clone().flat_map(move |(vm, polling)| {
                ["successful", "failed"].into_iter().zip(value(&polling)).map(move |(result, value)| {
                    let mut labels = labels(vm);
                    labels.push(("result", result));
                    (labels, value)
                })
            })
        };
        let polls = series(|of| [of.successful as f64, of.attempted.saturating_sub(of.successful) as f64]);
        let help = "Polls of KVM for halted vCPUs; a failed one ends in sleep";
        self.values(Counter, "exitless_halt_polls", help, None, polls)?;
        let times = series(|of| [seconds(of.success_ns), seconds(of.fail_ns)]);
        let help = "Time of these polls";
        self.values(Counter, "exitless_halt_poll", help, Some(&Unit::Seconds), times)
    }

    fn io_workers(&mut self, daemon: &IoWorkers) -> fmt::Result {
        let workers = |value: fn(&Cpu) -> f64| {
            daemon.cpus.iter().map(move |(cpu, one)| (vec![("cpu", cpu.as_str())], value(one)))
        };
        let help = "Time of I/O workers on requests";
        let busy = workers(|one| one.counts.busy_seconds);
        self.values(Counter, "exitless_iocm_worker_busy", help, Some(&Unit::Seconds), busy)?;
        let help = "Time in which I/O workers were awake";
        let awake = workers(|one| one.counts.awake_seconds);
        self.values(Counter, "exitless_iocm_worker_awake", help, Some(&Unit::Seconds), awake)?;
        let sleeps = workers(|one| one.counts.sleeps);
        self.values(Counter, "exitless_iocm_worker_sleeps", "Sleeps of I/O workers", None, sleeps)?;
        let queues = workers(|one| one.queues);
        self.values(Gauge, "exitless_iocm_worker_queues", "Virtqueues of I/O workers", None, queues)?;
        let devices = |value: fn(&Device) -> f64| {
            daemon.devices.iter().map(move |one| {
                (vec![("device", one.device.as_str()), ("name", one.name.as_str())], value(one))
            })
        };
        let counters: [DeviceCounter<'_>; 5] = [
            ("exitless_iocm_device_requests", "Requests to devices of I/O workers", None, |one| one.requests),
            ("exitless_iocm_device_data", "Data of these requests", Some(&Unit::Bytes), |one| one.bytes),
            ("exitless_iocm_device_errors", "Requests that failed", None, |one| one.errors),
            ("exitless_iocm_device_kicks", "Available buffer notifications of guests", None, |one| one.kicks),
            ("exitless_iocm_device_calls", "Used buffer notifications to guests", None, |one| one.calls),
        ];
        for (name, help, unit, value) in counters {
            self.values(Counter, name, help, unit, devices(value))?;
        }
        let help = "Requests in flight";
        self.values(Gauge, "exitless_iocm_device_in_flight", help, None, devices(|one| one.in_flight))?;
        let mut family =
            self.family("exitless_iocm_device", "The VM that is connected to a device", None, Info)?;
        for one in &daemon.devices {
            family.encode_info(&[("device", &one.device), ("name", &one.name), ("vm", &one.vm)])?;
        }
        Ok(())
    }

    fn rest(&mut self, host: &Host) -> fmt::Result {
        let findings = host.findings.iter().flat_map(|tally| {
            let by_state =
                [("fail", tally.fail), ("warn", tally.warn), ("pass", tally.pass), ("skip", tally.skip)];
            by_state.map(|(state, count)| (vec![("state", state)], count as f64))
        });
        self.values(Gauge, "exitless_doctor_findings", "Findings of exitless doctor", None, findings)?;
        let alone = |value: f64| [(Labels::new(), value)].into_iter();
        let help = "Running VMs without series of their own";
        self.values(Gauge, "exitless_other_vms", help, None, alone(host.other_vms as f64))?;
        let help = "Devices of I/O workers without series of their own";
        let others = host.io_workers.iter().map(|daemon| (Labels::new(), daemon.other_devices as f64));
        self.values(Gauge, "exitless_iocm_other_devices", help, None, others)?;
        let help = "CPU time of the exporter";
        self.values(Counter, "process_cpu", help, Some(&Unit::Seconds), alone(host.own.cpu_seconds))?;
        let help = "Resident memory of the exporter";
        let memory = alone(host.own.resident_bytes as f64);
        self.values(Gauge, "process_resident_memory", help, Some(&Unit::Bytes), memory)?;
        let help = "Time that the last collection took";
        let time = alone(host.own.collection_seconds);
        self.values(Gauge, "exitless_collection", help, Some(&Unit::Seconds), time)?;
        let mut family = self.family("exitless_build", "The version of exitless", None, Info)?;
        family.encode_info(&[("version", host.version)])
    }
}

/// The states, as `verify --json` names them.
const STATES: [(&str, Status); 4] = [
    ("active", Status::Active),
    ("partly", Status::Partly),
    ("inhibited", Status::Inhibited),
    ("unknown", Status::Unknown),
];

#[cfg(test)]
mod tests {
    use super::*;
    use exits::{ExitReason, Profile, Vcpu};
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    fn vm(name: &str, process: u32) -> VmIdentity {
        VmIdentity { name: name.to_owned(), process, start_ticks: 1 }
    }

    fn host() -> Host {
        let web = vm("web\n\"1\\", 71);
        let mut profile = Profile::new();
        let exits = profile.vcpu(Vcpu { vm: Some(71), number: Some(0), thread: Some(72) });
        let cpuid = exits.reasons.entry(ExitReason::vmx(10)).or_default();
        cpuid.count = 2;
        cpuid.handling.add(1_500);
        profile.losses.lost_exits = 3;
        profile.losses.exits_without_vcpu = 5;
        let mut totals = Totals::default();
        totals.add(&profile, &[(71, web.clone())].into());
        let state = State { status: Status::Inhibited, reasons: vec!["pit_reinj".to_owned()] };
        let polling = HaltPolling { attempted: 10, successful: 4, success_ns: 40_000, fail_ns: 1_200_000 };
        let facts = VmHost {
            vmm: "qemu",
            names: vec![("vmid", "100".to_owned())],
            vcpus: 1,
            ran_ns: Some(2_500_000_000),
            waited_ns: Some(1_000_000),
            halt_polling: Some(polling),
            state: Some(state),
        };
        let daemon = json!({
            "ticks_per_second": 1000,
            "workers": { "w.0": {
                "cpu": "2",
                "queues": ["vq.0.0"],
                "statistics": { "useful_ticks": 1500, "awake_ticks": 2500, "sleeps": 3 },
            } },
            "devices": { "d.0": { "name": "disk", "vm": "web", "statistics": {
                "requests": 9, "bytes": 36864, "errors": 1, "kicks": 5, "calls": 6, "in_flight": 2,
            } } },
        });
        let mut io_workers = IoWorkers::default();
        // Without workers, so that those of the next answer are new.
        io_workers.add(&json!({}));
        io_workers.add(&daemon);
        Host {
            totals: Arc::new(totals),
            vms: [(web, facts)].into(),
            other_vms: 0,
            io_workers: Some(io_workers),
            findings: Some(Tally { fail: 1, warn: 2, pass: 3, skip: 4 }),
            own: OwnCost { cpu_seconds: 0.25, resident_bytes: 1 << 20, collection_seconds: 0.001 },
            version: "0.0.0",
        }
    }

    #[test]
    fn a_host_as_prometheus_reads_it() {
        insta::assert_snapshot!(text(host()));
    }

    #[test]
    fn a_host_in_prometheus_own_text_format() {
        let openmetrics = text(host());
        let plain = plain(&openmetrics);
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&plain), samples(&openmetrics));
        let comments: Vec<&str> = plain.lines().filter(|line| line.starts_with('#')).collect();
        for pair in comments.chunks(2) {
            let name = |line: &str, keyword: &str| {
                let rest = line.strip_prefix(keyword).unwrap_or_else(|| panic!("{pair:?}"));
                rest.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.to_owned())).unwrap()
            };
            let (helped, _) = name(pair[0], "# HELP ");
            let (typed, kind) = name(pair[1], "# TYPE ");
            assert_eq!(helped, typed);
            assert!(["counter", "gauge", "histogram"].contains(&kind.as_str()), "{typed}: {kind}");
            assert_eq!(kind == "counter", typed.ends_with("_total"), "{typed}: {kind}");
            // Each family has a sample, whose name is its own unless it is a histogram.
            let named =
                if kind == "histogram" { format!("\n{typed}_bucket{{") } else { format!("\n{typed}") };
            assert!(plain.contains(&named), "{typed}");
        }
        let help = "# HELP exitless_vm_info The VMM of a VM, the program that made it, and its names there\n\
                    # TYPE exitless_vm_info gauge\nexitless_vm_info{vm=";
        assert!(plain.contains(help), "{plain}");
    }

    /// promtool reads text format 0.0.4 as the programs do that do not read OpenMetrics.
    #[test]
    fn promtool_finds_no_mistake_in_prometheus_own_text_format() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let Ok(mut promtool) = promtool.spawn() else {
            println!("not tested: there is no promtool on PATH; Debian's package prometheus has it");
            return;
        };
        promtool.stdin.take().unwrap().write_all(plain(&text(host())).as_bytes()).unwrap();
        let said = promtool.wait_with_output().unwrap();
        assert!(said.status.success(), "{said:?}");
    }

    #[test]
    fn the_alert_rules_and_the_dashboard_name_metrics_that_there_are() {
        name_what_there_is(include_str!("../../../packaging/prometheus/exitless.rules.yml"));
        name_what_there_is(include_str!("../../../packaging/grafana/exitless.json"));
    }

    fn metrics(file: &str) -> impl Iterator<Item = &str> {
        let words = file.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("exitless_"))
    }

    fn name_what_there_is(file: &str) {
        let written = text(host());
        assert!(metrics(file).count() >= 5, "{file}");
        for name in metrics(file) {
            assert!(written.contains(&format!("\n{name}")), "{name}");
        }
    }

    #[test]
    fn the_test_of_the_rules_has_just_the_metrics_of_the_rules() {
        let rules = include_str!("../../../packaging/prometheus/exitless.rules.yml");
        let test = include_str!("../../../packaging/prometheus/exitless.rules.test.yml");
        let series = test.lines().filter(|line| line.contains("- series:")).flat_map(metrics);
        assert_eq!(series.collect::<BTreeSet<_>>(), metrics(rules).collect());
    }

    /// The samples of `text` as input series of promtool. Counters increase by their value at each scrape.
    fn series(text: &str) -> Vec<Value> {
        let mut counts = false;
        let mut series = Vec::new();
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                counts = kind.ends_with(" counter") || kind.ends_with(" histogram");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let name = match name.strip_suffix('}') {
                    Some(name) => format!("{name},instance=\"a\"}}"),
                    None => format!("{name}{{instance=\"a\"}}"),
                };
                let step = if counts { value } else { "0" };
                series.push(json!({ "series": name, "values": format!("{value}+{step}x40") }));
            }
        }
        series
    }

    /// The queries of a dashboard's panels, with the variables' values for all hosts and VMs.
    fn queries(dashboard: &Value) -> Vec<String> {
        let variable = |name: &str| {
            let all = dashboard["templating"]["list"].as_array().unwrap();
            let one = all.iter().find(|one| one["name"] == name).unwrap();
            one["allValue"].as_str().unwrap().to_owned()
        };
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
        let filled = |query: &str| {
            let query = query.replace("$instance", &variable("instance")).replace("$vm", &variable("vm"));
            query.replace("$__rate_interval", "1m").replace("$__range", "5m")
        };
        targets.map(|target| filled(target["expr"].as_str().unwrap())).collect()
    }

    /// Checks with promtool that each query of the dashboard has a result, and that the alerts pass their test.
    #[test]
    fn prometheus_answers_every_query_of_the_dashboard() {
        use std::process::Command;
        if Command::new("promtool").arg("--version").output().is_err() {
            println!("not tested: there is no promtool on PATH; Debian's package prometheus has it");
            return;
        }
        let dashboard =
            serde_json::from_str(include_str!("../../../packaging/grafana/exitless.json")).unwrap();
        let queries = queries(&dashboard);
        assert!(queries.len() >= 15 && queries.iter().all(|query| !query.contains('$')), "{queries:?}");
        let has_answer = |query: &String| {
            // The comparison excludes NaN.
            let expression = format!("count(({query}) >= 0) > bool 0");
            json!({ "expr": expression, "eval_time": "5m", "exp_samples": [{ "labels": "{}", "value": 1 }] })
        };
        let test = json!({
            "interval": "15s", "input_series": series(&text(host())),
            "promql_expr_test": queries.iter().map(has_answer).collect::<Vec<_>>(),
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dashboard.yml");
        std::fs::write(&file, json!({ "evaluation_interval": "15s", "tests": [test] }).to_string()).unwrap();
        let alerts =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/exitless.rules.test.yml");
        for file in [file.as_path(), std::path::Path::new(alerts)] {
            let said = Command::new("promtool").args(["test", "rules"]).arg(file).output().unwrap();
            let said = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(
                said[0].contains("SUCCESS") && !said.concat().contains("FAILED"),
                "{}{}",
                said[0],
                said[1]
            );
        }
    }

    #[test]
    fn a_host_without_vms_is_an_answer_too() {
        let text = text(Host::default());
        assert!(text.ends_with("# EOF\n") && text.contains("\nexitless_lost_exits_total 0"), "{text}");
    }
}
