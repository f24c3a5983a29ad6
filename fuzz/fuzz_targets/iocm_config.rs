//! The I/O daemon's file, and the lines by which workers and devices are added: what is read can be written and is the
//! same.

#![no_main]

use iocm::config::{Config, DeviceConfig, WorkerConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::parse(text) {
        let written = config.text().expect("what was read can be written");
        assert_eq!(Config::parse(&written).expect("what was written can be read"), config, "{written}");
        for number in 0..4 {
            let _ = config.workers.worker(number);
        }
    }
    if let Ok(device) = DeviceConfig::parse(text) {
        assert!(!device.name.is_empty());
    }
    let _ = WorkerConfig::parse(text);
});
