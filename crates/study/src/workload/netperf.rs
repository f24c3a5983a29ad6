//! netperf between the guest and the host.

mod output;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Printed, Setting, Unfit, demand, wait_for};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Better, Combine, Metric, Span, Unit};
use guests::Size;
use guests::shell;

const SERVE: &str = "netserver";
const RUN: &str = "netperf";

/// netserver's default port; the following ones are for further guests.
const FIRST_PORT: u16 = 12865;

/// Settings of netperf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Netperf {
    /// The test.
    pub test: NetperfTest,
    /// The duration (-l), in whole seconds.
    #[serde(default = "ten_seconds")]
    pub duration: Span,
    /// Bytes of one send (-m); netperf's default is the size of the socket's buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_size: Option<Size>,
    /// Bytes of a request in request/response tests (-r).
    #[serde(default = "one_byte")]
    pub request_size: u32,
    /// Bytes of a response.
    #[serde(default = "one_byte")]
    pub response_size: u32,
    /// Bytes of the socket buffers on both sides (-s, -S).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_buffer: Option<Size>,
    /// The machine that runs netserver; the other one is the client.
    #[serde(default)]
    pub server: Server,
    /// Measure the CPU time of both sides (-c, -C).
    #[serde(default = "yes")]
    pub cpu: bool,
    /// The output format of netperf.
    #[serde(default)]
    pub output: NetperfOutput,
}

/// A test of netperf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetperfTest {
    /// A bulk transfer from the client to the server.
    TcpStream,
    /// A bulk transfer from the server to the client.
    TcpMaerts,
    /// One request at a time, on one connection.
    TcpRr,
    /// A connection for each request.
    TcpCrr,
    /// A bulk transfer from the client to the server; received data counts.
    UdpStream,
    /// One request at a time.
    UdpRr,
}

/// The machine that runs netserver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// The host, with one for each guest.
    #[default]
    Host,
    /// Each guest.
    Guest,
}

/// The output format of netperf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetperfOutput {
    /// Keys and values (-k), with latencies of requests. Needs netperf 2.5 or newer.
    #[default]
    Omni,
    /// The table that all versions print.
    Classic,
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

const fn one_byte() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

impl NetperfTest {
    fn argument(self) -> &'static str {
        match self {
            Self::TcpStream => "TCP_STREAM",
            Self::TcpMaerts => "TCP_MAERTS",
            Self::TcpRr => "TCP_RR",
            Self::TcpCrr => "TCP_CRR",
            Self::UdpStream => "UDP_STREAM",
            Self::UdpRr => "UDP_RR",
        }
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::TcpStream | Self::TcpMaerts | Self::UdpStream)
    }
}

impl Netperf {
    /// The machine of the client.
    fn client(&self) -> Place {
        match self.server {
            Server::Host => Place::Guest,
            Server::Guest => Place::Host,
        }
    }

    fn serving(&self) -> Place {
        match self.server {
            Server::Host => Place::Host,
            Server::Guest => Place::Guest,
        }
    }

    fn has_latencies(&self) -> bool {
        self.output == NetperfOutput::Omni && !self.test.is_stream()
    }

    fn command(&self, address: &str, port: u16) -> String {
        let seconds = self.duration.duration().as_secs().max(1).to_string();
        let mut words: Vec<String> =
            ["netperf", "-H", address, "-p", &port.to_string(), "-l", &seconds, "-t", self.test.argument()]
                .map(str::to_owned)
                .to_vec();
        if self.cpu {
            words.extend(["-c", "-C"].map(str::to_owned));
        }
        if self.has_latencies() {
            words.push("-j".to_owned());
        }
        words.push("--".to_owned());
        if self.test.is_stream() {
            if let Some(size) = self.message_size {
                let size = size.bytes().to_string();
                // In TCP_MAERTS the remote side sends; its size is the second value.
                let both = if self.test == NetperfTest::TcpMaerts { format!("{size},{size}") } else { size };
                words.extend(["-m".to_owned(), both]);
            }
        } else {
            let sizes = format!("{},{}", self.request_size, self.response_size);
            words.extend(["-r".to_owned(), sizes]);
        }
        if let Some(size) = self.socket_buffer {
            let size = size.bytes().to_string();
            words.extend(["-s".to_owned(), size.clone(), "-S".to_owned(), size]);
        }
        if self.output == NetperfOutput::Omni {
            words.extend(["-k".to_owned(), output::KEYS.join(",")]);
        }
        shell::line(words)
    }
}

impl Adapter for Netperf {
    fn tool(&self) -> &'static str {
        "netperf"
    }

    fn check(&self) -> Result<(), Unfit> {
        let stream = self.test.is_stream();
        demand(stream || self.message_size.is_none(), "message_size", "is for streams; see request_size")?;
        demand(!stream || self.request_size == one_byte(), "request_size", "is for tests with requests")?;
        demand(!stream || self.response_size == one_byte(), "response_size", "is for tests with requests")?;
        let duration = self.duration.duration();
        demand(duration.subsec_nanos() == 0, "duration", "must be whole seconds")?;
        let datagram = self.test != NetperfTest::UdpStream
            || self.message_size.is_none_or(|size| size.bytes() <= 65_507);
        demand(datagram, "message_size", "is more than a UDP datagram holds (65507 bytes)")
    }

    fn limit(&self) -> Duration {
        self.duration.duration() * 2 + Duration::from_secs(120)
    }

    fn typical(&self) -> Duration {
        self.duration.duration()
    }

    fn needs(&self) -> Vec<Program> {
        [("netperf", self.client()), ("netserver", self.serving())]
            .map(|(name, place)| Program { place, name, package: "netperf" })
            .to_vec()
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let mut described = Vec::new();
        if self.test.is_stream() {
            let meaning = format!("Throughput of {}", self.test.argument());
            described.push(MetricDescription::rate("throughput", Unit::BitsPerSecond, meaning));
        } else {
            let meaning = format!("Transactions of {}", self.test.argument());
            described.push(MetricDescription::rate("transactions", Unit::PerSecond, meaning));
        }
        if self.test == NetperfTest::UdpStream {
            described.push(MetricDescription::new(
                "sent",
                Unit::BitsPerSecond,
                Better::Neither,
                Combine::Sum,
                "Throughput at the sender of UDP_STREAM",
            ));
        }
        if self.has_latencies() {
            for (name, what) in [
                ("latency.mean", "Mean"),
                ("latency.p50", "Median"),
                ("latency.p90", "90th percentile of the"),
                ("latency.p99", "99th percentile of the"),
            ] {
                let meaning = format!("{what} latency of {}", self.test.argument());
                described.push(MetricDescription::latency(name, meaning));
            }
        }
        if self.cpu {
            let meaning = "CPU of the guest that is not idle, by netperf";
            described.push(MetricDescription::share_of_cpu("cpu.guest", meaning));
            // Every client measures the whole host, so the values are averaged and not added.
            let meaning = "CPU of the host that is not idle, by netperf";
            let (unit, better) = (Unit::Percent, Better::Lower);
            // The table of UDP_STREAM does not contain the CPU time of the receiver.
            described.push(MetricDescription::new("cpu.host", unit, better, Combine::Mean, meaning));
        }
        described
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let port = setting.port(FIRST_PORT);
        let serve = format!("exec netserver -D -p {port}\n");
        let address = match self.server {
            Server::Host => setting.host_address(),
            Server::Guest => setting.guest_address(Place::Host),
        };
        let run = format!("{}exec {}\n", wait_for(&address, port), self.command(&address, port));
        Steps {
            prepare: Vec::new(),
            serve: vec![setting.short_step(SERVE, self.serving(), serve)],
            run: vec![setting.step(RUN, self.client(), run)],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        output::parse(self, &printed.step(RUN)?)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        Some(if self.test.is_stream() { WorkUnit::Mebibyte } else { WorkUnit::Transaction })
    }

    fn work(&self, printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        output::work(self, &printed.step(RUN)?)
    }
}

#[cfg(test)]
#[path = "netperf_tests.rs"]
mod tests;
