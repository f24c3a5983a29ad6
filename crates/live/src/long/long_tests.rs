use super::*;

const SWITCH: &str = "name: sched_switch\nID: 300\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
    \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
    \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
print fmt: \"x\"\n";

fn context() -> Context {
    let format = EventFormat::parse(SWITCH).unwrap();
    let tracepoint = |id, name: &str| Tracepoint { id, name: name.to_owned(), filter: None };
    Context {
        event_id: number_field(&format, "common_type").unwrap(),
        switch: Switch::new(&format).unwrap(),
        steps: HashMap::from([(301, Step::User)]),
        tracepoints: vec![tracepoint(300, "sched:sched_switch"), tracepoint(301, "kvm:kvm_userspace_exit")],
    }
}

fn switch(prev: u32, state: u64, next: u32, comm: &str) -> Vec<u8> {
    let mut raw = vec![0; 64];
    raw[..2].copy_from_slice(&300u16.to_le_bytes());
    raw[24..28].copy_from_slice(&prev.to_le_bytes());
    raw[32..40].copy_from_slice(&state.to_le_bytes());
    raw[40..40 + comm.len()].copy_from_slice(comm.as_bytes());
    raw[56..60].copy_from_slice(&next.to_le_bytes());
    raw
}

fn steps(tid: i32, raw: &[u8]) -> Vec<(u32, Step)> {
    context().steps(&Sample { pid: 1, tid, time_ns: 5, raw })
}

#[test]
fn a_switch_concerns_two_threads_and_says_why() {
    let out = |preempted| Step::Out { next: Some("kworker/1:0".to_owned()), preempted };
    // Runnable; runnable with the flag for preemption; sleeping; in a state beyond those that are reported.
    for (state, preempted) in [(0, true), (0x100, true), (1, false), (0x80, false)] {
        let found = steps(7, &switch(7, state, 9, "kworker/1:0"));
        assert_eq!(found, [(7, out(preempted)), (9, Step::In)], "{state:#x}");
    }
    let held = Step::Out { next: None, preempted: true };
    assert_eq!(steps(7, &switch(7, 0, 0, "swapper/1")), [(7, held), (0, Step::In)], "the CPU is idle");
    let mut other = vec![0; 8];
    other[..2].copy_from_slice(&301u16.to_le_bytes());
    assert_eq!(steps(7, &other), [(7, Step::User)]);
    other[..2].copy_from_slice(&302u16.to_le_bytes());
    assert_eq!(steps(7, &other), []);
    assert_eq!(steps(7, &switch(7, 0, 9, "x")[..50]), [], "cut short");
}

#[test]
fn the_kernel_filters_by_thread_and_the_filter_fits_into_a_page() {
    let filters = |threads: std::ops::Range<u32>| -> Vec<Option<String>> {
        context().filtered(&threads.collect()).into_iter().map(|one| one.filter).collect()
    };
    let expected = ["prev_pid==7||next_pid==7||prev_pid==8||next_pid==8", "common_pid==7||common_pid==8"];
    assert_eq!(filters(7..9), expected.map(|one| Some(one.to_owned())));
    let most = 4_194_304 - MOST_WATCHED as u32..4_194_304;
    assert!(filters(most).iter().flatten().all(|filter| filter.len() < 4096));
    assert!(TOO_MANY.contains(&MOST_WATCHED.to_string()));
}

#[test]
fn of_many_threads_those_with_long_exits_are_watched_and_no_other_newcomer_replaces_one() {
    const NOW: u64 = 100 * FORGET_NS;
    const EARLIER: u64 = NOW - FORGET_NS;
    let most = MOST_WATCHED as u32;
    let set = |threads: &std::ops::Range<u32>| threads.clone().collect::<BTreeSet<u32>>();
    let seen = |threads: std::ops::Range<u32>, long: &[(u32, u64)]| -> BTreeMap<u32, Seen> {
        let mut seen: BTreeMap<_, _> =
            threads.map(|thread| (thread, Seen { last_ns: NOW, last_long_ns: 0 })).collect();
        long.iter().for_each(|(thread, ns)| seen.get_mut(thread).unwrap().last_long_ns = *ns);
        seen
    };
    let chosen = |seen: &BTreeMap<u32, Seen>, watched: &std::ops::Range<u32>| {
        to_watch(seen, |thread| watched.contains(&thread), NOW)
    };
    assert_eq!(chosen(&seen(0..3, &[]), &(0..0)), set(&(0..3)));
    assert_eq!(chosen(&seen(0..most + 1, &[]), &(0..0)).len(), MOST_WATCHED);
    let watched = 100..100 + most;
    assert_eq!(chosen(&seen(0..200, &[]), &watched), set(&watched));
    assert_eq!(chosen(&seen(0..200, &[(5, EARLIER)]), &watched), set(&watched));
    // Those that are watched and have no long exits make room.
    let last = watched.end - 1;
    let mut with_long: BTreeSet<u32> = watched.clone().filter(|&thread| thread != last).collect();
    with_long.insert(5);
    assert_eq!(chosen(&seen(0..200, &[(5, NOW), (100, NOW)]), &watched), with_long);
    let all_long: Vec<_> = watched.clone().map(|thread| (thread, NOW)).chain([(5, NOW)]).collect();
    assert_eq!(chosen(&seen(0..200, &all_long), &watched), set(&watched));
}

#[test]
fn a_gap_on_one_cpu_concerns_only_exits_that_may_have_been_there() {
    let mut past = Past::from(0);
    past.push(50, Step::Out { next: Some("x".to_owned()), preempted: true });
    past.push(60, Step::In);
    let gap = Gap { cpu: 3, from_ns: 20, to_ns: 40 };
    let concerns = |gap: Gap, cpu, from_ns, to_ns| gap.concerns(&past, cpu, from_ns, to_ns);
    assert!(concerns(gap, 3, 10, 30) && concerns(gap, 3, 30, 100));
    assert!(!concerns(gap, 3, 41, 100) && !concerns(gap, 3, 5, 19), "at another time");
    assert!(!concerns(gap, 4, 10, 30) && !concerns(gap, 4, 10, 100), "on another CPU all the time");
    let later = Gap { to_ns: 55, ..gap };
    assert!(!concerns(later, 4, 10, 49), "it ended before the thread was switched out");
    assert!(concerns(later, 4, 10, 100), "it may have been switched in there");
}

#[test]
fn a_cpu_that_was_offline_has_a_gap_also_where_a_thread_is_added() {
    let root = tempfile::tempdir().unwrap();
    let cpus = root.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(cpus.join("cpu0/cache")).unwrap();
    std::fs::write(cpus.join("online"), "0\n").unwrap();
    let watch = Watch { processes: Some(vec![std::process::id()]), ..Watch::default() };
    let context = || Tracefs::find(Path::new("/")).and_then(|tracefs| Context::new(&tracefs));
    let (recorder, context) =
        match Recorder::attach_to_system_calls(&watch).and_then(|recorder| Ok((recorder, context()?))) {
            Ok(both) => both,
            Err(error) => return println!("not tested: {error}"),
        };
    let owned = Owned::start(root.path()).unwrap();
    let options = LongOptions { bound_ns: 1, sleep: true };
    let mut tracer = LongTracer::with(root.path(), options, recorder, owned, Ok(context));
    let see = |tracer: &mut LongTracer, thread, now_ns| {
        tracer.seen.insert(thread, Seen { last_ns: now_ns, last_long_ns: 0 });
        tracer.look(now_ns);
        tracer.pasts.contains_key(&thread)
    };
    if !see(&mut tracer, 1, crate::monotonic_ns()) {
        return println!("not tested: no events of threads may be watched");
    }
    assert!(tracer.gaps.is_empty());
    // Both directories exist at the same time, so they differ in their numbers.
    std::fs::create_dir(cpus.join("cpu0/next")).unwrap();
    std::fs::remove_dir(cpus.join("cpu0/cache")).unwrap();
    std::fs::rename(cpus.join("cpu0/next"), cpus.join("cpu0/cache")).unwrap();
    let began_ns = crate::monotonic_ns();
    assert!(see(&mut tracer, 2, began_ns + CHANGE_NS));
    let gaps: Vec<&Gap> = tracer.gaps.iter().collect();
    let [gap] = gaps[..] else { panic!("{gaps:?}") };
    assert_eq!(gap.cpu, 0);
    assert!((began_ns..=crate::monotonic_ns()).contains(&gap.to_ns), "it ends when its events are open");
}

#[test]
fn threads_that_are_refused_again_and_again_are_given_up_with_the_reason() {
    let too_many = || Error::OnCpu {
        action: "open",
        event: "sched:sched_switch".to_owned(),
        cpu: 63,
        next: "raise the limit of open files".to_owned(),
        source: std::io::Error::from_raw_os_error(libc::EMFILE),
    };
    let mut refusals = Refusals::default();
    for _ in 1..MOST_REFUSED {
        refusals.add(&too_many());
        assert_eq!(refusals.given_up, None);
    }
    refusals.add(&too_many());
    let why = refusals.given_up.unwrap();
    assert!(why.contains("limit of open files") && why.contains("Too many open files"), "{why}");
}

#[test]
fn a_missed_entry_hides_a_long_exit_and_a_missed_access_does_not() {
    let losses = Losses { lost_exits: 2, lost_events: 5, ..Losses::default() };
    // At the start, exits lack a time although nothing was missed.
    for (without_time, expected) in [(0, 2), (1, 3), (9, 5)] {
        assert_eq!(lost(&losses, without_time), expected, "{without_time} without a time");
        let with_ended = Losses { exits_at_the_end: 4, ..losses };
        assert_eq!(lost(&with_ended, without_time + 4), expected, "threads that ended lost nothing");
    }
}
