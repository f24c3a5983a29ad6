use super::*;
use crate::fake::Machine;
use crate::{Outcome, Parameters, Progress, Restore, RestoredChange, restore};
use proptest::prelude::*;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::LazyLock;

fn value(path: &str) -> Change {
    Change::Value { path: path.to_owned(), value: "1".to_owned() }
}

fn file(path: &str) -> Change {
    Change::File { path: path.to_owned(), content: "x".into() }
}

fn intend(journal: &Journal, change: Change) -> Result<Entry, Error> {
    let lock = journal.lock()?;
    let owner = Owner::current(journal.root()).unwrap();
    let before = before(&change);
    journal.intend(&lock, (&owner, &["exitless".to_owned()]), false, change, before)
}

fn before(change: &Change) -> Before {
    match change {
        Change::File { .. } => Before::File { file: None, missing: Vec::new() },
        Change::Value { .. } => Before::Value { value: "y".to_owned() },
        Change::Load { .. } => Before::Module { parameters: None },
        Change::Affinity { .. } => Before::Affinity { cpus: "0".to_owned(), unlimited: false },
        Change::Command { .. } => Before::Unknown,
    }
}

#[test]
fn changes_that_a_boot_undoes_are_kept_where_it_forgets_them() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let first = intend(&journal, value("/sys/a")).unwrap();
    let second = intend(&journal, file("/etc/a")).unwrap();
    let third = intend(&journal, value("/sys/b")).unwrap();
    assert_eq!([first.id, second.id, third.id], [1, 2, 3]);
    journal.done(&second, &After::AsAsked).unwrap();
    journal.undone(&third, "undone").unwrap();
    let recorded = Journal::read(root.path()).unwrap();
    let progress: Vec<_> =
        recorded.entries.iter().map(|entry| (entry.id, entry.open(), entry.after())).collect();
    assert_eq!(progress, [(1, true, None), (2, true, Some(&After::AsAsked)), (3, false, None)]);
    fs::remove_file(under(root.path(), VOLATILE)).unwrap();
    assert_eq!(Journal::read(root.path()).unwrap().entries.len(), 1);
}

#[test]
fn a_line_that_was_cut_is_passed_over_and_the_next_one_is_whole() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    intend(&journal, file("/etc/a")).unwrap();
    let path = under(root.path(), PERSISTENT);
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes.extend_from_within(..whole / 2);
    fs::write(&path, &bytes).unwrap();
    let recorded = Journal::read(root.path()).unwrap();
    assert_eq!((recorded.entries.len(), recorded.damage[0].offset), (1, whole));
    assert!(recorded.damage[0].why.starts_with("the line is cut"), "{:?}", recorded.damage);
    let next = intend(&journal, file("/etc/b")).unwrap();
    journal.done(&next, &After::AsAsked).unwrap();
    let recorded = Journal::read(root.path()).unwrap();
    assert_eq!((recorded.entries.len(), recorded.damage.len()), (2, 1));
    assert!(matches!(recorded.entries[1].progress, Progress::Done { .. }));
}

#[test]
fn a_result_that_was_cut_leaves_its_change_open() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let entry = intend(&journal, file("/etc/a")).unwrap();
    journal.done(&entry, &After::AsAsked).unwrap();
    let path = under(root.path(), PERSISTENT);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let recorded = Journal::read(root.path()).unwrap();
    assert!(recorded.entries[0].open());
    let why = &recorded.damage[0].why;
    assert!(why.contains("one whose result it recorded is still open"), "{why}");
}

#[test]
fn a_journal_of_a_newer_exitless_is_named_and_not_guessed_at() {
    let root = tempfile::tempdir().unwrap();
    Journal::open(root.path()).unwrap();
    fs::write(under(root.path(), PERSISTENT), "{\"format\":2,\"change-set\":{}}\n").unwrap();
    let recorded = Journal::read(root.path()).unwrap();
    assert!(recorded.damage[0].to_string().contains("format 2"), "{:?}", recorded.damage);
}

#[test]
fn what_holds_the_lock_is_waited_for_and_then_named() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let held = journal.lock().unwrap();
    let error = intend(&journal, file("/etc/a")).unwrap_err();
    assert!(matches!(&error, Error::Locked { seconds: 1, .. }), "{error}");
    drop(held);
    intend(&journal, file("/etc/a")).unwrap();
}

#[test]
fn a_program_that_outlives_its_exitless_keeps_the_lock_until_it_ends() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let held = journal.lock().unwrap();
    let mut program = std::process::Command::new("sleep").arg("30").spawn().unwrap();
    held.close_as_when_killed();
    assert!(matches!(journal.lock(), Err(Error::Locked { .. })));
    program.kill().unwrap();
    program.wait().unwrap();
    journal.lock().unwrap();
}

#[test]
fn a_full_disk_lets_nothing_be_announced() {
    // Each write to it fails with ENOSPC.
    let full = File::options().read(true).write(true).open("/dev/full").unwrap();
    let line = Said::Undone { id: 1, how: String::new() };
    let path = PathBuf::from(PERSISTENT);
    let error = write_line(full, line).unwrap_err();
    let error = Error::JournalWrite { path, source: error }.to_string();
    assert!(error.contains("so nothing was changed; make room"), "{error}");
}

#[test]
fn a_journal_without_open_changes_begins_anew_when_it_is_long() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let long = Change::File { path: "/etc/a".to_owned(), content: "x".repeat(1 << 20).as_str().into() };
    let first = intend(&journal, long).unwrap();
    let path = under(root.path(), PERSISTENT);
    intend(&journal, file("/etc/b")).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > TURN, "open changes stay");
    journal.undone(&first, "undone").unwrap();
    journal.undone(&Entry { id: 2, ..first }, "undone").unwrap();
    intend(&journal, file("/etc/c")).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < TURN);
    assert_eq!(Journal::read(root.path()).unwrap().entries.len(), 1);
}

#[test]
fn only_lines_that_are_new_are_read_before_a_change() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let next = |journal: &Journal, name: &str| intend(journal, value(&format!("/sys/{name}"))).unwrap().id;
    let first = intend(&journal, value("/sys/a")).unwrap();
    assert_eq!(next(&journal, "a"), 2);
    let holding = journal.holding_up(&journal.lock().unwrap(), &first, &[]).unwrap();
    assert_eq!(holding.iter().map(|later| later.id).collect::<Vec<_>>(), [2]);
    // Overwrite, in the same file, all that this process has read.
    let path = under(root.path(), VOLATILE);
    let length = fs::metadata(&path).unwrap().len() as usize;
    fs::write(&path, format!("{}\n", " ".repeat(length - 1))).unwrap();
    assert_eq!(next(&journal, "b"), 3);
    // Lines of other processes are new, too, and so is the end of one that was cut.
    assert_eq!(next(&Journal::open(root.path()).unwrap(), "c"), 4);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!((next(&journal, "d"), next(&journal, "e")), (5, 6));
    // An editor has written to the same file, which is longer than what this process has read of it.
    journal.followed.borrow_mut().catch_up(root.path()).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"id\":6,", "\"id\":60,")).unwrap();
    assert_eq!((next(&journal, "e"), next(&journal, "e")), (61, 62));
    // Another file in its place, which is as long.
    let other = path.with_file_name("other");
    let blank = vec![b'\n'; fs::metadata(&path).unwrap().len() as usize];
    fs::write(&other, blank).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(next(&journal, "f"), 1);
}

#[test]
fn a_long_journal_of_open_changes_is_searched_for_undone_ones_when_it_has_changed_much() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let long = |name: &str| {
        let content = "x".repeat(TURN as usize / 2).as_str().into();
        intend(&journal, Change::File { path: format!("/etc/{name}"), content }).unwrap()
    };
    let entries = ["a", "b", "c"].map(long);
    let may_shrink = || {
        let mut followed = journal.followed.borrow_mut();
        followed.catch_up(root.path()).unwrap();
        let [(_, persistent), _] = followed.files();
        persistent.may_shrink(TURN)
    };
    // The attempt before the third change has shown that the first two are open.
    assert!(!may_shrink());
    journal.undone(&entries[0], "undone").unwrap();
    assert!(!may_shrink(), "as many are open as then");
    journal.undone(&entries[1], "undone").unwrap();
    assert!(may_shrink());
}

/// A journal with a small open change and a long undone one.
fn long() -> (tempfile::TempDir, Journal) {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let first = intend(&journal, file("/etc/a")).unwrap();
    journal.done(&first, &After::AsAsked).unwrap();
    let long = Change::File { path: "/etc/b".to_owned(), content: "x".repeat(1 << 20).as_str().into() };
    let second = intend(&journal, long).unwrap();
    journal.undone(&second, "undone").unwrap();
    (root, journal)
}

#[test]
fn what_was_undone_is_forgotten_beside_changes_that_are_open() {
    let (root, journal) = long();
    let path = under(root.path(), PERSISTENT);
    assert!(fs::metadata(&path).unwrap().len() > TURN);
    let before = Journal::read(root.path()).unwrap().entries.remove(0);
    let third = intend(&journal, file("/etc/c")).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < TURN);
    assert_eq!(Journal::read(root.path()).unwrap().entries, [before, third]);
}

#[test]
fn a_journal_that_is_written_anew_is_the_old_one_or_the_new_one() {
    for places in 1.. {
        let (root, journal) = long();
        let lock = journal.lock().unwrap();
        crate::cut_short::after(Some(places));
        let _ = journal.turn(&lock);
        let whole = !crate::cut_short::ended();
        crate::cut_short::after(None);
        drop(lock);
        let recorded = Journal::read(root.path()).unwrap();
        let open: Vec<u64> =
            recorded.entries.iter().filter(|entry| entry.open()).map(|entry| entry.id).collect();
        assert_eq!((open, recorded.damage), (vec![1], Vec::new()), "cut after {places} places");
        // A leftover temporary file does no harm.
        intend(&journal, file("/etc/c")).unwrap();
        let length = fs::metadata(under(root.path(), PERSISTENT)).unwrap().len();
        assert!(length < TURN, "cut after {places} places");
        if whole {
            break;
        }
    }
}

#[test]
fn what_a_newer_exitless_has_to_undo_is_not_forgotten() {
    let (root, journal) = long();
    let path = under(root.path(), PERSISTENT);
    let newer = "{\"format\":2,\"change-set\":{}}\n";
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(newer.as_bytes());
    fs::write(&path, bytes).unwrap();
    let first = Journal::read(root.path()).unwrap().entries.remove(0);
    journal.undone(&first, "undone").unwrap();
    intend(&journal, file("/etc/c")).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains(newer));
}

/// A user who is not root.
const STRANGER: u32 = 65_534;

#[test]
fn a_journal_that_others_could_have_written_is_not_believed() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    intend(&journal, file("/etc/a")).unwrap();
    let (path, directory) = (under(root.path(), PERSISTENT), root.path().join("var/lib/exitless"));
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let refused = || {
        let read = Journal::read(root.path()).unwrap_err();
        let written = intend(&journal, file("/etc/b")).unwrap_err();
        let restored = restore(root.path(), &mut Machine::new(root.path()), Restore::default()).unwrap_err();
        assert!(
            read.to_string().contains("journal") && written.to_string().contains("journal"),
            "{restored}"
        );
        read
    };
    for (place, open, close) in
        [(&directory, 0o777, 0o700), (&directory, 0o755, 0o700), (&root.path().join("var/lib"), 0o777, 0o755)]
    {
        mode(place, open);
        assert!(matches!(
            refused(),
            Error::JournalPlace(files::Error::Mode { .. } | files::Error::Owner { .. })
        ));
        mode(place, close);
    }
    mode(&path, 0o622);
    refused();
    mode(&path, 0o600);
    // A symbolic link, and a hard link.
    let aside = directory.join("aside");
    fs::rename(&path, &aside).unwrap();
    symlink("aside", &path).unwrap();
    refused();
    fs::remove_file(&path).unwrap();
    fs::hard_link(&aside, &path).unwrap();
    refused();
    fs::remove_file(&aside).unwrap();
    assert_eq!(Journal::read(root.path()).unwrap().entries.len(), 1);
    if std::os::unix::fs::chown(&directory, Some(STRANGER), None).is_err() {
        return println!("not tested: giving a directory to another user needs root");
    }
    assert!(matches!(refused(), Error::JournalPlace(files::Error::Owner { owner: STRANGER, .. })));
}

#[test]
fn a_user_is_sent_to_root_and_not_told_to_take_its_journal() {
    let error = |owner, who: u32| {
        let refused =
            files::Error::Owner { path: "/var/lib/exitless".into(), owner, expected: who.to_string() };
        Error::place(refused, who)
    };
    let told = error(0, STRANGER).to_string();
    assert!(told.contains("belongs to root") && told.contains("`sudo exitless restore`"), "{told}");
    assert!(matches!(error(STRANGER, 0), Error::JournalPlace(_)));
    assert!(matches!(error(1, STRANGER), Error::JournalPlace(_)));
}

#[test]
fn a_change_that_exitless_does_not_make_is_damage_and_is_not_undone() {
    let parameters = |name: &str| Parameters::from([(name.to_owned(), "1".to_owned())]);
    let words = |line: &str| Some(line.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let forged = [
        Change::Command { run: None, undo: words("sh -c id") },
        Change::Command { run: words("sh -c id"), undo: None },
        Change::Value { path: "/etc/shadow".to_owned(), value: "x".to_owned() },
        Change::Value { path: "/sys/../etc/shadow".to_owned(), value: "x".to_owned() },
        file("etc/a"),
        Change::Load { module: "-C/tmp".to_owned(), parameters: Parameters::new() },
        Change::Load { module: "kvm".to_owned(), parameters: parameters("-C") },
        Change::Load { module: "../x".to_owned(), parameters: Parameters::new() },
        Change::Affinity { tid: -1, start_ticks: 0, cpus: "0".to_owned() },
    ];
    for change in forged {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::open(root.path()).unwrap();
        assert!(matches!(intend(&journal, change.clone()), Err(Error::Unknown { .. })), "{change:?}");
        let before = before(&change);
        let owner = Owner { pid: 1, start_ticks: 1, boot: String::new() };
        let intent = Intent { id: 1, time: 0, owner, command: Vec::new(), temporary: false, change, before };
        let line = Line { format: FORMAT, said: Said::Intend(Box::new(intent)) };
        let path = under(root.path(), PERSISTENT);
        fs::write(&path, format!("{}\n", serde_json::to_string(&line).unwrap())).unwrap();
        let mut machine = Machine::new(root.path());
        let restored = restore(root.path(), &mut machine, Restore::default()).unwrap();
        assert!(restored.changes.is_empty() && machine.ran.is_empty(), "{line:?}");
        assert!(restored.incomplete(), "{line:?}");
    }
}

#[test]
fn a_kind_of_change_that_is_no_longer_known_is_damage_that_names_it() {
    for (change, before, expected) in [
        (
            json!({ "kind": "unload", "module": "kvm" }),
            json!({ "kind": "module", "parameters": { "nested": "1" } }),
            "unknown variant `unload`",
        ),
        (
            json!({ "kind": "file", "path": "/etc/a", "content": null }),
            json!({ "kind": "file", "file": null, "missing": [] }),
            "expected the content of a file",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::open(root.path()).unwrap();
        let owner = json!({ "pid": 1, "start_ticks": 1, "boot": "" });
        let intent = json!({
            "id": 1, "time": 0, "owner": owner, "command": [], "temporary": false,
            "change": change, "before": before,
        });
        let line = json!({ "format": FORMAT, "intend": intent });
        fs::write(under(root.path(), PERSISTENT), format!("{line}\n")).unwrap();
        let known = intend(&journal, file("/etc/b")).unwrap();
        let mut machine = Machine::new(root.path());
        let restored = restore(root.path(), &mut machine, Restore::default()).unwrap();
        let undone: Vec<u64> = restored.changes.iter().map(|one| one.entry.id).collect();
        assert_eq!((undone, machine.ran), (vec![known.id], Vec::new()), "{line}");
        assert!(restored.incomplete() && restored.damage[0].why.contains(expected), "{:?}", restored.damage);
    }
}

#[test]
fn a_script_is_run_only_when_that_is_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let words = ["timeout", "--kill-after=10", "5.000", "sh", "-c", "echo back"];
    let undo = Some(words.map(str::to_owned).to_vec());
    let entry = intend(&journal, Change::Command { run: None, undo }).unwrap();
    // From an earlier boot, so its process has ended.
    fs::create_dir_all(root.path().join("proc/sys/kernel/random")).unwrap();
    fs::write(root.path().join("proc/sys/kernel/random/boot_id"), "another").unwrap();
    let mut machine = Machine::new(root.path());
    let restored = restore(root.path(), &mut machine, Restore::default()).unwrap();
    let script = Outcome::Script { script: "echo back".to_owned() };
    assert_eq!(restored.changes, [RestoredChange { entry, outcome: script }]);
    assert!(restored.incomplete() && machine.ran.is_empty());
    let how = Restore { run_scripts: true, ..Restore::default() };
    let _ = restore(root.path(), &mut machine, how).unwrap();
    assert_eq!(machine.ran, ["timeout --kill-after=10 5.000 sh -c echo back"]);
}

/// A journal of three changes.
static THREE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    for path in ["/etc/a", "/etc/b", "/etc/c"] {
        intend(&journal, file(path)).unwrap();
    }
    fs::read(under(root.path(), PERSISTENT)).unwrap()
});

proptest! {
    #[test]
    fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut recorded = Recorded::default();
        read::read(Path::new("journal"), &bytes, &mut recorded);
        prop_assert!(recorded.entries.is_empty());
        prop_assert!(recorded.damage.iter().all(|damage| damage.offset < bytes.len()));
    }

    #[test]
    fn what_is_whole_before_a_cut_is_kept(cut in 0_usize..10_000) {
        let bytes = &*THREE;
        let bytes = &bytes[..cut.min(bytes.len())];
        let mut recorded = Recorded::default();
        read::read(Path::new("journal"), bytes, &mut recorded);
        let whole = bytes.iter().filter(|&&byte| byte == b'\n').count();
        // A complete line counts even without its newline.
        prop_assert!((whole..=whole + 1).contains(&recorded.entries.len()));
    }
}
