//! Compiles the eBPF programs, in the ways in which they are used.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: &str = "src/collector/programs";
/// Name of the object, its source, and what it is compiled with.
const OBJECTS: [(&str, &str, Option<&str>); 5] = [
    ("count", "exits.bpf.c", None),
    ("record_ring", "exits.bpf.c", Some("-DRECORD_RING")),
    ("record_perf", "exits.bpf.c", Some("-DRECORD_PERF")),
    ("hot_spots", "exits.bpf.c", Some("-DHOT_SPOTS")),
    ("state", "state.bpf.c", None),
];

fn main() {
    println!("cargo::rerun-if-changed={PROGRAMS}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, source, definition) in OBJECTS {
        compile(&clang, source, definition, &out.join(format!("{name}.o")));
    }
}

fn compile(clang: &str, source: &str, definition: Option<&str>, object: &Path) {
    let source = Path::new(PROGRAMS).join(source);
    let status = Command::new(clang)
        // The second version of the instructions is what Linux 5.4's verifier follows best.
        .args([
            "-target",
            "bpf",
            "-mcpu=v2",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
        ])
        // The path is in the debug information, and where it was built should make no difference.
        .args(["-fdebug-compilation-dir", "."])
        .args(definition)
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {}: {status}", source.display()),
        Err(error) => panic!(
            "the eBPF programs are compiled by {clang}, which could not be run: {error}; \
             install it (Debian: apt-get install clang) or name another in CLANG"
        ),
    }
}
