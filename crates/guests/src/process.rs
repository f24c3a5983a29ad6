//! Child processes that end with this program, even if it is killed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

/// The command for a program that the kernel kills when this program ends, if [`spawn`] starts it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Starts a [`command`]. Its signal is sent when the thread that started the process exits (PR_SET_PDEATHSIG), so all
/// processes are started by one thread that never exits.
///
/// The process has a group of its own, so that the terminal's signals reach only this program, which ends its guests in
/// order, or goes on under nohup(1): QEMU ends on a hang-up even if that is ignored when it starts.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
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
    command.process_group(0);
    spawner.send((command, sender)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_the_terminal_does_not_reach_a_guest() {
        // proc_pid_stat(5): the ID, the command's name, the state, the parent, the process group.
        let script = "read -r _ _ _ _ group _ </proc/$$/stat; [ $group = $$ ]";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        assert!(spawn(command).unwrap().wait().unwrap().success());
    }
}
