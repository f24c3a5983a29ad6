//! Processes that end with this program, however it ends.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process under setpriv, so that the kernel kills it if this program is killed. The signal follows
/// the thread that started the process (PR_SET_PDEATHSIG), so one thread that lives as long as the program
/// starts all processes.
pub(super) fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, answer) in orders {
                // The caller waits for the answer.
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (sender, answer) = channel();
    spawner.send((command, sender)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}
