//! The instructions per request, compared with the figures in `instructions/kept.toml`.
//!
//! `make instructions` compares them; with `KEEP=update` it keeps the new ones. Valgrind's callgrind counts, so neither
//! a busy machine nor a virtual one without performance counters matters: the same program gives the same figure. One
//! thread is driver, device and worker in turn. Only the worker's or the device's part is counted, without the
//! kernel's.
//!
//! A figure depends on the compiler, on the profile (one codegen unit: see `instructions/profile.toml`), on glibc,
//! which is linked statically, and hardly on valgrind. It does not depend on the CPU: glibc, which would choose its
//! memcpy(3) by the CPU, is told to use the baseline one of x86-64. The compiler is not pinned, because people build
//! with what they have. Another compiler than that of the kept figures may change them by more than the bound, and gets
//! a wider one. A newer toolchain in CI is a reason to keep its figures.
//!
//! No library is used: gungraun (0.18, before 0.17 iai-callgrind; Apache-2.0 OR MIT) keeps its baselines in `target`,
//! not in the tree, and needs a runner of exactly the same version, besides valgrind.

mod instructions {
    pub(crate) mod block;
    pub(crate) mod network;
}

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The variable with the name of a load, which makes this program the counted one.
const LOAD: &str = "IOCM_INSTRUCTIONS_LOAD";
/// The function in which instructions are counted, as callgrind's pattern.
const COUNTED: &str = "*instructions*counted*";
/// Switches glibc to the memory functions that every x86-64 CPU has (`sysdeps/x86_64/multiarch/ifunc-memmove.h`).
const ANY_CPU: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX2,-AVX_Fast_Unaligned_Load,-SSSE3,-ERMS,-FSRM";
/// The requests in a turn, and the numbers of turns before and while instructions are counted.
const BATCH: usize = 16;
const WARM_UP: usize = 8;
const TURNS: usize = 64;
/// The largest difference from a kept figure, percent: with the compiler of that figure, and with others.
const BOUND: f64 = 3.0;
const OTHER_BOUND: f64 = 15.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Prepares a load.
type Load = fn() -> Outcome<Box<dyn Turn>>;

/// The three parts of a turn with [`BATCH`] requests.
pub(crate) trait Turn {
    /// Makes requests available.
    fn submit(&mut self);
    /// Serves them: this part is counted.
    fn serve(&mut self);
    /// Takes the used buffers. Returns their number.
    fn finish(&mut self) -> usize;
}

const LOADS: [(&str, Load); 11] = [
    ("null disk, reads of 512 B", || block::null(1, block::SPLIT, 0)),
    ("null disk, reads of 512 B, beside 16 idle queues", || block::null(1, block::SPLIT, 16)),
    ("null disk, reads of 512 B, packed ring", || block::null(1, block::PACKED, 0)),
    ("null disk, reads of 16 pieces of 512 B", || block::null(16, block::SPLIT, 0)),
    ("null disk, reads of 16 pieces of 512 B, indirect", || block::null(16, block::INDIRECT, 0)),
    ("memory file, reads of 512 B, without the worker", || block::file(0, 512)),
    ("memory file, reads of 4 KiB, without the worker", || block::file(0, 4096)),
    ("memory file, writes of 4 KiB, without the worker", || block::file(1, 4096)),
    ("packets of 64 B to nothing", || network::nothing(64)),
    ("packets of 64 B from port to port of a switch", || network::switch(64)),
    ("packets of 1500 B from port to port of a switch", || network::switch(1500)),
];

use instructions::{block, network};

fn main() -> Outcome<ExitCode> {
    if let Ok(name) = std::env::var(LOAD) {
        let (_, load) = LOADS.into_iter().find(|(other, _)| *other == name).ok_or("no such load")?;
        return run(load).map(|()| ExitCode::SUCCESS);
    }
    // `cargo test --benches` starts this too, and test runners ask it for a list of its tests.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let compiler = compiler()?;
    let mut counted = BTreeMap::new();
    for (name, _) in LOADS {
        match count(name) {
            Ok(count) => drop(counted.insert(name.to_owned(), count)),
            Err(error)
                if error.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
                    == Some(ErrorKind::NotFound) =>
            {
                println!("not tested: there is no valgrind, which counts instructions (package valgrind)");
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error),
        }
    }
    if std::env::args().any(|argument| argument == "update") {
        return keep(&compiler, &counted).map(|()| ExitCode::SUCCESS);
    }
    compare(&compiler, &counted)
}

fn run(load: Load) -> Outcome<()> {
    fill_the_place_of_the_vdso();
    let mut turn = load()?;
    for number in 0..WARM_UP + TURNS {
        turn.submit();
        match number < WARM_UP {
            true => turn.serve(),
            false => counted(&mut *turn),
        }
        let ended = turn.finish();
        if ended != BATCH {
            return Err(format!("{ended} of {BATCH} requests ended in turn {number}").into());
        }
    }
    Ok(())
}

/// Maps an empty page at the address of the vDSO. Valgrind unmaps and hides the vDSO, but `PR_GET_AUXV` (Linux 6.4)
/// still reports it, and rustix looks for it there. Now rustix finds no ELF file, and makes system calls.
fn fill_the_place_of_the_vdso() {
    /// `PR_GET_AUXV` of linux/prctl.h.
    const GET_AUXV: libc::c_int = 0x4155_5856;
    let mut vector = [[0_usize; 2]; 32];
    // SAFETY: the kernel writes at most as many bytes as `vector` has.
    unsafe { libc::prctl(GET_AUXV, vector.as_mut_ptr(), size_of_val(&vector), 0, 0) };
    let vdso = vector.iter().find(|[kind, _]| *kind == libc::AT_SYSINFO_EHDR as usize);
    let Some([_, place]) = vdso else { return };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let place = std::ptr::with_exposed_provenance_mut(*place);
    // SAFETY: the call replaces no mapping. Without valgrind the vDSO stays.
    unsafe { libc::mmap(place, 4096, libc::PROT_READ, flags, -1, 0) };
}

#[inline(never)]
fn counted(turn: &mut dyn Turn) {
    turn.serve();
    // Prevents a tail call, whose end callgrind does not see.
    black_box(());
}

/// Counts the instructions per request.
fn count(name: &str) -> Outcome<f64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(std::env::current_exe()?)
        .env(LOAD, name)
        .env("GLIBC_TUNABLES", ANY_CPU)
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let all = told.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match all {
        Some(all) if all > 0 && output.status.success() => Ok(all as f64 / (BATCH * TURNS) as f64),
        _ => Err(format!("valgrind did not count `{name}`: {}\n{told}", output.status).into()),
    }
}

/// The compiler that Cargo has used: `rustc 1.95.0`.
fn compiler() -> Outcome<String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("--version")
        .output()?;
    let version = String::from_utf8(output.stdout)?;
    Ok(version.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/kept.toml")
}

/// The command that keeps new figures.
const UPDATE: &str = "make instructions KEEP=update";

fn keep(compiler: &str, counted: &BTreeMap<String, f64>) -> Outcome<()> {
    let mut text = format!(
        "# Instructions a request. Written by\n#   {UPDATE}\ncompiler = \"{compiler}\"\n\n[instructions]\n"
    );
    for (name, _) in LOADS {
        writeln!(text, "\"{name}\" = {:.1}", counted[name])?;
    }
    std::fs::write(kept(), text)?;
    println!("kept in {}", kept().display());
    Ok(())
}

fn compare(compiler: &str, counted: &BTreeMap<String, f64>) -> Outcome<ExitCode> {
    let file: toml::Table = std::fs::read_to_string(kept())?.parse()?;
    let of = file["compiler"].as_str().unwrap_or_default();
    let bound = if of == compiler { BOUND } else { OTHER_BOUND };
    println!("Instructions a request, counted with {compiler}, kept of {of}: {bound} % more fail.\n");
    println!("{:<52}{:>10}{:>10}{:>9}", "load", "kept", "counted", "change");
    let (mut failed, mut lower) = (false, false);
    for (name, _) in LOADS {
        let now = counted[name];
        let Some(before) = file["instructions"].get(name).and_then(toml::Value::as_float) else {
            println!("{name:<52}{:>10}{now:>10.1}", "none");
            failed = true;
            continue;
        };
        let change = (now / before - 1.0) * 100.0;
        let is_worse = change > bound;
        println!(
            "{name:<52}{before:>10.1}{now:>10.1}{change:>+8.1} %{}",
            if is_worse { "  FAILED" } else { "" }
        );
        failed |= is_worse;
        lower |= change < -bound;
    }
    if failed || lower {
        println!(
            "\n{}. If the change is meant to cost that, or pays that, keep the new figures, and say why in the commit:\n  {UPDATE}",
            if failed {
                "A request takes more instructions than before"
            } else {
                "Some requests take fewer instructions"
            }
        );
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
