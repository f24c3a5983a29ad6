//! Runs each fuzz target on its seeds.
//!
//! The targets are built with libFuzzer in a workspace of their own, which takes minutes. Here their sources
//! are compiled into this test program, with stand-ins for the two crates that they use, `libfuzzer_sys` and
//! `exitless_fuzz`: `main.rs` makes these names aliases of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[allow(unreachable_pub, reason = "a library in its own workspace")]
#[path = "../../../../fuzz/src/lib.rs"]
mod common;

pub(crate) use common::{consistent, definitions, read_recording};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The sorted names of a folder's entries, without extension.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Runs a target on each of its seeds, and on empty input.
fn replay(target: &str, run: fn(&[u8])) {
    run(&[]);
    let folder = fuzz().join("seeds").join(target);
    let mut seeds = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let seed = entry.unwrap().path();
        let bytes = std::fs::read(&seed).unwrap();
        // Printed if the test fails.
        println!("{}", seed.display());
        run(&bytes);
        seeds += 1;
    }
    assert!(seeds > 0, "{target} has no seeds");
}

/// A module and a test for each target.
macro_rules! targets {
    ($($target:ident),* $(,)?) => {
        const TARGETS: &[&str] = &[$(stringify!($target)),*];

        mod runs_on_its_seeds {
            $(
                #[test]
                fn $target() {
                    super::replay(stringify!($target), super::programs::$target::run);
                }
            )*
        }
    };
}

#[allow(unused_attributes, reason = "no_main is for a target's own program")]
#[path = "../../../../fuzz/fuzz_targets"]
mod programs {
    pub(super) mod block_requests;
    pub(super) mod btf;
    pub(super) mod control_request;
    pub(super) mod elf_symbols;
    pub(super) mod event_format;
    pub(super) mod exits_profile;
    pub(super) mod frames;
    pub(super) mod guest_agent;
    pub(super) mod hot_spots;
    pub(super) mod http_answer;
    pub(super) mod inflight;
    pub(super) mod iocm_config;
    pub(super) mod journal;
    pub(super) mod kernel_image;
    pub(super) mod kvm_statistics;
    pub(super) mod libvirt_xml;
    pub(super) mod load_trace;
    pub(super) mod mqtt_packet;
    pub(super) mod names;
    pub(super) mod network;
    pub(super) mod own_recording;
    pub(super) mod perf_data;
    pub(super) mod perf_pipe;
    pub(super) mod perf_records;
    pub(super) mod qemu_arguments;
    pub(super) mod recording;
    pub(super) mod snapshot_archive;
    pub(super) mod study_plan;
    pub(super) mod study_stream;
    pub(super) mod trace_dat;
    pub(super) mod tracefs_text;
    pub(super) mod vhost_user_request;
    pub(super) mod vhost_user_session;
    pub(super) mod virtqueue;
    pub(super) mod workload_output;
    pub(super) mod xentrace;
    pub(super) mod xl_config;
}

targets![
    block_requests,
    btf,
    control_request,
    elf_symbols,
    event_format,
    exits_profile,
    frames,
    guest_agent,
    hot_spots,
    http_answer,
    inflight,
    iocm_config,
    journal,
    kernel_image,
    kvm_statistics,
    libvirt_xml,
    load_trace,
    mqtt_packet,
    names,
    network,
    own_recording,
    perf_data,
    perf_pipe,
    perf_records,
    qemu_arguments,
    recording,
    snapshot_archive,
    study_plan,
    study_stream,
    trace_dat,
    tracefs_text,
    vhost_user_request,
    vhost_user_session,
    virtqueue,
    workload_output,
    xentrace,
    xl_config,
];

/// libFuzzer's macro, with a function instead of its entry point; converts bytes to the input type as
/// `libfuzzer-sys` does. Exported, because the targets import it by name.
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($bytes: &[u8]) {
            $body
        }
    };
    (|$input:ident: $kind:ty| $body:expr) => {
        fn checked($input: $kind) {
            $body
        }

        pub(crate) fn run(bytes: &[u8]) {
            if bytes.len() < <$kind as arbitrary::Arbitrary>::size_hint(0).0 {
                return;
            }
            if let Ok(input) = arbitrary::Arbitrary::arbitrary_take_rest(arbitrary::Unstructured::new(bytes))
            {
                checked(input);
            }
        }
    };
}
pub(crate) use fuzz_target;

/// The names of the fuzz crate's binaries, after a check of their paths.
fn bins() -> Vec<String> {
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter().map(|bin| {
        let (name, path) = (bin["name"].as_str().unwrap(), bin["path"].as_str().unwrap());
        assert_eq!(path, format!("fuzz_targets/{name}.rs"));
        name.to_owned()
    });
    let mut bins: Vec<String> = bins.collect();
    bins.sort();
    bins
}

#[test]
fn each_fuzz_target_is_a_program_has_seeds_and_is_run_here() {
    assert_eq!(names(&fuzz().join("fuzz_targets")), TARGETS, "fuzz/fuzz_targets, and those that run here");
    assert_eq!(bins(), TARGETS, "fuzz/Cargo.toml, and those that run here");
    assert_eq!(names(&fuzz().join("seeds")), TARGETS, "fuzz/seeds, and those that run here");
    let readme = std::fs::read_to_string(fuzz().join("README.md")).unwrap();
    for target in TARGETS {
        assert!(readme.contains(&format!("\n| `{target}` |")), "{target} is not in fuzz/README.md");
    }
    let modules = std::fs::read_to_string(fuzz().join("modules")).unwrap();
    for target in TARGETS {
        let line = modules.lines().find(|line| line.split_whitespace().next() == Some(*target));
        let line = line.unwrap_or_else(|| panic!("{target} is not in fuzz/modules"));
        for path in line.split_whitespace().skip(1) {
            assert!(fuzz().join("../crates").join(path).exists(), "fuzz/modules: {target}: {path}");
        }
    }
}

/// The packages of a lock file that come from folders, not from a registry, each with its dependencies.
fn locked(path: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let lock: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let packages = lock["package"].as_array().unwrap().iter();
    let own = packages.filter(|package| package.get("source").is_none());
    own.map(|package| {
        let names = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
        // A name that is not unique is followed by the version.
        let names = names.map(|name| name.as_str().unwrap().split(' ').next().unwrap().to_owned());
        (package["name"].as_str().unwrap().to_owned(), names.collect())
    })
    .collect()
}

/// The dependencies of a crate of this workspace, from its manifest.
fn dependencies(of: &str) -> BTreeSet<String> {
    let path = fuzz().join("../crates").join(of).join("Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let tables = ["dependencies", "build-dependencies"].map(|table| manifest.get(table)?.as_table());
    let names = tables
        .into_iter()
        .flatten()
        .flatten()
        .map(|(name, how)| how.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned());
    names.collect()
}

#[test]
fn the_fuzz_crates_lock_file_is_of_the_present_crates() {
    let locked = locked(&fuzz().join("Cargo.lock"));
    assert!(locked.len() > 10, "{locked:?}");
    for (package, known) in locked.iter().filter(|(package, _)| *package != "exitless-fuzz") {
        let cure = "run `cargo metadata --manifest-path fuzz/Cargo.toml >/dev/null`";
        assert_eq!(*known, dependencies(package), "{package} in fuzz/Cargo.lock; {cure}");
    }
}
