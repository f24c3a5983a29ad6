use super::*;
use crate::Direction;

const HLT: ExitReason = ExitReason::vmx(12);
const IO: ExitReason = ExitReason::vmx(30);
const PORT: Access = Access::Port { port: 0x60, direction: Direction::Read };

fn vcpu(vm: u32, number: u32) -> Vcpu {
    Vcpu { vm: Some(vm), number: Some(number), thread: Some(vm + number) }
}

fn profile(exits: &[(Vcpu, ExitReason, u64)]) -> Profile {
    let mut profile = Profile::new();
    for &(vcpu, reason, ns) in exits {
        let time_ns = 1_000_000 * ns;
        profile.span = Some(Span { first_ns: time_ns, last_ns: time_ns + ns });
        let row = profile.vcpu(vcpu).reasons.entry(reason).or_default();
        row.count += 1;
        row.handling.add(ns);
        if reason == IO {
            profile.vcpu(vcpu).accesses.entry(PORT).or_default().count += 1;
        }
        let series = profile.timeline.series(SeriesKey { vm: vcpu.vm, reason });
        profile.timeline.add(series, time_ns, Slice { count: 1, handling_ns: ns });
        profile.names.insert(vcpu.vm.unwrap(), "qemu".to_owned());
        *profile.events.entry("kvm:kvm_exit".to_owned()).or_default() += 1;
    }
    profile
}

#[test]
fn merging_adds_what_belongs_together() {
    let mut sum = profile(&[(vcpu(10, 0), HLT, 5)]);
    sum.losses.lost_events = 3;
    sum.merge(&profile(&[(vcpu(10, 1), IO, 9)]));
    sum.merge(&profile(&[(vcpu(10, 0), HLT, 7)]));
    assert_eq!(sum.vcpus().len(), 2);
    assert_eq!(sum.reasons()[&HLT].handling.total_ns(), 12);
    assert_eq!(sum.accesses()[&PORT].count, 1);
    assert_eq!((sum.total(), sum.counts().lost), (3, 3));
    assert_eq!(sum.span, Some(Span { first_ns: 5_000_000, last_ns: 9_000_009 }));
    assert_eq!(sum.events["kvm:kvm_exit"], 3);
}

#[test]
fn order_of_merging_does_not_matter() {
    let parts =
        [profile(&[(vcpu(2, 0), HLT, 5)]), profile(&[(vcpu(1, 0), IO, 9)]), profile(&[(vcpu(2, 0), IO, 1)])];
    let mut forth = Profile::new();
    parts.iter().for_each(|part| forth.merge(part));
    let mut back = Profile::new();
    parts.iter().rev().for_each(|part| back.merge(part));
    assert_eq!(forth, back);
}

#[test]
fn absorbing_is_merging_without_a_copy() {
    // The second part does not know the number of the first one's vCPU.
    let unknown = Vcpu { number: None, ..vcpu(2, 0) };
    let parts = [
        profile(&[(vcpu(2, 0), HLT, 5), (vcpu(3, 0), HLT, 8)]),
        profile(&[(vcpu(1, 0), IO, 9), (unknown, IO, 1), (vcpu(3, 0), HLT, 2)]),
    ];
    let (mut merged, mut absorbed) = (Profile::new(), Profile::new());
    for part in parts {
        merged.merge(&part);
        let place = |profile: &Profile, vm| {
            let found = profile.vcpus().iter().find(|one| one.vcpu.vm == Some(vm))?;
            found.reasons.values().next().map(std::ptr::from_ref)
        };
        let theirs = [1, 2, 3].map(|vm| place(&part, vm));
        let is_first = absorbed.vcpus().is_empty();
        absorbed.absorb(part);
        let kept = [1, 2, 3]
            .map(|vm| place(&absorbed, vm).is_some_and(|ours| theirs[vm as usize - 1] == Some(ours)));
        assert_eq!(kept, [!is_first, is_first, is_first]);
    }
    assert_eq!(merged, absorbed);
}

#[test]
fn a_part_has_the_timeline_of_its_vms() {
    let mut whole = profile(&[(vcpu(1, 0), HLT, 5)]);
    whole.merge(&profile(&[(vcpu(2, 0), HLT, 6)]));
    let part = whole.only(|vcpu| vcpu.vm == Some(2));
    assert_eq!(part.total(), 1);
    assert_eq!(part.timeline.iter().count(), 1);
    assert_eq!(part.names.keys().collect::<Vec<_>>(), [&2]);
    assert!(whole.only(|_| false).is_empty());
}

#[test]
fn files_keep_everything() {
    let mut whole = profile(&[(vcpu(1, 0), HLT, 5), (vcpu(1, 1), IO, 70)]);
    whole.losses.undecoded = 2;
    let json = serde_json::to_string(&whole).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&json).unwrap(), whole);
}

#[test]
fn the_memory_of_parsing_is_known_before_writing() {
    let mut whole = profile(&[(vcpu(1, 0), HLT, 5), (vcpu(1, 1), IO, 70), (vcpu(2, 0), HLT, 1_000_000)]);
    for profile in [whole.clone(), Profile::new(), {
        whole.timeline.fit(0);
        whole
    }] {
        let json = serde_json::to_string(&profile).unwrap();
        let read_with = |bytes: usize| {
            let _limit = parsing::limit(bytes as u64);
            serde_json::from_str::<Profile>(&json)
        };
        // The limit itself counts as too much.
        assert_eq!(read_with(profile.size_when_read() + 1).unwrap(), profile);
        assert!(profile == Profile::new() || read_with(profile.size_when_read()).is_err());
    }
}

#[test]
fn vcpus_that_are_grouped_anew_add_up() {
    let vcpus = [vcpu(1, 0), vcpu(1, 1), vcpu(2, 0), vcpu(3, 0)];
    let mut whole = profile(&vcpus.map(|vcpu| (vcpu, IO, 7 * u64::from(vcpu.vm.unwrap()))));
    let before = whole.clone();
    whole.regroup(|vcpu| Vcpu { vm: vcpu.vm.filter(|&vm| vm == 1), ..Vcpu::default() });
    let rows = whole.vcpus().iter().map(|of| (of.vcpu.vm, of.reasons[&IO].count, of.accesses[&PORT].count));
    assert_eq!(rows.collect::<Vec<_>>(), [(None, 2, 2), (Some(1), 2, 2)]);
    assert_eq!((whole.reasons(), whole.accesses()), (before.reasons(), before.accesses()));
    assert_eq!(whole.timeline.by_reason(), before.timeline.by_reason());
    let series =
        whole.timeline.iter().map(|(key, slices)| (key.vm, slices.iter().map(|one| one.count).sum()));
    assert_eq!(series.collect::<Vec<(_, u64)>>(), [(None, 2), (Some(1), 2)]);
    assert_eq!(whole.names.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn a_vcpu_whose_number_only_one_side_knows_is_one() {
    let unknown = Vcpu { number: None, ..vcpu(1, 0) };
    let parts = [profile(&[(unknown, HLT, 5)]), profile(&[(vcpu(1, 0), HLT, 6)])];
    for [first, second] in [[0, 1], [1, 0]] {
        let mut sum = parts[first].clone();
        sum.merge(&parts[second]);
        assert_eq!(sum.vcpus().len(), 1);
        assert_eq!(sum.vcpus()[0].vcpu, vcpu(1, 0));
        assert_eq!(sum.total(), 2);
    }
}

#[test]
fn a_vcpu_is_compared_with_those_of_its_vm_only() {
    let mut all = Profile::new();
    for (vm, number) in (0..300).flat_map(|vm| [(vm, 0), (vm, 1)]) {
        all.vcpu(vcpu(vm, number));
        all.vcpu(Vcpu { number: None, thread: Some(1000), ..vcpu(vm, 0) });
    }
    all.vcpu(Vcpu::default());
    for of in all.vcpus() {
        let candidates = &all.vcpus()[all.with_one_unknown_number(of.vcpu)];
        let expected = all.vcpus().iter().filter(|other| {
            other.vcpu.vm == of.vcpu.vm && other.vcpu.number.is_some() != of.vcpu.number.is_some()
        });
        assert!(candidates.iter().eq(expected), "{:?}", of.vcpu);
    }
}

#[test]
fn a_file_may_have_its_vcpus_in_any_order() {
    let whole = profile(&[(vcpu(1, 0), HLT, 5), (vcpu(2, 0), IO, 70)]);
    let mut json = serde_json::to_value(&whole).unwrap();
    let vcpus = json["vcpus"].as_array_mut().unwrap();
    vcpus.reverse();
    assert_eq!(serde_json::from_value::<Profile>(json.clone()).unwrap(), whole);
    let again = json["vcpus"][0].clone();
    json["vcpus"].as_array_mut().unwrap().push(again);
    let twice: Profile = serde_json::from_value(json).unwrap();
    assert_eq!((twice.vcpus().len(), twice.total()), (2, 3));
}

#[test]
fn a_time_of_another_clock_is_put_where_the_exits_are() {
    let mut profile = Profile::new();
    profile.set_length(5);
    assert_eq!(profile.span, Some(Span { first_ns: 0, last_ns: 5 }));
    assert!(!profile.is_of_two_clocks());
    let reason = ExitReason::vmx(12);
    let series = profile.timeline.series(crate::SeriesKey { vm: None, reason });
    let slice = crate::Slice { count: 1, handling_ns: 0 };
    let (second, start_ns) = (1_000_000_000, 50 << 20);
    profile.timeline.add(series, start_ns + 7, slice);
    profile.timeline.add(series, start_ns + second, slice);
    for (first_ns, last_ns, apart) in [
        (0, second / 100, true),
        (0, start_ns + second / 2, true),
        (0, start_ns + second, false),
        (start_ns + 7, start_ns + second, false),
        (start_ns + second / 2, u64::MAX, true),
        (5 * second, 6 * second, true),
    ] {
        profile.span = Some(Span { first_ns, last_ns });
        assert_eq!(profile.is_of_two_clocks(), apart, "{first_ns} to {last_ns}");
    }
    profile.set_length(2 * second);
    assert_eq!(profile.span, Some(Span { first_ns: start_ns, last_ns: start_ns + 2 * second }));
    assert!(!profile.is_of_two_clocks());
    // Exits are never behind its end.
    profile.set_length(second / 2);
    let end_ns = profile.span.unwrap().last_ns;
    assert!(end_ns <= start_ns + second && end_ns + profile.timeline.width_ns() > start_ns + second);
}
