//! A front-end's messages: the number of the request, the number of files, and the payload.

#![no_main]

use std::fs::File;
use std::os::fd::OwnedFd;

use iocm::protocol::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (code, files, payload) = input;
    let files = (0..files % 10).filter_map(|_| File::open("/dev/null").ok().map(OwnedFd::from)).collect();
    if let Err(why) = Request::parse(u32::from(code), payload, files) {
        assert!(!why.to_string().is_empty());
    }
});
