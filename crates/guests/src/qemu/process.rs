//! Child processes that end with this program, even if it is killed.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a command that runs under `setpriv --pdeathsig`, so that the kernel kills it when this program ends. The
/// signal is sent when the thread that started the process exits (PR_SET_PDEATHSIG), so all processes are started by
/// one thread that never exits.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                // Cannot fail: the caller waits for the answer.
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (sender, answer) = channel();
    spawner.send((command, sender)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}
