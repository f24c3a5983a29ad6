use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::*;

/// The number of `getppid` as a reason.
const GETPPID: exits::ExitReason = exits::ExitReason::vmx(110);

#[test]
fn losses_are_told_once_also_if_they_could_not_be_read_in_between() {
    let mut told = Told::default();
    assert_eq!([5, 7, 0, 3, 7, 9].map(|sum| told.more(sum)), [5, 2, 0, 0, 0, 2]);
}

#[test]
fn what_was_kept_meanwhile_is_given_with_the_rest() {
    let Some(mut collector) = attached() else { return };
    let began_ns = collector.since_ns;
    let is_whole = |profile: &Profile, made: u64| {
        let counted = profile.reasons().get(&GETPPID).map_or(0, |exits| exits.count);
        let lost = profile.losses.lost_exits;
        assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
        assert_eq!(profile.events["kvm:kvm_exit"], profile.total());
    };
    // Not yet: a minute has not passed.
    call(100);
    collector.keep().unwrap();
    assert!(collector.kept.is_empty());
    collector.keep_after(Duration::ZERO).unwrap();
    assert!(!collector.kept.is_empty());
    assert_eq!(collector.began_ns(), began_ns);
    call(100);
    let both = collector.take().unwrap();
    is_whole(&both, 200);
    assert_eq!(both.span.map(|span| span.first_ns), Some(began_ns));
    call(100);
    collector.keep_after(Duration::ZERO).unwrap();
    call(100);
    is_whole(&collector.finish().unwrap(), 200);
}

#[test]
fn exits_are_known_by_the_interval_in_which_they_were_counted() {
    let Some(mut collector) = attached() else { return };
    let mut sum = Profile::new();
    for _ in 0..2 {
        call(100);
        thread::sleep(Duration::from_millis(5));
        let interval = collector.take().unwrap();
        assert!(interval.timeline.width_ns() >= interval.span.unwrap().length_ns());
        sum.merge(&interval);
    }
    let slices = sum.timeline.by_reason().remove(&GETPPID).unwrap_or_default();
    let counted = sum.reasons().get(&GETPPID).map_or(0, |exits| exits.count);
    assert!(counted + sum.losses.lost_exits >= 200, "{counted}, {:?}", sum.losses);
    assert_eq!(slices.iter().map(|slice| slice.count).sum::<u64>(), counted);
}

/// A collector of this process's system calls, if this user may attach one.
fn attached() -> Option<Collector> {
    let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
    Collector::attach_to_system_calls(&watch).inspect_err(|error| eprintln!("not tested: {error}")).ok()
}

fn call(times: u32) {
    for _ in 0..times {
        // SAFETY: takes nothing and changes nothing.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

#[test]
fn the_last_exits_of_a_thread_that_ended_are_not_freed_before_they_are_read() {
    let Some(mut collector) = attached() else { return };
    let (go, wait) = channel::<()>();
    let caller = thread::spawn(move || {
        wait.recv().unwrap();
        for _ in 0..100 {
            // SAFETY: takes nothing and changes nothing.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    });
    // As in the middle of a reading: the next epoch has begun, and the thread counts in it and ends.
    let epoch = collector.epoch;
    collector.epoch += 1;
    collector.epoch_map.set(0, collector.epoch, 0).unwrap();
    waiting::wait_for_programs();
    go.send(()).unwrap();
    caller.join().unwrap();
    collector.cells.read(epoch, &BTreeSet::new(), &mut Profile::new()).unwrap();
    collector.cells.free(epoch, |_| false).unwrap();
    let profile = collector.finish().unwrap();
    let counted = profile.reasons().get(&GETPPID).map_or(0, |exits| exits.count);
    assert!(counted <= 100 && counted + profile.losses.lost_exits >= 100, "{counted}, {:?}", profile.losses);
}

#[test]
fn a_full_map_is_remembered_until_the_next_reading() {
    const CALLS: [libc::c_long; 7] = [
        libc::SYS_getppid,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_getegid,
    ];
    let watch = Watch { processes: Some(vec![std::process::id()]), room: Some(3), ..Watch::default() };
    // On a busy machine, all of these calls may be made while the kernel has preempted a thread within a program.
    for _ in 0..50 {
        let mut collector = match Collector::attach_to_system_calls(&watch) {
            Ok(collector) => collector,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        // More reasons than the six cells for which there is room.
        for number in CALLS {
            for _ in 0..100 {
                // SAFETY: takes nothing and changes nothing.
                unsafe { libc::syscall(number) };
            }
        }
        // The reading's own calls would fill the map again.
        collector.attached.end().unwrap();
        let have_room = |collector: &Collector| collector.cells.have_room.get(&0, 0).unwrap();
        let was_full = have_room(&collector).contains(&0);
        let profile = collector.take().unwrap();
        let without_vcpu: u64 = profile
            .vcpus()
            .iter()
            .filter(|one| one.vcpu.vm.is_none())
            .flat_map(|one| one.reasons.values())
            .map(|exits| exits.count)
            .sum();
        assert_eq!(profile.losses.exits_without_vcpu, without_vcpu);
        assert_eq!(have_room(&collector), [1, 1]);
        if was_full && without_vcpu > 0 {
            return;
        }
    }
    panic!("the map was never full");
}

/// `BPF_PROG_TEST_RUN` of include/uapi/linux/bpf.h, and its part of `union bpf_attr`.
const TEST_RUN: i32 = 10;
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_sizes: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    processor: u32,
}

/// Runs the program for MSR reads with this register, as if in a system call of this thread.
fn read_register(collector: &Collector, number: u64) {
    run(&collector.attached.ebpf, "raw_msr", [0, number, 0, 0]);
}

/// Runs the program for MMIO with a write of four bytes.
fn store(collector: &Collector, address: u64) {
    run(&collector.attached.ebpf, "raw_mmio", [2, 4, address, 0]);
}

fn run(ebpf: &aya::Ebpf, name: &str, arguments: [u64; 4]) {
    let program = ebpf.program(name).unwrap();
    let attributes = TestRun {
        program: program.fd().unwrap().as_fd().as_raw_fd().cast_unsigned(),
        context_sizes: [size_of_val(&arguments) as u32, 0],
        contexts: [arguments.as_ptr() as u64, 0],
        ..TestRun::default()
    };
    // SAFETY: the attributes, and the arguments that they point to, live until the call returns.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, TEST_RUN, &raw const attributes, size_of::<TestRun>()) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// Simulates an AMD vCPU that is halted, sends an IPI through its x2APIC, and is halted after another access to its
/// APIC, with KVM's order of events before Linux 6.5. Returns the vCPU's number.
pub(super) fn send_ipi(ebpf: &aya::Ebpf) -> u32 {
    // The exit code is at byte 120 of the VMCB, to which the first word of the vCPU points (`Layout::SYSTEM_CALL`).
    let vmcb: [AtomicU64; 16] = Default::default();
    let vcpu = [vmcb.as_ptr() as u64];
    let event = |name, arguments: [u64; 2]| run(ebpf, name, [arguments[0], arguments[1], 0, 0]);
    let exit = |reason: u64| {
        vmcb[15].store(reason, Ordering::Relaxed);
        event("raw_exit", [vcpu.as_ptr() as u64, 0]);
    };
    let enter = || event("raw_entry", [vcpu.as_ptr() as u64, 0]);
    exit(0x78);
    enter();
    event("raw_apic", [1, 0x300]);
    event("raw_msr", [1, 0x830]);
    exit(0x7c);
    enter();
    event("raw_apic", [1, 0x300]);
    exit(0x78);
    enter();
    vcpu[0] as u32
}

pub(super) const ICR: Access = Access::Apic { register: 0x300, direction: exits::Direction::Write };
pub(super) const ICR_AS_MSR: Access = Access::Msr { number: 0x830, direction: exits::Direction::Write };

#[test]
fn an_ipi_that_is_traced_before_its_exit_is_counted_as_part_of_it() {
    let watch = Watch { processes: Some(vec![std::process::id()]), accesses: true, ..Watch::default() };
    let wanted = Wanted { pair: Pair::SystemCalls, ..watch.wanted(Purpose::Count, Isa::Svm) };
    let mut collector = match Collector::attached(Path::new("/"), &watch, &wanted) {
        Ok(collector) => collector,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    // Ignore the system calls of this thread.
    collector.attached.links.clear();
    let collector = collector.begun().unwrap();
    send_ipi(&collector.attached.ebpf);
    let profile = collector.finish().unwrap();
    let numbers = |exits: &exits::Exits| (exits.count, exits.handling.count());
    let reasons = profile.reasons();
    let [msr, hlt] = [0x7c, 0x78].map(|code| &reasons[&exits::ExitReason::svm(code)]);
    assert_eq!((numbers(msr), numbers(hlt)), ((1, 1), (2, 2)));
    let accesses = profile.accesses();
    assert_eq!(numbers(&accesses[&ICR_AS_MSR]), (1, 1));
    assert_eq!(accesses[&ICR_AS_MSR].handling.max_ns(), msr.handling.max_ns(), "from the exit's event on");
    // The second one is not followed by an exit for a register access.
    assert_eq!(numbers(&accesses[&ICR]), (2, 1));
}

#[test]
fn a_guest_that_goes_through_all_registers_takes_no_room_of_exits() {
    // The limit for all vCPUs, and that for one (`MOST_ACCESS_CELLS_OF_VCPU`).
    for (room, most) in [(1_000, 1_000), (20_000, 16_384)] {
        let watch = Watch {
            processes: Some(vec![std::process::id()]),
            accesses: true,
            room: Some(room),
            ..Watch::default()
        };
        let mut collector = match Collector::attach_to_system_calls(&watch) {
            Ok(collector) => collector,
            Err(error) => return eprintln!("not tested: {error}"),
        };
        let made = 3 * most as u64;
        let (first, second) = (0..most as u64 / 2, most as u64 / 2..made);
        first.for_each(|number| read_register(&collector, number));
        let mut sum = collector.take().unwrap();
        second.for_each(|number| read_register(&collector, number));
        // A thread that has no cell yet.
        thread::spawn(|| call(100)).join().unwrap();
        let taken = |collector: &Collector| collector.cells.of_accesses.get(&0, 0).unwrap();
        assert_eq!(taken(&collector), most as u64);
        let interval = collector.take().unwrap();
        let exits: u64 =
            interval.vcpus().iter().filter_map(|one| one.reasons.get(&GETPPID)).map(|one| one.count).sum();
        sum.merge(&interval);
        let Losses { lost_exits, lost_events: lost, .. } = sum.losses;
        assert!(exits <= 100 && exits + lost_exits >= 100, "{exits} exits, {lost_exits} lost");
        let without_place = sum.vcpus().iter().find(|one| one.vcpu.vm.is_none());
        assert!(without_place.is_none(), "{without_place:?}");

        let accesses = sum.accesses();
        let counted: u64 = accesses.values().map(|exits| exits.count).sum();
        assert!(counted <= made && counted + lost >= made, "{counted} of {made}, {lost} lost");
        let timed: u64 = accesses.values().map(|exits| exits.handling.count()).sum();
        assert!(timed + lost >= made, "{timed} of {made} have a time, {lost} lost");
        assert!(accesses.len() <= most + 1, "{} different ones", accesses.len());
        let other = accesses[&Access::Other].count;
        assert!(other >= made - most as u64 - lost, "{other} others");

        // Ended threads return their cells of the epoch that was read last.
        let before = taken(&collector);
        collector.cells.free(collector.epoch - 1, |_| false).unwrap();
        let after = taken(&collector);
        assert!(after < before, "{after} of {before}");
    }
}

#[test]
fn a_write_that_kvm_ends_by_its_address_is_an_access_to_that_address() {
    const ADDRESS: u64 = 0xfe00_3000;
    let watch = Watch { processes: Some(vec![std::process::id()]), accesses: true, ..Watch::default() };
    let mut collector = match Collector::attach_to_system_calls(&watch) {
        Ok(collector) => collector,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    run(&collector.attached.ebpf, "raw_fast_mmio", [ADDRESS, 0, 0, 0]);
    let profile = collector.take().unwrap();
    let access = Access::FastMmio { address: ADDRESS };
    let counted = profile.accesses().get(&access).map_or(0, |exits| exits.count);
    assert!(counted <= 1 && counted + profile.losses.lost_events >= 1, "{:?}", profile.accesses());
}

#[test]
fn addresses_of_a_display_that_are_too_many_are_counted_by_page() {
    let watch = Watch { processes: Some(vec![std::process::id()]), accesses: true, ..Watch::default() };
    let mut collector = match Collector::attach_to_system_calls(&watch) {
        Ok(collector) => collector,
        Err(error) => return eprintln!("not tested: {error}"),
    };
    const BEGIN: u64 = 0xfd00_0000;
    const MADE: u64 = 32 << 10;
    (0..MADE).for_each(|number| store(&collector, BEGIN + 256 * number));
    let profile = collector.take().unwrap();
    let accesses = profile.accesses();
    let lost = profile.losses.lost_events;
    let of_pages = accesses.iter().map(|(access, exits)| match access {
        Access::Mmio { address, .. } => ((address - BEGIN) >> 12, exits.count),
        other => panic!("{other:?}"),
    });
    let mut pages = std::collections::BTreeMap::new();
    of_pages.for_each(|(page, count)| *pages.entry(page).or_insert(0) += count);
    // Each page has its sixteen accesses, counted by address or by page.
    let counted: u64 = pages.values().sum();
    assert!(pages.len() == 2048 && pages.values().all(|count| *count <= 16), "{} pages", pages.len());
    assert!(counted <= MADE && counted + lost >= MADE, "{counted} of {MADE}, {lost} lost");
    // At most 4,096 cells for addresses, and one or more for each page.
    assert!((2048..4096 + 2048).contains(&accesses.len()), "{} different ones", accesses.len());
}
