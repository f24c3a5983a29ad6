//! The stream by which runs come from another machine: any bytes end with an error, and take no more memory than they are.

#![no_main]

use libfuzzer_sys::fuzz_target;
use study::stream::{LARGEST_CHUNK, Message, Reader};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = Reader::begin(bytes) else { return };
    while let Ok(message) = reader.message::<Message>() {
        assert!(reader.offset() <= bytes.len() as u64);
        let Message::Run { files, .. } = message else { continue };
        for file in files {
            let mut left = file.length;
            while left > 0 {
                let Ok(chunk) = reader.chunk() else { return };
                assert!(chunk.len() <= LARGEST_CHUNK as usize);
                if chunk.is_empty() {
                    return;
                }
                left = left.saturating_sub(chunk.len() as u64);
            }
        }
    }
});
