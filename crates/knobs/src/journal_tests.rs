use super::*;
use crate::Progress;
use proptest::prelude::*;
use std::sync::LazyLock;

fn value(path: &str) -> Change {
    Change::Value { path: path.to_owned(), value: "1".to_owned() }
}

fn file(path: &str) -> Change {
    Change::File { path: path.to_owned(), content: Some("x".into()) }
}

fn intend(journal: &Journal, change: Change) -> Result<Entry, Error> {
    let lock = journal.lock()?;
    let owner = Owner::current(journal.root());
    journal.intend(&lock, (&owner, &["exitless".to_owned()]), false, change, Before::Unknown)
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
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    // The kernel's own full disk.
    std::os::unix::fs::symlink("/dev/full", under(root.path(), PERSISTENT)).unwrap();
    let line = Said::Undone { id: 1, how: String::new() };
    let path = under(root.path(), PERSISTENT);
    let error = journal.append_line(&path, line).unwrap_err();
    let error = Error::JournalWrite { path, source: error }.to_string();
    assert!(error.contains("so nothing was changed; make room"), "{error}");
}

#[test]
fn a_journal_without_open_changes_begins_anew_when_it_is_long() {
    let root = tempfile::tempdir().unwrap();
    let journal = Journal::open(root.path()).unwrap();
    let long = Change::File { path: "/etc/a".to_owned(), content: Some("x".repeat(1 << 20).as_str().into()) };
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
        // Without its end of line a whole line still says all.
        prop_assert!((whole..=whole + 1).contains(&recorded.entries.len()));
    }
}
