"""Compares what DuckDB, pyarrow and exitless-fleet read of a data set: readers.py PROGRAM STORE"""

import glob
import json
import subprocess
import sys

import duckdb
import pyarrow.compute as compute
import pyarrow.dataset as dataset

program, store = sys.argv[1:]
# Of each table a column to add up, by host.
SUMS = {
    "hosts": "fail",
    "vms": "vcpus",
    "intervals": "observed_ns",
    "exits": "handling_ns",
    "costs": "median_cycles",
    "experiments": "mean",
    "findings": None,
    "parameters": None,
    "losses": "ticks",
}


def ours(table, column):
    added = f"sum({column})" if column else "count(*)"
    sql = f"SELECT host_name AS host, count(*) AS n, {added} AS s FROM raw.{table} GROUP BY host_name"
    said = subprocess.run([program, "query", "--store", store, "--json", sql], check=True, capture_output=True)
    return {row["host"]: (row["n"], row["s"]) for row in json.loads(said.stdout)["rows"]}


def ducks(table, column):
    added = f"sum({column})" if column else "count(*)"
    files = f"read_parquet('{store}/{table}/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"
    rows = duckdb.sql(
        f"SELECT host_name, count(*), {added}, bool_and(host::varchar = host_name), "
        f"bool_and(date::varchar = strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d')) FROM {files} GROUP BY host_name"
    ).fetchall()
    for host, _, _, same_host, same_day in rows:
        assert same_host and same_day, f"DuckDB: the partition of {host} in {table} is not its columns'"
    return {host: (count, value) for host, count, value, _, _ in rows}


def arrows(table, column):
    read = dataset.dataset(f"{store}/{table}", format="parquet", partitioning="hive").to_table()
    assert compute.all(compute.equal(read["host"], read["host_name"])).as_py(), f"pyarrow: hosts of {table}"
    # pandas takes it as it is, too, if it is there.
    grouped = read.group_by("host_name").aggregate([("document", "count")] + ([(column, "sum")] if column else []))
    return {
        row["host_name"]: (row["document_count"], row[f"{column}_sum"] if column else row["document_count"])
        for row in grouped.to_pylist()
    }


def close(one, other):
    if one is None or other is None:
        return one is None and other is None
    return abs(float(one) - float(other)) <= 1e-9 * max(1.0, abs(float(one)))


for table, column in SUMS.items():
    own = ours(table, column)
    if not glob.glob(f"{glob.escape(store)}/{table}/*/*/*.parquet"):
        # DuckDB and pyarrow take a table without files for an error.
        assert not own, f"{table} has rows but no files"
        print(f"{table}: no rows")
        continue
    for name, other in (("DuckDB", ducks(table, column)), ("pyarrow", arrows(table, column))):
        assert own.keys() == other.keys(), (table, name, own, other)
        for host, (count, value) in own.items():
            assert count == other[host][0] and close(value, other[host][1]), (table, name, host, own[host], other[host])
    print(f"{table}: {len(own)} hosts, {sum(count for count, _ in own.values())} rows")
print("DuckDB, pyarrow and exitless-fleet agree")
