//! Traces of loads for the monitor's simulator.

#![no_main]

use iocm_monitor::simulator::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((trace, damage)) = Trace::parse(bytes) {
        assert_eq!(trace.check(), Ok(()));
        assert!(damage.iter().all(|one| one.offset < bytes.len() && !one.why.is_empty()));
        let mut written = Vec::new();
        trace.write(&mut written).expect("memory takes all");
        let (again, damage) = Trace::parse(&written).expect("what is written can be read");
        assert!(damage.is_empty() && again.groups == trace.groups);
        assert_eq!(again.phases.len(), trace.phases.len());
    }
});
