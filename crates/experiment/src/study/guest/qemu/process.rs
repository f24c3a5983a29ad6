//! Processes that end when this program ends, however it ends.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process under setpriv, so that the kernel kills it should this program be killed. The kernel goes by the
/// thread that started it (PR_SET_PDEATHSIG), so that one which lives as long as the program does it for all.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                // Who asked waits for the answer.
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (sender, answer) = channel();
    spawner.send((command, sender)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}
