//! Recordings that are damaged, unusual or incomplete.

use super::*;

#[test]
fn broken_records_cost_the_rest_of_their_window() {
    let written = Written::new()
        .window(0)
        .switch(5, IDLE0, 1, D1V0)
        .exit(10, 0x72)
        .then(0, &[])
        .entry(20)
        .window(1)
        .switch(5, (0x7fff, 1), 1, D2V1)
        .exit(12, 0x72)
        .entry(15)
        .window(0)
        .exit(30, 0x78)
        .entry(31)
        .switch(35, D1V0, 1, D2V1);
    let (reading, exits) = read(&written);
    assert_eq!(reading.damage.clone().unwrap().what, "no record begins with 0x00000000");
    assert!(reading.warnings.iter().any(|warning| warning.contains("16 bytes skipped")));
    // The vCPU on CPU 0 is not known after the damage.
    let expected = [(vcpu(D1V0), CPUID, None), (vcpu(D2V1), CPUID, Some(3)), (unknown_on(0), HLT, Some(1))];
    assert_eq!(times(&exits), expected);
}

#[test]
fn recordings_that_were_joined_are_noticed() {
    let one = Written::new().window(0).switch(5, IDLE0, 1, D1V0).exit(10, 0x78).bytes;
    let other = Written::new().window(0).entry(100).exit(110, 0x72).switch(120, D2V1, 1, D1V0).entry(130);
    let (reading, exits) = read_with(&[one, other.bytes].concat(), exact()).unwrap();
    // Until the switch nothing shows that the CPU runs another vCPU; after it everything is right again.
    assert_eq!(exits[0].handling_ns, Some(90));
    assert_eq!(reading.damage, None);
    assert_eq!(exits.iter().filter(|exit| exit.vcpu == vcpu(D1V0)).count(), exits.len());
}

#[test]
fn siblings_that_change_places_do_not_confuse_a_processor() {
    let written = Written::new()
        .window(0)
        .change(5, 0x7fff, 0, 0, 1)
        .change(6, 1, 0, 1, 0)
        .change(7, 0x7fff, 1, 0, 1)
        .change(8, 1, 1, 1, 0)
        .exit(10, 0x72)
        .entry(12);
    let (reading, exits) = read(&written);
    assert_eq!(times(&exits), [(vcpu(D1V0), CPUID, Some(2))]);
    assert!(reading.warnings[0].starts_with("2 times, a processor recorded"), "{:?}", reading.warnings);
}

#[test]
fn idle_processors_have_no_exits() {
    let written = Written::new().window(0).switch(5, D1V0, 2, IDLE0).exit(10, 0x72).entry(12);
    let (reading, exits) = read(&written);
    assert_eq!(exits.len(), 0);
    assert!(reading.warnings[0].starts_with("2 events (exits, entries and accesses)"));
}

/// Exits as Xen before 4.19 records them, with the handlers that follow.
fn before_4_19(exits: &[(u32, u32, &[u32])]) -> Written {
    exits.iter().zip((100u64..).step_by(10)).fold(Written::new().window(0), |written, (exit, ticks)| {
        let &(code, handler, words) = exit;
        let written = written.at(ticks, 0x0008_1102, &[code, 0, 0]).then(0x0008_2000 | handler, words);
        written.entry(ticks + 5)
    })
}

#[test]
fn the_instruction_set_follows_from_the_handlers() {
    let intel: [(u32, u32, &[u32]); 4] =
        [(12, 0x13, &[0]), (1, 0x0f, &[0xfb]), (0, 0x23, &[14]), (30, 0x216, &[0x70, 0])];
    let (reading, exits) = read(&before_4_19(&intel));
    assert_eq!(exits.iter().map(|exit| exit.reason).collect::<Vec<_>>(), [12, 1, 0, 30].map(ExitReason::vmx));
    assert!(!reading.warnings.iter().any(|warning| warning.contains("Intel")));

    let amd: [(u32, u32, &[u32]); 4] =
        [(0x78, 0x13, &[0]), (0x60, 0x0f, &[]), (0x10, 0x109, &[0, 0, 0]), (0x7b, 0x16, &[0x70, 0])];
    let (reading, exits) = read(&before_4_19(&amd));
    let codes = [0x78, 0x60, 0x10, 0x7b].map(ExitReason::svm);
    assert_eq!(exits.iter().map(|exit| exit.reason).collect::<Vec<_>>(), codes);
    assert!(!reading.warnings.iter().any(|warning| warning.contains("Intel")));
}

#[test]
fn little_evidence_is_said_and_users_know_better() {
    let unclear = before_4_19(&[(0x10, 0x20, &[0, 0, 0])]);
    let (reading, exits) = read(&unclear);
    assert_eq!(exits[0].reason, ExitReason::vmx(0x10));
    assert!(
        reading.warnings.iter().any(|warning| warning.contains("taken for vmx")),
        "{:?}",
        reading.warnings
    );
    let options = Options { isa: Some(Isa::Svm), ..exact() };
    let (reading, exits) = read_with(&unclear.bytes, options).unwrap();
    assert_eq!(exits[0].reason, ExitReason::svm(0x10));
    assert!(!reading.warnings.iter().any(|warning| warning.contains("taken for")));
    let options = Options { isa: Some(Isa::Vmx), ..exact() };
    let (reading, _) = read_with(&before_4_19(&[(0x78, 0x13, &[0])]).bytes, options).unwrap();
    assert!(reading.warnings.iter().any(|warning| warning.starts_with("1 exit taken for VMX's")));
}

#[test]
fn guests_of_guests_have_exits_of_their_own() {
    let written = Written::new()
        .window(0)
        .at(10, 0x0008_1503, &[0x72, 0, 0])
        .at(12, 0x0008_1401, &[])
        .at(20, 0x0008_1402, &[0x78, 0])
        .entry(21);
    let (_, exits) = read(&written);
    let expected = [(unknown_on(0), CPUID, Some(2)), (unknown_on(0), HLT, Some(1))];
    assert_eq!(times(&exits), expected);
}

#[test]
fn records_that_are_too_short_are_counted() {
    let written = Written::new()
        .window(0)
        .at(10, 0x0008_1103, &[0x72, 0])
        .at(11, 0x0008_1003, &[0x72])
        .then(0x0008_200c, &[1, 2])
        .then(0x0008_2117, &[1])
        .then(0x0008_2016, &[])
        .at(12, 0x0002_1001, &[])
        .entry(13);
    let (reading, exits) = read(&written);
    assert_eq!((reading.profile.losses.undecoded, exits.len()), (6, 0));
}

#[test]
fn the_frequency_is_what_the_scheduler_says() {
    // d1v0 repeatedly runs for 4 ms at 2 GHz.
    let written = (0..10u64).fold(Written::new().window(0), |written, turn| {
        let begin = 1_000_000_000 + turn * 10_000_000;
        let end = begin + 8_000_000;
        let written = written.switch(begin, IDLE0, 1, D1V0).exit(begin + 2_000, 0x72).entry(begin + 4_000);
        let words: &[u32] = if turn % 2 == 0 { &[1, 0, 4_000_000] } else { &[1, 4_000_000] };
        written.at(end, 0x0002_800e, words).switch(end + 1, D1V0, 1, IDLE0)
    });
    let (reading, exits) = read_with(&written.bytes, Options::default()).unwrap();
    assert_eq!(exits[0].handling_ns, Some(1_000));
    assert!(reading.warnings[0].contains("rest on 2.000 GHz, estimated"), "{:?}", reading.warnings);
    let told = Options { tsc_hz: Some(500_000_000), ..Options::default() };
    let (reading, exits) = read_with(&written.bytes, told).unwrap();
    assert_eq!((exits[0].handling_ns, reading.warnings.len()), (Some(4_000), 0));
    let short = Written::new().window(0).exit(2_400, 0x72).entry(4_800);
    let (reading, exits) =
        read_with(&short.bytes, Options { tsc_hz: Some(0), ..Options::default() }).unwrap();
    assert_eq!(exits[0].handling_ns, Some(1_000));
    assert!(reading.warnings[0].contains("an assumed 2.4 GHz"), "{:?}", reading.warnings);
}

#[test]
fn a_recording_without_guests_is_an_error_that_says_what_to_do() {
    let written = Written::new().window(0).switch(5, D1V0, 2, IDLE0).at(9, 0x0020_100d, &[1]);
    let error = read_with(&written.bytes, exact()).unwrap_err().to_string();
    assert_eq!(
        error,
        "a.trace has neither exits nor entries of guests (1 pv_0x20100d, 2 sched_runstate_change); record with \
         `xentrace -e 0xaf000` while an HVM or PVH guest runs"
    );
    // The damaged part may have had them.
    let (reading, _) = read_with(&written.bytes[..40], exact()).unwrap();
    assert!(matches!(reading.damage, Some(Damage { offset: 28, .. })), "{:?}", reading.damage);
}

#[test]
fn clocks_that_differ_are_noticed() {
    // CPU 1 is 100 ticks behind: d1v0 enters there before it has left CPU 0.
    let written = Written::new()
        .window(0)
        .switch(105, IDLE0, 1, D1V0)
        .exit(200, 0x72)
        .window(1)
        .entry(110)
        .exit(150, 0x78)
        .window(1)
        .switch(290, D1V0, 1, D2V1)
        .window(0)
        .exit(300, 0x72)
        .entry(310);
    let (reading, _) = read(&written);
    assert!(reading.profile.losses.exits_without_entry > 0);
    assert!(reading.warnings[0].contains("clocks of the processors"), "{:?}", reading.warnings);
}

#[test]
fn what_begins_like_a_recording() {
    let written = Written::new().window(0).exit(100, 0x72).entry(110).window(1).exit(105, 0x72);
    for cut in record::WINDOW..=written.bytes.len() {
        assert!(begins(&written.bytes[..cut]), "{cut}");
    }
    assert!(!begins(&[]));
    assert!(!begins(&written.bytes[..8]));
    assert!(!begins(&[0; 4096]));
    assert!(!begins(b"PERFILE2\0\0\0\0\0\0\0\0"));
    // The first window may be damaged, if the next one is not.
    let mut broken = written.bytes.clone();
    broken[12] = 0xff;
    assert!(begins(&broken));
    // The header alone is not enough if more should follow.
    let mut alone = written.bytes[..12].to_vec();
    alone.extend([0x20; 500]);
    assert!(!begins(&alone));
}

/// Records of all kinds, valid and invalid.
fn any_record() -> impl Strategy<Value = (u32, Option<u64>, Vec<u32>)> {
    let event = prop_oneof![
        Just(0x0008_1103u32),
        Just(0x0008_1001),
        Just(0x0008_1002),
        Just(0x0001_f001),
        Just(0x0002_800a),
        (0..0x400u32).prop_map(|minor| 0x0008_2000 | minor),
        (0..0x400u32).prop_map(|minor| 0x0002_1000 | minor),
        0..0x1000_0000u32,
    ];
    let words = proptest::collection::vec(prop_oneof![0..0x90u32, any::<u32>()], 0..8);
    (event, proptest::option::of(0..1000u64), words)
}

proptest! {
    #[test]
    fn no_recording_is_too_strange(
        windows in proptest::collection::vec((0..4u32, proptest::collection::vec(any_record(), 0..20)), 0..12),
    ) {
        let mut written = Written::new();
        let mut exits = 0;
        for (cpu, records) in windows {
            written = written.window(cpu);
            for (event, ticks, words) in records {
                let header = record::Header(event);
                exits += usize::from(header.plausible());
                written = match ticks {
                    Some(ticks) => written.at(ticks, event, &words[..words.len().min(7)]),
                    None => written.then(event, &words[..words.len().min(7)]),
                };
            }
        }
        if let Ok((reading, closed)) = read_with(&written.bytes, exact()) {
            prop_assert_eq!(reading.profile.total(), closed.len() as u64);
            prop_assert!(closed.len() <= exits);
            prop_assert_eq!(reading.origin.bytes, written.bytes.len() as u64);
        }
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let header = Written::new().window(0).exit(1, 2).bytes;
        let _ = read_with(&bytes, exact());
        let _ = read_with(&[header, bytes].concat(), exact());
    }
}

#[test]
fn thousands_of_broken_windows_are_read_through() {
    // Decreasing ticks, a CPU and a vCPU of its own for each window, and every third window damaged.
    let mut written = Written::new();
    for turn in 0..30_000u32 {
        let ticks = u64::from(1_000_000 - turn);
        written = written.window(turn % 16_384).lost(ticks, 1, turn % 0x7fff, 0, 0).exit(ticks, 0x72);
        let class = written.bytes.len() - 22;
        written.bytes[class] ^= u8::from(turn % 3 == 0);
    }
    let (reading, exits) = read(&written);
    assert!(reading.warnings.iter().any(|warning| warning.starts_with("10000 places")));
    assert_eq!((exits.len(), reading.profile.losses.lost_events), (20_000, 30_000));
}
