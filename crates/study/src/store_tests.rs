use super::*;
use crate::schedule::Schedule;
use proptest::prelude::*;

const TEXT: &str = include_str!("plan/small.toml");

fn plan() -> Plan {
    Plan::read(TEXT, "small.toml").unwrap()
}

fn open(folder: &Path) -> Result<Store, StoreError> {
    Store::open(folder, &plan(), TEXT, "local", 5)
}

fn began(folder: &Path) -> Store {
    let mut store = open(folder).unwrap();
    store.begin(&Fingerprint::default(), None, false).unwrap();
    store
}

/// Stores the run at a position, with one file.
fn keep(store: &mut Store, index: usize, failure: Option<&str>) -> Run {
    let slot = Schedule::new(&plan(), 5).block(0).into_iter().flat_map(|arm| arm.slots).nth(index).unwrap();
    let run = Run {
        cell: slot.cell,
        position: slot.position,
        attempt: 0,
        started: 1,
        spent: 1.0,
        took: 0.5,
        sampled: None,
        start_skew: Some(0.001),
        guests: vec![Vec::new()],
        host: Vec::new(),
        fingerprint: Fingerprint::default(),
        guest_facts: Vec::new(),
        failure: failure.map(str::to_owned),
        warnings: Vec::new(),
    };
    let folder = store.unfinished().unwrap();
    fs::create_dir(folder.join("guest-0")).unwrap();
    fs::write(folder.join("guest-0/run.out"), "12").unwrap();
    store.keep(&run, &folder).unwrap();
    run
}

#[test]
fn what_was_kept_is_read_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let runs = [keep(&mut store, 0, None), keep(&mut store, 1, None)];
    let failed = [keep(&mut store, 2, Some("gone")), keep(&mut store, 2, Some("gone again"))];
    drop(store);

    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new());
    assert_eq!(read.runs.iter().map(|kept| kept.run.clone()).collect::<Vec<_>>(), runs);
    assert_eq!(read.failed.iter().map(|kept| kept.run.clone()).collect::<Vec<_>>(), failed);
    assert_eq!(fs::read(read.runs[0].folder.join("guest-0/run.out")).unwrap(), b"12");
    assert_eq!((read.study.seed, read.study.plan), (5, plan()));

    let store = Store::open(folder.path(), &plan(), TEXT, "local", 99).unwrap();
    assert_eq!((store.seed(), store.runs(), store.failed()), (5, &runs[..], &failed[..]));
}

#[test]
fn a_second_run_for_a_place_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    keep(&mut store, 0, None);
    keep(&mut store, 0, None);
    assert_eq!(store.runs().len(), 1);
    assert_eq!(folder::names(&folder.path().join(UNFINISHED)).unwrap(), Vec::<String>::new());
}

#[test]
fn a_run_whose_name_would_lead_elsewhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let run = keep(&mut store, 0, None);
    for workload in ["../../elsewhere", "third"] {
        let cell = crate::Cell { workload: workload.to_owned(), ..run.cell.clone() };
        let unfinished = store.unfinished().unwrap();
        let kept = store.keep(&Run { cell, ..run.clone() }, &unfinished);
        assert!(matches!(kept, Err(StoreError::Stranger { .. })), "{workload}");
    }
    assert_eq!(store.runs().len(), 1);
}

#[test]
fn an_unfinished_run_is_nothing_and_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let unfinished = store.unfinished().unwrap();
    fs::write(unfinished.join(RUN), "{").unwrap();
    drop(store);
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs, []);
    let store = open(folder.path()).unwrap();
    assert!(store.runs().is_empty() && !unfinished.exists());
}

#[test]
fn another_plan_target_or_host_is_refused_by_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    drop(began(folder.path()));
    let text = TEXT.replace("repeats = 2", "repeats = 3");
    let other = Plan::read(&text, "x").unwrap();
    let error = Store::open(folder.path(), &other, &text, "local", 5).unwrap_err().to_string();
    assert!(error.contains("order.repeats was 2, is 3"), "{error}");
    let error = Store::open(folder.path(), &plan(), TEXT, "ssh://a", 5).unwrap_err().to_string();
    assert!(error.contains("--target local, not ssh://a"), "{error}");

    let mut store = open(folder.path()).unwrap();
    let other = Fingerprint { kernel_release: Some("6.12".to_owned()), ..Fingerprint::default() };
    let error = store.begin(&other, None, false).unwrap_err().to_string();
    assert!(error.contains("kernel_release was unknown, is 6.12"), "{error}");
    store.begin(&other, None, true).unwrap();
    let resumed = StudyFolder::open(folder.path()).unwrap().study.resumed;
    assert_eq!(resumed[0].unlike, [("kernel_release".to_owned(), None, Some("6.12".to_owned()))]);
}

#[test]
fn a_folder_of_other_things_and_one_in_use_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = began(folder.path());
    assert!(matches!(open(folder.path()), Err(StoreError::Busy { .. })));
    drop(store);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("letter.txt"), "Dear").unwrap();
    let error = open(other.path()).unwrap_err().to_string();
    assert!(error.contains("\"letter.txt\""), "{error}");
    assert!(matches!(StudyFolder::open(other.path()), Err(StoreError::NoStudy { .. })));
}

#[test]
fn a_damaged_run_is_left_out_by_byte_and_its_place_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let first = keep(&mut store, 0, None);
    keep(&mut store, 1, None);
    drop(store);
    let path = folder.path().join(RUNS).join(first.cell.folder_name(first.position)).join(RUN);
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();

    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!(read.runs.len(), 1);
    assert!(read.warnings[0].contains("damaged at byte"), "{:?}", read.warnings);
    let mut store = open(folder.path()).unwrap();
    assert_eq!(store.warnings().len(), 1);
    keep(&mut store, 0, None);
    assert_eq!(store.runs().len(), 2);
    drop(store);
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs.len(), 2);
}

#[test]
fn without_study_json_the_plan_and_the_runs_are_still_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    keep(&mut store, 0, None);
    drop(store);
    fs::write(folder.path().join(STUDY), "{\"format\": 1,").unwrap();
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.study.plan), (1, plan()));
    assert!(read.warnings[0].contains("study.json: damaged at byte 12"), "{:?}", read.warnings);
    fs::write(folder.path().join(STUDY), "{\"format\": 2}").unwrap();
    assert!(matches!(StudyFolder::open(folder.path()), Err(StoreError::Format { found: 2, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_a_run_or_a_warning(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0.0..1.0) {
        let folder = tempfile::tempdir().unwrap();
        let mut store = began(folder.path());
        let run = keep(&mut store, 0, None);
        drop(store);
        let path = folder.path().join(RUNS).join(run.cell.folder_name(run.position)).join(RUN);
        let mut text = fs::read(&path).unwrap();
        text.truncate((text.len() as f64 * cut) as usize);
        text.extend(bytes);
        fs::write(&path, &text).unwrap();
        let read = StudyFolder::open(folder.path()).unwrap();
        prop_assert_eq!(read.runs.len() + read.warnings.len(), 1);
    }
}
