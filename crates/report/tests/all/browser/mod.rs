//! A headless Chromium, controlled by the DevTools protocol through a pair of named pipes. This needs no port and no script
//! in the page, and the page's content security policy stays in force.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Names of the program; the first one on PATH is used.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// The time limit of a page; the machine may be busy with other tests.
const LONGEST: Duration = Duration::from_secs(90);

pub(crate) struct Browser {
    process: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Messages on the page's console, and errors of the page.
    pub(crate) complaints: Vec<String>,
    _folder: TempDir,
}

impl Browser {
    /// A browser with one empty page; `None` if there is none on PATH.
    pub(crate) fn start() -> Option<Self> {
        let program = NAMES.into_iter().find(|name| is_on_path(name))?;
        let folder = tempfile::tempdir().unwrap();
        let [to, from] = ["to", "from"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").args([&to, &from]).status().unwrap().success());
        let process = Command::new("sh")
            .arg("-c")
            .arg(
                "to=$1 from=$2 data=$3 program=$4; exec \"$program\" --headless --no-sandbox --disable-gpu \
                 --disable-dev-shm-usage --no-first-run --user-data-dir=\"$data\" --remote-debugging-pipe about:blank \
                 3<\"$to\" 4>\"$from\"",
            )
            .arg("sh")
            .args([&to, &from, &folder.path().join("data")])
            .arg(program)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Open them in the same order as the shell, because opening a FIFO blocks until the other side opens it.
        let to = File::options().write(true).open(to).unwrap();
        let messages = BufReader::new(File::open(from).unwrap());
        let (sender, from) = channel();
        std::thread::spawn(move || {
            for message in messages.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { break };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser =
            Self { process, to, from, session: None, number: 0, complaints: Vec::new(), _folder: folder };
        let page = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", &target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sets the width of the window in CSS pixels, and the reader's preference for dark pages.
    pub(crate) fn look(&mut self, width: u32, is_dark: bool) {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", &features);
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.go(&format!("file://{}", file.display()));
    }

    /// Opens an address and waits until it is loaded.
    pub(crate) fn go(&mut self, address: &str) {
        self.ask("Page.navigate", &json!({ "url": address }));
        while self.evaluate("document.readyState") != "complete" || self.evaluate("document.title") == "" {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The value of an expression on the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let answer =
            self.ask("Runtime.evaluate", &json!({ "expression": expression, "returnByValue": true }));
        answer["result"]["value"].clone()
    }

    /// Evaluates an expression until it is true.
    pub(crate) fn until(&mut self, expression: &str) {
        let began = std::time::Instant::now();
        while self.evaluate(expression) != true {
            assert!(began.elapsed() < LONGEST, "never: {expression}: {:?}", self.complaints);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses and releases a key, such as `Tab` or `Enter`.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            _ => panic!("{key} has no code here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" {
                event["text"] = json!(text);
            }
            self.ask("Input.dispatchKeyEvent", &event);
        }
    }

    /// Types a text into the focused element.
    pub(crate) fn write(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({ "text": text }));
    }

    /// Saves a picture of the whole page.
    pub(crate) fn picture(&mut self, file: &Path) {
        let answer =
            self.ask("Page.captureScreenshot", &json!({ "format": "png", "captureBeyondViewport": true }));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, base64(answer["data"].as_str().unwrap())).unwrap();
    }

    /// Prints the page to a file.
    pub(crate) fn print(&mut self, file: &Path) -> usize {
        let answer = self.ask("Page.printToPDF", &json!({}));
        let bytes = base64(answer["data"].as_str().unwrap());
        std::fs::write(file, &bytes).unwrap();
        bytes.len()
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.from.recv_timeout(LONGEST).unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == json!(self.number) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let told = ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"];
        if event["method"].as_str().is_some_and(|method| told.contains(&method)) {
            self.complaints.push(event["params"].to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ask it to close, and kill it only if it does not respond.
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        for _ in 0..100 {
            if matches!(self.process.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Base64 (RFC 4648, section 4).
fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|&letter| letter != b'=').collect();
    let groups = letters.chunks(4).flat_map(|chunk| {
        let bits =
            chunk.iter().enumerate().fold(0, |bits, (at, &letter)| bits | value(letter) << (18 - 6 * at));
        (0..chunk.len() - 1).map(move |byte| (bits >> (16 - 8 * byte)) as u8).collect::<Vec<_>>()
    });
    groups.collect()
}
