use super::super::{NamedThread, Vcpu};
use super::*;
use proptest::prelude::*;
use std::fs;

fn vm() -> Vm {
    Vm {
        pid: 10,
        name: "web".to_owned(),
        start_ticks: 1,
        threads: vec![10, 11, 12, 13],
        iothreads: vec![NamedThread { tid: 12, name: "io0".to_owned(), kernel: false }],
        vhost: vec![NamedThread { tid: 20, name: "vhost-10".to_owned(), kernel: true }],
        vcpus: vec![Vcpu { number: 0, thread: Some(11), ..Vcpu::default() }],
        ..Vm::default()
    }
}

fn write(root: &Path, pid: i32, tid: i32, ran_ns: u64, guest_ticks: u64, wake_ups: u64) {
    let home = root.join(format!("proc/{pid}/task/{tid}"));
    fs::create_dir_all(&home).unwrap();
    let fields: Vec<String> = (4..=52)
        .map(|number| match number {
            22 => "5".to_owned(),
            43 => guest_ticks.to_string(),
            _ => "0".to_owned(),
        })
        .collect();
    fs::write(home.join("stat"), format!("{tid} (CPU 0) KVM) S {}\n", fields.join(" "))).unwrap();
    fs::write(home.join("schedstat"), format!("{ran_ns} 7 3\n")).unwrap();
    let status = format!("Name:\tq\nvoluntary_ctxt_switches:\t{wake_ups}\nnonvoluntary_ctxt_switches:\t9\n");
    fs::write(home.join("status"), status).unwrap();
}

#[test]
fn time_is_told_apart_by_what_threads_do_and_the_guests_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    for (pid, tid) in [(10, 10), (10, 11), (10, 12), (20, 20)] {
        write(root, pid, tid, 1_000, 0, 100);
    }
    let before = ThreadReading::of(&vm(), root);
    write(root, 10, 10, 5_001_000, 0, 350);
    write(root, 10, 11, 90_001_000, 6, 140);
    write(root, 10, 12, 2_001_000, 0, 100);
    write(root, 10, 13, 400, 0, 2);
    let spent = ThreadReading::of(&vm(), root).since(&before);
    let told: Vec<_> = spent.iter().map(|one| (&one.work, one.host_ns, one.guest_ns, one.wake_ups)).collect();
    let io = Work::IoThread("io0".to_owned());
    let expected = [
        (&Work::Vcpus, 30_000_000, 60_000_000, 40),
        (&Work::MainLoop, 5_000_000, 0, 250),
        (&io, 2_000_000, 0, 0),
        (&Work::Others, 400, 0, 2),
        (&Work::Vhost, 0, 0, 0),
    ];
    assert_eq!(told, expected);
}

#[test]
fn this_process_is_read() {
    let mut this = vm();
    this.pid = i32::try_from(std::process::id()).unwrap();
    let before = ThreadReading::of(&this, Path::new("/"));
    let spent = ThreadReading::of(&this, Path::new("/")).since(&before);
    assert!(spent.iter().any(|one| one.work == Work::MainLoop), "{spent:?}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "[0-9]{0,3} ?\\(?[a-z )]{0,6}\\)?( [0-9-]{0,21}){0,50}") {
        let _ = (stat_field::<u64>(&text, 43), wake_ups(&text));
    }
}
