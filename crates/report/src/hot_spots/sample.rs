//! A synthetic recording of stacks.

use exits::ExitReason;
use hotspots::{Activity, Away, Event, Frame, Head, Losses, Measured, Recording, Space, Stack};

/// A synthetic recording with a hostile name, which contains markup and control characters.
pub(crate) fn recording() -> Recording {
    let mut recording = Recording::new(Head {
        kernel: Some("6.12.107".to_owned()),
        event: Event::CpuClock,
        frequency_hz: 997,
        cpus: 4,
        duration_ns: 10_000_000_000,
        away: true,
        notes: vec!["Sampled by the CPUs' clock, for there is no counter of cycles".to_owned()],
    });
    let mut frame = |space, symbol: &str, object: &str| {
        let symbol = Some(symbol.to_owned());
        recording.number(Frame { space, symbol, object: object.to_owned(), address: None })
    };
    let ioctl = frame(Space::User, "ioctl", "libc.so.6");
    let entry = frame(Space::Kernel, "entry_SYSCALL_64_after_hwframe", "kernel");
    let run = frame(Space::Kernel, "kvm_arch_vcpu_ioctl_run", "kvm");
    let pio = frame(Space::Kernel, "emulator_pio_in_out", "kvm");
    let bus = frame(Space::Kernel, "kvm_io_bus_write", "kvm");
    let futex = frame(Space::Kernel, "futex_wait_queue", "kernel");
    let lock = frame(Space::User, "qemu_mutex_lock_impl", "qemu-system-x86_64");
    let model = frame(Space::User, "memory_region_dispatch_write", "qemu-system-x86_64");
    let strange = frame(Space::User, "<script>alert\u{1b}[31m", "qemu-system-x86_64");
    let nameless = recording.number(Frame {
        space: Space::User,
        symbol: None,
        object: "qemu-system-x86_64".to_owned(),
        address: Some(0x32_1000),
    });
    let (io, mmio, halt) = (ExitReason::svm(0x7b), ExitReason::svm(0x400), ExitReason::svm(0x78));
    let none = Away::default();
    let waits = Away { times: 310, away_ns: 412_000_000, waited_ns: 14_000_000 };
    let below = [run, entry, ioctl];
    for (activity, frames, samples, away) in [
        (Activity::Exit(io), [&[pio], &below[..]].concat(), 300, none),
        (Activity::Exit(io), [&[bus, pio], &below[..]].concat(), 520, none),
        (Activity::Exit(mmio), vec![model, strange], 410, none),
        (Activity::Exit(mmio), vec![nameless], 80, none),
        (Activity::Exit(mmio), vec![futex, entry, lock, model], 31, waits),
        (Activity::Monitor, vec![model], 77, none),
        (Activity::Guest, Vec::new(), 8000, none),
    ] {
        recording.stacks.push(Stack {
            vm: Some(4711),
            thread: Some(4712),
            activity,
            frames,
            samples,
            away,
            cut: samples == 80,
        });
    }
    let slept = Away { times: 9000, away_ns: 21_000_000_000, waited_ns: 40_000_000 };
    for (reason, exits, handling_ns, away) in [
        (io, 410_000, 812_000_000, none),
        (mmio, 13_000, 940_000_000, waits),
        (halt, 9000, 21_040_000_000, slept),
    ] {
        recording.measured.insert((Some(4711), reason), Measured { exits, handling_ns, away });
    }
    recording.losses = Losses { ticks: 39_880, lost: 3, lost_exits: 0, without_user_stack: 2 };
    recording
}
