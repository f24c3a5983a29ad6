//! `exitless load`: requests and messages at a fixed rate.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use ::load::{HttpLoad, LoadResult, MqttLoad};
use clap::{Args, Subcommand};

use super::quantity;
use crate::console::{self, Waiting};
use crate::status::{SOME_FAILED, Usage};

/// Subcommands of `load`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send requests to a web server at a fixed rate, whether or not it answers in time.
    ///
    /// Each request is due at a fixed time; if all connections are waiting for answers it waits too, and that
    /// is part of its latency. HTTP/1.1 without TLS, answers with a Content-Length.
    ///
    /// Exit status: 0 when every request was answered with success; 1 when some were not, or connections
    /// failed; 2 for a wrong command line; 125 when there was no connection at all, or this machine does not
    /// allow so many.
    Http(Http),
    /// Publish messages to an MQTT broker at a fixed rate from many clients, and receive them with a few.
    ///
    /// MQTT 3.1.1 without TLS and passwords. Connections to a loopback address use as many source addresses
    /// of 127.0.0.0/8 as they need; for others give addresses of this machine by --source.
    ///
    /// Exit status: 0 when every message was delivered; 1 when some were not, or connections failed; 2 for a
    /// wrong command line; 125 when there was no connection at all, or this machine does not allow so many.
    Mqtt(Mqtt),
}

/// The common arguments of both kinds of load.
#[derive(Debug, Args)]
struct Common {
    /// The number of connections that send requests or publish.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    connections: u32,
    /// Requests or messages a second, over all connections.
    #[arg(long, value_name = "RATE", value_parser = quantity::rate)]
    rate: f64,
    /// The duration: 10s, 2min; a number alone is in seconds.
    #[arg(long, value_name = "TIME", value_parser = quantity::wait, default_value = "10s")]
    duration: u64,
    /// The number of threads, each with its share of the connections.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    threads: u32,
    /// A source address of this machine for connections; may be given more than once.
    #[arg(long = "source", value_name = "ADDRESS")]
    sources: Vec<IpAddr>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `load http`.
#[derive(Debug, Args)]
pub(crate) struct Http {
    #[command(flatten)]
    common: Common,
    /// The document, such as http://192.0.2.7:8080/document.
    url: String,
}

/// Arguments of `load mqtt`.
#[derive(Debug, Args)]
pub(crate) struct Mqtt {
    #[command(flatten)]
    common: Common,
    /// The number of further, subscribed clients; each message goes to one of them.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    subscribers: u32,
    /// Bytes of a message, 16 to 65536.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    message_size: u32,
    /// Quality of service: 0, or 1 with acknowledgements.
    #[arg(long, value_name = "LEVEL", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    quality: u8,
    /// The broker: an address or a name, and a port. Several if one port allows too few connections.
    #[arg(value_name = "BROKER", required = true)]
    brokers: Vec<String>,
}

/// Runs the subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    let (outcome, json) = match command {
        Command::Http(arguments) => {
            let json = arguments.common.json;
            (http(arguments)?, json)
        }
        Command::Mqtt(arguments) => {
            let json = arguments.common.json;
            (mqtt(arguments)?, json)
        }
    };
    crate::output::write(|out| match json {
        true => crate::json::write(out, &outcome),
        false => out.write_all(console::shown(report::load::terminal(&outcome)).as_bytes()),
    })?;
    let failed = outcome.failures() > 0;
    Ok(ExitCode::from(if failed { SOME_FAILED } else { 0 }))
}

fn http(arguments: Http) -> anyhow::Result<LoadResult> {
    let (common, url) = (arguments.common, arguments.url);
    let wrong = || Usage(format!("{url:?} is not the URL of a document; write http://HOST:PORT/PATH"));
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // An IPv6 address is in brackets, and its colons do not separate the port.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let with_port = if has_port { host.to_owned() } else { format!("{host}:80") };
    let load = HttpLoad {
        server: address(&with_port)?,
        host: host.to_owned(),
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        connections: common.connections,
        rate: common.rate,
        duration: Duration::from_nanos(common.duration),
        threads: common.threads,
        sources: common.sources,
    };
    let _waiting = Waiting::new(format!("Asking {url} for {:.1} s", load.duration.as_secs_f64()));
    Ok(load.run()?)
}

fn mqtt(arguments: Mqtt) -> anyhow::Result<LoadResult> {
    let common = arguments.common;
    let load = MqttLoad {
        brokers: arguments.brokers.iter().map(|broker| address(broker)).collect::<anyhow::Result<_>>()?,
        connections: common.connections,
        subscribers: arguments.subscribers,
        rate: common.rate,
        duration: Duration::from_nanos(common.duration),
        message_size: arguments.message_size,
        acknowledged: arguments.quality == 1,
        threads: common.threads,
        sources: common.sources,
    };
    let _waiting = Waiting::new(format!("Publishing for {:.1} s", load.duration.as_secs_f64()));
    Ok(load.run()?)
}

fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let found = text.to_socket_addrs().map(|mut found| found.next());
    let error = match found {
        Ok(Some(address)) => return Ok(address),
        Ok(None) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Usage(format!("{text:?} is not a server ({error}); write HOST:PORT, an IPv6 address in brackets"))
        .into())
}
