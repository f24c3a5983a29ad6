use super::*;

const ADAPTIVE: Polling = Polling::Adaptive { nap_ns: DEFAULT_NAP_NS };
/// The costs on a simulated host, nanoseconds: a wake-up by a kick and the time until it is there, a nap beyond its
/// length, a look at the queues, a request.
const WAKE_UP: u64 = 7_000;
const WAKE_UP_LATENCY: u64 = 5_000;
const NAP: u64 = 5_000;
const LOOK: u64 = 500;
const REQUEST: u64 = 200;

/// Requests of guests.
#[derive(Clone, Copy)]
enum Load {
    /// `burst` requests at once every `every` nanoseconds, however long earlier ones take.
    Open { every: u64, burst: u64 },
    /// `depth` requests at once, and again when the guest has thought about the answers for `think` nanoseconds.
    Closed { depth: u64, think: u64 },
}

/// A second of a load.
#[derive(Debug)]
struct Played {
    backoff: Backoff,
    now: u64,
    requests: u64,
    cpu: u64,
    /// Spins, naps and sleeps.
    steps: [u64; 3],
}

fn play(polling: Polling, load: Load, backoff: Backoff) -> Played {
    play_beside(0, polling, load, backoff)
}

/// The scheduler's tick, nanoseconds.
const TICK: u64 = 4_000_000;

/// The same beside this many programs that never wait: the guest and the worker have their CPUs for one tick, then the
/// others for one each.
fn play_beside(others: u64, polling: Polling, load: Load, mut backoff: Backoff) -> Played {
    let (mut now, mut cpu, mut due) = (1_000_000_000, 0, 1_000_000_000);
    let (mut requests, mut steps) = (0, [0; 3]);
    while now < 2_000_000_000 {
        let within = now % ((1 + others) * TICK);
        if within >= TICK {
            let lost = (1 + others) * TICK - within;
            (now, due) = (now + lost, due + lost);
        }
        let found = match load {
            _ if now < due => 0,
            Load::Open { every, burst } => {
                let bursts = (now - due) / every + 1;
                due += bursts * every;
                bursts * burst
            }
            Load::Closed { depth, think } => {
                due = now + depth * REQUEST + think;
                depth
            }
        };
        (now, cpu) = (now + found * REQUEST, cpu + found * REQUEST);
        if found > 0 {
            requests += found;
            backoff.found(found, now, polling, || cpu);
            continue;
        }
        match backoff.idle(polling, now) {
            Idle::Poll => {
                steps[0] += 1;
                (now, cpu) = (now + LOOK, cpu + LOOK);
            }
            Idle::Nap(ns) => {
                steps[1] += 1;
                backoff.slept(ns);
                (now, cpu) = (now + ns, cpu + NAP);
            }
            Idle::Sleep => {
                steps[2] += 1;
                let woken = due.max(now) + WAKE_UP_LATENCY;
                backoff.slept(woken - now);
                (now, cpu) = (woken, cpu + WAKE_UP);
            }
        }
    }
    Played { backoff, now, requests, cpu, steps }
}

/// The cost of a request, nanoseconds, and the requests of a second.
fn figures(polling: Polling, load: Load) -> (u64, u64) {
    let played = play(polling, load, Backoff::default());
    (played.cpu / played.requests, played.requests)
}

#[test]
fn each_load_costs_about_as_little_as_in_the_best_way() {
    for (load, way) in [
        // One device with bursts: naps that end before there is something to do cost more than a kick for each.
        (Load::Open { every: 130_000, burst: 5 }, Way::Kicks),
        // Many devices: a nap takes the place of several kicks.
        (Load::Open { every: 14_000, burst: 1 }, Way::Naps),
        (Load::Open { every: 25_000, burst: 1 }, Way::Naps),
        (Load::Open { every: 200_000, burst: 1 }, Way::Kicks),
        (Load::Open { every: 2_000, burst: 1 }, Way::Naps),
        // The next request is nearer than a wake-up, and comes the sooner the sooner the last is answered.
        (Load::Closed { depth: 32, think: 5_000 }, Way::Spin),
        (Load::Closed { depth: 1, think: 3_000 }, Way::Spin),
        (Load::Closed { depth: 1, think: 1_000_000 }, Way::Kicks),
    ] {
        let played = play(ADAPTIVE, load, Backoff::default());
        assert_eq!(played.backoff.way, way, "{played:?}");
        if way == Way::Kicks {
            let (cost, rate) = figures(ADAPTIVE, load);
            let (by_kicks, rate_by_kicks) = figures(Polling::Never, load);
            assert!(cost * 100 <= by_kicks * 105, "{cost} ns against {by_kicks}");
            assert!(rate * 100 >= rate_by_kicks * 99, "{rate} requests against {rate_by_kicks}");
        }
    }
}

/// On a busy machine windows end, too, and nothing that was learned is forgotten at each tick.
#[test]
fn a_worker_that_shares_its_cpu_finds_the_way_of_one_that_does_not() {
    let load = Load::Closed { depth: 1, think: 3_000 };
    for others in [0, 1, 2] {
        let played = play_beside(others, ADAPTIVE, load, Backoff::default());
        assert_eq!(played.backoff.way, Way::Spin, "beside {others}: {played:?}");
    }
}

#[test]
fn a_guest_that_waits_for_its_answers_is_not_made_to_wait_for_naps() {
    for (depth, think) in [(1, 12_000), (4, 20_000), (1, 100_000)] {
        let load = Load::Closed { depth, think };
        let (_, rate) = figures(ADAPTIVE, load);
        let (_, by_kicks) = figures(Polling::Never, load);
        assert!(rate * 100 >= by_kicks * 98, "depth {depth}: {rate} requests against {by_kicks}");
    }
}

#[test]
fn the_pages_name_the_bound_below_which_there_are_no_naps() {
    let said = format!("below {} there are no naps", SHORTEST_NAP_NS / 1000);
    let pages =
        [include_str!("../../../../docs/iocm.md"), include_str!("../../../../docs/man/exitless-iocm.7")];
    assert!(pages.iter().all(|page| page.contains(&said)), "{said}");
}

#[test]
fn a_nap_is_no_longer_than_the_longest_and_is_worth_its_timer() {
    let load = Load::Open { every: 25_000, burst: 1 };
    let mut played = play(ADAPTIVE, load, Backoff::default());
    assert!(played.steps[1] * DEFAULT_NAP_NS > 900_000_000, "most of the time is napped: {played:?}");
    let idle = played.backoff.idle(ADAPTIVE, played.now);
    assert!(matches!(idle, Idle::Nap(SHORTEST_NAP_NS..=DEFAULT_NAP_NS) | Idle::Sleep), "{idle:?}");
    let short = Polling::Adaptive { nap_ns: 10_000 };
    let played = play(short, Load::Open { every: 4_000, burst: 1 }, Backoff::default());
    assert_eq!(played.steps[1], 0);
}

/// In a window of 100 requests the worker has a CPU for 3 ms, sleeps for 2 ms, and waits for a CPU.
#[test]
fn the_gap_between_requests_has_no_time_in_which_the_worker_had_no_cpu() {
    let gap = |waited: u64| {
        let window = Window { began: 1_000_000_000, waits: 100, ..Window::default() };
        let mut backoff = Backoff { left: 1, last: 1_004_000_000, window, ..Backoff::default() };
        backoff.slept(2_000_000);
        backoff.found(100, 1_005_000_000 + waited, ADAPTIVE, || 3_000_000);
        backoff.trial.map(|trial| (trial.before.gap, backoff.rhythm))
    };
    for waited in [0, 2_000_000, 4_000_000] {
        assert_eq!(gap(waited), Some((50_000, 50_000)), "{waited}");
    }
}

#[test]
fn what_was_set_is_kept() {
    let load = Load::Open { every: 200_000, burst: 1 };
    assert_eq!(play(Polling::Always, load, Backoff::default()).steps[1..], [0, 0]);
    let load = Load::Closed { depth: 1, think: 1_000 };
    assert_eq!(play(Polling::Never, load, Backoff::default()).steps[..2], [0, 0]);
}

#[test]
fn it_falls_asleep_when_nothing_comes_any_more() {
    assert_eq!(Backoff::default().idle(ADAPTIVE, 1), Idle::Sleep);
    for way in [Way::Spin, Way::Naps] {
        let mut backoff = Backoff { way, last: 1_000, ..Backoff::default() };
        assert_ne!(backoff.idle(ADAPTIVE, 1_000), Idle::Sleep);
        assert_eq!(backoff.idle(ADAPTIVE, 500_000), Idle::Sleep);
        backoff.found(1, 1_000_000_000, ADAPTIVE, || 0);
        assert_eq!(backoff.way, Way::Kicks, "a rest makes the load unknown");
    }
}
