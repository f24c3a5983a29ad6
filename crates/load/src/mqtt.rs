//! Messages through an MQTT broker at a fixed rate, from many publishers to a few subscribers.

mod clients;
mod packet;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::crowd::{Crowd, Happened};
use super::error::demand;
use super::schedule::{Schedule, ThreadPart};
use super::tally::Tally;
use super::threads::{self, Part, share};
use super::{LoadError, LoadResult, Protocol, machine};
pub(super) use clients::Client;
use clients::{Role, SMALLEST_MESSAGE, message, topic};

/// The configuration of mosquitto for this load, without its listeners: everyone may connect, and nothing is persisted.
/// Queues are unlimited, because a broker that drops messages would look fast. Source: mosquitto.conf(5).
pub const MOSQUITTO: &str = "\
allow_anonymous true
user root
persistence false
log_type none
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 0
";

/// The number of unsent bytes above which a client publishes no more: the broker does not keep up.
const MOST_WAITING: usize = 256 * 1024;
/// The most unacknowledged messages of a client: an identifier must not be reused before its acknowledgement.
const MOST_UNACKNOWLEDGED: u32 = 60_000;
/// The time without a delivery after which no more are expected.
const SILENCE: Duration = Duration::from_secs(3);
/// The longest wait after the end: a broker that delivers a message now and then could prolong the load forever.
const LATE: Duration = Duration::from_secs(60);

/// The time at which to stop waiting for outstanding messages, if the last one arrived at `last`.
fn patience(end: Instant, last: Instant) -> Instant {
    (last.max(end) + SILENCE).min(end + LATE)
}

/// A load of MQTT messages. Clients do not reconnect.
#[derive(Debug, Clone)]
pub struct MqttLoad {
    /// The broker's addresses: several if one port does not allow enough connections.
    pub brokers: Vec<SocketAddr>,
    /// The number of publishing clients.
    pub connections: u32,
    /// The number of subscribers; each receives the messages of some publishers.
    pub subscribers: u32,
    /// Messages per second over all clients.
    pub rate: f64,
    /// The time during which messages are due.
    pub duration: Duration,
    /// Bytes of a message, 16 or more.
    pub message_size: u32,
    /// Quality of service 1 instead of 0.
    pub acknowledged: bool,
    /// The number of threads; each has its share of both kinds of clients.
    pub threads: u32,
    /// Source addresses of this machine; chosen by the kernel if empty.
    pub sources: Vec<IpAddr>,
}

impl MqttLoad {
    /// Connects all clients, publishes at the rate, and waits for outstanding messages.
    ///
    /// # Errors
    /// If the settings cannot work, if this machine does not allow so many connections, or if the broker
    /// accepts none.
    pub fn run(&self) -> Result<LoadResult, LoadError> {
        self.run_when(|| ())
    }

    /// Runs the load as [`MqttLoad::run`] does, but calls `connected` when all clients are connected, and publishes
    /// only after it returns: so several processes can start together.
    ///
    /// # Errors
    /// Those of [`MqttLoad::run`].
    pub fn run_when(&self, connected: impl FnOnce()) -> Result<LoadResult, LoadError> {
        self.check()?;
        let all = self.connections.saturating_add(self.subscribers);
        machine::allow_files(all, self.threads)?;
        let sources = machine::sources(&self.brokers, all, &self.sources)?;
        // Several loads may share a broker, so topics and payloads contain the run.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let run = u64::from(std::process::id()) << 32 | u64::from(now);
        let part = |index| Messages {
            load: self,
            sources: &sources,
            run: run.wrapping_add(u64::from(index)),
            subscribers: share(self.subscribers, index, self.threads),
            part: ThreadPart { connections: self.connections, threads: self.threads, index },
            crowd: None,
            tally: Tally::default(),
        };
        let tally = threads::run((0..self.threads).map(part).collect(), connected)?;
        Ok(tally.outcome(Protocol::Mqtt, all, self.rate, self.duration))
    }

    fn check(&self) -> Result<(), LoadError> {
        let least = self.connections.min(self.subscribers);
        demand(&[
            (!self.brokers.is_empty(), "BROKER", "must be named"),
            (least > 0, "--connections", "must be at least 1, as --subscribers"),
            (
                (1..=least.max(1)).contains(&self.threads),
                "--threads",
                "must be 1 to the number of either clients",
            ),
            (self.rate.is_finite() && self.rate > 0.0, "--rate", "must be above 0"),
            (self.message_size >= SMALLEST_MESSAGE, "--message-size", "must be at least 16"),
            (self.message_size <= 65_536, "--message-size", "must be at most 65536"),
            (!self.duration.is_zero(), "--duration", "must be above 0"),
            (self.rate * self.duration.as_secs_f64() < 1e10, "--rate", "makes too many messages"),
        ])
    }
}

/// One thread's clients: first the subscribers, then the publishers.
struct Messages<'a> {
    load: &'a MqttLoad,
    sources: &'a [IpAddr],
    run: u64,
    subscribers: u32,
    /// The thread's publishers.
    part: ThreadPart,
    crowd: Option<Crowd<Client>>,
    tally: Tally,
}

impl Part for Messages<'_> {
    fn open(&mut self) -> Result<(), LoadError> {
        let began = Instant::now();
        let (run, acknowledged) = (self.run, self.load.acknowledged);
        let client = |index: u32| {
            let role = if index < self.subscribers { Role::Subscriber } else { Role::Publisher };
            Client::new(run, index, role, acknowledged)
        };
        let clients = (0..self.subscribers + self.part.share()).map(client);
        let mut crowd = Crowd::new(&self.load.brokers, clients)?;
        self.tally.failed_connections = crowd.open(self.sources)?;
        self.tally.opening = began.elapsed();
        self.crowd = Some(crowd);
        Ok(())
    }

    fn measure(mut self, begin: Instant) -> Result<Tally, LoadError> {
        let Some(mut crowd) = self.crowd.take() else { return Ok(self.tally) };
        let load = self.load;
        let schedule = Schedule::new(begin, load.rate, load.duration, self.part);
        let end = begin + load.duration;
        let mut seen = Seen::new(schedule.total());
        let mut last = end;
        let mut buffers = (Vec::new(), Vec::new());
        loop {
            let now = Instant::now();
            while self.tally.due < schedule.due_by(now) {
                let number = self.tally.due;
                self.tally.due += 1;
                self.publish(&mut crowd, number, &mut buffers);
            }
            let under_way = self.tally.sent.saturating_sub(self.tally.answered);
            if now >= end && (under_way == 0 || now >= patience(end, last)) {
                return Ok(self.tally);
            }
            let next = schedule.due(self.tally.due);
            let until = if self.tally.due < schedule.total() { next.min(end) } else { patience(end, last) };
            let until = if now < end { until.min(end) } else { until };
            let tally = &mut self.tally;
            crowd.poll(until, &mut |_, what| {
                let now = Instant::now();
                match what {
                    Happened::Delivery { message, bytes } if seen.first(message) => {
                        tally.answer(schedule.due(message), now, end, bytes);
                        last = last.max(now);
                    }
                    Happened::Gone(why) => {
                        tracing::debug!(why, "a client is gone");
                        tally.failed_connections += 1;
                    }
                    _ => {}
                }
            })?;
        }
    }
}

impl Messages<'_> {
    /// Publishes a message, unless its publisher has too many bytes or messages outstanding. Publishers take turns, so
    /// that all have the same rate.
    fn publish(
        &mut self,
        crowd: &mut Crowd<Client>,
        number: u64,
        (packet, payload): &mut (Vec<u8>, Vec<u8>),
    ) {
        let turn = (number % u64::from(self.part.share())) as u32;
        let index = (self.subscribers + turn) as usize;
        if crowd.waiting(index).is_none_or(|waiting| waiting > MOST_WAITING) {
            return;
        }
        let client = crowd.session(index);
        if client.unacknowledged >= MOST_UNACKNOWLEDGED {
            return;
        }
        let identifier = self.load.acknowledged.then(|| client.next_identifier());
        message(payload, self.run, number, self.load.message_size);
        packet::publish_to(packet, &topic(self.run, turn % self.subscribers), identifier, payload);
        crowd.send(index, packet);
        self.tally.sent += 1;
    }
}

/// The messages that have arrived, as a bitmap: at quality of service 1 one may be delivered twice.
struct Seen(Vec<u64>);

impl Seen {
    fn new(total: u64) -> Self {
        Self(vec![0; usize::try_from(total / 64 + 1).unwrap_or(0)])
    }

    fn first(&mut self, message: u64) -> bool {
        let Some(word) = usize::try_from(message / 64).ok().and_then(|at| self.0.get_mut(at)) else {
            return false;
        };
        let bit = 1 << (message % 64);
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

#[cfg(test)]
#[path = "mqtt_tests.rs"]
mod tests;
