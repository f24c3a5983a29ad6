//! What a QEMU guest agent answers: lines of JSON, of which the first of a conversation ends a synchronization.

#![no_main]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use guests::{AgentGuest, Guest as _};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = folder.path().join("agent");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answers = bytes.split_inclusive(|&byte| byte == b'\n');
            // A conversation that went wrong is begun anew once; then the guest is gone.
            for _ in 0..2 {
                let Ok((stream, _)) = listener.accept() else { return };
                let mut lines = BufReader::new(&stream).split(b'\n');
                while let Some(Ok(line)) = lines.next() {
                    let line = line.strip_prefix(b"\xff").unwrap_or(&line);
                    let request: Value = serde_json::from_slice(line).expect("a request of ours");
                    let answer = if request["execute"] == "guest-sync-delimited" {
                        [
                            b"\xff",
                            json!({ "return": request["arguments"]["id"] }).to_string().as_bytes(),
                            b"\n",
                        ]
                        .concat()
                    } else {
                        let Some(answer) = answers.next() else { return drop(std::fs::remove_file(&path)) };
                        answer.to_vec()
                    };
                    if (&stream).write_all(&answer).is_err() {
                        break;
                    }
                }
            }
        });
        let guest = AgentGuest::connect("vm", &path, Duration::ZERO);
        if let Ok(mut guest) = guest {
            if let Ok(mut armed) = guest.arm("true", Duration::from_millis(1)) {
                if armed.agree(0).is_ok() {
                    let _ = armed.finish(&AtomicBool::new(true));
                }
            }
        }
        // The other side may wait for a connection still.
        drop(std::os::unix::net::UnixStream::connect(&path));
        drop(std::os::unix::net::UnixStream::connect(&path));
    });
});
