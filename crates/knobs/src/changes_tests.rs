use super::*;
use crate::fake::{MODULE, Machine, host, tree};
use crate::journal::{BEFORE_A_CHANGE, PERSISTENT, VOLATILE};
use crate::{Restore, restore, under};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn file(path: &str, content: &str) -> Change {
    Change::File { path: path.to_owned(), content: content.into() }
}

fn governor(value: &str) -> Change {
    Change::Value { path: "/sys/governor".to_owned(), value: value.to_owned() }
}

fn pin(cpus: &str) -> Change {
    Change::Affinity { tid: 41, start_ticks: 341, cpus: cpus.to_owned() }
}

fn load(name: &str, value: &str) -> Change {
    let parameters = [(name.to_owned(), value.to_owned())].into();
    Change::Load { module: MODULE.to_owned(), parameters }
}

fn changes(root: &Path) -> Changes<Machine> {
    Changes::begin(root, Machine::new(root), vec!["exitless".to_owned()]).unwrap()
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(under(root, path)).unwrap()
}

fn restored(root: &Path, how: Restore) -> Vec<Outcome> {
    let restored = restore(root, &mut Machine::new(root), how).unwrap();
    restored.changes.into_iter().map(|one| one.outcome).collect()
}

#[test]
fn what_is_held_ends_with_its_guard_and_the_rest_with_restore() {
    let root = host();
    let before = tree(root.path());
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    guard
        .make(file("/etc/modprobe.d/exitless.conf", "options kvm_amd avic=1\n"), Lasting::UntilRestored)
        .unwrap();
    guard.make(load("avic", "1"), Lasting::UntilRestored).unwrap();
    assert_eq!(text(root.path(), "/sys/governor"), "performance\n");
    drop(guard);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
    assert_eq!(text(root.path(), "/sys/module/kvm_amd/parameters/avic"), "Y\n");
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone, Outcome::Undone]);
    assert_eq!(tree(root.path()), before);
}

/// Sets or clears the immutable flag, which stops even root from writing to a file. `false` if the file system has no such
/// flag or this user may not set it.
fn immutable(path: &Path, wanted: bool) -> bool {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(file) = fs::File::open(path) else { return false };
    let flags = ioctl_getflags(&file).map(|flags| match wanted {
        true => flags | IFlags::IMMUTABLE,
        false => flags - IFlags::IMMUTABLE,
    });
    flags.and_then(|flags| ioctl_setflags(&file, flags)).is_ok()
}

/// Does something while the journal takes no line; `None`, after saying so, where it cannot be kept from that.
fn without_lines<T>(root: &Path, work: impl FnOnce() -> T) -> Option<T> {
    let journal = under(root, PERSISTENT);
    if !immutable(&journal, true) {
        println!("not tested: only root can make a file immutable, and not on each file system");
        return None;
    }
    let outcome = work();
    assert!(immutable(&journal, false));
    Some(outcome)
}

#[test]
fn a_journal_that_takes_no_line_keeps_nothing_from_being_undone() {
    let root = host();
    let before = text(root.path(), "/etc/default/grub");
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::UntilRestored).unwrap();
    guard.make(file("/etc/default/grub", "ours\n"), Lasting::UntilRestored).unwrap();
    drop(guard);
    let restore = || restored(root.path(), Restore::default());
    let Some(outcomes) = without_lines(root.path(), restore) else { return };
    let [Outcome::Failed { why }, Outcome::Undone] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(why.contains("Change 2 is undone, but the journal"), "{why}");
    assert_eq!(text(root.path(), "/etc/default/grub"), before);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
    let again = restored(root.path(), Restore::default());
    assert!(matches!(again[..], [Outcome::Already { .. }]), "{again:?}");
}

#[test]
fn a_change_that_stays_is_told_with_its_cause() {
    let root = host();
    let mut guard = changes(root.path());
    guard.actions.affinity.insert(41, "0-3".to_owned());
    guard.make(pin("1"), Lasting::WhileHeld).unwrap();
    guard.actions.refuses = Some("0-3".to_owned());
    let released = guard.release();
    let [(entry, Err(error))] = &released[..] else { panic!("{released:?}") };
    let told = entry.left_by(error);
    assert!(told.starts_with("Change 1 is left") && told.contains("invalid input parameter"), "{told}");
}

/// What is said of each change when the process ends or, if they last, when they are restored.
fn told_by_undoing(guard: &mut Changes<Machine>, lasting: Lasting) -> Vec<String> {
    match lasting {
        Lasting::WhileHeld => {
            guard.release().into_iter().map(|(entry, outcome)| entry.left_by(&outcome.unwrap_err())).collect()
        }
        Lasting::UntilRestored => {
            let outcomes = restored(guard.journal.root(), Restore::default());
            outcomes.iter().map(|outcome| format!("{outcome:?}")).collect()
        }
    }
}

#[test]
fn a_journal_that_takes_no_line_keeps_no_directory() {
    for lasting in [Lasting::WhileHeld, Lasting::UntilRestored] {
        let root = host();
        let before = tree(root.path());
        let mut guard = changes(root.path());
        for path in ["/etc/new/a", "/etc/new/b"] {
            guard.make(file(path, "ours\n"), lasting).unwrap();
        }
        let undo = || told_by_undoing(&mut guard, lasting);
        let Some(told) = without_lines(root.path(), undo) else { return };
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|told| told.contains("is undone, but the journal")), "{told:?}");
        assert_eq!(tree(root.path()), before);
        let again = restored(root.path(), Restore::default());
        assert!(matches!(again[..], [Outcome::Already { .. }, Outcome::Already { .. }]), "{again:?}");
    }
}

#[test]
fn two_changes_of_a_file_wait_for_the_journal_and_then_go_back_to_the_first_content() {
    for lasting in [Lasting::WhileHeld, Lasting::UntilRestored] {
        let root = host();
        let before = tree(root.path());
        let mut guard = changes(root.path());
        for content in ["first\n", "second\n"] {
            guard.make(file("/etc/default/grub", content), lasting).unwrap();
        }
        let undo = || told_by_undoing(&mut guard, lasting);
        let Some(told) = without_lines(root.path(), undo) else { return };
        let [second, first] = &told[..] else { panic!("{told:?}") };
        assert!(second.contains("Change 2 is undone, but the journal"), "{second}");
        assert!(first.contains("Cannot undo change 1 before change 2"), "{first}");
        // Without the line about the second change, its content would later look like one by others.
        assert_eq!(text(root.path(), "/etc/default/grub"), "first\n");
        let again = restored(root.path(), Restore::default());
        assert!(matches!(again[..], [Outcome::Already { .. }, Outcome::Undone]), "{again:?}");
        assert_eq!(tree(root.path()), before);
    }
}

#[test]
fn a_line_that_the_journal_did_not_take_is_written_before_an_earlier_change_is_undone() {
    let root = host();
    let mut guard = Changes::begin(root.path(), Machine::new(root.path()), Vec::new()).unwrap();
    guard.actions.affinity.insert(41, "0-3".to_owned());
    guard.actions.refuses = Some("2".to_owned());
    guard.make(pin("1"), Lasting::WhileHeld).unwrap();
    // The journal takes the line about the intent, the kernel refuses, and the journal does not take the line about that.
    crate::cut_short::after(Some(4));
    guard.make(pin("2"), Lasting::WhileHeld).unwrap_err();
    crate::cut_short::after(None);
    let open = Journal::read(root.path()).unwrap().entries.into_iter().filter(Entry::open);
    assert_eq!(open.map(|entry| entry.id).collect::<Vec<_>>(), [1, 2]);
    let released = guard.release();
    assert!(matches!(released[..], [(_, Ok(Outcome::Undone))]), "{released:?}");
    assert_eq!(guard.actions.affinity[&41], "0-3");
    assert_eq!(restored(root.path(), Restore::default()), []);
}

#[test]
fn a_change_that_is_made_again_after_it_was_undone_is_undone_again() {
    let root = host();
    let mut guard = changes(root.path());
    let mut made = Vec::new();
    for value in ["schedutil", "performance"] {
        let Made::Changed(entry) = guard.make(governor(value), Lasting::WhileHeld).unwrap() else {
            panic!("nothing was changed");
        };
        made.push(*entry);
    }
    let [first, second] = &mut made[..] else { panic!("not two changes") };
    // The value is written, and the journal does not take the line about that.
    crate::cut_short::after(Some(2));
    guard.undo(second).unwrap_err();
    crate::cut_short::after(None);
    assert_eq!(text(root.path(), "/sys/governor"), "schedutil\n");
    guard.make_again(second, governor("ondemand")).unwrap();
    let early = guard.undo(first);
    assert!(matches!(early, Err(Error::RestedOn { id: 1, later: 2 })), "{early:?}");
    drop(guard);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
    assert_eq!(restored(root.path(), Restore::default()), []);
}

/// The mode of the journal of what a boot undoes. One that others can write to is not used.
fn volatile_mode(root: &Path, mode: u32) {
    fs::set_permissions(under(root, VOLATILE), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_change_whose_result_the_journal_does_not_take_is_taken_back_or_half_made() {
    for refuses in [None, Some("1".to_owned())] {
        let root = host();
        let mut guard = Changes::begin(root.path(), Machine::new(root.path()), Vec::new()).unwrap();
        guard.actions.affinity.insert(41, "0-3".to_owned());
        guard.make(pin("1"), Lasting::WhileHeld).unwrap();
        // The change has been announced by then.
        guard.actions.before_set = |root| volatile_mode(root, 0o622);
        guard.actions.refuses.clone_from(&refuses);
        let error = guard.make(pin("2"), Lasting::WhileHeld).unwrap_err();
        match &error {
            Error::JournalDone { .. } => assert!(refuses.is_none(), "{error}"),
            Error::HalfMade { failure, source } => {
                assert!(failure.contains("invalid input parameter"), "{failure}");
                assert!(refuses.is_some() && matches!(**source, Error::JournalDone { .. }), "{source}");
            }
            _ => panic!("{error}"),
        }
        let now = if refuses.is_none() { "1" } else { "2" };
        assert_eq!(guard.actions.affinity[&41], now);
        guard.actions.before_set = |_| {};
        guard.actions.refuses = None;
        volatile_mode(root.path(), 0o600);
        let restored = restore(root.path(), &mut guard.actions, Restore::default()).unwrap();
        assert!(restored.changes.len() == 2 && !restored.incomplete(), "{restored:?}");
        assert_eq!(guard.actions.affinity[&41], "0-3");
    }
}

#[test]
fn a_change_that_is_taken_back_fails_with_its_own_error() {
    let root = host();
    let mut machine = Machine::new(root.path());
    machine.affinity.insert(41, "0-3".to_owned());
    machine.refuses = Some("2".to_owned());
    let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
    // The journal takes the line about the intent, the kernel refuses, and the journal takes no more lines.
    crate::cut_short::after(Some(4));
    let error = guard.make(pin("2"), Lasting::WhileHeld).unwrap_err();
    let is_cut = crate::cut_short::ended();
    crate::cut_short::after(None);
    let is_refusal =
        matches!(&error, Error::Access { source, .. } if source.kind() == ErrorKind::InvalidInput);
    assert!(is_cut && is_refusal, "{error}");
    assert_eq!(guard.actions.affinity[&41], "0-3");
}

#[test]
fn a_panic_undoes_what_is_held() {
    let root = host();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("an experiment");
    }));
    assert!(panicked.is_err());
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
}

#[test]
fn undoing_waits_longer_for_the_lock_than_a_change() {
    let root = host();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    guard.make(file("/etc/a", "x"), Lasting::WhileHeld).unwrap();
    let lock = guard.journal.lock().unwrap();
    let released = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(BEFORE_A_CHANGE.mul_f64(1.5));
            drop(lock);
        });
        guard.release()
    });
    assert!(
        matches!(released[..], [(_, Ok(Outcome::Undone)), (_, Ok(Outcome::Undone))]),
        "all are undone: {released:?}"
    );
}

#[test]
fn nothing_is_written_where_all_is_so_already() {
    let root = host();
    let mut guard = changes(root.path());
    assert_eq!(guard.make(governor("powersave"), Lasting::UntilRestored).unwrap(), Made::AlreadySo);
    let same = file("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet\"\n");
    assert_eq!(guard.make(same, Lasting::UntilRestored).unwrap(), Made::AlreadySo);
    assert!(!under(root.path(), PERSISTENT).exists() && !under(root.path(), VOLATILE).exists());
}

#[test]
fn what_others_changed_since_is_left_until_it_is_forced() {
    let root = host();
    let grub = under(root.path(), "/etc/default/grub");
    let set_mode = |mode| fs::set_permissions(&grub, fs::Permissions::from_mode(mode)).unwrap();
    let mode = || fs::metadata(&grub).unwrap().permissions().mode() & 0o7777;
    set_mode(0o640);
    changes(root.path()).make(file("/etc/default/grub", "ours\n"), Lasting::UntilRestored).unwrap();
    changes(root.path()).make(governor("performance"), Lasting::UntilRestored).unwrap();
    fs::write(&grub, "theirs\n").unwrap();
    set_mode(0o600);
    fs::write(under(root.path(), "/sys/governor"), "schedutil\n").unwrap();
    let since = |what: &str| Outcome::ChangedSince { what: what.to_owned() };
    let expected = [since("/sys/governor is schedutil"), since("/etc/default/grub has other content")];
    assert_eq!(restored(root.path(), Restore::default()), expected);
    assert_eq!(text(root.path(), "/etc/default/grub"), "theirs\n");
    let forced = Restore { force: true, dry_run: true, ..Restore::default() };
    assert_eq!(restored(root.path(), forced), [Outcome::WouldUndo, Outcome::WouldUndo]);
    assert_eq!(text(root.path(), "/sys/governor"), "schedutil\n");
    let forced = Restore { force: true, ..Restore::default() };
    assert_eq!(restored(root.path(), forced), [Outcome::Undone, Outcome::Undone]);
    assert_eq!(text(root.path(), "/etc/default/grub"), "GRUB_CMDLINE_LINUX=\"quiet\"\n");
    assert_eq!(mode(), 0o640, "that of before the change");
    assert_eq!(restored(root.path(), Restore::default()), []);
}

#[test]
fn a_dry_run_names_what_a_restore_then_undoes() {
    let root = host();
    let before = tree(root.path());
    let path = "/etc/default/grub";
    let stacked = [
        file(path, "first\n"),
        file(path, "second\n"),
        file(path, "third\n"),
        file("/etc/new/a", "first\n"),
        file("/etc/new/b", "second\n"),
        governor("performance"),
        governor("schedutil"),
        load("avic", "1"),
        load("avic", "0"),
    ];
    let number = stacked.len();
    for change in stacked {
        changes(root.path()).make(change, Lasting::UntilRestored).unwrap();
    }
    let dry = Restore { dry_run: true, ..Restore::default() };
    assert_eq!(restored(root.path(), dry), vec![Outcome::WouldUndo; number]);
    assert_eq!(restored(root.path(), Restore::default()), vec![Outcome::Undone; number]);
    assert_eq!(tree(root.path()), before);
}

#[test]
fn a_dry_run_sees_what_others_changed_between_two_changes() {
    for between in ["powersave\n", "theirs\n"] {
        let root = host();
        changes(root.path()).make(governor("performance"), Lasting::UntilRestored).unwrap();
        fs::write(under(root.path(), "/sys/governor"), between).unwrap();
        changes(root.path()).make(governor("schedutil"), Lasting::UntilRestored).unwrap();
        let would = restored(root.path(), Restore { dry_run: true, ..Restore::default() });
        let outcomes = restored(root.path(), Restore::default());
        assert_eq!((&would[0], &outcomes[0]), (&Outcome::WouldUndo, &Outcome::Undone));
        assert_eq!(would[1], outcomes[1], "{between}");
        assert_eq!(text(root.path(), "/sys/governor"), between);
    }
}

#[test]
fn a_file_that_went_with_its_directory_is_forgotten_only_by_force() {
    let root = host();
    let home = under(root.path(), "/home/vms");
    for gone in ["alone", "with its directory"] {
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("web.xml"), "theirs\n").unwrap();
        changes(root.path()).make(file("/home/vms/web.xml", "ours\n"), Lasting::UntilRestored).unwrap();
        if gone == "alone" {
            fs::remove_file(home.join("web.xml")).unwrap();
            let what = "/home/vms/web.xml was removed".to_owned();
            assert_eq!(restored(root.path(), Restore::default()), [Outcome::ChangedSince { what }]);
            let forced = Restore { force: true, ..Restore::default() };
            assert_eq!(restored(root.path(), forced), [Outcome::Undone]);
        } else {
            fs::remove_dir_all(&home).unwrap();
            let [Outcome::ChangedSince { what }] = &restored(root.path(), Restore::default())[..] else {
                panic!("not left");
            };
            assert!(what.contains("mount its file system"), "{what}");
            let forced = Restore { force: true, ..Restore::default() };
            let why = "is gone with its directory".to_owned();
            assert_eq!(restored(root.path(), forced), [Outcome::Already { why }]);
        }
        assert_eq!(restored(root.path(), Restore::default()), []);
    }
}

#[test]
fn a_module_that_does_not_load_again_gets_its_old_parameters() {
    let root = host();
    let mut guard = changes(root.path());
    guard.make(load("nested", "0"), Lasting::UntilRestored).unwrap();
    let error = guard.make(load("unknown", "1"), Lasting::UntilRestored).unwrap_err();
    assert!(matches!(error, Error::Command { .. }), "{error}");
    assert_eq!(text(root.path(), "/sys/module/kvm_amd/parameters/nested"), "0\n");
    let open: Vec<_> = Journal::read(root.path()).unwrap().entries.iter().map(Entry::open).collect();
    assert_eq!(open, [true, false]);
}

#[test]
fn a_module_in_use_stays_and_is_not_even_asked() {
    let root = host();
    fs::write(under(root.path(), "/sys/module/kvm_amd/refcnt"), "3\n").unwrap();
    let mut guard = changes(root.path());
    let error = guard.make(load("avic", "1"), Lasting::UntilRestored).unwrap_err();
    assert!(matches!(error, Error::ModuleInUse { users: 3, .. }), "{error}");
    assert!(guard.actions.ran.is_empty());
}

#[test]
fn a_module_that_does_not_take_what_it_printed_is_loaded_all_the_same() {
    let root = host();
    // Like `vmentry_l1d_flush` of kvm_intel, which can print `not required`, a value that it does not accept.
    let printed = under(root.path(), "/sys/module/kvm_amd/parameters/printed");
    fs::write(printed, "not required\n").unwrap();
    drop(changes(root.path()).make(load("avic", "1"), Lasting::UntilRestored).unwrap());
    assert!(matches!(restored(root.path(), Restore::default())[..], [Outcome::Failed { .. }]));
    assert_eq!(text(root.path(), "/sys/module/kvm_amd/parameters/avic"), "N\n");
}

#[test]
fn what_others_load_after_a_restore_that_failed_is_theirs() {
    let root = host();
    drop(changes(root.path()).make(load("avic", "1"), Lasting::UntilRestored).unwrap());
    let users = under(root.path(), "/sys/module/kvm_amd/refcnt");
    fs::write(&users, "3\n").unwrap();
    assert!(matches!(restored(root.path(), Restore::default())[..], [Outcome::Failed { .. }]));
    fs::write(&users, "0\n").unwrap();
    let value = under(root.path(), "/sys/module/kvm_amd/parameters/avic");
    fs::write(&value, "force\n").unwrap();
    let what = "kvm_amd has avic force".to_owned();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::ChangedSince { what }]);
    fs::write(&value, "Y\n").unwrap();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone]);
}

#[test]
fn a_forced_restore_that_is_cut_short_leaves_no_host_without_its_module() {
    for places in 1.. {
        let root = host();
        drop(changes(root.path()).make(load("avic", "1"), Lasting::UntilRestored).unwrap());
        fs::write(under(root.path(), "/sys/module/kvm_amd/parameters/avic"), "force\n").unwrap();
        let forced = Restore { force: true, ..Restore::default() };
        crate::cut_short::after(Some(places));
        let _ = restore(root.path(), &mut Machine::new(root.path()), forced);
        let whole = !crate::cut_short::ended();
        crate::cut_short::after(None);
        restored(root.path(), Restore::default());
        let now = fs::read_to_string(under(root.path(), "/sys/module/kvm_amd/parameters/avic"));
        assert!(matches!(now.as_deref(), Ok("N\n" | "force\n")), "cut after {places} places: {now:?}");
        if whole {
            break;
        }
    }
}

#[test]
fn a_thread_that_got_an_old_number_is_not_touched() {
    let root = host();
    let mut machine = Machine::new(root.path());
    machine.affinity.insert(41, "0-3".to_owned());
    let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
    let pin = |start_ticks| Change::Affinity { tid: 41, start_ticks, cpus: "1".to_owned() };
    assert!(matches!(guard.make(pin(340), Lasting::WhileHeld), Err(Error::ThreadGone { tid: 41 })));
    guard.make(pin(341), Lasting::WhileHeld).unwrap();
    let stat = text(root.path(), "/proc/41/stat").replace(" 341 ", " 999 ");
    fs::write(under(root.path(), "/proc/41/stat"), stat).unwrap();
    let released = guard.release();
    assert!(matches!(&released[0].1, Ok(Outcome::Already { why }) if why == "the thread has ended"));
    assert_eq!(guard.actions.affinity[&41], "1");
}

#[test]
fn a_thread_that_has_ended_does_not_wait_for_the_one_that_got_its_number() {
    let root = host();
    let mut machine = Machine::new(root.path());
    machine.affinity.insert(41, "0-3".to_owned());
    let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
    let pin = |start_ticks| Change::Affinity { tid: 41, start_ticks, cpus: "1".to_owned() };
    let Made::Changed(entry) = guard.make(pin(341), Lasting::WhileHeld).unwrap() else {
        panic!("nothing was changed");
    };
    let stat = text(root.path(), "/proc/41/stat").replace(" 341 ", " 999 ");
    fs::write(under(root.path(), "/proc/41/stat"), stat).unwrap();
    guard.actions.affinity.insert(41, "0-3".to_owned());
    guard.make(pin(999), Lasting::WhileHeld).unwrap();
    assert_eq!(guard.undo(&entry).unwrap(), Outcome::Already { why: "the thread has ended".to_owned() });
    assert_eq!(guard.actions.affinity[&41], "1");
    guard.release();
    assert_eq!(guard.actions.affinity[&41], "0-3");
}

#[test]
fn cpus_that_go_off_are_not_the_work_of_others() {
    // The CPUs given to a thread, the CPUs online at the end, the kernel's answer for the thread then, and the CPUs
    // after the release.
    let cases = [
        ("1-2", "0-3", "1-2", "0-3"),
        ("1-2", "0-1,3", "1", "0-3"),
        ("2", "0-1,3", "0-1,3", "0-3"),
        ("1-2", "0-3", "1", "1"),
        ("1-2", "0-1,3", "0-1", "0-1"),
    ];
    for (given, online, now, left) in cases {
        let root = host();
        let mut machine = Machine::new(root.path());
        machine.affinity.insert(41, "0-3".to_owned());
        let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
        guard.make(pin(given), Lasting::WhileHeld).unwrap();
        let file = under(root.path(), "/sys/devices/system/cpu/online");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{online}\n")).unwrap();
        guard.actions.affinity.insert(41, now.to_owned());
        guard.release();
        assert_eq!(guard.actions.affinity[&41], left, "{given} of {online}, now {now}");
    }
}

#[test]
fn an_interrupt_whose_cpus_all_went_offline_was_not_moved_by_others() {
    let path = "/proc/irq/40/smp_affinity_list";
    // The online CPUs, the list of the interrupt that was given 2-3, and its list after the release.
    for (online, now, left) in [("0-1", "0-1", "0-3"), ("0-2", "0-1", "0-1")] {
        let root = host();
        let put = |path: &str, content: &str| {
            let file = under(root.path(), path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{content}\n")).unwrap();
        };
        put(path, "0-3");
        let mut guard = changes(root.path());
        let change = Change::Value { path: path.to_owned(), value: "2-3".to_owned() };
        guard.make(change, Lasting::WhileHeld).unwrap();
        put("/sys/devices/system/cpu/online", online);
        put(path, now);
        guard.release();
        assert_eq!(text(root.path(), path).trim(), left, "{online} online, now {now}");
    }
}

#[test]
fn what_a_control_group_takes_from_a_thread_is_not_taken_for_its_pinning() {
    // Its own group of cgroup v2 does not have the controller, so the group above decides.
    let unified = ("0::/machine/vcpu0\n", "/sys/fs/cgroup/machine/cpuset.cpus.effective");
    let cpusets = (
        "4:memory:/x\n3:cpu,cpuset:/machine\n0::/y\n",
        "/sys/fs/cgroup/cpuset/machine/cpuset.effective_cpus",
    );
    // The CPUs that the group allows, the kernel's answer for a thread that was given 1-2, and the CPUs after
    // the release.
    let cases = [("2", "2", "0-3"), ("0", "0", "0-3"), ("1-3", "1", "1")];
    let cases = [unified, cpusets].into_iter().flat_map(|group| cases.map(|case| (group, case)));
    for ((group, file), (effective, now, left)) in cases {
        let root = host();
        let mut machine = Machine::new(root.path());
        machine.affinity.insert(41, "0-3".to_owned());
        let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
        guard.make(pin("1-2"), Lasting::WhileHeld).unwrap();
        fs::write(under(root.path(), "/proc/41/cgroup"), group).unwrap();
        let file = under(root.path(), file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{effective}\n")).unwrap();
        guard.actions.affinity.insert(41, now.to_owned());
        guard.release();
        assert_eq!(guard.actions.affinity[&41], left, "{effective} of the group {group:?}, now {now}");
    }
}

#[test]
fn a_thread_that_had_all_cpus_of_its_control_group_gets_those_that_the_group_gets_later() {
    const GROUP: &str = "/sys/fs/cgroup/vm/cpuset.cpus.effective";
    let start = |online: &str, effective: &str| {
        let root = host();
        for (path, content) in
            [("/proc/41/cgroup", "0::/vm"), ("/sys/devices/system/cpu/online", online), (GROUP, effective)]
        {
            let file = under(root.path(), path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{content}\n")).unwrap();
        }
        let mut guard = changes(root.path());
        guard.actions.affinity.insert(41, "0-2".to_owned());
        guard.make(pin("1"), Lasting::WhileHeld).unwrap();
        (root, guard)
    };
    for (online, effective, told) in
        [("0-3", "0-2", "0-1023"), ("0-2", "0-3", "0-1023"), ("0-3", "0-3", "0-2")]
    {
        let (_root, mut guard) = start(online, effective);
        guard.release();
        assert_eq!(guard.actions.affinity[&41], told, "{online} online, {effective} of the group");
    }
    // It got them, but the journal does not say so.
    let (root, mut guard) = start("0-3", "0-2");
    fs::write(under(root.path(), GROUP), "0-3\n").unwrap();
    guard.actions.affinity.insert(41, "0-3".to_owned());
    let outcome = guard.release().remove(0).1.unwrap();
    assert!(matches!(outcome, Outcome::Already { .. }), "{outcome:?}");
}

#[test]
fn a_boot_undoes_what_the_kernel_forgets_and_nothing_else() {
    let root = host();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::UntilRestored).unwrap();
    guard.make(file("/etc/a", "x"), Lasting::UntilRestored).unwrap();
    drop(guard);
    fs::write(under(root.path(), "/proc/sys/kernel/random/boot_id"), "second\n").unwrap();
    let booted = Outcome::Already { why: "the host was booted since".to_owned() };
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone, booted]);
    assert_eq!(text(root.path(), "/sys/governor"), "performance\n");
}

#[test]
fn a_boot_that_cannot_be_read_has_undone_nothing() {
    let root = host();
    drop(changes(root.path()).make(governor("performance"), Lasting::UntilRestored).unwrap());
    fs::remove_file(under(root.path(), "/proc/sys/kernel/random/boot_id")).unwrap();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone]);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
}

#[test]
fn who_may_read_a_file_is_left_to_others() {
    let root = host();
    drop(changes(root.path()).make(file("/etc/default/grub", "ours\n"), Lasting::UntilRestored).unwrap());
    let path = under(root.path(), "/etc/default/grub");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone]);
    assert_eq!(text(root.path(), "/etc/default/grub"), "GRUB_CMDLINE_LINUX=\"quiet\"\n");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_was_worked_out_from_an_old_file_does_not_replace_a_newer_one() {
    let root = host();
    let path = "/etc/default/grub";
    let old = Content::from(text(root.path(), path).as_str());
    // Two processes that started at the same time have read the same file.
    let [first, second] = ["first\n", "second\n"].map(|content| file(path, content));
    changes(root.path()).make_from(Some(&old), first, Lasting::UntilRestored).unwrap();
    let error = changes(root.path()).make_from(Some(&old), second, Lasting::UntilRestored).unwrap_err();
    assert!(matches!(error, Error::Outdated { .. }), "{error}");
    assert_eq!(text(root.path(), path), "first\n");
    let new = file("/etc/new", "x");
    changes(root.path()).make_from(None, new, Lasting::UntilRestored).unwrap();
}

#[test]
fn a_program_runs_once_more_when_what_is_left_of_its_input_is_undone() {
    let root = host();
    let copy = ["copy", "/etc/default/grub", "/boot/grub.cfg"].map(str::to_owned).to_vec();
    let mut guard = changes(root.path());
    let mut made = Vec::new();
    for change in
        [Change::Command { run: None, undo: Some(copy.clone()) }, file("/etc/default/grub", "ours\n")]
    {
        let Made::Changed(entry) = guard.make(change, Lasting::UntilRestored).unwrap() else {
            panic!("nothing was changed");
        };
        made.push(*entry);
    }
    fs::write(under(root.path(), "/etc/default/grub"), "theirs\n").unwrap();
    let undone = guard.undo_together(&made);
    assert!(
        matches!(undone[..], [Ok(Outcome::ChangedSince { .. }), Ok(Outcome::Undone)]),
        "what is left is told: {undone:?}"
    );
    drop(guard);
    let forced = Restore { force: true, ..Restore::default() };
    assert_eq!(restored(root.path(), forced), [Outcome::Undone, Outcome::Undone]);
    assert_eq!(text(root.path(), "/boot/grub.cfg"), "GRUB_CMDLINE_LINUX=\"quiet\"\n");
}

#[test]
fn what_a_running_process_holds_is_not_taken_from_it() {
    let root = host();
    let pid = std::process::id();
    let home = under(root.path(), &format!("/proc/{pid}"));
    fs::create_dir_all(&home).unwrap();
    fs::copy(under(root.path(), "/proc/41/stat"), home.join("stat")).unwrap();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    let pid = i32::try_from(pid).unwrap();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Held { pid }]);
    assert_eq!(text(root.path(), "/sys/governor"), "performance\n");
}

#[test]
fn a_change_is_not_taken_from_below_a_later_one_that_a_running_process_holds() {
    let root = host();
    // The owner counts as ended: the host below `root` has no such process yet.
    drop(changes(root.path()).make(load("avic", "1"), Lasting::UntilRestored).unwrap());
    let pid = std::process::id();
    let home = under(root.path(), &format!("/proc/{pid}"));
    fs::create_dir_all(&home).unwrap();
    fs::copy(under(root.path(), "/proc/41/stat"), home.join("stat")).unwrap();
    let mut study = changes(root.path());
    let later = Change::Load {
        module: MODULE.to_owned(),
        parameters: [("avic", "1"), ("npt", "0")].map(|(name, value)| (name.into(), value.into())).into(),
    };
    study.make(later, Lasting::WhileHeld).unwrap();
    let pid = i32::try_from(pid).unwrap();
    // Nobody else changed it, so force is no way out.
    for (dry_run, force) in [(true, false), (false, false), (true, true), (false, true)] {
        let outcomes = restored(root.path(), Restore { dry_run, force, ..Restore::default() });
        let why = "Cannot undo change 1 before change 2, which rests on it".to_owned();
        let waits = Outcome::Failed { why };
        assert_eq!(outcomes, [Outcome::Held { pid }, waits]);
        // The study still runs with the parameters that it requested.
        assert_eq!(text(root.path(), "/sys/module/kvm_amd/parameters/npt"), "N\n");
    }
    drop(study);
    fs::remove_dir_all(home).unwrap();
    assert_eq!(restored(root.path(), Restore::default()), [Outcome::Undone]);
    assert_eq!(text(root.path(), "/sys/module/kvm_amd/parameters/avic"), "N\n");
}

#[test]
fn without_a_journal_nothing_is_changed() {
    let root = host();
    fs::write(root.path().join("var"), "").unwrap();
    let error = Changes::begin(root.path(), Machine::new(root.path()), Vec::new()).err().unwrap().to_string();
    assert!(error.contains("so nothing was changed"), "{error}");
    fs::remove_file(root.path().join("var")).unwrap();
    let mut guard = changes(root.path());
    // A directory in the journal's place: not even root can write to it.
    fs::create_dir(under(root.path(), VOLATILE)).unwrap();
    assert!(guard.make(governor("performance"), Lasting::UntilRestored).is_err());
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
}

#[test]
fn a_value_that_changes_again_and_again_goes_back_to_what_it_was() {
    let root = host();
    let mut guard = changes(root.path());
    let Made::Changed(mut entry) = guard.make(governor("performance"), Lasting::WhileHeld).unwrap() else {
        panic!("nothing was changed");
    };
    for value in ["ondemand", "schedutil", "performance", "ondemand"] {
        guard.make_again(&mut entry, governor(value)).unwrap();
        assert_eq!(text(root.path(), "/sys/governor"), format!("{value}\n"));
    }
    assert_eq!(Journal::read(root.path()).unwrap().entries.len(), 1);
    let other = Change::Value { path: "/sys/other".to_owned(), value: "1".to_owned() };
    assert!(matches!(guard.make_again(&mut entry, other), Err(Error::Another { .. })));
    drop(guard);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
    assert_eq!(restored(root.path(), Restore::default()), []);
}

#[test]
fn what_others_changed_is_not_changed_again() {
    let root = host();
    let mut guard = changes(root.path());
    let Made::Changed(mut entry) = guard.make(governor("performance"), Lasting::WhileHeld).unwrap() else {
        panic!("nothing was changed");
    };
    fs::write(under(root.path(), "/sys/governor"), "theirs\n").unwrap();
    let error = guard.make_again(&mut entry, governor("ondemand")).unwrap_err();
    assert!(matches!(&error, Error::ChangedSince { what, .. } if what.ends_with("theirs")), "{error}");
    assert_eq!(text(root.path(), "/sys/governor"), "theirs\n");
    drop(guard);
    assert_eq!(text(root.path(), "/sys/governor"), "theirs\n");
}

#[test]
fn what_the_journal_does_not_take_is_told_as_it_is() {
    // The process makes these changes, and then the journal takes no line.
    let root = host();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    crate::cut_short::after(Some(2));
    let released = guard.release();
    crate::cut_short::after(None);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
    let Err(error) = &released[0].1 else { panic!("{released:?}") };
    assert!(error.to_string().starts_with("Change 1 is undone, but the journal"), "{error}");

    let Made::Changed(mut entry) = guard.make(governor("performance"), Lasting::WhileHeld).unwrap() else {
        panic!("nothing was changed");
    };
    crate::cut_short::after(Some(4));
    let error = guard.make_again(&mut entry, governor("ondemand")).unwrap_err();
    crate::cut_short::after(None);
    assert_eq!(text(root.path(), "/sys/governor"), "ondemand\n");
    assert!(error.to_string().contains("does not say that a change was made; it will still"), "{error}");
    drop(guard);
    assert_eq!(text(root.path(), "/sys/governor"), "powersave\n");
}

#[test]
fn a_change_that_is_refused_the_second_time_is_as_the_first_left_it() {
    let root = host();
    let mut machine = Machine::new(root.path());
    machine.affinity.insert(41, "0-3".to_owned());
    machine.refuses = Some("2".to_owned());
    let mut guard = Changes::begin(root.path(), machine, Vec::new()).unwrap();
    let Made::Changed(mut entry) = guard.make(pin("1"), Lasting::WhileHeld).unwrap() else {
        panic!("nothing was changed");
    };
    guard.make_again(&mut entry, pin("2")).unwrap_err();
    guard.actions.affinity.insert(41, "3".to_owned());
    let released = guard.release();
    assert!(matches!(&released[0].1, Ok(Outcome::ChangedSince { .. })), "{released:?}");
    assert_eq!(guard.actions.affinity[&41], "3");
    // A later restore does the same.
    drop(guard);
    let recorded = Journal::read(root.path()).unwrap();
    assert_eq!(recorded.entries[0].after(), Some(&After::Value { value: "1".to_owned() }));
}

#[test]
fn a_thread_that_could_not_get_its_cpus_back_is_not_moved() {
    let root = host();
    let mut guard = changes(root.path());
    guard.actions.affinity.insert(41, "0-1151".to_owned());
    let error = guard.make(pin("7"), Lasting::WhileHeld).unwrap_err();
    assert!(matches!(error, Error::ManyCpus { tid: 41, .. }), "{error}");
    assert_eq!(guard.actions.affinity[&41], "0-1151");
    assert!(Journal::read(root.path()).unwrap().entries.is_empty());
}

#[test]
fn what_others_changed_is_forgotten_where_that_is_asked_for() {
    let root = host();
    let mut guard = changes(root.path());
    for round in 0..3 {
        let Made::Changed(entry) = guard.make(governor("performance"), Lasting::WhileHeld).unwrap() else {
            panic!("nothing was changed");
        };
        let theirs = format!("theirs {round}\n");
        fs::write(under(root.path(), "/sys/governor"), &theirs).unwrap();
        let outcome = guard.undo_or_forget(&entry).unwrap();
        assert!(matches!(outcome, Outcome::ChangedSince { .. }), "{outcome:?}");
        assert_eq!(text(root.path(), "/sys/governor"), theirs);
        assert!(guard.held.is_empty());
    }
    let recorded = Journal::read(root.path()).unwrap().entries;
    let left = Progress::Undone { how: "left".to_owned() };
    assert!(recorded.len() == 3 && recorded.iter().all(|entry| entry.progress == left), "{recorded:?}");
    assert_eq!(restored(root.path(), Restore { force: true, ..Restore::default() }), []);
}

#[test]
fn a_restore_of_the_placement_alone_leaves_all_else() {
    let root = host();
    for (directory, file) in [("proc/irq/40", "smp_affinity_list"), ("sys/fs/cgroup/vm", "cpuset.cpus")] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
        fs::write(root.path().join(directory).join(file), "0-3\n").unwrap();
    }
    let value = |path: &str| Change::Value { path: path.to_owned(), value: "3".to_owned() };
    let (interrupt, group) = ("/proc/irq/40/smp_affinity_list", "/sys/fs/cgroup/vm/cpuset.cpus");
    let mut guard = changes(root.path());
    guard.actions.affinity.insert(41, "0-3".to_owned());
    for change in [value(interrupt), value(group), pin("3"), governor("performance")] {
        guard.make(change, Lasting::WhileHeld).unwrap();
    }
    guard.make(file("/etc/a", "x"), Lasting::UntilRestored).unwrap();
    // A later change of the same interrupt, which lasts.
    let lasting = Change::Value { path: interrupt.to_owned(), value: "2".to_owned() };
    guard.make(lasting, Lasting::UntilRestored).unwrap();
    let mut machine = Machine::new(root.path());
    machine.affinity.clone_from(&guard.actions.affinity);
    // As after a kill: the owner, this test, is no process on that host.
    std::mem::forget(guard);
    let placement = Restore { only_placement: true, ..Restore::default() };
    let restored = restore(root.path(), &mut machine, placement).unwrap();
    let [pinned, of_group, of_interrupt] = &restored.changes[..] else { panic!("{restored:?}") };
    assert_eq!((&pinned.outcome, &of_group.outcome), (&Outcome::Undone, &Outcome::Undone));
    assert!(matches!(&of_interrupt.outcome, Outcome::Failed { why } if why.contains("rests on it")));
    assert_eq!((&machine.affinity[&41][..], text(root.path(), group)), ("0-3", "0-3\n".to_owned()));
    assert_eq!(text(root.path(), interrupt).trim(), "2");
    assert_eq!(text(root.path(), "/sys/governor"), "performance\n");
    assert!(under(root.path(), "/etc/a").exists());
}

#[test]
fn a_restore_with_nothing_to_undo_does_not_wait_for_the_process_that_has_the_lock() {
    let root = host();
    let stat = text(root.path(), "/proc/41/stat");
    let process = under(root.path(), &format!("/proc/{}", std::process::id()));
    fs::create_dir_all(&process).unwrap();
    fs::write(process.join("stat"), stat).unwrap();
    let mut guard = changes(root.path());
    guard.make(governor("performance"), Lasting::WhileHeld).unwrap();
    let lock = guard.journal.lock().unwrap();
    let held = restored(root.path(), Restore::default());
    assert!(matches!(held[..], [Outcome::Held { .. }]), "{held:?}");
    fs::remove_dir_all(process).unwrap();
    let error = restore(root.path(), &mut Machine::new(root.path()), Restore::default()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    drop(lock);
}

#[test]
fn what_was_changed_again_is_restored_after_a_kill_and_left_to_others() {
    let root = host();
    for (since, left) in [(None, "powersave\n"), (Some("theirs\n"), "theirs\n")] {
        let mut guard = changes(root.path());
        let Made::Changed(mut entry) = guard.make(governor("performance"), Lasting::UntilRestored).unwrap()
        else {
            panic!("nothing was changed");
        };
        guard.make_again(&mut entry, governor("ondemand")).unwrap();
        std::mem::forget(guard);
        if let Some(since) = since {
            fs::write(under(root.path(), "/sys/governor"), since).unwrap();
        }
        restored(root.path(), Restore::default());
        assert_eq!(text(root.path(), "/sys/governor"), left);
    }
}

/// Defines a domain as `vm fix` does after reading this text.
fn define_from(read: &str, changes: &mut Changes<Machine>) -> Result<(), Error> {
    let path = |when: &str| format!("/var/lib/exitless/domains/web.{when}.xml");
    let command = |when: &str| Some(vec!["virsh".to_owned(), "define".to_owned(), path(when)]);
    let steps = vec![
        file(&path("before"), read),
        file(&path("after"), "new"),
        Change::Command { run: command("after"), undo: command("before") },
    ];
    changes.make_together_from(read.as_bytes(), steps, Lasting::UntilRestored)
}

fn define(root: &Path) {
    fs::write(under(root, "/domain.xml"), "old").unwrap();
    define_from("old", &mut changes(root)).unwrap();
    assert_eq!(text(root, "/domain.xml"), "<!-- -->new");
}

#[test]
fn a_definition_that_others_changed_meanwhile_is_not_overwritten() {
    for now in [Some("edited"), None] {
        let root = host();
        let domain = under(root.path(), "/domain.xml");
        now.map_or(Ok(()), |xml| fs::write(&domain, xml)).unwrap();
        let mut changes = changes(root.path());
        let error = define_from("old", &mut changes).unwrap_err();
        assert!(matches!(error, Error::Outdated { .. }), "{error}");
        assert!(error.to_string().contains("virsh dumpxml"), "{error}");
        assert!(changes.actions.ran.is_empty(), "{:?}", changes.actions.ran);
        assert_eq!(fs::read_to_string(&domain).ok().as_deref(), now);
        assert!(!under(root.path(), "/var/lib/exitless/domains").exists());
        assert!(restored(root.path(), Restore::default()).is_empty());
    }
}

#[test]
fn a_definition_that_the_journal_has_no_room_for_leaves_nothing() {
    let root = host();
    let domain = under(root.path(), "/domain.xml");
    fs::write(&domain, "old").unwrap();
    if !immutable(&domain, true) {
        return println!("not tested: only root can make a file immutable, and not on each file system");
    }
    assert!(immutable(&domain, false));
    let mut changes = changes(root.path());
    // From here on the journal takes no line: the files have been written, and the command is next.
    changes.actions.before_shown = |root| {
        immutable(&under(root, PERSISTENT), true);
    };
    let defined = define_from("old", &mut changes);
    assert!(immutable(&under(root.path(), PERSISTENT), false));
    let error = defined.unwrap_err();
    assert!(matches!(error, Error::JournalWrite { .. }), "{error}");
    assert!(changes.actions.ran.is_empty(), "{:?}", changes.actions.ran);
    assert!(!under(root.path(), "/var/lib/exitless/domains").exists());
    let again = restored(root.path(), Restore::default());
    assert!(matches!(again[..], [Outcome::Already { .. }, Outcome::Already { .. }]), "{again:?}");
}

#[test]
fn two_fixes_of_a_domain_are_undone_one_after_the_other() {
    let root = host();
    define(root.path());
    define_from("<!-- -->new", &mut changes(root.path())).unwrap();
    assert_eq!(restored(root.path(), Restore::default()).len(), 5, "the new text is the same");
    assert_eq!(text(root.path(), "/domain.xml"), "<!-- -->old");
    assert!(!under(root.path(), "/var/lib/exitless/domains").exists());
}

#[test]
fn a_domain_gets_its_old_definition_back() {
    let root = host();
    define(root.path());
    assert_eq!(
        restored(root.path(), Restore::default()),
        [Outcome::Undone, Outcome::Undone, Outcome::Undone]
    );
    assert_eq!(text(root.path(), "/domain.xml"), "<!-- -->old");
    assert!(!under(root.path(), "/var/lib/exitless/domains/web.before.xml").exists());
}

#[test]
fn a_definition_that_others_changed_since_stays_and_can_be_forced() {
    for now in [Some("edited"), None] {
        let root = host();
        define(root.path());
        let domain = under(root.path(), "/domain.xml");
        now.map_or_else(|| fs::remove_file(&domain), |xml| fs::write(&domain, xml)).unwrap();
        for dry_run in [true, false, false] {
            let outcomes = restored(root.path(), Restore { dry_run, ..Restore::default() });
            assert!(matches!(outcomes[0], Outcome::ChangedSince { .. }), "{outcomes:?}");
            // Forcing needs the old definition.
            assert!(
                matches!(outcomes.last().unwrap(), Outcome::Failed { why } if why.contains("rests on it"))
            );
            assert_eq!(fs::read_to_string(&domain).ok().as_deref(), now);
        }
        restored(root.path(), Restore { force: true, ..Restore::default() });
        assert_eq!(text(root.path(), "/domain.xml"), "<!-- -->old");
        assert!(!under(root.path(), "/var/lib/exitless/domains/web.before.xml").exists());
    }
}
