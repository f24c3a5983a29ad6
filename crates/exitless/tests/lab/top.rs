//! The live page of exits, on a terminal in a laboratory.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An interactive shell in a laboratory.
pub(crate) struct Typist {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: Vec<u8>,
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
        let (keys, screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
        Self { script, keys, screen, seen: Vec::new() }
    }

    /// Waits until a text appears after the last match.
    pub(crate) fn until(&mut self, wanted: &str) {
        let mut byte = [0];
        self.seen.clear();
        while !self.seen.ends_with(wanted.as_bytes()) {
            let read = self.screen.read(&mut byte).unwrap();
            assert!(read == 1, "{wanted} did not appear: {}", String::from_utf8_lossy(&self.seen));
            self.seen.extend(byte);
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn leaves(mut self) -> Option<i32> {
        self.screen.read_to_end(&mut self.seen).unwrap();
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
    typist.types("(sleep 20; kill -HUP $(pidof exitless)) & exitless top --ascii; echo status=$?\n");
    typist.until(TAKEN_OVER);
    typist.until(GIVEN_BACK);
    typist.until("status=0");
    typist.types("[ \"$before\" = \"$(stty -g)\" ]; echo differs''=$?\n");
    typist.until("differs=0");
    typist.types("exit 5\n");
    assert_eq!(typist.leaves(), Some(5));
}
