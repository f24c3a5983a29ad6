//! For how long nobody serves a queue that goes from one worker to another, while its front-end keeps 32 requests under way.

use crate::Outcome;
use crate::block_peers::front_end::drive;
use iocm::config::Config;
use iocm::daemon::Daemon;
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// Moves a queue until its front-end ends, and prints how long it was in nobody's hands.
pub(crate) fn print(directory: &Path, image: &Path) -> Outcome<()> {
    std::fs::write(image, vec![1; 16 << 20])?;
    let socket = directory.join("moved");
    let text = format!(
        "[workers]\ncount = 2\n[[device]]\nname = \"d\"\ntype = \"block\"\nsocket = {socket:?}\npath = {image:?}\n"
    );
    let daemon = Daemon::start(&Config::parse(&text)?)?;
    let driver = std::thread::spawn(move || drive(&socket, 32, 0.0).map_err(|error| error.to_string()));
    let posts = daemon.posts();
    let queue = &posts.first().and_then(|post| post.served.queues.first()).ok_or("no queue")?;
    let mut pauses = Vec::new();
    while !driver.is_finished() {
        std::thread::sleep(Duration::from_millis(2));
        let key = *queue.key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = key.and_then(|key| daemon.pool().place(key)).map(|at| 1 - at.min(1)) else { continue };
        let before = queue.state.moves.count.get();
        // It fails when the front-end has just gone.
        if key.is_some_and(|key| daemon.pool().move_queue(key, to).is_ok()) {
            std::thread::sleep(Duration::from_millis(2));
            if queue.state.moves.count.get() > before {
                pauses.push(queue.state.moves.last_pause_ns.get());
            }
        }
    }
    let requests = driver.join().map_err(|_| "a front-end failed")??.len();
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
