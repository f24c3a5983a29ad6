//! Other readers of Parquet, DuckDB and pyarrow, see the same data.

use std::process::Command;

use super::DataSet;
use super::agent::exitless;

/// Lets an agent report a loss: only agents write the table of losses.
fn lose(data: &DataSet) {
    let spool = data.folder.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    let (first, last) = (1_772_366_400_000_000_i64, 1_772_366_460_000_000_i64);
    let lost = serde_json::json!([
        {"ticks": 3, "bytes": 1000, "first": first, "last": last, "reason": "spool-full"}
    ]);
    std::fs::write(spool.join("lost.json"), lost.to_string()).unwrap();
    let (spool, exitless) = (spool.display().to_string(), exitless(data, "exit 1"));
    let arguments = ["--spool", &spool, "--exitless", &exitless, "--host", "lab-1", "--count", "1"];
    data.run("agent", &arguments).well();
}

#[test]
fn duckdb_and_pyarrow_have_the_same_sums() {
    let python = std::env::var_os("EXITLESS_FLEET_PYTHON").unwrap_or_else(|| "python3".into());
    let can = Command::new(&python).args(["-c", "import duckdb, pyarrow"]).output();
    if !can.is_ok_and(|can| can.status.success()) {
        return println!(
            "not tested: python3 has no duckdb and pyarrow; scripts/fleet-readers installs them"
        );
    }
    let data = DataSet::full();
    lose(&data);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py");
    let said = Command::new(&python)
        .args([script, env!("CARGO_BIN_EXE_exitless-fleet"), &data.store()])
        .output()
        .unwrap();
    let said = super::Said::from(said).well();
    assert!(said.out.ends_with("DuckDB, pyarrow and exitless-fleet agree\n"), "{}", said.out);
    // Each table was compared.
    assert!(!said.out.contains("no rows"), "{}", said.out);
}
