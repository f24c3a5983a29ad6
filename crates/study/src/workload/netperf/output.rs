//! Parsing the output of netperf: `KEY=VALUE` lines (version 2.5 and newer), or the tables of all versions.

use std::collections::BTreeMap;

use super::{Netperf, NetperfOutput, NetperfTest, Server};
use crate::Metric;
use crate::workload::NotUnderstood;
use crate::workload::adapter::{Adapter, Figures, Text};

/// Output selectors of omni (netperf manual, section 10.4).
pub(super) const KEYS: [&str; 17] = [
    "THROUGHPUT",
    "THROUGHPUT_UNITS",
    "ELAPSED_TIME",
    "LOCAL_SEND_SIZE",
    "REMOTE_SEND_SIZE",
    "LOCAL_SEND_THROUGHPUT",
    "REMOTE_RECV_THROUGHPUT",
    "LOCAL_CPU_UTIL",
    "REMOTE_CPU_UTIL",
    "LOCAL_CPU_METHOD",
    "REMOTE_CPU_METHOD",
    "MEAN_LATENCY",
    "P50_LATENCY",
    "P90_LATENCY",
    "P99_LATENCY",
    "LOCAL_TRANSPORT_RETRANS",
    "REMOTE_TRANSPORT_RETRANS",
];

/// The unit of throughput, both in tables and in `KEY=VALUE` lines.
const MEGABIT: f64 = 1e6;
const MICROSECOND: f64 = 1e-6;
const MEBIBYTE: f64 = 1_048_576.0;

pub(super) fn parse(netperf: &Netperf, text: &Text<'_>) -> Result<Vec<Metric>, NotUnderstood> {
    let mut figures = Figures::new(netperf.metrics());
    match netperf.output {
        NetperfOutput::Omni => omni(netperf, text, &mut figures)?,
        NetperfOutput::Classic => classic(netperf, text, &mut figures)?,
    }
    figures.all(text)
}

/// The number of transactions, or of MiB received.
pub(super) fn work(netperf: &Netperf, text: &Text<'_>) -> Result<f64, NotUnderstood> {
    let stream = netperf.test.is_stream();
    let (rate, seconds) = match netperf.output {
        NetperfOutput::Omni => (selected(text, rate_key(netperf))?, selected(text, "ELAPSED_TIME")?),
        NetperfOutput::Classic => {
            let table = Table::of(netperf);
            let mut rows = table.rows(text)?;
            let row = cells(text, rows.next().unwrap_or_default(), table.words)?;
            if netperf.test == NetperfTest::UdpStream {
                let row = cells(text, rows.next().unwrap_or_default(), table.words - 2)?;
                (row[3], row[1])
            } else {
                (row[table.figure], row[table.figure - 1])
            }
        }
    };
    Ok(rate * seconds * if stream { MEGABIT / 8.0 / MEBIBYTE } else { 1.0 })
}

/// omni's key of the rate. Of UDP streams what arrived counts, by its own name.
fn rate_key(netperf: &Netperf) -> &'static str {
    if netperf.test == NetperfTest::UdpStream { "REMOTE_RECV_THROUGHPUT" } else { "THROUGHPUT" }
}

/// The value of a key of omni.
fn selected(text: &Text<'_>, key: &str) -> Result<f64, NotUnderstood> {
    let line =
        text.stdout().lines().find(|line| line.split_once('=').is_some_and(|(name, _)| name.trim() == key));
    let line = line.ok_or_else(|| text.missing(format!("a line that begins with {key}=")))?;
    text.number(line.split_once('=').map_or("", |(_, value)| value.trim()), key, line)
}

/// The words of a row as numbers.
fn cells(text: &Text<'_>, line: &str, words: usize) -> Result<Vec<f64>, NotUnderstood> {
    let found: Result<Vec<f64>, _> =
        line.split_whitespace().map(|word| text.number(word, "each word of the row", line)).collect();
    let found = found?;
    if found.len() != words {
        return Err(text.not_understood(format!("a row of {words} numbers"), line));
    }
    Ok(found)
}

fn cpu_names(netperf: &Netperf) -> (&'static str, &'static str) {
    match netperf.server {
        Server::Host => ("cpu.guest", "cpu.host"),
        Server::Guest => ("cpu.host", "cpu.guest"),
    }
}

fn omni(netperf: &Netperf, text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    let values: BTreeMap<&str, (&str, &str)> = text
        .stdout()
        .lines()
        .filter_map(|line| line.split_once('=').map(|(key, value)| (key.trim(), (value.trim(), line))))
        .collect();
    let get = |key: &str| {
        values.get(key).copied().ok_or_else(|| text.missing(format!("a line that begins with {key}=")))
    };
    // netperf writes -1 for values it could not measure, which number() rejects.
    let number = |key: &str| get(key).and_then(|(value, line)| text.number(value, key, line));
    let (unit, line) = get("THROUGHPUT_UNITS")?;
    let (wanted, name, factor) = if netperf.test.is_stream() {
        ("10^6bits/s", "throughput", MEGABIT)
    } else {
        ("Trans/s", "transactions", 1.0)
    };
    if unit != wanted {
        return Err(text.not_understood(format!("THROUGHPUT_UNITS={wanted}"), line));
    }
    // Check the size, because TCP_MAERTS ignores one that is passed in another way.
    if let Some(size) = netperf.message_size {
        let sender =
            if netperf.test == NetperfTest::TcpMaerts { "REMOTE_SEND_SIZE" } else { "LOCAL_SEND_SIZE" };
        if number(sender)? != size.bytes() as f64 {
            return Err(text.not_understood(format!("{sender}={}", size.bytes()), get(sender)?.1));
        }
    }
    figures.add(name, number(rate_key(netperf))? * factor);
    if netperf.test == NetperfTest::UdpStream {
        figures.add("sent", number("LOCAL_SEND_THROUGHPUT")? * MEGABIT);
    }
    for (name, key) in [
        ("latency.mean", "MEAN_LATENCY"),
        ("latency.p50", "P50_LATENCY"),
        ("latency.p90", "P90_LATENCY"),
        ("latency.p99", "P99_LATENCY"),
    ] {
        if figures.wants(name) {
            figures.add(name, number(key)? * MICROSECOND);
        }
    }
    if netperf.cpu {
        let (local, remote) = cpu_names(netperf);
        figures.add(local, number("LOCAL_CPU_UTIL")?);
        figures.add(remote, number("REMOTE_CPU_UTIL")?);
    }
    Ok(())
}

/// The expected unit of a table, and the positions of the figures in its first row.
struct Table {
    /// Text that the line of units must contain.
    unit: &'static str,
    /// The least number of words of the row.
    words: usize,
    figure: usize,
    cpu: Option<(usize, usize)>,
}

impl Table {
    /// The table as version 2.7 prints it.
    fn of(netperf: &Netperf) -> Self {
        let cpu = netperf.cpu;
        match netperf.test {
            NetperfTest::TcpStream | NetperfTest::TcpMaerts => Self {
                unit: "10^6bits/s",
                words: if cpu { 9 } else { 5 },
                figure: 4,
                cpu: cpu.then_some((5, 6)),
            },
            NetperfTest::TcpRr | NetperfTest::TcpCrr | NetperfTest::UdpRr => Self {
                unit: "per sec",
                words: if cpu { 10 } else { 6 },
                figure: 5,
                cpu: cpu.then_some((6, 7)),
            },
            NetperfTest::UdpStream => Self {
                unit: "10^6bits/s",
                words: if cpu { 8 } else { 6 },
                figure: 5,
                cpu: cpu.then_some((6, 6)),
            },
        }
    }

    /// The lines below the line of units.
    fn rows<'a>(&self, text: &Text<'a>) -> Result<impl Iterator<Item = &'a str> + use<'a>, NotUnderstood> {
        let mut lines = text.stdout().lines();
        if !lines.any(|line| line.contains(self.unit) && line.contains("bytes")) {
            return Err(text.missing(format!("a line of units with {:?}", self.unit)));
        }
        Ok(lines.filter(|line| !line.trim().is_empty()))
    }
}

fn classic(netperf: &Netperf, text: &Text<'_>, figures: &mut Figures) -> Result<(), NotUnderstood> {
    let table = Table::of(netperf);
    let mut rows = table.rows(text)?;
    let mut row = || rows.next().unwrap_or_default();
    let first = row();
    let sender = cells(text, first, table.words)?;
    let (local, remote) = cpu_names(netperf);
    if netperf.test == NetperfTest::UdpStream {
        figures.add("sent", sender[table.figure] * MEGABIT);
        let second = row();
        // The receiver's row lacks the message size and the errors.
        let receiver = cells(text, second, table.words - 2)?;
        figures.add("throughput", receiver[3] * MEGABIT);
        if table.cpu.is_some() {
            figures.add(local, sender[6]);
            figures.add(remote, receiver[4]);
        }
        return Ok(());
    }
    let name = if netperf.test.is_stream() { "throughput" } else { "transactions" };
    let factor = if netperf.test.is_stream() { MEGABIT } else { 1.0 };
    figures.add(name, sender[table.figure] * factor);
    if let Some((here, there)) = table.cpu {
        figures.add(local, sender[here]);
        figures.add(remote, sender[there]);
    }
    Ok(())
}
