//! The MQTT broker mosquitto in the guest, and many clients on the host.

use std::time::Duration;

use load::MOSQUITTO;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, Figures, Printed, Setting, Unfit, demand, load, wait_for};
use super::{MetricDescription, NotUnderstood, Place, Program, Steps, WorkUnit};
use crate::{Better, Combine, Metric, Span, Unit};
use guests::shell;

const PREPARE: &str = "mqtt-prepare";
const SERVE: &str = "mqtt-broker";
const RUN: &str = "mqtt-clients";

/// MQTT's default port; the following ones are for further guests.
const FIRST_PORT: u16 = 1883;
/// The most connections to one port: Linux has 28,232 local ports for them, and finds free ones quickly in the first
/// half.
const CONNECTIONS_OF_A_PORT: u32 = 12_000;
const BETWEEN_PORTS: u16 = 1000;
const MOST_LISTENERS: u32 = 60;
/// The number of open files of the broker besides connections.
const SPARE_FILES: u32 = 100;

/// Settings of messages through a broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mqtt {
    /// The number of publishing clients of each guest's broker.
    pub connections: u32,
    /// The number of further, subscribed clients; each message goes to one of them.
    #[serde(default = "one")]
    pub subscribers: u32,
    /// Messages per second to each broker, over all clients.
    pub rate: u32,
    /// The duration, in whole seconds.
    #[serde(default = "ten_seconds")]
    pub duration: Span,
    /// Bytes of a message, 16 to 65536.
    #[serde(default = "sixty_four")]
    pub message_size: u32,
    /// 0: at most once; 1: at least once.
    #[serde(default)]
    pub quality: QualityOfService,
    /// The number of threads of exitless.
    #[serde(default = "one")]
    pub threads: u32,
    /// `connections` and `rate` are those of all guests together, divided equally.
    #[serde(default)]
    pub divide: bool,
}

/// Quality of service of MQTT.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QualityOfService {
    /// 0: without acknowledgement.
    #[default]
    AtMostOnce,
    /// 1: each message is acknowledged.
    AtLeastOnce,
}

const fn one() -> u32 {
    1
}

const fn sixty_four() -> u32 {
    64
}

const fn ten_seconds() -> Span {
    Span::seconds(10)
}

impl Mqtt {
    /// The connections, and the messages per second, of one guest's broker.
    fn part(&self, guests: u32) -> (u32, u32) {
        let parts = if self.divide { guests.max(1) } else { 1 };
        (self.connections.div_ceil(parts), self.rate.div_ceil(parts))
    }

    /// The broker's ports: several, because the client's machine has a limited number of local ports for each.
    fn ports(&self, setting: &Setting<'_>) -> Vec<u16> {
        let connections = self.part(setting.scene.guests).0.saturating_add(self.subscribers);
        let first = setting.port(FIRST_PORT);
        let listeners = connections.div_ceil(CONNECTIONS_OF_A_PORT).min(MOST_LISTENERS);
        (0..listeners).map(|listener| first.saturating_add(BETWEEN_PORTS * listener as u16)).collect()
    }

    fn command(&self, address: &str, ports: &[u16], guests: u32) -> String {
        let quality = match self.quality {
            QualityOfService::AtMostOnce => "0",
            QualityOfService::AtLeastOnce => "1",
        };
        let at = |port: &u16| match address.contains(':') {
            true => format!("[{address}]:{port}"),
            false => format!("{address}:{port}"),
        };
        let (connections, rate) = self.part(guests);
        let seconds = format!("{}s", self.duration.duration().as_secs().max(1));
        let numbers = [connections, self.subscribers, rate, self.message_size, self.threads];
        let [connections, subscribers, rate, size, threads] = numbers.map(|number| number.to_string());
        let arguments = [
            "load",
            "mqtt",
            "--connections",
            &connections,
            "--subscribers",
            &subscribers,
            "--rate",
            &rate,
            "--message-size",
            &size,
            "--quality",
            quality,
            "--threads",
            &threads,
            "--duration",
            &seconds,
            "--json",
        ];
        let arguments = arguments.map(str::to_owned).into_iter().chain(ports.iter().map(at));
        load(&arguments.collect::<Vec<_>>())
    }
}

impl Adapter for Mqtt {
    fn tool(&self) -> &'static str {
        "exitless load mqtt"
    }

    fn check(&self) -> Result<(), Unfit> {
        demand(self.connections > 0, "connections", "must be at least 1")?;
        demand(self.connections <= 10_000_000, "connections", "must be at most 10000000")?;
        demand(self.subscribers > 0, "subscribers", "must be at least 1")?;
        demand(self.rate > 0, "rate", "must be at least 1")?;
        demand((16..=65_536).contains(&self.message_size), "message_size", "must be 16 to 65536")?;
        let most = self.connections.min(self.subscribers);
        let fits = (1..=most).contains(&self.threads);
        demand(fits, "threads", "must be at least 1 and not more than the connections or the subscribers")?;
        demand(self.duration.duration().subsec_nanos() == 0, "duration", "must be whole seconds")
    }

    fn limit(&self) -> Duration {
        // The time for opening the connections, before the measurement.
        let opening = Duration::from_millis(u64::from(self.connections));
        self.duration.duration() * 2 + opening + Duration::from_secs(180)
    }

    fn typical(&self) -> Duration {
        // About five thousand connections are opened in a second.
        self.duration.duration() + Duration::from_secs(u64::from(self.connections) / 5000)
    }

    fn needs(&self) -> Vec<Program> {
        vec![Program { place: Place::Guest, name: "mosquitto", package: "mosquitto" }]
    }

    fn metrics(&self) -> Vec<MetricDescription> {
        let mut described = vec![
            MetricDescription::rate("messages", Unit::PerSecond, "Messages delivered"),
            MetricDescription::rate("throughput", Unit::BytesPerSecond, "Throughput of messages"),
        ];
        for name in ["p50", "p90", "p99", "p99.9"] {
            let meaning = format!("Latency of a delivery, {name}");
            described.push(MetricDescription::latency(&format!("latency.{name}"), meaning));
        }
        let (unit, better) = (Unit::Percent, Better::Higher);
        let meaning = "Messages delivered, of those that were due";
        described.push(MetricDescription::new("attained", unit, better, Combine::Mean, meaning));
        described.push(MetricDescription::failures("lost", "Messages that never came"));
        described.push(MetricDescription::failures("errors", "Connections that failed"));
        described
    }

    fn steps(&self, setting: &Setting<'_>) -> Steps {
        let folder = setting.enter_folder();
        let ports = self.ports(setting);
        let address = setting.guest_address(Place::Host);
        let listeners: String = ports.iter().map(|port| format!("listener {port}\n")).collect();
        let broker = shell::quoted(&format!("{listeners}{MOSQUITTO}"));
        let prepare = format!("{folder}printf %s {broker} >mosquitto.conf\n");
        let files =
            self.part(setting.scene.guests).0.saturating_add(self.subscribers).saturating_add(SPARE_FILES);
        let serve = format!(
            "{folder}PATH=$PATH:/usr/sbin\ncase $(ulimit -n) in unlimited) ;; *)\n\
             [ \"$(ulimit -n)\" -ge {files} ] || ulimit -n {files} 2>/dev/null || ulimit -n \"$(ulimit -H -n)\" ;;\n\
             esac\nexec mosquitto -c mosquitto.conf\n"
        );
        let first = ports.first().copied().unwrap_or(FIRST_PORT);
        let command = self.command(&address, &ports, setting.scene.guests);
        let run = format!("{}{command}\n", wait_for(&address, first));
        Steps {
            prepare: vec![setting.short_step(PREPARE, Place::Guest, prepare)],
            serve: vec![setting.short_step(SERVE, Place::Guest, serve)],
            run: vec![setting.step(RUN, Place::Host, run)],
        }
    }

    fn parse(&self, printed: &Printed<'_>) -> Result<Vec<Metric>, NotUnderstood> {
        let text = printed.step(RUN)?;
        let outcome = text.load_result()?;
        let mut figures = Figures::new(self.metrics());
        figures.add("messages", outcome.attained_rate());
        figures.add("throughput", outcome.bytes_per_second());
        figures.add("attained", outcome.attained_percent());
        figures.add("lost", outcome.lost as f64);
        figures.add("errors", f64::from(outcome.failed_connections));
        if let Some(latency) = &outcome.latency {
            for (name, value) in latency.by_name() {
                figures.add(&format!("latency.{name}"), value);
            }
        }
        figures.all(&text)
    }

    fn work_unit(&self) -> Option<WorkUnit> {
        Some(WorkUnit::Message)
    }

    fn work(&self, printed: &Printed<'_>) -> Result<f64, NotUnderstood> {
        Ok(printed.step(RUN)?.load_result()?.answered as f64)
    }
}

#[cfg(test)]
#[path = "mqtt_tests.rs"]
mod tests;
