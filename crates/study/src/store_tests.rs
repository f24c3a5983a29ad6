use super::*;
use crate::schedule::Schedule;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

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
        session: 0,
        started: 1,
        spent: 1.0,
        took: 0.5,
        sampled: None,
        exits_counted: None,
        counted: None,
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
fn a_run_that_a_later_session_makes_again_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    keep(&mut store, 0, None);
    keep(&mut store, 1, None);
    drop(store);
    let mut store = began(folder.path());
    let run = keep(&mut store, 0, None);
    keep(&mut store, 0, None);
    assert_eq!(store.runs().iter().map(|run| run.session).collect::<Vec<_>>(), [0, 1]);
    drop(store);
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!(read.runs.iter().map(|kept| kept.run.session).collect::<Vec<_>>(), [1, 0]);
    assert_eq!((read.failed, read.warnings), (Vec::new(), Vec::new()));
    let aside = format!("{}{REPLACED}", run.cell.folder_name(run.position));
    assert_eq!(folder::names(&folder.path().join(FAILED)).unwrap(), [aside.as_str()]);
    assert!(folder.path().join(FAILED).join(aside).join("guest-0/run.out").is_file());
}

#[test]
fn runs_of_versions_without_sessions_are_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let run = keep(&mut store, 0, None);
    drop(store);
    let path = folder.path().join(RUNS).join(run.cell.folder_name(run.position)).join(RUN);
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("session").unwrap();
    fs::write(&path, serde_json::to_vec(&value).unwrap()).unwrap();
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs[0].run, run);
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
    keep(&mut began(folder.path()), 0, Some("gone"));
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
fn a_study_without_attempts_is_started_anew_on_another_host() {
    let folder = tempfile::tempdir().unwrap();
    drop(began(folder.path()));
    let other = Fingerprint { kernel_release: Some("6.12".to_owned()), ..Fingerprint::default() };
    open(folder.path()).unwrap().begin(&other, None, false).unwrap();
    let study = StudyFolder::open(folder.path()).unwrap().study;
    assert_eq!((study.fingerprint, study.resumed), (other, Vec::new()));
}

#[test]
fn module_parameters_that_the_plan_varies_may_differ_and_no_others() {
    let level = "name = \"on\"\nmodule_parameters = { kvm_intel = { enable_apicv = true } }\n\
                 files = { \"/sys/module/kvm/parameters/halt_poll_ns\" = 0 }";
    let text = TEXT.replace("name = \"on\"", level);
    let plan = Plan::read(&text, "small.toml").unwrap();
    let with = |module: &str, name: &str| {
        let parameters = [(name.to_owned(), Some("1".to_owned()))].into();
        Fingerprint { modules: [(module.to_owned(), parameters)].into(), ..Fingerprint::default() }
    };
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &plan, &text, "local", 5).unwrap();
    let unlike = |module: &str, name: &str| store.unlike(&Fingerprint::default(), &with(module, name)).len();
    for (module, name) in
        [("kvm_intel", "enable_apicv"), ("kvm_intel", "enable_ipiv"), ("kvm", "halt_poll_ns")]
    {
        assert_eq!(unlike(module, name), 0, "{name}");
    }
    assert_eq!((unlike("kvm_intel", "ept"), unlike("kvm", "min_timer_period_us")), (1, 1));
}

#[test]
fn a_study_of_another_version_is_continued_only_if_that_is_allowed_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    keep(&mut store, 0, None);
    let study = Study { version: "0.0.1".to_owned(), ..store.study.take().unwrap() };
    drop(store);
    fs::write(folder.path().join(STUDY), serde_json::to_vec(&study).unwrap()).unwrap();
    let mut store = open(folder.path()).unwrap();
    let error = store.begin(&Fingerprint::default(), None, false).unwrap_err();
    assert!(matches!(error, StoreError::OtherHost { .. }));
    let version = env!("CARGO_PKG_VERSION");
    assert!(error.to_string().contains(&format!("exitless was 0.0.1, is {version}")), "{error}");
    store.begin(&Fingerprint::default(), None, true).unwrap();
    let resumed = StudyFolder::open(folder.path()).unwrap().study.resumed;
    let unlike = ("exitless".to_owned(), Some("0.0.1".to_owned()), Some(version.to_owned()));
    assert_eq!(resumed[0].unlike, [unlike]);
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
    let mut store = began(folder.path());
    assert_eq!(store.warnings().len(), 1);
    keep(&mut store, 0, None);
    assert_eq!(store.runs().len(), 2);
    drop(store);
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.failed.len(), read.warnings), (2, 0, Vec::new()));
    assert!(folder::names(&folder.path().join(FAILED)).unwrap()[0].ends_with(DAMAGED));
}

#[test]
fn runs_that_only_a_newer_version_can_read_stay_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    for index in [0, 1] {
        keep(&mut store, index, None);
    }
    let study = Study { version: "9.9.9".to_owned(), ..store.study.take().unwrap() };
    drop(store);
    let [path, runs] = [STUDY, RUNS].map(|name| folder.path().join(name));
    let text = serde_json::to_vec(&study).unwrap();
    fs::write(&path, &text).unwrap();
    let names = folder::names(&runs).unwrap();
    for name in &names {
        let run = runs.join(name).join(RUN);
        let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&run).unwrap()).unwrap();
        value["host"] = serde_json::json!([{
            "name": "exits.total", "unit": "from-the-future", "better": "lower", "combine": "single", "value": 1.0
        }]);
        fs::write(&run, serde_json::to_vec(&value).unwrap()).unwrap();
    }
    let mut store = open(folder.path()).unwrap();
    assert_eq!((store.runs().len(), store.warnings().len()), (0, 2), "{:?}", store.warnings());
    let error = store.begin(&Fingerprint::default(), None, false).unwrap_err();
    assert!(matches!(error, StoreError::OtherHost { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), text);
    assert_eq!(folder::names(&runs).unwrap(), names);
    store.begin(&Fingerprint::default(), None, true).unwrap();
    assert_eq!(folder::names(&runs).unwrap(), Vec::<String>::new());
    assert_eq!(StudyFolder::open(folder.path()).unwrap().study.resumed.len(), 1);
}

#[test]
fn a_run_that_cannot_be_read_is_left_out_of_reports_and_never_made_again() {
    let folder = tempfile::tempdir().unwrap();
    keep(&mut began(folder.path()), 0, None);
    let run = folder.path().join(RUNS).join("x");
    fs::create_dir(&run).unwrap();
    // A socket cannot be opened: ENXIO.
    std::os::unix::net::UnixListener::bind(run.join(RUN)).unwrap();
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.warnings.len()), (1, 1), "{:?}", read.warnings);
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(&error, StoreError::File { path, .. } if path.ends_with("x/run.json")), "{error}");
    assert!(run.join(RUN).exists());
}

#[test]
fn a_whole_run_under_another_name_stays_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let run = keep(&mut store, 0, None);
    drop(store);
    let runs = folder.path().join(RUNS);
    fs::rename(runs.join(run.cell.folder_name(run.position)), runs.join("renamed")).unwrap();
    assert_eq!(open(folder.path()).unwrap().runs(), [run]);
    assert_eq!(StudyFolder::open(folder.path()).unwrap().runs[0].folder, runs.join("renamed"));
}

#[test]
fn a_run_that_the_schedule_does_not_have_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    let run = keep(&mut store, 0, None);
    let whole = keep(&mut store, 1, None);
    drop(store);
    let path = folder.path().join(RUNS).join(run.cell.folder_name(run.position)).join(RUN);
    for (block, guests) in [(u32::MAX, run.cell.guests), (2, run.cell.guests), (0, 3)] {
        let cell = crate::Cell { block, guests, ..run.cell.clone() };
        fs::write(&path, serde_json::to_vec(&Run { cell, ..run.clone() }).unwrap()).unwrap();
        let read = StudyFolder::open(folder.path()).unwrap();
        let collected = crate::analysis::Collected::from(read);
        assert_eq!((collected.runs.len(), collected.planned), (1, 16));
        assert_eq!(collected.runs[0].run, whole);
        assert!(collected.damage[0].contains("left out: the plan has no block"), "{:?}", collected.damage);
    }
    let mut cell = run.cell.clone();
    let (factor, level) = cell.arm.iter_mut().next().unwrap();
    *level = "none".to_owned();
    let unknown = format!("left out: the plan has no arm \"{factor}=none");
    fs::write(&path, serde_json::to_vec(&Run { cell, ..run.clone() }).unwrap()).unwrap();
    let collected = crate::analysis::Collected::from(StudyFolder::open(folder.path()).unwrap());
    assert!(collected.damage[0].contains(&unknown), "{:?}", collected.damage);
    fs::remove_file(&path).unwrap();
    let failed = folder.path().join(FAILED).join("0000-anywhere");
    fs::create_dir_all(&failed).unwrap();
    // Earlier versions had another order within a block.
    for (position, is_kept) in [(run.position, true), (7, true), (8, false), (u32::MAX, false)] {
        let failure = Some("it broke".to_owned());
        let run = Run { position, failure, ..run.clone() };
        fs::write(failed.join(RUN), serde_json::to_vec(&run).unwrap()).unwrap();
        let read = StudyFolder::open(folder.path()).unwrap();
        assert_eq!(read.failed.len(), usize::from(is_kept), "{position}: {:?}", read.warnings);
    }
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
    let error = open(folder.path()).unwrap_err();
    let (shown, told) = (folder.path().display(), error.to_string());
    assert!(error.is_usage() && told.starts_with(&format!("study.json in {shown} is damaged")), "{told}");
    assert!(told.contains(&format!("`exitless experiment report {shown}`")), "{told}");
    fs::write(folder.path().join(STUDY), "{\"format\": 2}").unwrap();
    assert!(matches!(StudyFolder::open(folder.path()), Err(StoreError::Format { found: 2, .. })));
}

#[test]
fn a_plan_of_countless_arms_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = began(folder.path());
    keep(&mut store, 0, None);
    let mut study = store.study.take().unwrap();
    drop(store);
    study.plan.factors = vec![study.plan.factors[0].clone(); 40];
    fs::write(folder.path().join(STUDY), serde_json::to_vec(&study).unwrap()).unwrap();
    let read = StudyFolder::open(folder.path()).unwrap();
    assert_eq!((read.runs.len(), read.is_described), (1, false));
    assert!(
        read.warnings[0].contains("study.json: plan.factors: expected at most 256"),
        "{:?}",
        read.warnings
    );
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_and_left_alone() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("result");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = open(&folder).unwrap_err();
    let told = format!("{} has mode 0777, which lets others in", folder.display());
    assert!(refused.is_usage() && refused.to_string().starts_with(&told), "{refused}");
    assert!(refused.to_string().contains("chmod go-w"), "{refused}");
    assert_eq!(folder::names(&folder).unwrap(), Vec::<String>::new());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    if chown(&folder, Some(65_534), None).is_err() {
        println!("not tested: giving a directory to another user needs root");
        return;
    }
    let refused = open(&folder).unwrap_err();
    assert!(refused.to_string().contains("belongs to user 65534"), "{refused}");
}

#[test]
fn our_folder_in_a_directory_of_others_is_written_to_and_its_name_is_told() {
    let above = tempfile::tempdir().unwrap();
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (folder, elsewhere) = (above.path().join("result"), above.path().join("elsewhere"));
    let mut store = began(&folder);
    // Somebody replaces the folder by a link to another directory.
    fs::rename(&folder, above.path().join("away")).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    keep(&mut store, 0, None);
    drop(store);
    assert_eq!(folder::names(&elsewhere).unwrap(), Vec::<String>::new());
    assert!(matches!(open(&folder), Err(StoreError::Place(files::Error::Link { .. }))));
    fs::remove_file(&folder).unwrap();
    fs::rename(above.path().join("away"), &folder).unwrap();
    let mut store = open(&folder).unwrap();
    assert_eq!(store.runs().len(), 1);
    let gone = store.unfinished().unwrap().join("no/such");
    let error = StoreError::file("Could not write", &gone)(io::ErrorKind::NotFound.into()).to_string();
    let folder = folder.canonicalize().unwrap();
    assert_eq!(error, format!("Could not write {}/.unfinished/1/no/such", folder.display()));
}

#[test]
fn a_link_in_the_folder_leads_nowhere() {
    let above = tempfile::tempdir().unwrap();
    let [folder, elsewhere] = ["result", "elsewhere"].map(|name| above.path().join(name));
    fs::create_dir(&elsewhere).unwrap();
    let kept = elsewhere.join("kept");
    fs::write(&kept, "kept").unwrap();
    fs::create_dir(&folder).unwrap();
    for name in [".writing-plan.toml", ".writing-study.json", PLAN, UNFINISHED] {
        symlink(if name == UNFINISHED { &elsewhere } else { &kept }, folder.join(name)).unwrap();
    }
    drop(began(&folder));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
    assert_eq!(fs::read_to_string(folder.join(PLAN)).unwrap(), TEXT);

    for place in [RUNS, FAILED] {
        let (real, away) = (folder.join(place), folder.join("away"));
        fs::rename(&real, &away).unwrap();
        symlink(&elsewhere, &real).unwrap();
        let error = open(&folder).unwrap_err();
        assert!(matches!(&error, StoreError::File { path, .. } if *path == real), "{error}");
        fs::remove_file(&real).unwrap();
        fs::rename(&away, &real).unwrap();
    }
    fs::remove_file(folder.join(LOCK)).unwrap();
    symlink(elsewhere.join("new"), folder.join(LOCK)).unwrap();
    let error = open(&folder).unwrap_err();
    assert!(matches!(&error, StoreError::File { path, .. } if path.ends_with(LOCK)), "{error}");
    assert_eq!(folder::names(&elsewhere).unwrap(), ["kept"]);
}

#[test]
fn what_a_stopped_writer_left_does_not_make_a_folder_strange() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".study.json.new-7-0", ".writing-study.json"] {
        fs::write(folder.path().join(name), "{").unwrap();
    }
    began(folder.path());
}

#[test]
fn a_link_of_our_own_to_the_folder_is_followed() {
    let above = tempfile::tempdir().unwrap();
    fs::create_dir(above.path().join("real")).unwrap();
    symlink("real", above.path().join("link")).unwrap();
    drop(began(&above.path().join("link/result")));
    assert!(above.path().join("real/result").join(STUDY).is_file());
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
