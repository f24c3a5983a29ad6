use super::*;
use proptest::prelude::*;

fn facts(options: &[(u16, &[u8])], sections: bool) -> Facts {
    let mut facts = Facts::default();
    options.iter().for_each(|&(option, data)| facts.take(option, data, 100, sections));
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
fn numbers_have_one_sign() {
    for (text, expected) in [("0x10", 16), ("-0x10", -16), ("-7", -7), ("x", 0), ("--7", 0), ("-0x-10", 0)] {
        assert_eq!(number(text.as_bytes()), expected, "{text}");
    }
    for smallest in ["--9223372036854775808", "-0x-8000000000000000"] {
        assert_eq!(number(smallest.as_bytes()), 0, "{smallest}");
    }
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
}

#[test]
fn buffers_beyond_the_limits_are_flaws() {
    let buffer = |count: u32, processors: &[(u32, u64, u64)]| {
        let mut data = [&4096u64.to_le_bytes()[..], b"\0tai\0", &4096u32.to_le_bytes()].concat();
        data.extend(count.to_le_bytes());
        for (cpu, offset, length) in processors {
            data.extend(cpu.to_le_bytes());
            data.extend([offset, length].iter().flat_map(|number| number.to_le_bytes()));
        }
        data
    };
    let seven = (7, 8192, 500);
    let whole = buffer(1, &[seven]);
    let (cut, many) = (&whole[..whole.len() - 1], buffer(8193, &[]));
    let none = facts(&[(id::BUFFER, cut), (id::BUFFER, &many)], true);
    let what = ["option BUFFER: the option ends", "option BUFFER: a buffer of 8193 CPUs (at most 8192)"];
    // The last number of the CPU, and the end of the number of CPUs.
    let flaws = [Flaw::new(what[0], 100 + 33), Flaw::new(what[1], 100 + 21)];
    assert_eq!((none.buffers.len(), &none.flaws[..]), (0, &flaws[..]));
    let some = facts(&[(id::BUFFER, &buffer(3, &[(70_000, 1, 1), seven, (80_000, 2, 2)]))], true);
    assert_eq!(some.buffers[0].processors, [Processor { cpu: 7, offset: 8192, length: 500 }]);
    assert_eq!(some.flaws, [Flaw::new("option BUFFER: data of CPU 70000 (at most 65535)", 100 + 21)]);
    let mut endless = 4096u64.to_le_bytes().to_vec();
    endless.resize(5000, b'a');
    let text = facts(&[(id::BUFFER_TEXT, &endless)], true);
    assert_eq!(text.flaws, [Flaw::new("option BUFFER_TEXT: a text of more than 255 bytes", 100 + 8)]);
}

#[test]
fn options_and_buffers_have_a_limit() {
    let mut facts = Facts::default();
    assert!(facts.count(MOST_OPTIONS, 7).is_ok() && !facts.is_full());
    assert_eq!(facts.count(1, 8).unwrap_err().offset, 8);
    assert!(facts.is_full());
    let mut data = 4096u64.to_le_bytes().to_vec();
    data.push(0);
    facts.take(id::BUFFER, &data[..5], 0, false);
    (0..MOST_BUFFERS + 2).for_each(|_| facts.take(id::BUFFER, &data, 0, false));
    assert_eq!((facts.flaws.len(), facts.buffers.len(), facts.further_buffers), (1, MOST_BUFFERS - 1, 3));
    assert!(check_processors(MOST_PROCESSORS, 0).is_ok());
    assert!(check_processors(MOST_PROCESSORS + 1, 0).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(option in 0..30u16, data in proptest::collection::vec(any::<u8>(), 0..60), sections: bool) {
        let _ = facts(&[(option, &data)], sections);
    }
}
