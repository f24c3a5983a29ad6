//! Attributes of a queue.

use super::{Attribute, Reader, attribute, number, unit, worker_of, written};
use crate::control::attribute::Value;
use crate::control::error::ControlError;
use crate::control::facts::{Operation, QueueFacts};
use crate::control::object::{Object, QueueName};
use crate::statistics::QueueFigures;
use crate::worker::WEIGHTS;

fn of(object: Object) -> Result<QueueName, ControlError> {
    match object {
        Object::Queue(name) => Ok(name),
        other => Err(ControlError::missing(&other.path())),
    }
}

fn state(queue: &QueueFacts) -> &'static str {
    match (queue.broken, queue.served) {
        (true, _) => "broken",
        (false, true) => "served",
        (false, false) => "idle",
    }
}

pub(super) fn attributes() -> Vec<Attribute> {
    let plain = |name, unit, says: &str, read: fn(&QueueFacts) -> Value| {
        attribute(name, unit, says.to_owned(), Reader::Queue(read))
    };
    let mut all = vec![
        plain("device", "device", "The device that it belongs to.", |queue| {
            Value::Text(Object::Device(queue.name.device).name())
        }),
        plain(
            "state",
            "word",
            "`idle` while no front-end uses it, `served`, or `broken`: its ring violated the format and \
              is no longer served.",
            |queue| Value::Text(state(queue).to_owned()),
        ),
        written(
            plain(
                "worker",
                "worker",
                "The I/O worker that serves it, or will; empty while undecided. Writing another one \
                 moves it while its requests continue.",
                |queue| {
                    Value::Text(queue.worker.map_or_else(String::new, |number| Object::Worker(number).name()))
                },
            ),
            |object, text| Ok(Operation::MoveQueues(vec![of(object)?], worker_of(text)?)),
        ),
        written(
            plain(
                "poll",
                "word",
                "`auto`: it is polled all the time or waits for its guest's kicks, as its worker decides. \
                  `always`: it never waits for kicks, and its worker never sleeps.",
                |queue| Value::Text(if queue.polled { "always" } else { "auto" }.to_owned()),
            ),
            |object, text| match text {
                "auto" => Ok(Operation::PollQueue(of(object)?, false)),
                "always" => Ok(Operation::PollQueue(of(object)?, true)),
                other => Err(ControlError::invalid(format!("`{other}` is neither auto nor always"))),
            },
        ),
        written(
            plain(
                "weight",
                "",
                "Its share of a busy worker, relative to the weights of other queues: 4 to 800, default 100.",
                |queue| Value::Number(queue.weight.into()),
            ),
            |object, text| {
                let weight = number(text, "weight")?;
                match u32::try_from(weight) {
                    Ok(small) if WEIGHTS.contains(&small) => Ok(Operation::Weigh(of(object)?, small)),
                    _ => Err(ControlError::invalid("A weight is a number from 4 to 800")),
                }
            },
        ),
    ];
    for (index, name) in QueueFigures::NAMES.iter().enumerate() {
        all.push(attribute(
            name,
            unit(name),
            QueueFigures::ABOUT[index].trim().to_owned(),
            Reader::QueueCounter(index),
        ));
    }
    all.extend([
        plain("time/worked_ns", "ns", "The time in its turns that found requests.", |queue| {
            Value::Number(queue.times.worked_ns)
        }),
        plain(
            "time/polled_ns",
            "ns",
            "The time in which its worker was awake and looked at it in each round, so that it needed no kick. The worker \
              does so for all its polled queues together.",
            |queue| Value::Number(queue.times.polled_ns),
        ),
        plain(
            "time/napped_ns",
            "ns",
            "The time in which its worker napped, or slept until a limit allowed more: no kick was asked for, and requests \
              waited for the end.",
            |queue| Value::Number(queue.times.napped_ns),
        ),
        plain(
            "time/slept_ns",
            "ns",
            "The time in which it was left to its kicks. The four are all its time at workers.",
            |queue| Value::Number(queue.times.slept_ns),
        ),
    ]);
    let delays = "of its requests waited no longer than this before they were taken. The end of a bucket: the true time is \
                  at least half of it.";
    all.extend([
        plain("delays/p50_ns", "ns", &format!("50 % {delays}"), |queue| Value::Number(queue.delay(500))),
        plain("delays/p99_ns", "ns", &format!("99 % {delays}"), |queue| Value::Number(queue.delay(990))),
        plain("delays/p999_ns", "ns", &format!("99.9 % {delays}"), |queue| Value::Number(queue.delay(999))),
        plain(
            "delays/histogram",
            "ns and count",
            "The start of each bucket and its number of requests, one per line. A \
              bucket ends at twice where it begins; empty ones are left out.",
            |queue| {
                let begins = |bucket: usize| if bucket == 0 { 0 } else { 1 << bucket };
                let used = queue.delays.iter().enumerate().filter(|(_, count)| **count > 0);
                Value::Pairs(used.map(|(bucket, count)| (begins(bucket), *count)).collect())
            },
        ),
        plain("moves/count", "", "Times that it moved to another I/O worker.", |queue| {
            Value::Number(queue.moves[0])
        }),
        plain("moves/last_pause_ns", "ns", "How long no worker had it during the last move.", |queue| {
            Value::Number(queue.moves[1])
        }),
        plain("moves/longest_pause_ns", "ns", "The longest such pause.", |queue| {
            Value::Number(queue.moves[2])
        }),
    ]);
    all
}
