//! Lines that a peer sends to the control socket, answered by a fake daemon.

#![no_main]

use iocm::control::{RequestLine, answer};
use iocm::testing::MadeUpDaemon;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|lines: &[u8]| {
    let daemon = MadeUpDaemon::default();
    for line in lines.split(|byte| *byte == b'\n') {
        let outcome = RequestLine::parse(line).request.and_then(|request| answer(&daemon, &request));
        if let Err(error) = outcome {
            assert!(!error.message.is_empty() && error.errno.code() > 0);
        }
    }
});
