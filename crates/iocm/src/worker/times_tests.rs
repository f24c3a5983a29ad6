//! The times of workers and queues, and the kicks that were asked for.

use super::*;
use crate::clock::ticks;
use crate::statistics::{QueueFigures, WorkerFigures};

/// All ticks of a worker until it was read.
fn life(figures: &WorkerFigures) -> u64 {
    figures.awake_ticks + figures.napped_ticks + figures.slept_ticks
}

fn presence(figures: &QueueFigures) -> u64 {
    figures.unkicked_ticks + figures.slept_ticks
}

/// Serves requests, with pauses in which a worker naps or sleeps.
fn requests(guest: &mut Guest, count: u64) {
    for sector in 0..count {
        guest.submit(0, sector, &[], 4096).unwrap();
        guest.ended();
        if sector % 50 == 49 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_time_of_a_worker_is_worked_polled_napped_or_slept() {
    for polling in [Polling::default(), Polling::Always, Polling::Never] {
        let routes = Routes::new();
        let before = ticks();
        let worker = worker(&routes, polling);
        let (began, null) = (ticks(), null());
        // A disk's completions are waited for with rests.
        let (_file, disk) = disk(4 << 20);
        let (mut guest, queue) = Guest::new(&null, FEATURES);
        let (mut other, other_queue) = Guest::new(&disk, FEATURES);
        worker.add(queue);
        worker.add(other_queue);
        requests(&mut guest, 200);
        let first = worker.counters().read();
        requests(&mut other, 200);
        std::thread::sleep(Duration::from_millis(20));
        let seen = ticks();
        let figures = worker.counters().read();
        let read = ticks();
        let all = life(&figures);
        // Between two states no stopwatch runs, for as long as two stores take, or longer if the thread is preempted
        // there.
        let least = (seen - began) * 9 / 10;
        assert!(all >= least && all <= read - before, "{polling:?}: {figures:?} in {} ticks", read - before);
        assert!(figures.useful_ticks > 0 && figures.useful_ticks <= figures.awake_ticks, "{figures:?}");
        assert_eq!(
            figures.slept_ticks > first.slept_ticks,
            polling != Polling::Always,
            "{polling:?}: {figures:?}"
        );
    }
}

#[test]
fn the_time_of_a_queue_is_polled_or_left_to_kicks() {
    for polling in [Polling::default(), Polling::Always, Polling::Never] {
        let routes = Routes::new();
        let workers = [worker(&routes, polling), worker(&routes, polling)];
        let (mut guest, queue) = Guest::new(&null(), FEATURES);
        let key = queue.key;
        let before = ticks();
        workers[0].add(queue);
        requests(&mut guest, 100);
        assert_eq!(workers[0].hand_over([(key, &workers[1])]).unwrap(), []);
        // The time until the other worker has the queue is nobody's. It has it when it serves a request.
        requests(&mut guest, 1);
        let began = ticks();
        requests(&mut guest, 100);
        std::thread::sleep(Duration::from_millis(20));
        let seen = ticks();
        let figures = guest.state.counters.read();
        let ended = ticks();
        let all = presence(&figures);
        assert!(all >= seen - began && all <= ended - before, "{polling:?}: {figures:?}");
        let QueueFigures { unkicked_ticks, useful_ticks, napped_ticks, slept_ticks, .. } = figures;
        assert!(
            useful_ticks > 0 && useful_ticks + napped_ticks <= unkicked_ticks,
            "{polling:?}: {figures:?}"
        );
        match polling {
            Polling::Always => assert_eq!((slept_ticks, figures.kicks_asked), (0, 0), "{figures:?}"),
            _ => assert!(slept_ticks > 0 && figures.kicks_asked > 0, "{polling:?}: {figures:?}"),
        }
        // The time of a queue stops when it leaves its worker.
        let [first, second] = workers;
        assert_eq!((first.stop().unwrap().len(), second.stop().unwrap().len()), (0, 1));
        let left = presence(&guest.state.counters.read());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(presence(&guest.state.counters.read()), left, "{polling:?}");
    }
}

/// With an event index each request for a kick is one for a single kick.
#[test]
fn no_more_kicks_come_than_were_asked_for() {
    let routes = Routes::new();
    let worker = worker(&routes, Polling::Never);
    let (mut guest, queue) = Guest::new(&null(), FEATURES);
    worker.add(queue);
    requests(&mut guest, 100);
    let QueueFigures { kicks, kicks_asked, requests, kicks_saved, .. } = guest.state.counters.read();
    assert!(kicks > 0 && kicks <= kicks_asked, "{kicks} of {kicks_asked}");
    assert!(
        kicks_saved <= requests && requests <= kicks_saved + kicks,
        "{requests}: {kicks_saved} and {kicks}"
    );
}
