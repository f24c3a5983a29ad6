//! The sections that `docs/formats.md` names for a command describe every field of its JSON.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;

use iocm_monitor::{Action, Decided, Direction, Figures, Reason, State, VmExits, VmFigures};
use knobs::{Outcome, Recorded, Restored, RestoredChange};
use serde_json::{Value, to_value};
use study::analysis::synthetic::{Made, write};
use study::suite::ShippedSuite;

use super::blocks::folder;
use super::pages::{Page, book, top};
use crate::command::{command, err};
use crate::iocm_control::Served;
use crate::xen::Host;

/// The sections that describe names for all pages.
const COMMON: [&str; 2] = ["formats.md#common-names", "recordings.md#how-events-become-exits"];

/// The ends of the paths of objects whose keys are data: names of VMs, factors and modules, paths, numbers of cores. A
/// path begins with the command.
const DATA: [&str; 15] = [
    "arm",
    "arms[].levels",
    "facts",
    "iocm status.loads",
    "method.guests[]",
    "modules",
    "parameters",
    "polling",
    "profile.vms",
    "queues",
    "report.events",
    "snapshot.errors",
    "snapshot.files",
    "snapshot.owners",
    "studies[].guests",
];

fn is_data(path: &str) -> bool {
    DATA.iter().any(|end| path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Adds the path of each field below `path`, with its name.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Object(below) if !is_data(path) => {
            for (name, value) in below {
                let path = format!("{path}.{name}");
                fields(value, &path, found);
                found.insert((path, name.clone()));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// The sections that the table of formats names for a command, as targets of links.
fn sections_of(command: &str, formats: &Page) -> Vec<String> {
    let code = format!("`{command}`");
    let rows = formats.text.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|row| row.split(" | ").next().is_some_and(|what| what.contains(&code)));
    let links = rows.flat_map(|row| row.split("](").skip(1));
    let targets = links.filter_map(|link| Some(link.split_once(')')?.0));
    targets.filter(|target| target.contains(".md#")).map(str::to_owned).collect()
}

/// Finds every field of these documents, each with its command, in the command's sections.
fn check(documents: impl IntoIterator<Item = (&'static str, Value)>) {
    let book = book();
    let page = |name: &str| {
        let path = Path::new("docs").join(name);
        book.iter().find(|page| page.path == path).unwrap_or_else(|| panic!("there is no {}", path.display()))
    };
    let words = |target: &str| {
        let (name, anchor) = target.split_once('#').unwrap();
        let section = page(name).section(anchor);
        section.unwrap_or_else(|| panic!("there is no section {target}")).coded()
    };
    let common: BTreeSet<String> = COMMON.into_iter().flat_map(words).collect();
    let mut missing = BTreeSet::new();
    for (command, document) in documents {
        let sections = sections_of(command, page("formats.md"));
        assert!(!sections.is_empty(), "docs/formats.md names no section for `{command}`");
        let described: BTreeSet<String> = sections.iter().flat_map(|target| words(target)).collect();
        let mut found = BTreeSet::new();
        fields(&document, command, &mut found);
        let is_missing = |name: &str| !described.contains(name) && !common.contains(name);
        let paths = found.into_iter().filter(|(_, name)| is_missing(name)).map(|(path, _)| path);
        missing.extend(paths.map(|path| format!("{path} ({})", sections.join(", "))));
    }
    let missing: Vec<String> = missing.into_iter().collect();
    assert!(missing.is_empty(), "no section describes these fields:\n{}", missing.join("\n"));
}

/// The documents of an output: one, or one on each line.
fn parsed(name: &'static str, text: &[u8]) -> Vec<(&'static str, Value)> {
    let documents = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    documents.map(|one| (name, one.unwrap_or_else(|error| panic!("{name}: {error}")))).collect()
}

fn of_output(name: &'static str, output: &Output) -> Vec<(&'static str, Value)> {
    let documents = parsed(name, &output.stdout);
    assert!(!documents.is_empty(), "{name}: {}", err(output));
    documents
}

/// What these command lines, each with the name of its command, print in a folder.
fn printed(folder: &Path, lines: &[(&'static str, &str)]) -> Vec<(&'static str, Value)> {
    let print = |&(name, line): &(&'static str, &str)| {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let output = command(&arguments).current_dir(folder).env("XDG_CACHE_HOME", folder).output().unwrap();
        of_output(name, &output)
    };
    lines.iter().flat_map(print).collect()
}

#[test]
fn fields_about_recordings_are_described() {
    let folder = folder();
    fs::copy(top().join("fuzz/seeds/hot_spots/small"), folder.path().join("hot")).unwrap();
    let lines = [
        ("report", "report --json small.perf.data.zst lost.perf.data.zst --top 2 --threshold 50us"),
        ("report", "report --json killed.perf.data.zst --by vcpu,port"),
        ("report --longer-than", "report --json small.perf.data.zst --longer-than 5ms"),
        ("timeline", "timeline --json small.perf.data.zst --top 2"),
        ("diff", "diff --json small.perf.data.zst small61.perf.data.zst --top 3"),
        ("diff", "diff --json small.perf.data.zst vmx.perf.data.zst --by vm,vcpu --allow-unlike"),
        ("diff", "diff --json small.perf.data.zst lost.perf.data.zst --by port --allow-unlike"),
        ("predict", "predict --json vmx.perf.data.zst"),
        ("predict", "predict --json all-kvm.perf.data.zst"),
        ("advise", "advise --json qemu.perf.data.zst --idle"),
        ("advise", "advise --json qemu.perf.data.zst --profile=hot"),
        ("profile", "profile --json qemu.perf.data.zst"),
        ("profile", "profile --json hot"),
    ];
    check(printed(folder.path(), &lines));
}

#[test]
fn fields_of_live_counts_are_described() {
    let host = Host::new("qemu10-a-all");
    let stat = ["stat", "--json", "--xentrace", "./xentrace", "--", "sleep", "1"];
    let record = ["record", "--json", "-o", "own.exits", "--xentrace", "./xentrace", "--duration", "1s"];
    let mut documents = of_output("stat", &host.run(&stat));
    documents.extend(of_output("record", &host.run(&record)));
    check(documents);
}

#[test]
fn fields_about_hosts_are_described() {
    let folder = folder();
    for (name, text) in host::fake::HOSTS.iter().filter(|(name, _)| *name != "zen2") {
        host::fake::unpack(text, &folder.path().join(name)).unwrap();
    }
    let lines = [
        ("doctor", "doctor --json --root zen2"),
        ("doctor", "doctor --json --root zen4"),
        ("doctor", "doctor --json --root lockdown"),
        ("doctor", "doctor --json --root xen-dom0"),
        ("vm lint", "vm lint --json web.xml --for amd"),
        ("vm lint", "vm lint --json web.cfg --for intel"),
        ("vm fix", "vm fix --json web.xml --for amd"),
        ("vm fix", "vm fix --json web.xml --for intel --all"),
        ("enable", "enable --json --root zen2"),
        ("enable", "enable --json --root debian --persist"),
        ("enable", "enable --json --root container"),
        ("disable", "disable --json --root zen4 --persist"),
        ("snapshot", "snapshot --json copy.tar.zst --root zen2"),
        ("verify", "verify --json --duration 100ms"),
        ("vms", "vms --json"),
        ("self-test", "self-test --json stat"),
    ];
    check(printed(folder.path(), &lines));
}

#[test]
fn fields_of_the_journal_are_described() {
    let mut documents = Vec::new();
    for name in ["all", "cut"] {
        let bytes = fs::read(top().join("fuzz/seeds/journal").join(name)).unwrap();
        let recorded = Recorded::parse(Path::new("journal"), &bytes);
        documents.push(("restore", to_value(report::restore::json::kept(&recorded)).unwrap()));
        let changes = recorded.entries.into_iter();
        let failed = |entry| RestoredChange { entry, outcome: Outcome::Failed { why: String::new() } };
        let restored = Restored { changes: changes.map(failed).collect(), damage: recorded.damage };
        documents.push(("restore", to_value(report::restore::json::restored(&restored)).unwrap()));
    }
    check(documents);
}

#[test]
fn fields_of_proofs_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let plan = prove::Plan { blocks: 2, samples: 50, ..prove::Plan::full() };
    let both = prove::synthetic::recording(plan, 1);
    both.write(File::create(folder.path().join("both.json")).unwrap()).unwrap();
    let one = prove::synthetic::only_off(both, "kvm_intel has enable_apicv=N");
    one.write(File::create(folder.path().join("one.json")).unwrap()).unwrap();
    let lines = [
        ("prove", "prove --json --recording both.json --output both"),
        ("prove", "prove --json --recording one.json --output one"),
    ];
    check(printed(folder.path(), &lines));
}

#[test]
fn fields_of_studies_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = Made { counts: vec![1, 2], workloads: vec!["pread"], ..Made::default() };
    write(&at("before"), &made).unwrap();
    write(&at("after"), &Made { seed: 2, ..made.clone() }).unwrap();
    write(&at("alike"), &Made { is_aa: true, ..made }).unwrap();
    fs::create_dir(at("suite")).unwrap();
    fs::write(at("suite/suite.toml"), ShippedSuite::find("seeds").unwrap().text).unwrap();
    fs::write(at("wrong.toml"), "name = 1\n").unwrap();
    crate::experiment_run::plan(folder.path(), "echo said 7; exit 1");
    let lines = [
        ("experiment check", "experiment check --json iozone-apicv"),
        ("experiment check", "experiment check --json seeds"),
        ("experiment check", "experiment check --json wrong.toml"),
        ("experiment list", "experiment list --json"),
        ("experiment run", "experiment run --json plan.toml --output failed"),
        ("experiment report", "experiment report --json before"),
        ("experiment report", "experiment report --json alike"),
        ("experiment diff", "experiment diff --json before after"),
        ("experiment report SUITE", "experiment report --json suite"),
        ("tune", "tune --json tune-old-guest --dry-run"),
        ("tune", "tune --json tune-advised --dry-run"),
    ];
    check(printed(folder.path(), &lines));
}

#[test]
fn fields_of_labs_guests_and_loads_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let load = format!(
        "load http --json --connections 1 --rate 20 --duration 200ms http://{}/",
        server.local_addr().unwrap()
    );
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        }
    });
    let lines = [
        ("load http", &*load),
        ("lab list", "lab list --json"),
        ("lab kernels", "lab kernels --json"),
        ("guest run", "guest run --json --set kind=\"host\" -- true"),
    ];
    check(printed(folder.path(), &lines));
}

#[test]
fn fields_of_io_workers_are_described() {
    let served = Served::start("", "seccomp = \"kill\"");
    let mut documents =
        parsed("iocm watch", served.told(&["watch", "--json", "--every", "20ms", "--count", "1"]).as_bytes());
    let status = served.told(&["status", "--json", "--state", "/nowhere/state"]);
    documents.extend(parsed("iocm status", status.as_bytes()));
    let exits = Some(VmExits::default());
    let decided = Decided {
        figures: Some(Figures { exits, ..Figures::default() }),
        reason: Some(Reason::Regret { direction: Direction::More, ratio: 1.0, cores: 1, patience: 1 }),
        actions: vec![Action::Add { at: None }, Action::Move { queue: 0, to: None }],
        ..Decided::default()
    };
    documents.push(("iocm monitor", to_value(&decided).unwrap()));
    let state = State {
        figures: decided.figures,
        vms: vec![VmFigures { exits, ..VmFigures::default() }],
        decisions: [decided].into(),
        ..State::default()
    };
    documents.push(("iocm status", to_value(&state).unwrap()));
    documents.extend(printed(&top(), &[("iocm simulate", "iocm simulate --json --made steps")]));
    check(documents);
}

#[test]
fn fields_and_the_sections_for_them_are_found() {
    let text =
        "| what | form | described in |\n| tables (`report`) | JSON | [a](report.md#json), [b](man/b.7) |\n";
    let formats = Page { path: "formats.md".into(), text: text.to_owned() };
    assert_eq!(sections_of("report", &formats), ["report.md#json"]);
    assert!(sections_of("rep", &formats).is_empty());
    let text = "# A\n`a`\n\n## B\n`b`\n\n### C\n`c`\n\n## D\n`d`\n";
    let page = Page { path: "a.md".into(), text: text.to_owned() };
    let words = |anchor| page.section(anchor).map(|section| section.coded());
    assert_eq!(words("b"), Some(BTreeSet::from(["b", "c"].map(str::to_owned))));
    assert_eq!(words("d"), Some(BTreeSet::from(["d".to_owned()])));
    assert_eq!(words("e"), None);
    let document = serde_json::json!({ "rows": [{ "a": { "b": 1 } }], "events": { "kvm:kvm_exit": 1 } });
    let mut found = BTreeSet::new();
    fields(&document, "report", &mut found);
    let paths: Vec<&str> = found.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["report.events", "report.rows", "report.rows[].a", "report.rows[].a.b"]);
}
