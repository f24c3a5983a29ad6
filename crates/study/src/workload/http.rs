//! A web server in the guest, and a client on the host or in the guest.

mod output;
mod server;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand, load, wait_for};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Better, Combine, Metric, Span, Unit};
use guests::Size;
use guests::shell;

pub use server::HttpServer;

const PREPARE: &str = "http-prepare";
const SERVE: &str = "http-server";
const RUN: &str = "http-client";

/// The first port; the following ones are for further guests.
const FIRST_PORT: u16 = 8080;
/// The name of the served document, in the server's folder.
const DOCUMENT: &str = "document";

/// Settings of requests to a web server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// The server in each guest.
    #[serde(default)]
    pub server: HttpServer,
    /// The load generator.
    #[serde(default)]
    pub generator: Generator,
    /// The machine of the load generator.
    #[serde(default)]
    pub client: Client,
    /// The number of connections for each guest.
    #[serde(default = "sixteen")]
    pub connections: u32,
    /// The number of threads of wrk, or of exitless.
    #[serde(default = "one")]
    pub threads: u32,
    /// The duration, in whole seconds.
    #[serde(default = "ten_seconds")]
    pub duration: Span,
    /// Requests per second to each guest, attained or not; required for exitless, and only for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The number of requests after which ab ends early (-n).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// Bytes of the document.
    #[serde(default = "one_kibibyte")]
    pub document_size: Size,
    /// A connection serves many requests. wrk and exitless always do so.
    #[serde(default = "yes")]
    pub keep_alive: bool,
}

/// A load generator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// wrk: requests as fast as they are answered.
    #[default]
    Wrk,
    /// ApacheBench: requests as fast as they are answered.
    Ab,
    /// `exitless load http`: requests at a fixed rate, and the attained share of it.
    Exitless,
}

/// The machine of the load generator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// On the host, over the guest's network.
    #[default]
    Host,
    /// In the guest itself, without a network.
    Guest,
}

const fn one() -> u32 {
    1
}

const fn sixteen() -> u32 {
    16
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

const fn one_kibibyte() -> Size {
    Size::kib(1)
}

const fn yes() -> bool {
    true
}

impl Http {
    fn place(&self) -> Place {
        match self.client {
            Client::Host => Place::Host,
            Client::Guest => Place::Guest,
        }
    }

    fn percentiles(&self) -> &'static [&'static str] {
        match self.generator {
            Generator::Wrk => &["p50", "p75", "p90", "p99"],
            Generator::Ab => &["p50", "p90", "p95", "p99"],
            Generator::Exitless => &["p50", "p90", "p99", "p99.9"],
        }
    }

    fn command(&self, address: &str, port: u16) -> String {
        let seconds = self.duration.duration().as_secs().max(1);
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let url = format!("http://{host}:{port}/{DOCUMENT}");
        let (connections, threads) = (self.connections.to_string(), self.threads.to_string());
        match self.generator {
            Generator::Wrk => {
                let duration = format!("{seconds}s");
                shell::line(["wrk", "--latency", "-t", &threads, "-c", &connections, "-d", &duration, &url])
            }
            Generator::Ab => {
                let requests = self.requests.unwrap_or(MOST_REQUESTS).to_string();
                let mut words = vec!["ab", "-q"];
                words.extend(self.keep_alive.then_some("-k"));
                let seconds = seconds.to_string();
                // -n must follow -t, which sets the number of requests too.
                words.extend([
                    "-c",
                    &connections,
                    "-t",
                    &seconds,
                    "-n",
                    &requests,
                    "-e",
                    "percentiles.csv",
                    &url,
                ]);
                format!("{} && cat percentiles.csv", shell::line(words))
            }
            Generator::Exitless => {
                let (rate, duration) = (self.rate.unwrap_or(1).to_string(), format!("{seconds}s"));
                let arguments = [
                    "load",
                    "http",
                    "--connections",
                    &connections,
                    "--threads",
                    &threads,
                    "--rate",
                    &rate,
                    "--duration",
                    &duration,
                    "--json",
                    &url,
                ];
                load(&arguments.map(str::to_owned))
            }
        }
    }
}

/// The most requests of ab, which allocates 32 bytes for each before it starts.
const MOST_REQUESTS: u32 = 2_000_000;

impl Adapter for Http {
    fn tool(&self) -> &'static str {
        match self.generator {
            Generator::Wrk => "wrk",
            Generator::Ab => "ab",
            Generator::Exitless => "exitless load http",
        }
    }

    fn check(&self) -> Result<(), Unfit> {
        let own = self.generator == Generator::Exitless;
        demand(!own || self.rate.is_some(), "rate", "is needed by generator = \"exitless\"")?;
        demand(own || self.rate.is_none(), "rate", "needs generator = \"exitless\"; others ask without end")?;
        demand(self.rate != Some(0), "rate", "must be at least 1")?;
        demand(
            !own || self.client == Client::Host,
            "client",
            "must be \"host\" for generator = \"exitless\"",
        )?;
        let ab = self.generator == Generator::Ab;
        demand(ab || self.requests.is_none(), "requests", "needs generator = \"ab\"")?;
        demand(ab || self.keep_alive, "keep_alive", "can be false with generator = \"ab\" only")?;
        demand(!ab || self.threads == 1, "threads", "must be 1 for generator = \"ab\"")?;
        demand(self.connections > 0, "connections", "must be at least 1")?;
        let fits = (1..=self.connections).contains(&self.threads);
        demand(fits, "threads", "must be at least 1 and not more than the connections")?;
        let enough = self.requests.is_none_or(|requests| requests >= self.connections);
        demand(enough, "requests", "must not be less than the connections")?;
        demand(self.duration.duration().subsec_nanos() == 0, "duration", "must be whole seconds")
    }

    fn limit(&self) -> Duration {
        self.duration.duration() * 2 + Duration::from_secs(180)
    }

    fn typical(&self) -> Duration {
        self.duration.duration()
    }

    fn needs(&self) -> Vec<Program> {
        let mut needs = vec![self.server.program()];
        let client = |name, package| Program { place: self.place(), name, package };
        match self.generator {
            Generator::Wrk => needs.push(client("wrk", "wrk")),
            Generator::Ab => needs.push(client("ab", "apache2-utils")),
            Generator::Exitless => {}
        }
        needs
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let mut described = vec![
            MetricDescription::rate("requests", Unit::PerSecond, "Requests answered"),
            MetricDescription::rate("throughput", Unit::BytesPerSecond, "Throughput of answers"),
        ];
        for &name in self.percentiles() {
            let meaning = format!("Latency of a request, {name}");
            described.push(MetricDescription::latency(&format!("latency.{name}"), meaning));
        }
        if self.generator == Generator::Exitless {
            let (unit, better) = (Unit::Percent, Better::Higher);
            let meaning = "Requests answered, of those that were due";
            described.push(MetricDescription::new("attained", unit, better, Combine::Mean, meaning));
        }
        described.push(MetricDescription::failures("errors", "Requests that failed"));
        described
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let folder = setting.enter_folder();
        let port = setting.port(FIRST_PORT);
        let address = setting.guest_address(self.place());
        let document =
            format!("mkdir -p html && head -c {} /dev/zero >html/{DOCUMENT}", self.document_size.bytes());
        let prepare =
            format!("{folder}{document} || exit\n{}", self.server.configure(port, self.connections));
        let serve = format!("{folder}{}", self.server.serve());
        let run = format!("{folder}{}{}\n", wait_for(&address, port), self.command(&address, port));
        Steps {
            prepare: vec![setting.short_step(PREPARE, Place::Guest, prepare)],
            serve: vec![setting.short_step(SERVE, Place::Guest, serve)],
            run: vec![setting.step(RUN, self.place(), run)],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        Some(WorkUnit::Request)
    }

    fn work(&self, printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        output::requests(self, &printed.step(RUN)?)
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
