//! Checks that a real `xl` still gives the kept answers with which exitless's own reader is compared.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{LIMIT, run};

/// Prints what xl would create, without creating it.
const DRY: &str = "for file in *.cfg; do xl create -n $file > ${file%.cfg}.json 2> ${file%.cfg}.err; \
    echo $? > ${file%.cfg}.status; done";

#[test]
fn xl_understands_definitions_as_the_kept_answers_say() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../domain/tests/xl/corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(&corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cfg"));
    assert!(files.len() > 10, "{files:?}");
    let names: Vec<String> =
        files.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let wanted: Vec<String> =
        names.iter().flat_map(|name| ["json", "status"].map(|kind| format!("{name}.{kind}"))).collect();
    let mut arguments: Vec<&str> = vec!["lab", "run", "xen", "--timeout", LIMIT];
    arguments.extend(["--output", folder.path().to_str().unwrap(), "--put"]);
    arguments.extend(files.iter().map(|path| path.to_str().unwrap()));
    arguments.push("--get");
    arguments.extend(wanted.iter().map(String::as_str));
    arguments.extend(["--", "sh", "-c", DRY]);
    let said = run(&arguments);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    for name in names {
        let text = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
        let kept = fs::read_to_string(corpus.join(format!("{name}.json"))).ok();
        let taken = text(&format!("{name}.status")).trim() == "0";
        assert_eq!(taken, kept.is_some(), "{name}");
        let Some(kept) = kept else { continue };
        let mut printed: Value = serde_json::from_str(&text(&format!("{name}.json"))).unwrap();
        // The UUID is random.
        printed["c_info"].as_object_mut().unwrap().remove("uuid");
        assert_eq!(printed, serde_json::from_str::<Value>(&kept).unwrap(), "{name}");
    }
}
