//! The scripts that people start, run with stand-ins for cargo and `exitless`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Writes a program for /bin/sh.
pub(crate) fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// `make` in the checkout with another shell for its recipes; `None`, with the reason printed, if it is not here.
fn make(shell: &Path) -> Option<Command> {
    if Command::new("make").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("not tested: there is no make on PATH");
        return None;
    }
    let mut make = Command::new("make");
    make.args(["-C", ROOT, "--no-print-directory", "-s"]).arg(format!("SHELL={}", shell.display()));
    make.env_remove("MAKEFLAGS");
    Some(make)
}

#[test]
fn a_soak_gets_any_filter_of_tests() {
    let folder = tempfile::tempdir().unwrap();
    // Replaces make's shell: prints the recipe's environment and command, and checks the command's syntax.
    let shell = folder.path().join("shell");
    program(&shell, r#"for last; do :; done; echo "$WHAT, $N: $last"; exec bash -n -c "$last""#);
    for (given, filter) in [(None, "lab"), (Some("test(xen) | test(/a b$$/)"), "test(xen) | test(/a b$/)")] {
        let Some(mut make) = make(&shell) else { return };
        make.args(["-o", "setup-test", "soak", "N=3"]).args(given.map(|filter| format!("WHAT={filter}")));
        let output = make.env_remove("WHAT").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(said, format!("{filter}, 3: scripts/soak \"$N\"\n"));
    }
}

#[test]
fn two_recipes_of_make_never_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let shell = folder.path().join("shell");
    program(&shell, "echo begin; sleep 0.03; echo end");
    let Some(mut make) = make(&shell) else { return };
    let output = make.args(["-j4", "lint"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recipes = said.lines().count() / 2;
    assert!(recipes >= 4, "{said}");
    assert_eq!(said, "begin\nend\n".repeat(recipes));
}

#[test]
fn flags_of_the_environment_do_not_replace_those_that_link_statically() {
    let folder = tempfile::tempdir().unwrap();
    let shell = folder.path().join("shell");
    let flags = "echo \"[${RUSTFLAGS-}${CARGO_ENCODED_RUSTFLAGS-}]\"";
    program(&shell, flags);
    let mut script = Command::new("bash");
    script.args(["-euc", &format!(". {ROOT}/scripts/common; {flags}")]);
    let mut commands = vec![script];
    if let Some(mut make) = make(&shell) {
        make.args(["-o", "setup-test", "soak"]);
        commands.push(make);
    }
    for mut command in commands {
        command.env("RUSTFLAGS", "-Ctarget-cpu=native").env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-cpu=native");
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "[]\n", "{command:?}: {output:?}");
    }
}

/// A script of the RPM, which the section `next` follows.
fn of_rpm(name: &str, next: &str) -> String {
    let (_, text) =
        include_str!("../../../../packaging/rpm/exitless.spec").split_once(&format!("\n%{name}\n")).unwrap();
    text.split_once(&format!("\n%{next}\n")).unwrap().0.replace("%%", "%")
}

/// The output of a package's script, which finds only the programs in `folder`.
fn script_says(folder: &Path, script: &str, argument: &str) -> String {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script, "script", argument]).env("PATH", folder);
    let output = shell.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn an_upgrade_restarts_no_daemon_that_would_refuse_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    program(&at("deb-systemd-helper"), "");
    let restarts = format!("case \"$*\" in try-restart*) echo \"$*\" >{} ;; esac", at("restarted").display());
    program(&at("deb-systemd-invoke"), &restarts);
    let debian = include_str!("../../../../packaging/debian/postinst").to_owned();
    let rpm = of_rpm("posttrans", "files");
    // Also where no systemd runs.
    let here = |script: String| script.replace("/run/systemd/system", folder.path().to_str().unwrap());
    for script in [debian, rpm].map(here) {
        for (is_active, is_right, restarts_it) in
            [(true, true, true), (true, false, false), (false, false, true)]
        {
            let active = format!("case \"$*\" in *is-active*) exit {} ;; esac", i32::from(!is_active));
            program(&at("systemctl"), &format!("{active}\n{restarts}"));
            let check = "iocm serve --check --config /etc/exitless/iocm.toml";
            let status = if is_right { 0 } else { 2 };
            program(&at("exitless"), &format!("[ \"$*\" = '{check}' ] && exit {status}"));
            let said = script_says(folder.path(), &script, "configure");
            let restarted = fs::read_to_string(at("restarted")).unwrap();
            assert_eq!(
                restarted.contains(" exitless-iocm.service exitless-iocm-monitor"),
                restarts_it,
                "{said}"
            );
            assert!(restarted.contains(" exitless-exporter.service"), "{restarted}");
            assert_eq!(said.contains("keeps running the old program"), !restarts_it, "{said}");
        }
    }
}

#[test]
fn removing_a_package_names_the_changes_of_the_host_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["deb-systemd-invoke", "systemctl"] {
        program(&folder.path().join(name), "");
    }
    let debian = include_str!("../../../../packaging/debian/prerm").to_owned();
    let rpm = of_rpm("preun", "postun");
    let said = |script: &str, argument: &str| script_says(folder.path(), script, argument);
    for (script, removed, upgraded) in [(debian, "remove", "upgrade"), (rpm, "0", "1")] {
        let restore = |says: &str| {
            program(
                &folder.path().join("exitless"),
                &format!("[ \"$*\" = 'restore --dry-run' ] && echo '{says}'"),
            );
        };
        restore("Would be undone: kvm_amd loaded with avic=1");
        let told = said(&script, removed);
        assert!(
            told.contains("run `exitless restore`:\nWould be undone: kvm_amd loaded with avic=1\n"),
            "{told}"
        );
        assert_eq!(said(&script, upgraded), "");
        restore("Nothing to restore.");
        assert_eq!(said(&script, removed), "");
    }
}

#[test]
fn a_test_run_that_is_interrupted_ends_the_builds_of_laboratories() {
    for (signal, status) in [("-INT", 130), ("-TERM", 128 + 15)] {
        let folder = tempfile::tempdir().unwrap();
        let started = folder.path().join("started");
        let exitless = folder.path().join("target/x86_64-unknown-linux-gnu/checked/exitless");
        program(&exitless, &format!("echo $$ >> {}; exec sleep 300", started.display()));
        let cargo = folder.path().join("cargo/bin/cargo");
        program(&cargo, "[ \"$1\" != nextest ] || exec sleep 300");
        let mut script = Command::new(Path::new(ROOT).join("scripts/test"));
        script.env("CARGO_HOME", folder.path().join("cargo"));
        script.env("CARGO_TARGET_DIR", folder.path().join("target"));
        script.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut script = script.spawn().unwrap();
        let soon = |what: &str, holds: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !holds() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let builds = || -> Vec<String> {
            let text = fs::read_to_string(&started).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        };
        soon("two are built side by side", &|| builds().len() == 2);
        let group = format!("-{}", script.id());
        assert!(Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
        let ended = script.wait().unwrap();
        assert_eq!(ended.code().or(ended.signal().map(|number| 128 + number)), Some(status));
        // A zombie has ended: in a container nobody may wait for it.
        let is_gone = |process: &String| {
            let stat = fs::read_to_string(Path::new("/proc").join(process).join("stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        soon("both have ended", &|| builds().iter().all(is_gone));
        assert_eq!(builds().len(), 2, "another was begun");
    }
}
