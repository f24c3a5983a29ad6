//! The live page of exits, on a terminal in a laboratory.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time for a text to appear.
const LIMIT: Duration = Duration::from_secs(300);

/// An interactive shell in a laboratory. Dropping it hangs up its terminal, which ends the laboratory.
pub(crate) struct Typist {
    script: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    unread: VecDeque<u8>,
    seen: Vec<u8>,
}

impl Drop for Typist {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

impl Typist {
    pub(crate) fn at(lab: &str) -> Self {
        Self::of(&format!("{lab} --bare"))
    }

    /// Starts a shell in a laboratory with its disk.
    pub(crate) fn in_full(lab: &str) -> Self {
        Self::of(lab)
    }

    /// Starts a shell on a terminal of this size, and writes the terminal's path to the file `terminal`.
    pub(crate) fn at_a_window(arguments: &str, terminal: &Path, size: &str) -> Self {
        let shell = format!("exec {} lab shell {arguments}", env!("CARGO_BIN_EXE_exitless"));
        Self::typing_at(&format!("tty > {}; stty {size}; {shell}", terminal.display()))
    }

    fn of(arguments: &str) -> Self {
        Self::typing_at(&format!("{} lab shell {arguments}", env!("CARGO_BIN_EXE_exitless")))
    }

    fn typing_at(shell: &str) -> Self {
        // script(1) provides a terminal for the shell, and returns its status.
        let mut script = Command::new("script")
            .args(["-qec", shell, "/dev/null"])
            .env("TERM", "vt100")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (keys, mut output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { script, keys, screen, unread: VecDeque::new(), seen: Vec::new() }
    }

    /// Waits until a text appears after the last match.
    pub(crate) fn until(&mut self, wanted: &str) {
        let end = Instant::now() + LIMIT;
        self.seen.clear();
        while !self.seen.ends_with(wanted.as_bytes()) {
            match self.unread.pop_front() {
                Some(byte) => self.seen.push(byte),
                None => match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                    Ok(bytes) => self.unread.extend(bytes),
                    Err(_) => panic!("{wanted} did not appear: {}", String::from_utf8_lossy(&self.seen)),
                },
            }
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn leaves(mut self) -> Option<i32> {
        while self.screen.recv_timeout(LIMIT).is_ok() {}
        self.script.wait().unwrap().code()
    }
}

pub(crate) const TAKEN_OVER: &str = "\u{1b}[?1049h";
pub(crate) const GIVEN_BACK: &str = "\u{1b}[?1049l";

#[test]
fn the_page_leads_from_a_real_vm_to_its_registers_and_gives_the_terminal_back() {
    let mut typist = Typist::at("amd-svm");
    typist.until("# ");
    typist.types("stty rows 24 cols 80; export TERM=xterm; before=$(stty -g)\n");
    typist.until("# ");
    let load = "exitless probe --measure eoi --samples 30000 --blocks 10 --json > /dev/null 2>&1 &";
    typist.types(&format!("{load} exitless top --ascii\n"));
    typist.until(TAKEN_OVER);
    // The most frequent exit reason of the only VM.
    typist.until("msr");
    typist.types("\r");
    typist.until("p50");
    typist.types("\r");
    typist.until("EOI:W");
    typist.types("q");
    typist.until(GIVEN_BACK);
    typist.until("# ");
    typist.types("[ \"$before\" = \"$(stty -g)\" ]; echo differs''=$?\n");
    typist.until("differs=0");
    typist.types("exit 5\n");
    assert_eq!(typist.leaves(), Some(5));
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let mut typist = Typist::at("amd-svm");
    typist.until("# ");
    typist.types("stty rows 24 cols 80; export TERM=xterm; before=$(stty -g)\n");
    typist.until("# ");
    let attached = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q bpf.link";
    typist.types(&format!(
        "(until {attached}; do sleep 0.2; done; sleep 2; kill -HUP $(pidof exitless)) & \
         exitless top --ascii; echo status=$?\n"
    ));
    typist.until(TAKEN_OVER);
    typist.until(GIVEN_BACK);
    typist.until("status=0");
    typist.types("[ \"$before\" = \"$(stty -g)\" ]; echo differs''=$?\n");
    typist.until("differs=0");
    typist.types("exit 5\n");
    assert_eq!(typist.leaves(), Some(5));
}

/// All descendants of a process.
fn descendants(of: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let status = std::fs::read_to_string(entry.ok()?.path().join("status")).ok()?;
        let number = |name| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some((number("Pid:")?, number("PPid:")?))
    });
    let parents: Vec<(u32, u32)> = processes.collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        next += 1;
    }
    found.split_off(1)
}

#[test]
fn a_shell_whose_test_fails_leaves_no_emulator() {
    let mut typist = Typist::at("amd-svm");
    typist.until("# ");
    let started = descendants(typist.script.id());
    // The command, and its emulator.
    assert!(started.len() >= 2, "{started:?}");
    drop(typist);
    let is_gone = |process: &u32| !Path::new(&format!("/proc/{process}")).exists();
    crate::faults::soon("the end of all", || started.iter().all(is_gone));
}
