//! Attributes of a worker.

use super::{Attribute, Reader, attribute, number, unit, written};
use crate::config::{PollingConfig, cpu_list, longest_nap};
use crate::control::attribute::Value;
use crate::control::error::ControlError;
use crate::control::facts::{Operation, WorkerFacts};
use crate::control::object::{Object, QueueName};
use crate::statistics::WorkerFigures;
use crate::worker::Polling;
use host::CpuSet;

fn of(object: Object) -> Result<u32, ControlError> {
    match object {
        Object::Worker(number) => Ok(number),
        other => Err(ControlError::missing(&other.path())),
    }
}

/// Counters that are attributes under other names.
const ELSEWHERE: [&str; 1] = ["queues"];

/// The paths of the other counters.
const COUNTERS: [&str; 7] = [
    "statistics/sweeps",
    "statistics/sleeps",
    "statistics/naps",
    "statistics/useful_ticks",
    "statistics/awake_ticks",
    "statistics/napped_ticks",
    "statistics/slept_ticks",
];

/// The word of a polling mode, as in the configuration.
const fn polling_word(polling: Polling) -> &'static str {
    match polling {
        Polling::Adaptive { .. } => "adaptive",
        Polling::Always => "always",
        Polling::Never => "never",
    }
}

/// Parses the word of a polling mode.
fn polling_of_word(text: &str) -> Result<PollingConfig, ControlError> {
    match text {
        "adaptive" => Ok(PollingConfig::Adaptive),
        "always" => Ok(PollingConfig::Always),
        "never" => Ok(PollingConfig::Never),
        other => Err(ControlError::invalid(format!("`{other}` is not one of adaptive, always, never"))),
    }
}

pub(super) fn attributes() -> Vec<Attribute> {
    let mut all = vec![
        written(
            attribute(
                "cpu",
                "list of CPUs",
                "Host CPUs that it may run on, such as `2` or `4-7,10`. Writing `all` lets it run on all.".to_owned(),
                Reader::Worker(|worker| Value::Text(worker.cpus.to_string())),
            ),
            |object, text| {
                let cpus = if text == "all" { CpuSet::default() } else { cpu_list(text)? };
                Ok(Operation::Pin(of(object)?, cpus))
            },
        ),
        attribute(
            "pid",
            "thread",
            "The ID of its thread.".to_owned(),
            Reader::Worker(|worker| Value::Number(worker.thread.unsigned_abs().into())),
        ),
        attribute(
            "nice",
            "nice value",
            "The `nice` value of its thread. It is lower while several devices have requests, so that their worker has the \
             weight of a thread for each of them, up to eight."
                .to_owned(),
            Reader::Worker(|worker| Value::Text(worker.nice.map_or_else(String::new, |nice| nice.to_string()))),
        ),
        attribute(
            "load",
            "%",
            "Share of the time since the previous read (before one, since it began) that it spent on requests. Reads that are \
             less than a second apart count as one."
                .to_owned(),
            Reader::Worker(|worker| Value::Percent(worker.load)),
        ),
        attribute(
            "awake",
            "%",
            "Share of the same time in which it was awake.".to_owned(),
            Reader::Worker(|worker| Value::Percent(worker.awake)),
        ),
        attribute(
            "queues",
            "queues",
            "The queues that it serves, one per line.".to_owned(),
            Reader::Worker(|worker| Value::Names(worker.queues.iter().map(QueueName::to_string).collect())),
        ),
        written(
            attribute(
                "pace/polling",
                "word",
                "What it does without work: `adaptive`, `always` or `never`.".to_owned(),
                Reader::Worker(|worker| Value::Text(polling_word(worker.polling).to_owned())),
            ),
            |object, text| Ok(Operation::Poll(of(object)?, polling_of_word(text)?)),
        ),
        written(
            attribute(
                "pace/longest_nap_us",
                "us",
                "The longest time that a request waits for a nap to end; below 20 there are no naps. Empty unless \
                 `pace/polling` is `adaptive`; writing it makes it so."
                    .to_owned(),
                Reader::Worker(|worker| match worker.polling {
                    Polling::Adaptive { nap_ns } => Value::Number(nap_ns / 1000),
                    _ => Value::Text(String::new()),
                }),
            ),
            |object, text| {
                Ok(Operation::LongestNap(of(object)?, longest_nap(number(text, "microseconds")?)?))
            },
        ),
    ];
    for (index, name) in WorkerFigures::NAMES.iter().enumerate().filter(|(_, name)| !ELSEWHERE.contains(name))
    {
        if let Some(path) = COUNTERS.iter().find(|path| path.strip_prefix("statistics/") == Some(name)) {
            let reader = Reader::WorkerCounter(index);
            all.push(attribute(path, unit(name), WorkerFigures::ABOUT[index].trim().to_owned(), reader));
        }
    }
    let time = |name, says: &str, read: fn(&WorkerFacts) -> Value| {
        attribute(name, "ns", says.to_owned(), Reader::Worker(read))
    };
    all.extend([
        time("time/worked_ns", "Its time in turns of queues that found requests.", |worker| {
            Value::Number(worker.times.worked_ns)
        }),
        time(
            "time/polled_ns",
            "Its time awake otherwise: it looked for requests in vain, or handled completions and commands.",
            |worker| Value::Number(worker.times.polled_ns),
        ),
        time("time/napped_ns", "Its time asleep for a set time, during which no kick wakes it.", |worker| {
            Value::Number(worker.times.napped_ns)
        }),
        time(
            "time/slept_ns",
            "Its time asleep until a kick, or a limit allowed more. The four are all its time.",
            |worker| Value::Number(worker.times.slept_ns),
        ),
    ]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_words_are_read_back() {
        for polling in [Polling::default(), Polling::Always, Polling::Never] {
            assert_eq!(polling_of_word(polling_word(polling)).unwrap().polling(60), polling);
        }
        assert!(polling_of_word("sometimes").is_err());
    }

    #[test]
    fn no_counter_is_forgotten() {
        assert_eq!(COUNTERS.len() + ELSEWHERE.len(), WorkerFigures::NAMES.len());
        let counters = attributes().iter().filter(|one| one.name.starts_with("statistics/")).count();
        assert_eq!(counters, COUNTERS.len());
    }
}
