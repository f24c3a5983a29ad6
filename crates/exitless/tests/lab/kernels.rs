//! What exitless does on each kernel that labs can boot. `make matrix` checks them all and writes the tables
//! of docs/matrix.md; the normal tests check the oldest and the newest.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::command::{LIMIT, run};

/// The script of one kernel.
const SCRIPT: &str = include_str!("kernels.sh");
const LABS: [&str; 3] = ["intel-apicv", "amd-avic", "amd-svm"];
/// The folder in which `make matrix` keeps rows, so that an interrupted run can continue.
const ROWS: &str = "EXITLESS_MATRIX";
/// The page, and the line in it after which the tables are written.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/matrix.md");
const MARK: &str = "<!-- Written by `make matrix`, to the end of the page. -->\n";

/// The headings of the columns, one for each check.
const COLUMNS: [&str; 9] = [
    "exits by perf",
    "stat",
    "stat by records",
    "record",
    "perf.data",
    "trace.dat",
    "trace",
    "verify",
    "prove: EOI",
];

/// Words of the errors if Debian's mirrors do not have a kernel any more.
const GONE: [&str; 2] = ["The Debian mirror does not have ", "have no package of Linux "];

/// A figure as evidence that a check passed, or the reason why it did not.
type Cell = Result<String, String>;

/// A kernel in a laboratory.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    lab: String,
    kernel: String,
    /// The version of Debian's package.
    version: String,
    cells: Vec<Cell>,
}

/// The folder of files that the script wrote.
struct Found(PathBuf);

impl Found {
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// The last line of an error.
    fn why(&self, name: &str) -> String {
        self.text(name).lines().rfind(|line| !line.is_empty()).unwrap_or("it said nothing").trim().to_owned()
    }

    fn json(&self, name: &str) -> Result<Value, String> {
        let said = || self.why(&format!("{}.err", name.trim_end_matches(".json")));
        serde_json::from_str(&self.text(name)).map_err(|_| said())
    }

    /// The number of exits that perf counted.
    fn exits(&self) -> Result<u64, String> {
        let text = self.text("perf.csv");
        let counted = text.lines().find(|line| line.contains("kvm:kvm_exit"));
        let counted = counted.and_then(|line| line.split(',').next()?.parse().ok());
        counted.filter(|&exits| exits > 100).ok_or_else(|| self.why("observers.err"))
    }

    /// A table of `stat`. Of two observers, the inner one prints first.
    fn stat(&self, raw: bool) -> Result<Value, String> {
        let text = self.text("stat.json");
        let mut tables = text.lines().filter(|line| line.starts_with('{'));
        let table = if raw { tables.next() } else { tables.nth(1) };
        serde_json::from_str(table.ok_or_else(|| self.why("stat.err"))?).map_err(|error| error.to_string())
    }

    /// Checks that a document has as many exits as perf counted, and lost none.
    fn same(&self, document: &Value) -> Cell {
        let (exits, lost) = (&document["totals"]["exits"], &document["totals"]["lost_events"]);
        match self.exits()? {
            all if *exits == all && *lost == 0 => Ok("the same".to_owned()),
            all => Err(format!("{exits} of {all} exits, {lost} events lost")),
        }
    }

    fn by_raw_tracepoints(&self) -> Cell {
        let table = self.stat(true)?;
        let same = self.same(&table)?;
        match table["files"][0]["warnings"][0].as_str() {
            Some(why) => Err(format!("by records, {same}. {why}")),
            None => Ok(same),
        }
    }

    /// Checks that `trace` saw as many interrupt windows as there were exits for them.
    fn windows(&self) -> Cell {
        let rows = self.stat(false)?["rows"].as_array().cloned().unwrap_or_default();
        let is_window = |row: &&Value| row["reason"] == "vintr" || row["reason"] == "INTERRUPT_WINDOW";
        let exits: u64 = rows.iter().filter(is_window).filter_map(|row| row["exits"].as_u64()).sum();
        let events = self.text("trace.out");
        let traced = events.lines().filter(|line| line.contains(r#""kind":"irq-window""#)).count();
        match traced as u64 {
            traced if traced != exits => Err(format!("{traced} of {exits} interrupt windows")),
            _ if !self.text("trace.err").contains("none lost") => Err(self.why("trace.err")),
            0 => Ok("no window, as counted".to_owned()),
            traced => Ok(format!("{traced} windows, as counted")),
        }
    }

    /// The state that `verify` read of a running VM, from KVM's memory and parameters.
    fn verified(&self) -> Cell {
        let seen = self.json("verify.json")?;
        let vm = &seen["vms"][0];
        let state = &vm["state"]["last"];
        let Some(mask) = state["inhibits"].as_u64() else {
            return Err(format!("no inhibit mask: {}", seen["missing"]));
        };
        let vcpus = state["vcpus"].as_array().map_or(0, Vec::len);
        let reasons = vm["activation"]["reasons"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<&str> = reasons.iter().filter_map(|one| one["reason"].as_str()).collect();
        let status = vm["activation"]["status"].as_str().unwrap_or("no status");
        if vcpus != 3 || status == "unknown" {
            return Err(format!("{status} for {vcpus} vCPUs"));
        }
        let said = match &reasons[..] {
            [] => format!("{status}, mask {mask:#x}"),
            reasons => format!("{status}: {}, mask {mask:#x}", reasons.join(", ")),
        };
        match seen["missing"][0]["why"].as_str() {
            Some(why) => Err(format!("{said}, without the vCPUs' controls: {why}")),
            None => Ok(said),
        }
    }

    /// The cycles of an EOI in each arm that `prove` could measure.
    fn proved(&self) -> Cell {
        let result = self.json("prove.json")?;
        let cost = &result["measures"][0]["cost"];
        let of = |arm: &str| cost[arm]["median"].as_f64();
        let why = result["arms"].as_object().and_then(|arms| arms.values().next()?["why"].as_str());
        match (of("off"), of("on"), why) {
            (Some(off), Some(on), _) => Ok(format!("{off:.0}, {on:.0}")),
            // This laboratory has no second arm, whatever the kernel is.
            (Some(off), None, Some(why)) if why.contains("kvm_amd has AVIC off") => {
                Ok(format!("{off:.0}, –"))
            }
            (Some(off), None, why) => Err(format!("{off:.0}, –: {}", why.unwrap_or("no reason"))),
            (None, Some(on), why) => Err(format!("–, {on:.0}: {}", why.unwrap_or("no reason"))),
            (None, None, _) => Err(self.why("prove.err")),
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let report = |file: &str| self.json(&format!("{file}.json")).and_then(|report| self.same(&report));
        vec![
            self.exits().map(|exits| exits.to_string()),
            self.by_raw_tracepoints(),
            self.stat(false).and_then(|table| self.same(&table)),
            report("own.exits"),
            report("perf.data"),
            report("trace.dat"),
            self.windows(),
            self.verified(),
            self.proved(),
        ]
    }
}

/// Runs all checks on one kernel.
fn check(lab: &str, kernel: &str) -> Row {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    // No other test could use the snapshot.
    let options = ["--kernel", kernel, "--boot", "--timeout", LIMIT, "--get", "out", "--output", output];
    let said = run(&[&["lab", "run", lab], &options[..], &["--", "sh", "-c", SCRIPT]].concat());
    let found = Found(folder.path().join("out"));
    let version = found.text("version");
    let version =
        version.split_once("Debian ").map_or("", |(_, rest)| rest.split(' ').next().unwrap_or(rest));
    let cells = match said.status {
        0 => found.cells(),
        // The kernel did not boot, or KVM could not be loaded.
        status => {
            let why = said.err.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
            COLUMNS.map(|_| Err(format!("the lab ended with {status}: {why}"))).to_vec()
        }
    };
    Row { lab: lab.to_owned(), kernel: kernel.to_owned(), version: version.to_owned(), cells }
}

/// The names of all kernels, from the oldest to the newest.
fn kernels() -> Vec<String> {
    let listed = run(&["lab", "kernels", "--json"]).json();
    listed.as_array().unwrap().iter().map(|kernel| kernel["name"].as_str().unwrap().to_owned()).collect()
}

fn read_as_perf_reads_it(kernel: &str) {
    let row = check("amd-svm", kernel);
    // Debian removes suites after their end of life, and in backports each kernel when the next one comes.
    let gone = |why: &&String| GONE.iter().any(|words| why.contains(words));
    if let Some(why) = row.cells[0].as_ref().err().filter(gone) {
        println!("not tested: {why}");
        return;
    }
    for (cell, column) in row.cells.iter().zip(COLUMNS) {
        // Linux 5.10 has BTF for vmlinux, but not for modules such as kvm.
        let known = kernel == "5.10" && ["stat", "verify"].contains(&column);
        match cell {
            Ok(figure) => assert!(!known, "{kernel}, {column}: {figure}"),
            Err(why) => assert!(known && why.contains("since Linux 5.11"), "{kernel}, {column}: {why}"),
        }
    }
    println!("{row:?}");
}

#[test]
fn the_oldest_kernel_is_read_as_perf_reads_it() {
    read_as_perf_reads_it(&kernels()[0]);
}

#[test]
fn the_newest_kernel_is_read_as_perf_reads_it() {
    read_as_perf_reads_it(kernels().last().unwrap());
}

#[test]
fn a_kernel_that_is_not_there_is_answered_with_those_that_are() {
    let said = run(&["lab", "run", "amd-svm", "--kernel", "4.19", "--", "true"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("\"4.19\"; known: 5.10, 6.1, "), "{}", said.err);
    for (options, why) in
        [(&["xen"][..], "xen boots only"), (&["amd-svm", "--device", "nvme"], "when it has devices")]
    {
        let said = run(&[&["lab", "run"], options, &["--kernel", "5.10", "--", "true"]].concat());
        assert_eq!(said.status, 2);
        assert!(said.err.contains(why) && said.err.contains("leave out --kernel"), "{}", said.err);
    }
}

#[test]
#[ignore = "it takes an hour, and writes a page: `make matrix`"]
fn the_matrix_is_written() {
    let folder = PathBuf::from(std::env::var_os(ROWS).expect("a folder for the rows"));
    fs::create_dir_all(&folder).unwrap();
    let kernels = kernels();
    let pairs = kernels.iter().flat_map(|kernel| LABS.map(|lab| (lab, kernel)));
    let pairs = Mutex::new(pairs.collect::<Vec<_>>().into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some((lab, kernel)) = pairs.lock().unwrap().next() else { return };
                    let file = folder.join(format!("{lab}-{kernel}.json"));
                    if !file.exists() {
                        let row = check(lab, kernel);
                        eprintln!("{lab} {kernel}: {:?}", row.cells);
                        fs::write(&file, serde_json::to_vec_pretty(&row).unwrap()).unwrap();
                    }
                }
            });
        }
    });
    let row = |lab: &str, kernel: &str| -> Row {
        let text = fs::read(folder.join(format!("{lab}-{kernel}.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let rows: Vec<Row> = LABS.iter().flat_map(|lab| kernels.iter().map(|kernel| row(lab, kernel))).collect();
    let page = fs::read_to_string(PAGE).unwrap();
    let (kept, _) = page.split_once(MARK).expect("the page has the line behind which tables are written");
    fs::write(Path::new(PAGE), format!("{kept}{MARK}{}", tables(&rows))).unwrap();
}

/// A table for each laboratory, with the reasons below it.
fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for lab in LABS {
        let mut reasons: Vec<String> = Vec::new();
        text += &format!(
            "\n## {lab}\n\n| kernel | {} |\n|---{}|\n",
            COLUMNS.join(" | "),
            "|---".repeat(COLUMNS.len())
        );
        for row in rows.iter().filter(|row| row.lab == lab) {
            text += &format!("| {} ({}) |", row.kernel, row.version);
            for cell in &row.cells {
                match cell {
                    Ok(figure) => text += &format!(" {figure} |"),
                    Err(why) => {
                        let at = reasons.iter().position(|reason| reason == why).unwrap_or_else(|| {
                            reasons.push(why.clone());
                            reasons.len() - 1
                        });
                        text += &format!(" see {} |", at + 1);
                    }
                }
            }
            text.push('\n');
        }
        for (at, reason) in reasons.iter().enumerate() {
            text += &format!("\n{}. {reason}\n", at + 1);
        }
    }
    text
}
