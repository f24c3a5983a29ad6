//! Other readers of Parquet, DuckDB and pyarrow, see the same data.

use std::process::Command;

#[test]
fn duckdb_and_pyarrow_have_the_same_sums() {
    let python = std::env::var_os("EXITLESS_FLEET_PYTHON").unwrap_or_else(|| "python3".into());
    let can = Command::new(&python).args(["-c", "import duckdb, pyarrow"]).output();
    if !can.is_ok_and(|can| can.status.success()) {
        return println!(
            "not tested: python3 has no duckdb and pyarrow; scripts/fleet-readers installs them"
        );
    }
    let data = super::DataSet::full();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers.py");
    let said = Command::new(&python)
        .args([script, env!("CARGO_BIN_EXE_exitless-fleet"), &data.store()])
        .output()
        .unwrap();
    let said = super::Said::from(said).well();
    assert!(said.out.ends_with("DuckDB, pyarrow and exitless-fleet agree\n"), "{}", said.out);
}
