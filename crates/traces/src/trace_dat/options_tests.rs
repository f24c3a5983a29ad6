use super::*;
use proptest::prelude::*;

fn facts(options: &[(u16, &[u8])], sections: bool) -> Facts {
    let mut facts = Facts::default();
    options.iter().for_each(|&(option, data)| facts.take(option, data, sections));
    facts
}

#[test]
fn what_options_say() {
    let rate = [3u32.to_le_bytes(), 2u32.to_le_bytes(), [0; 4], [0; 4]].concat();
    let facts = facts(
        &[
            (CLOCK, b"local [mono] x86-tsc\n\0"),
            (UNAME, b"Linux host 6.12.1 x86_64\0"),
            (DATE, b"0x10\0"),
            (OFFSET, b"-7\0"),
            (CPU_COUNT, &[4, 0, 0, 0]),
            (VERSION, b"3.3.1\0"),
            (TSC_TO_NANOSECONDS, &rate),
            (CPU_STATISTICS, b"CPU: 0\noverrun: 5\n\0"),
            (id::EVENT_FORMATS, &99u64.to_le_bytes()),
            (60, b"unknown"),
        ],
        true,
    );
    assert_eq!(facts.clock.as_deref(), Some("mono"));
    assert_eq!(facts.uname.as_deref(), Some("Linux host 6.12.1 x86_64"));
    assert_eq!((facts.offset_ns, facts.cpu_count), (16_000 - 7, Some(4)));
    assert_eq!(facts.tsc_rate, Some(TscRate { multiplier: 3, shift: 2 }));
    assert_eq!(facts.version.as_deref(), Some("3.3.1"));
    assert_eq!(facts.statistics, "CPU: 0\noverrun: 5\n\n");
    assert_eq!(facts.sections[&id::EVENT_FORMATS], 99);
}

#[test]
fn buffers_of_both_versions() {
    let mut data = 4096u64.to_le_bytes().to_vec();
    data.extend(b"guests\0");
    let old = &facts(&[(id::BUFFER, &data)], false).buffers[0];
    assert_eq!((old.offset, old.name.as_str(), old.processors.len()), (4096, "guests", 0));
    data.extend(b"tai\0");
    data.extend([16384u32, 1, 7].iter().flat_map(|number| number.to_le_bytes()));
    data.extend([8192u64, 500].iter().flat_map(|number| number.to_le_bytes()));
    let new = &facts(&[(id::BUFFER, &data)], true).buffers[0];
    assert_eq!((new.clock.as_deref(), new.page_size), (Some("tai"), 16384));
    assert_eq!(new.processors, [Processor { cpu: 7, offset: 8192, length: 500 }]);
    // A truncated option is ignored.
    data.pop();
    assert!(facts(&[(id::BUFFER, &data)], true).buffers.is_empty());
}

#[test]
fn options_and_buffers_have_a_limit() {
    let mut facts = Facts::default();
    assert!(facts.count(MOST_OPTIONS, 7).is_ok() && !facts.is_full());
    assert_eq!(facts.count(1, 8).unwrap_err().offset, 8);
    assert!(facts.is_full());
    let mut data = 4096u64.to_le_bytes().to_vec();
    data.push(0);
    (0..MOST_BUFFERS + 2).for_each(|_| facts.take(id::BUFFER, &data, false));
    assert_eq!((facts.buffers.len(), facts.further_buffers), (MOST_BUFFERS, 2));
    assert!(check_processors(MOST_PROCESSORS, 0).is_ok());
    assert!(check_processors(MOST_PROCESSORS + 1, 0).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(option in 0..30u16, data in proptest::collection::vec(any::<u8>(), 0..60), sections: bool) {
        let _ = facts(&[(option, &data)], sections);
    }
}
