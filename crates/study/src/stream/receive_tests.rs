use super::*;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::store::StudyFolder;
use crate::stream::{Link, Writer};
use crate::{Run, engine::Sink as _};
use host::Fingerprint;
use proptest::prelude::*;

const TEXT: &str = include_str!("../plan/small.toml");

fn store(folder: &Path) -> Store {
    let plan = Plan::read(TEXT, "small.toml").unwrap();
    let mut store = Store::open(folder, &plan, TEXT, "ssh://there", 5).unwrap();
    store.begin(&Fingerprint::default(), None, false).unwrap();
    store
}

fn run(index: usize) -> Run {
    let plan = Plan::read(TEXT, "small.toml").unwrap();
    let slot = Schedule::new(&plan, 5).block(0).into_iter().flat_map(|arm| arm.slots).nth(index).unwrap();
    Run {
        started: 1,
        spent: 1.0,
        took: 0.5,
        sampled: None,
        guests: vec![Vec::new()],
        ..Run::begun(slot.cell, slot.position, 0)
    }
}

/// A stream of these runs, without files.
fn stream_of(runs: &[Run]) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    let mut link = Link::new(Writer::begin(&mut bytes).unwrap(), place.path());
    for run in runs {
        let folder = link.folder().unwrap();
        link.keep(run, &folder).unwrap();
    }
    drop(link);
    bytes
}

/// Two runs with a file larger than a chunk and an empty file.
fn stream() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let mut bytes = b"Last login: today\n".to_vec();
    let mut link = Link::new(Writer::begin(&mut bytes).unwrap(), place.path());
    link.say(&Message::Warning { text: "slow".to_owned() }).unwrap();
    for index in 0..2 {
        let folder = link.folder().unwrap();
        fs::create_dir(folder.join("guest-0")).unwrap();
        fs::write(folder.join("guest-0/run.out"), vec![7; 1_500_000]).unwrap();
        fs::write(folder.join("guest-0/run.err"), "").unwrap();
        link.keep(&run(index), &folder).unwrap();
    }
    drop(link);
    bytes
}

fn take(bytes: &[u8], store: &mut Store) -> (usize, StreamError) {
    let mut reader = match Reader::begin(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, error),
    };
    let asked = Asked::of(store.plan(), store.seed());
    let mut past = Past::new(store.plan(), store.runs(), &[]);
    let mut taken = 0;
    loop {
        match receive(&mut reader, store, &asked, &past) {
            Ok(received) => {
                taken += 1;
                match received {
                    Received::Run(run) if run.failure.is_some() => past.fail(run.position),
                    Received::Run(run) => past.runs.push(*run),
                    Received::Message(_) => {}
                }
            }
            Err(error) => return (taken, error),
        }
    }
}

#[test]
fn runs_come_whole_after_a_greeting() {
    let folder = tempfile::tempdir().unwrap();
    let (taken, end) = take(&stream(), &mut store(folder.path()));
    assert_eq!(taken, 3);
    assert!(matches!(end, StreamError::Broken { .. }));
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!(read.runs.iter().map(|kept| kept.run.clone()).collect::<Vec<_>>(), [run(0), run(1)]);
    assert_eq!(fs::read(read.runs[1].folder.join("guest-0/run.out")).unwrap(), vec![7; 1_500_000]);
    assert_eq!(fs::read(read.runs[1].folder.join("guest-0/run.err")).unwrap(), b"");
}

#[test]
fn a_link_that_breaks_costs_the_run_in_progress_only() {
    let bytes = stream();
    for part in [0.3, 0.6, 0.9] {
        let folder = tempfile::tempdir().unwrap();
        let cut = (bytes.len() as f64 * part) as usize;
        let (taken, _) = take(&bytes[..cut], &mut store(folder.path()));
        let read = StudyFolder::open(folder.path()).unwrap();
        assert_eq!(read.runs.len(), usize::from(part > 0.5));
        assert_eq!((taken, read.warnings.len()), (1 + read.runs.len(), 0));
    }
}

#[test]
fn a_run_that_was_not_asked_for_is_refused_before_its_files_are_taken() {
    let failed = |index| Run { failure: Some("gone".to_owned()), ..run(index) };
    let later = |block| Run { cell: crate::Cell { block, ..run(0).cell }, ..run(0) };
    let plan = Plan::read(TEXT, "small.toml").unwrap();
    let beyond = Schedule::new(&plan, 5).block(2).remove(0).slots.remove(0);
    let beyond = Run { cell: beyond.cell, position: beyond.position, ..run(0) };
    for (name, runs, stored) in [
        ("the same run again", vec![run(0), run(0)], (1, 0)),
        ("a failed run after the complete one", vec![run(0), failed(0)], (1, 0)),
        ("failed runs without end", vec![failed(1); 9], (0, 3)),
        ("a complete run after the last attempt", vec![failed(1), failed(1), failed(1), run(1)], (0, 3)),
        ("another position", vec![Run { position: 7, ..run(0) }], (0, 0)),
        ("the position of another block", vec![later(1)], (0, 0)),
        ("a block beyond the last one", vec![beyond], (0, 0)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (taken, end) = take(&stream_of(&runs), &mut store(folder.path()));
        assert!(end.to_string().contains("a run that was not asked for"), "{name}: {end}");
        let read = StudyFolder::open(folder.path()).unwrap();
        assert_eq!((read.runs.len(), read.failed.len()), stored, "{name}");
        assert_eq!((taken, read.warnings.len()), (stored.0 + stored.1, 0), "{name}");
    }
}

#[test]
fn a_run_at_an_impossible_time_is_refused() {
    for spent in [-1.0, 1e30] {
        let folder = tempfile::tempdir().unwrap();
        let (taken, end) = take(&stream_of(&[Run { spent, ..run(0) }]), &mut store(folder.path()));
        assert!(taken == 0 && end.to_string().contains("a run at the end of"), "{end}");
    }
}

#[test]
fn a_stop_rule_without_a_number_of_blocks_asks_for_blocks_after_the_repeats() {
    let text = TEXT.replace("repeats = 2", "repeats = 2\nuntil = { budget = \"1h\" }");
    let plan = Plan::read(&text, "small.toml").unwrap();
    let asked = Asked::of(&plan, 5);
    let slot = |block| Schedule::new(&plan, 5).block(block).remove(0).slots.remove(0);
    assert!([0, 1, 2, 9_999].map(slot).iter().all(|slot| asked.has(&slot.cell, slot.position)));
    assert!(!asked.has(&slot(10_000).cell, slot(10_000).position));
}

#[test]
fn a_file_that_leads_out_of_the_folder_is_refused() {
    let folder = Path::new("/r");
    let long = "n".repeat(256);
    for path in ["../x", "/etc/passwd", "a/../../x", "", ".", "run.json", "a\0b", "a/b/c/d/e", &long] {
        assert_eq!(inside(folder, path), None, "{path:?}");
    }
    assert_eq!(inside(folder, "guest-0/run.out"), Some(PathBuf::from("/r/guest-0/run.out")));
}

#[test]
fn what_is_said_instead_of_a_stream_is_told() {
    let error = Reader::begin(&b"sh: exitless: not found\n"[..]).unwrap_err().to_string();
    assert!(error.contains("sh: exitless: not found"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_bytes_end_with_an_error_and_whole_runs(at in 18usize..400, bytes in proptest::collection::vec(any::<u8>(), 1..60)) {
        let mut stream = stream();
        for (index, byte) in bytes.iter().enumerate() {
            if let Some(place) = stream.get_mut(at + index) {
                *place = *byte;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let (_, _) = take(&stream, &mut store(folder.path()));
        prop_assert!(StudyFolder::open(folder.path()).unwrap().runs.len() <= 2);
    }
}
