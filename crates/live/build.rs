//! Compiles the eBPF programs in all their variants.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: &str = "src/collector/programs";
/// The name of the object, its source, and the macro that selects the variant.
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
        // Version 2 of the instruction set is the one that Linux 5.4's verifier handles best.
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
        // The debug information contains the path, and builds must be reproducible.
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
