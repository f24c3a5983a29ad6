//! The time without a worker of queues that move from one worker to another: a queue with 32 requests in flight, and
//! the queues of 64 devices, one by one and all at once.

use crate::Outcome;
use crate::block_peers::front_end::drive;
use crate::block_peers::load::{Load, Pace};
use iocm::config::Config;
use iocm::daemon::Daemon;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Moves a queue until its front-end ends, and prints how long it was without a worker.
pub(crate) fn print(directory: &Path, image: &Path) -> Outcome<()> {
    std::fs::write(image, vec![1; 16 << 20])?;
    let socket = directory.join("moved");
    let text = format!(
        "[workers]\ncount = 2\n[[device]]\nname = \"d\"\ntype = \"block\"\nsocket = {socket:?}\npath = {image:?}\n"
    );
    let daemon = Daemon::start(&Config::parse(&text)?)?;
    let driver = std::thread::spawn(move || {
        drive(&socket, Load::even(1, 32, Pace::Closed), 0).map_err(|error| error.to_string())
    });
    let endpoints = daemon.endpoints();
    let queue = &endpoints.first().and_then(|endpoint| endpoint.backend.queues.first()).ok_or("no queue")?;
    let mut pauses = Vec::new();
    while !driver.is_finished() {
        std::thread::sleep(Duration::from_millis(2));
        let key = *queue.key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = key.and_then(|key| daemon.pool().worker_of(key)).map(|at| 1 - at.min(1)) else {
            continue;
        };
        let before = queue.state.moves.count.get();
        // This fails if the front-end has just disconnected.
        if key.is_some_and(|key| daemon.pool().move_queue(key, to).is_ok()) {
            std::thread::sleep(Duration::from_millis(2));
            if queue.state.moves.count.get() > before {
                pauses.push(queue.state.moves.last_pause_ns.get());
            }
        }
    }
    let requests = driver.join().map_err(|_| "a front-end failed")??.0.len();
    pauses.sort_unstable();
    let at = |share: usize| pauses.get((pauses.len() * share / 1000).min(pauses.len().saturating_sub(1)));
    let us = |ns: Option<&u64>| ns.map_or(f64::NAN, |ns| *ns as f64 / 1e3);
    println!(
        "\na queue that moved {} times within {requests} requests was in nobody's hands for (us): \
         p50 {:.1}, p99 {:.1}, longest {:.1}; meant to be below 1000",
        pauses.len(),
        us(at(500)),
        us(at(990)),
        us(pauses.last()),
    );
    Ok(())
}

const DEVICES: usize = 64;

/// Moves the queues of 64 devices to the other worker and back, alternately one by one and all at once. Prints how long
/// that took.
pub(crate) fn print_many(directory: &Path) -> Outcome<()> {
    let mut text = "[workers]\ncount = 2\n".to_owned();
    let socket = |number: usize| directory.join(format!("many{number}"));
    for number in 0..DEVICES {
        let socket = socket(number);
        write!(text, "[[device]]\nname = \"d{number}\"\ntype = \"block\"\nsocket = {socket:?}\n")?;
    }
    let daemon = Daemon::start(&Config::parse(&text)?)?;
    let drivers: Vec<_> = (0..DEVICES)
        .map(socket)
        .map(|socket| {
            std::thread::spawn(move || {
                drive(&socket, Load::even(1, 8, Pace::Rate(300.0)), 0).map_err(|error| error.to_string())
            })
        })
        .collect();
    let endpoints = daemon.endpoints();
    let queues: Vec<_> = endpoints.iter().filter_map(|endpoint| endpoint.backend.queues.first()).collect();
    let mut seen: [Vec<(Duration, u64)>; 2] = Default::default();
    let mut turn = 0;
    while !drivers.iter().any(|driver| driver.is_finished()) {
        std::thread::sleep(Duration::from_millis(40));
        let keys =
            queues.iter().filter_map(|queue| *queue.key.lock().unwrap_or_else(PoisonError::into_inner));
        let keys: Vec<_> = keys.collect();
        if keys.len() < DEVICES {
            continue;
        }
        let (to, together) = (turn / 2 % 2, turn % 2 == 1);
        // Each measurement begins with all queues at the other worker.
        daemon.pool().move_queues(keys.clone(), 1 - to)?;
        std::thread::sleep(Duration::from_millis(40));
        let begun = Instant::now();
        let are_all_there = if together {
            daemon.pool().move_queues(keys, to)?.is_empty()
        } else {
            keys.into_iter().all(|key| daemon.pool().move_queue(key, to).is_ok())
        };
        let took = begun.elapsed();
        // The front-ends do not all end at the same time.
        if !are_all_there {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        let pauses = queues.iter().map(|queue| queue.state.moves.last_pause_ns.get());
        seen[usize::from(together)].push((took, pauses.max().unwrap_or(0)));
        turn += 1;
    }
    for driver in drivers {
        driver.join().map_err(|_| "a front-end failed")??;
    }
    println!("\nthe queues of {DEVICES} devices, 300 requests a second each, go to another worker");
    for (way, mut times) in ["one after the other", "all at once"].into_iter().zip(seen) {
        let rounds = times.len();
        times.sort_unstable();
        let middle = times.get(rounds / 2).map_or(f64::NAN, |(took, _)| took.as_secs_f64() * 1e3);
        let longest = times.last().map_or(f64::NAN, |(took, _)| took.as_secs_f64() * 1e3);
        let mut pauses: Vec<u64> = times.iter().map(|(_, pause)| *pause).collect();
        pauses.sort_unstable();
        let ms = |pause: Option<&u64>| pause.map_or(f64::NAN, |ns| *ns as f64 / 1e6);
        println!(
            "{way:<20} {rounds} times: p50 {middle:.2} ms, longest {longest:.2} ms; \
             the queue that waited longest: p50 {:.2} ms, longest {:.2} ms",
            ms(pauses.get(rounds / 2)),
            ms(pauses.last()),
        );
    }
    Ok(())
}
