//! HTTP requests at a fixed rate, whether or not the server keeps up.

mod answer;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::crowd::{Crowd, Happened};
use super::error::demand;
use super::schedule::{Schedule, ThreadPart};
use super::tally::Tally;
use super::threads::{self, Part};
use super::{LoadError, LoadResult, Protocol, machine};
pub(super) use answer::Asking;

/// The longest wait for answers after the end of [`HttpLoad::duration`].
const LATE: Duration = Duration::from_secs(10);

/// A load of HTTP/1.1 GET requests. A request that is due while all connections are busy waits for one, and its latency
/// includes that wait. Connections are kept alive, and are not reopened if the server closes them.
#[derive(Debug, Clone)]
pub struct HttpLoad {
    /// The server.
    pub server: SocketAddr,
    /// The value of the Host field.
    pub host: String,
    /// The path, with the query.
    pub path: String,
    /// The number of connections.
    pub connections: u32,
    /// Requests per second over all connections.
    pub rate: f64,
    /// The time during which requests are due.
    pub duration: Duration,
    /// The number of threads.
    pub threads: u32,
    /// Source addresses of this machine; chosen by the kernel if empty.
    pub sources: Vec<IpAddr>,
}

impl HttpLoad {
    /// Opens all connections, sends requests at the rate, and waits for outstanding answers.
    ///
    /// # Errors
    /// If the settings cannot work, if this machine does not allow so many connections, or if the server
    /// accepts none.
    pub fn run(&self) -> Result<LoadResult, LoadError> {
        self.check()?;
        machine::allow_files(self.connections, self.threads)?;
        let sources = machine::sources(&[self.server], self.connections, &self.sources)?;
        let request =
            format!("GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: exitless\r\n\r\n", self.path, self.host);
        let part = |index| Requests {
            load: self,
            sources: &sources,
            request: request.as_bytes(),
            part: ThreadPart { connections: self.connections, threads: self.threads, index },
            crowd: None,
            tally: Tally::default(),
        };
        let tally = threads::run((0..self.threads).map(part).collect(), || ())?;
        Ok(tally.outcome(Protocol::Http, self.connections, self.rate, self.duration))
    }

    fn check(&self) -> Result<(), LoadError> {
        let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        demand(&[
            (self.connections > 0, "--connections", "must be at least 1"),
            (
                (1..=self.connections.max(1)).contains(&self.threads),
                "--threads",
                "must be 1 to --connections",
            ),
            (self.rate.is_finite() && self.rate > 0.0, "--rate", "must be above 0"),
            (!self.duration.is_zero(), "--duration", "must be above 0"),
            (self.path.starts_with('/') && word(&self.path), "URL", "must have a path of plain characters"),
            (word(&self.host), "URL", "must have a host of plain characters"),
        ])
    }
}

/// One thread's connections.
struct Requests<'a> {
    load: &'a HttpLoad,
    sources: &'a [IpAddr],
    request: &'a [u8],
    part: ThreadPart,
    crowd: Option<Crowd<Asking>>,
    tally: Tally,
}

impl Part for Requests<'_> {
    fn open(&mut self) -> Result<(), LoadError> {
        let began = Instant::now();
        let mut crowd = Crowd::new(&[self.load.server], (0..self.part.share()).map(|_| Asking::default()))?;
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
        let count = self.part.share() as usize;
        let mut idle: VecDeque<usize> = (0..count).filter(|&index| crowd.waiting(index).is_some()).collect();
        let mut asked: Vec<Option<u64>> = vec![None; count];
        let mut under_way = 0usize;
        // After the end, still send the requests that became due since the last iteration, if a connection is idle:
        // this thread was late, not the server.
        let mut sending = true;
        loop {
            let now = Instant::now();
            self.tally.due = schedule.due_by(now);
            while sending && self.tally.sent < self.tally.due {
                let Some(index) = idle.pop_front() else { break };
                crowd.send(index, self.request);
                asked[index] = Some(self.tally.sent);
                self.tally.sent += 1;
                under_way += 1;
            }
            sending = now < end;
            if now >= end && (under_way == 0 || now >= end + LATE) {
                self.tally.due = schedule.total();
                return Ok(self.tally);
            }
            let next = (!idle.is_empty() && self.tally.sent < schedule.total())
                .then(|| schedule.due(self.tally.sent).min(end));
            let until = if now < end { next.unwrap_or(end) } else { end + LATE };
            let tally = &mut self.tally;
            crowd.poll(until, &mut |index, what| {
                let now = Instant::now();
                match what {
                    Happened::Answer { good, bytes } => {
                        // Ignore an answer without a request.
                        let Some(request) = asked[index].take() else { return };
                        under_way -= 1;
                        idle.push_back(index);
                        if good {
                            tally.answer(schedule.due(request), now, end, bytes);
                        } else {
                            tally.refused += 1;
                        }
                    }
                    Happened::Gone(why) => {
                        tracing::debug!(why, "a connection is gone");
                        tally.failed_connections += 1;
                        idle.retain(|&other| other != index);
                        under_way -= usize::from(asked[index].take().is_some());
                    }
                    _ => {}
                }
            })?;
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
