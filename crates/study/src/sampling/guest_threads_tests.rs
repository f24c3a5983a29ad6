use super::*;

fn times(run_ns: u64, wait_ns: u64) -> ThreadCounters {
    ThreadCounters { run_ns, wait_ns, user: 1, start: 7, ..ThreadCounters::default() }
}

fn reading(threads: &[(usize, i32, Work, ThreadCounters)]) -> ThreadReading {
    threads.iter().map(|&(guest, tid, work, times)| ((guest, tid), (work, times))).collect()
}

#[test]
fn waiting_is_summed_by_work() {
    let before = reading(&[
        (0, 11, Work::Vcpu(0), times(100, 10)),
        (0, 12, Work::Vcpu(1), times(100, 10)),
        (1, 21, Work::Vcpu(0), times(100, 10)),
        (0, 10, Work::Emulator, times(5, 0)),
        (0, 13, Work::Emulator, times(5, 0)),
    ]);
    let after = reading(&[
        (0, 11, Work::Vcpu(0), times(600, 30)),
        (0, 12, Work::Vcpu(1), times(300, 10)),
        (1, 21, Work::Vcpu(0), times(100, 110)),
        (0, 10, Work::Emulator, times(9, 0)),
        (0, 14, Work::Emulator, times(50, 3)),
    ]);
    let mut spent = ThreadsSpent::default();
    spent.add(&before, &after, 1000);
    let vcpus = spent.sum("vcpu").unwrap();
    assert_eq!((vcpus.run_ns, vcpus.wait_ns, spent.vcpu_time_ns), (700, 120, 3000));
    assert_eq!(spent.sum("emulator").unwrap().run_ns, 4 + 50, "one that came within has all its time in it");
    assert_eq!(spent.sum("vhost"), None);
    assert_eq!(spent.warnings(), Vec::<String>::new());
}

#[test]
fn a_kernel_without_run_times_is_said_and_so_are_counters_that_go_back() {
    let idle = |user| ThreadCounters { user, start: 7, ..ThreadCounters::default() };
    let mut spent = ThreadsSpent::default();
    spent.add(&reading(&[(0, 1, Work::Emulator, idle(1))]), &reading(&[(0, 1, Work::Emulator, idle(9))]), 1);
    assert!(spent.warnings()[0].contains("CONFIG_SCHED_INFO"));
    let (more, less) =
        (reading(&[(0, 1, Work::Vcpu(0), times(9, 9))]), reading(&[(0, 1, Work::Vcpu(0), times(1, 1))]));
    let mut spent = ThreadsSpent::default();
    spent.add(&more, &less, 1000);
    assert!(spent.warnings()[0].contains("went backwards"), "{:?}", spent.warnings());
    assert_eq!(spent.vcpu_time_ns, 0);
}

#[test]
fn threads_of_a_made_up_guest_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    host::fake::unpack(super::super::sampler::tests::GUEST, root.path()).unwrap();
    let guests = [SampledGuest { name: "web".to_owned(), process: 4000 }];
    let (threads, warnings) = GuestThreads::find(root.path(), &guests);
    assert_eq!(warnings, Vec::<String>::new());
    let reading = threads.read();
    let works: Vec<_> = reading.iter().map(|(&(_, tid), (work, _))| (tid, *work)).collect();
    assert_eq!(
        works,
        [
            (4000, Work::Emulator),
            (4001, Work::Vcpu(0)),
            (4002, Work::Vcpu(1)),
            (4003, Work::IoThread),
            (4010, Work::Vhost)
        ]
    );
    let (_, warnings) =
        GuestThreads::find(root.path(), &[SampledGuest { name: "db".to_owned(), process: 4010 }]);
    assert!(warnings[0].contains("in db's process"), "{warnings:?}");
}
