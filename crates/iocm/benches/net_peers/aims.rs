//! The aims of the daemon, and the figures that it reached.

use crate::{Load, Peer};

/// Packets per CPU second, one entry for each round.
pub(crate) type Measured = (Peer, Load, f64);

fn median(results: &[Measured], peer: Peer, load: Load) -> Option<f64> {
    let wanted = |one: &&Measured| one.0 == peer && one.1 == load;
    let mut all: Vec<f64> = results.iter().filter(wanted).map(|one| one.2).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Prints each aim with the measured figure.
pub(crate) fn print(results: &[Measured], idle: &[(Peer, f64)]) {
    println!("\naims, by the medians of the rounds");
    for load in [Load::Sink, Load::Round] {
        for (peer, aim) in [(Peer::Testpmd, 0.75), (Peer::OpenVSwitch, 1.0)] {
            let own = median(results, Peer::Always, load);
            let what = format!("{}: packets a CPU second against {}", load.title(), peer.name());
            match own.zip(median(results, peer, load)) {
                None => println!("{what}: not measured"),
                Some((_, 0.0)) => println!("{what}: it forwarded nothing"),
                Some((own, other)) => {
                    let outcome = if own >= aim * other { "met" } else { "missed" };
                    println!("{what}: {:.2}, at least {aim}: {outcome}", own / other);
                }
            }
        }
    }
    for (peer, share) in idle.iter().filter(|(peer, _)| *peer == Peer::Adaptive) {
        let outcome = if *share < 0.005 { "met" } else { "missed" };
        println!("an idle device of {}: {:.2} % of a CPU, below 0.5: {outcome}", peer.name(), share * 100.0);
    }
}
