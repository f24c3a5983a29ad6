//! Predefined queries about a fleet, and their answers as text and JSON.

mod kernels;
mod text;

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{self, Bounds, Engine, Error};
use crate::output::FORMAT;
use crate::read::LeftOut;
use crate::store::Store;
use crate::views::past;

pub use kernels::{Change, KernelChange};

/// The most rows of an answer.
pub const MOST_ROWS: usize = 50_000;

/// The answers to all predefined queries.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The format number.
    pub format: u32,
    /// The version of this program.
    pub version: &'static str,
    /// The number of hosts.
    pub hosts: usize,
    /// The number of VMs in the last `verify` of each host.
    pub vms: usize,
    /// Hosts that support interrupt virtualization but do not use it.
    pub idle_hosts: Vec<IdleHost>,
    /// VMs for which interrupt virtualization is inhibited, in part or completely.
    pub inhibited_vms: Vec<InhibitedVm>,
    /// Exit reasons by the CPU time of their handling, without idle time.
    pub reasons: Vec<Reason>,
    /// Module parameters that differ from the baseline.
    pub drift: Vec<Drift>,
    /// The baseline host; without one, the baseline is the most frequent value of each parameter.
    pub baseline: Option<String>,
    /// Exits before and after each host's last change of the kernel.
    pub kernels: Vec<KernelChange>,
    /// The answers that were limited to [`MOST_ROWS`] rows.
    pub cut: Vec<&'static str>,
    /// Files that could not be read.
    pub left_out: Vec<LeftOut>,
}

/// A host with APICv or AVIC in the CPU, but switched off in the module.
#[derive(Debug, Serialize, Deserialize)]
pub struct IdleHost {
    /// The host.
    pub host: String,
    /// The mechanism: `APICv`, `AVIC` or `x2AVIC`.
    pub mechanism: Option<String>,
    /// `doctor`'s conclusion.
    pub outcome: Option<String>,
    /// The next step.
    pub next_step: Option<String>,
    /// The kernel.
    pub kernel: Option<String>,
}

/// A VM for which interrupt virtualization is not fully active.
#[derive(Debug, Serialize, Deserialize)]
pub struct InhibitedVm {
    /// The host.
    pub host: String,
    /// The VM's name.
    pub vm: String,
    /// The state: `inhibited` or `partly`.
    pub state: String,
    /// The inhibit reasons in force.
    pub inhibit_reasons: Option<Vec<String>>,
    /// The fixes that remove them.
    pub fixes: Option<Vec<String>>,
}

/// An exit reason, over all hosts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reason {
    /// The instruction set: `vmx`, `svm` or `xen`.
    pub isa: Option<String>,
    /// The exit reason.
    pub reason: String,
    /// The number of hosts with such exits.
    pub hosts: i64,
    /// The number of exits.
    pub exits: i64,
    /// The CPU time of their handling, in seconds.
    pub handling_s: f64,
    /// The share of the handling time of all reasons that are not idle time, in percent.
    pub percent: Option<f64>,
}

/// A module parameter that differs from the baseline.
#[derive(Debug, Serialize)]
pub struct Drift {
    /// The host.
    pub host: String,
    /// The module.
    pub module: String,
    /// The parameter.
    pub parameter: String,
    /// The value on that host.
    pub value: String,
    /// The value of the baseline.
    pub baseline: String,
}

#[derive(Deserialize)]
struct Parameter {
    host: String,
    module: String,
    parameter: String,
    value: String,
}

#[derive(Deserialize)]
struct Counts {
    hosts: usize,
    vms: usize,
}

/// The hosts of the page: those with an examination or exits.
const COUNTS: &str = concat!(
    "SELECT (SELECT count(DISTINCT host_name) FROM (SELECT host_name FROM ",
    past!("raw.hosts"),
    " UNION ALL SELECT host_name FROM ",
    past!("raw.intervals"),
    ")) AS hosts, (SELECT count(*) FROM vms) AS vms"
);
const IDLE_HOSTS: &str = "SELECT host, mechanism, outcome, next_step, kernel FROM hosts WHERE capable AND NOT enabled ORDER BY host";
const INHIBITED_VMS: &str = "SELECT host, vm, state, inhibit_reasons, fixes FROM vms WHERE state IN ('inhibited', 'partly') \
     ORDER BY host, vm, pid";
const REASONS: &str = "SELECT isa, reason, count(DISTINCT host) AS hosts, sum(exits) AS exits, sum(handling_s) AS handling_s, \
     100 * sum(handling_s) / nullif(sum(sum(handling_s)) OVER (), 0) AS percent \
     FROM exits_by_reason WHERE reason IS NOT NULL AND NOT is_idle GROUP BY isa, reason ORDER BY handling_s DESC, reason";
const PARAMETERS: &str =
    "SELECT host, module, parameter, value FROM parameters ORDER BY host, module, parameter";

/// The predefined queries, by name.
pub const QUESTIONS: &[(&str, &str)] = &[
    ("counts", COUNTS),
    ("idle_hosts", IDLE_HOSTS),
    ("inhibited_vms", INHIBITED_VMS),
    ("reasons", REASONS),
    ("drift", PARAMETERS),
    ("kernels", kernels::HOURS),
];

/// Runs all predefined queries.
///
/// # Errors
/// Those of the engine, and a baseline host that is not in the data set.
pub async fn ask(store: &Store, bounds: &Bounds, baseline: Option<&str>) -> Result<Report, Error> {
    engine::with(store, bounds, async |engine| of(engine, baseline).await).await
}

async fn of(engine: &Engine, baseline: Option<&str>) -> Result<Report, Error> {
    let mut cut = Vec::new();
    let counts: Vec<Counts> = rows(engine, "counts", COUNTS, &mut cut).await?;
    let (hosts, vms) = counts.first().map_or((0, 0), |counts| (counts.hosts, counts.vms));
    let idle_hosts = rows(engine, "idle_hosts", IDLE_HOSTS, &mut cut).await?;
    let inhibited_vms = rows(engine, "inhibited_vms", INHIBITED_VMS, &mut cut).await?;
    let reasons = rows(engine, "reasons", REASONS, &mut cut).await?;
    let parameters = rows(engine, "drift", PARAMETERS, &mut cut).await?;
    let drift = drift(&parameters, baseline)?;
    let hours = rows(engine, "kernels", kernels::HOURS, &mut cut).await?;
    let kernels = kernels::changes(&hours);
    Ok(Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION"),
        hosts,
        vms,
        idle_hosts,
        inhibited_vms,
        reasons,
        drift,
        baseline: baseline.map(ToOwned::to_owned),
        kernels,
        cut,
        left_out: engine.left_out.clone(),
    })
}

async fn rows<T: DeserializeOwned>(
    engine: &Engine,
    name: &'static str,
    sql: &str,
    cut: &mut Vec<&'static str>,
) -> Result<Vec<T>, Error> {
    let (rows, is_cut) = engine.rows(sql, &[]).await?;
    if is_cut {
        cut.push(name);
    }
    Ok(rows)
}

/// The parameters that differ from the baseline host, or from the most frequent value among the hosts with
/// that module.
fn drift(parameters: &[Parameter], baseline: Option<&str>) -> Result<Vec<Drift>, Error> {
    let mut usual: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    match baseline {
        Some(host) => {
            let own = parameters.iter().filter(|one| one.host == host);
            usual.extend(own.map(|one| ((one.module.as_str(), one.parameter.as_str()), one.value.as_str())));
            if usual.is_empty() {
                return Err(Error::Query(format!(
                    "the data set has no parameters of the baseline host {host}"
                )));
            }
        }
        None => {
            let mut counts: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
            for one in parameters {
                let values = counts.entry((&one.module, &one.parameter)).or_default();
                *values.entry(&one.value).or_default() += 1;
            }
            for (key, values) in counts {
                // Among equally frequent values take the first in sort order, so that the result is
                // reproducible.
                if let Some((value, _)) = values.iter().rev().max_by_key(|(_, count)| **count) {
                    usual.insert(key, value);
                }
            }
        }
    }
    let differs = parameters.iter().filter_map(|one| {
        let expected = usual.get(&(one.module.as_str(), one.parameter.as_str())).copied();
        // A parameter that the baseline does not have is not a difference.
        expected.filter(|expected| *expected != one.value).map(|expected| Drift {
            host: one.host.clone(),
            module: one.module.clone(),
            parameter: one.parameter.clone(),
            value: one.value.clone(),
            baseline: expected.to_owned(),
        })
    });
    Ok(differs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(host: &str, value: &str) -> Parameter {
        let [module, parameter] = ["kvm_amd", "avic"].map(ToOwned::to_owned);
        Parameter { host: host.to_owned(), module, parameter, value: value.to_owned() }
    }

    #[test]
    fn the_odd_one_drifts_from_the_many_and_the_many_from_a_named_one() {
        let all = [parameter("a", "Y"), parameter("b", "N"), parameter("c", "Y")];
        let hosts =
            |baseline| drift(&all, baseline).unwrap().into_iter().map(|one| one.host).collect::<Vec<_>>();
        assert_eq!(hosts(None), ["b"]);
        assert_eq!(hosts(Some("b")), ["a", "c"]);
        assert!(
            drift(&all, Some("d")).unwrap_err().to_string().contains("no parameters of the baseline host d")
        );
    }
}
