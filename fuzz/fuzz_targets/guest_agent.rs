//! What a QEMU guest agent answers: lines of JSON.

#![no_main]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use guests::{AgentGuest, Guest as _, Patience, Transport};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A guest that gives these answers, and is gone after the last one.
struct Answers(std::vec::IntoIter<Vec<u8>>);

impl Transport for Answers {
    fn ask(&mut self, request: &str) -> Result<Vec<u8>, String> {
        let _request: Value = serde_json::from_str(request).expect("a request of ours");
        self.0.next().ok_or_else(|| "it is gone".to_owned())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let answers: Vec<_> = bytes.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let ending = AtomicBool::new(true);
    let patience = Patience { limit: Duration::ZERO, ending: &ending };
    let guest = AgentGuest::with("vm", Box::new(Answers(answers.into_iter())), patience);
    if let Ok(mut guest) = guest
        && let Ok(mut armed) = guest.arm("true", Duration::from_millis(1))
        && armed.agree(0).is_ok()
    {
        let _ = armed.finish(&ending);
    }
});
