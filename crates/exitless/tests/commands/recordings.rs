//! `report` and `timeline` on real recordings, compared with perf's output for them.

use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::command::{command, err, json, out, recording, run, text};
use crate::perf::{Row, of_json, printed, section};
use serde_json::Value;

/// The rows in perf's format, with all its digits, sorted by name.
fn rows(arguments: &[&str]) -> Vec<Row> {
    of_json(&json(arguments)["rows"])
}

#[test]
fn figures_are_those_of_perf_to_the_last_digit() {
    for name in
        ["small", "small61", "several-vms", "eight-vcpus", "migrating", "zstd", "vmx", "vmx-apicv", "qemu"]
    {
        let report = text(&format!("{name}.report.txt"));
        let file = recording(name);
        let document = json(&["report", &file]);
        assert_eq!(of_json(&document["rows"]), printed(&report), "{name}");
        let totals = &document["totals"];
        let total = format!(
            "Total Samples:{}, Total events handled time:{:.2}us.",
            totals["samples"],
            totals["time_ns"].as_u64().unwrap() as f64 / 1e3
        );
        assert!(report.contains(&total), "{name}: {total}");
    }
}

#[test]
fn accesses_are_those_of_perf_to_the_last_digit() {
    let small = recording("small");
    let ports = section(&text("small.truth.txt"), "--event=ioport");
    assert_eq!(rows(&["report", &small, "--by", "port"]), printed(&ports));
    let one = recording("one-vcpu");
    for (event, dimension) in [("ioport", "port"), ("mmio", "mmio")] {
        let expected = printed(&section(&text("one-vcpu.truth.txt"), &format!("--event={event}")));
        assert!(!expected.is_empty());
        assert_eq!(rows(&["report", &one, "--by", dimension]), expected, "{event}");
    }
}

#[test]
fn a_vcpu_is_that_of_perf_but_for_the_shortest_time_that_perf_has_not() {
    let small = recording("small");
    for vcpu in ["0", "1"] {
        let section = section(&text("small.truth.txt"), &format!("--vcpu {vcpu}"));
        let without_min = |rows: Vec<Row>| -> Vec<Row> {
            rows.into_iter().map(|row| Row { min: String::new(), ..row }).collect()
        };
        let ours = rows(&["report", &small, "--vcpu", vcpu]);
        assert!(ours.iter().all(|row| row.min != "0.00us"));
        assert_eq!(without_min(ours), without_min(printed(&section)), "{vcpu}");
    }
}

#[test]
fn orders_are_those_of_perf() {
    let small = recording("small");
    let names = |arguments: &[&str]| -> Vec<String> {
        let rows = json(&[&["report", &small][..], arguments].concat())["rows"].clone();
        rows.as_array().unwrap().iter().map(|row| row["reason"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&[]), ["msr", "cpuid", "io", "npf", "interrupt", "hlt", "vintr"]);
    assert_eq!(names(&["--sort", "time"]), ["msr", "hlt", "io", "npf", "cpuid", "interrupt", "vintr"]);
    assert_eq!(names(&["--sort", "name"]), ["cpuid", "hlt", "interrupt", "io", "msr", "npf", "vintr"]);
}

#[test]
fn the_table_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let output = run(&["report", &recording("small")]);
    let text = out(&output);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\u{1b}'));
    let exits = "exits      34,592 (6,670/s) of 1 VM with 2 vCPUs; 34,590 of them handled in 3.02 s\n";
    assert!(text.replace("\n           ", " ").contains(exits), "{text}");
    let wide = out(&command(&["report", &recording("small")]).env("COLUMNS", "120").output().unwrap());
    assert!(wide.contains("p99.9") && !text.contains("p99.9"));
}

#[test]
fn rows_left_out_are_one_row_and_sums_stay() {
    let file = recording("small");
    let all = json(&["report", &file]);
    let top = json(&["report", &file, "--top", "2"]);
    assert_eq!(top["rows"].as_array().unwrap().len(), 2);
    assert_eq!(top["other"]["rows"], 5);
    let sum: u64 = top["rows"]
        .as_array()
        .unwrap()
        .iter()
        .chain([&top["other"]])
        .map(|row| row["time_ns"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, all["totals"]["time_ns"].as_u64().unwrap());
    assert!(out(&run(&["report", &file, "--top", "2"])).contains("other (5 rows)"));
}

#[test]
fn csv_has_the_figures_of_json() {
    let file = recording("several-vms");
    let document = json(&["report", &file, "--by", "vcpu,reason"]);
    let csv = out(&run(&["report", &file, "--by", "vcpu,reason", "--csv"]));
    let mut lines = csv.lines();
    let titles: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(lines.clone().count(), rows.len());
    for (line, row) in lines.zip(rows) {
        for (title, cell) in titles.iter().zip(line.split(',')) {
            let expected = match &row[*title] {
                Value::Null if *title == "rows" => "1".to_owned(),
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let same_number = cell.parse::<f64>().is_ok_and(|cell| Ok(cell) == expected.parse::<f64>());
            assert!(cell == expected || same_number, "{title}: {cell}, {expected}");
        }
    }
}

#[test]
fn vms_are_chosen_by_number_or_name() {
    let file = recording("several-vms");
    let all = json(&["report", &file, "--by", "vm"]);
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    let number = rows[0]["vm"].to_string();
    let one = json(&["report", &file, "--by", "vm", "--vm", &number]);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    assert_eq!(one["totals"]["exits"], rows[0]["exits"]);
    let same_name = json(&["report", &file, "--by", "vm", "--vm", "mix"]);
    assert_eq!(same_name["totals"]["exits"], all["totals"]["exits"]);
    let none = run(&["report", &file, "--vm", "mixer"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(err(&none).contains(&format!("{number} (mix)")), "{}", err(&none));
}

#[test]
fn parts_of_the_time_add_up() {
    let file = recording("small");
    let exits = |arguments: &[&str]| {
        let document = json(&[&["report", &file][..], arguments].concat());
        (document["totals"]["exits"].as_u64().unwrap(), document["totals"]["observed_ns"].as_u64().unwrap())
    };
    let (all, all_ns) = exits(&[]);
    let (first, first_ns) = exits(&["--to", "1.5s"]);
    let (middle, middle_ns) = exits(&["--from", "1500ms", "--to", "2s"]);
    let (last, last_ns) = exits(&["--from", "2s"]);
    assert_eq!((first_ns, middle_ns), (1_500_000_000, 500_000_000));
    assert_eq!(first_ns + middle_ns + last_ns, all_ns);
    assert_eq!(first + middle + last, all);
    assert!(first > 0 && middle > 0 && last > 0);
    let output = run(&["report", &file, "--from", "1min"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(out(&output).contains("it is 5.19 s long"), "{}", out(&output));
}

#[test]
fn two_recordings_are_one_profile() {
    let files = ["switch-1", "switch-2"].map(recording);
    let both = json(&["report", &files[0], &files[1]]);
    let counts: Vec<u64> =
        both["files"].as_array().unwrap().iter().map(|file| file["exits"].as_u64().unwrap()).collect();
    assert_eq!(counts, [866, 365]);
    assert_eq!(both["totals"]["exits"], 866 + 365);
}

#[test]
fn standard_input_is_read_as_a_file_is() {
    let packed = std::fs::read(recording("zstd")).unwrap();
    let mut child =
        command(&["report", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&packed).unwrap();
    let output = child.wait_with_output().unwrap();
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["files"][0]["name"], "standard input");
    assert_eq!(read["rows"], json(&["report", &recording("zstd")])["rows"]);
}

#[test]
fn losses_are_told_with_their_share_and_change_no_status() {
    let output = run(&["report", &recording("lost")]);
    assert_eq!(output.status.code(), Some(0));
    let text = out(&output).replace("\n           ", " ");
    assert!(text.contains("lost       9,796 events (15.5 % of all), 4,290 of them exits"), "{text}");
    for subcommand in ["report", "timeline"] {
        let csv = run(&[subcommand, &recording("lost"), "--csv"]);
        assert!(err(&csv).contains("9,796 events (15.5 % of all)"), "{}", err(&csv));
    }
    let document = json(&["report", &recording("lost")]);
    assert_eq!(document["totals"]["lost_events"], 9796);
    assert_eq!(document["losses"]["pairs_across_loss"], 47);
}

#[test]
fn a_status_does_not_depend_on_whether_somebody_reads_the_output() {
    let (killed, small) = (recording("killed"), recording("small"));
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "name = \"x\"\ncolour = 1\n").unwrap();
    let commands: [(i32, &[&str]); 9] = [
        (4, &["report", &killed]),
        (4, &["report", &killed, "--json"]),
        (4, &["report", &killed, "--csv"]),
        (4, &["report", &killed, "--longer-than", "1ms"]),
        (4, &["timeline", &killed]),
        (4, &["timeline", &killed, "--csv"]),
        (4, &["predict", &killed]),
        (1, &["advise", &small, "--idle"]),
        (2, &["experiment", "check", bad.to_str().unwrap(), "--json"]),
    ];
    for (status, arguments) in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = command(arguments).stdout(writer).output().unwrap();
        let read = run(arguments);
        let statuses = [read.status.code(), unread.status.code()];
        assert_eq!(statuses, [Some(status); 2], "{arguments:?}: {}", err(&unread));
    }
}

#[test]
fn documents_of_all_kinds_begin_with_their_format() {
    let commands: [&[&str]; 3] = [
        &["tune", "tune-advised", "--dry-run", "--json"],
        &["iocm", "simulate", "--made", "steps", "--json"],
        &["guest", "run", "--json", "--set", "kind = \"host\"", "--", "true"],
    ];
    for line in commands {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line:?}: {}", err(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["format"], 1, "{line:?}");
        assert!(document["version"].is_string(), "{line:?}");
    }
}

#[test]
fn a_dry_run_refuses_what_the_tuning_refuses_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("web.xml"), "<domain/>").unwrap();
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join("mine/notes"), "x").unwrap();
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o777)).unwrap();
    for (option, value, said) in [
        ("--target", "lab:nosuch", "nosuch"),
        ("--target", "lab:amd-avic+cpus=x", "from 1 to 8"),
        ("--ssh-config", "nosuch", "no such configuration of ssh"),
        ("--output", "web.xml", "is not a folder"),
        ("--output", "mine", "notes"),
        ("--output", "shared", "has mode 0777"),
    ] {
        let line = ["tune", "tune-advised", "--dry-run", option, value];
        let refused = command(&line).current_dir(folder.path()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{value}: {}", err(&refused));
        assert!(err(&refused).contains(said) && refused.stdout.is_empty(), "{value}: {}", err(&refused));
    }
    let line = ["tune", "tune-advised", "--dry-run", "--target", "lab:amd-avic+cpus=2", "--output", "new"];
    let accepted = command(&line).current_dir(folder.path()).output().unwrap();
    assert_eq!(accepted.status.code(), Some(0), "{}", err(&accepted));
    assert!(!folder.path().join("new").exists());
}

#[test]
fn a_damaged_recording_has_a_status_of_its_own() {
    let killed = run(&["report", &recording("killed"), "--json"]);
    assert_eq!(killed.status.code(), Some(4));
    let document: Value = serde_json::from_slice(&killed.stdout).unwrap();
    assert_eq!(document["totals"]["exits"], 3245);
    assert!(document["files"][0]["damage"]["offset"].is_u64());
    assert!(out(&run(&["report", &recording("killed")])).contains("\ndamage     at byte "));
    let csv = run(&["report", &recording("killed"), "--csv"]);
    assert_eq!(csv.status.code(), Some(4));
    assert!(err(&csv).contains("Damage at byte "), "{}", err(&csv));
    let late = run(&["report", &recording("killed"), "--from", "1h"]);
    assert_eq!(late.status.code(), Some(4), "{}", out(&late));
    let nothing = run(&["report", &recording("killed-by-SIGKILL")]);
    assert_eq!(nothing.status.code(), Some(125), "{}", out(&nothing));
    let why = "The recording has no exits: perf was killed before it wrote any.";
    for form in ["--json", "--csv"] {
        let nothing = run(&["report", &recording("killed-by-SIGKILL"), form]);
        assert_eq!(nothing.status.code(), Some(125), "{}", out(&nothing));
        assert!(err(&nothing).contains(why), "{}", err(&nothing));
    }
    let both = run(&["diff", &recording("small"), &recording("killed-by-SIGKILL"), "--allow-unlike"]);
    assert_eq!((both.status.code(), err(&both).contains(why)), (Some(125), true), "{}", err(&both));
}

#[test]
fn what_cannot_be_is_said_before_anything_is_read() {
    let small = recording("small");
    let usage: [(&[&str], &str); 26] = [
        (&["report", "no-such-file"], "no-such-file: no such recording"),
        (&["report", &small, "--by", "reason,port"], "cannot be grouped by reason and by port"),
        (&["report", &small, "--by", "colour"], "`colour` is nothing to group by"),
        (&["report", &small, "--from", "2s", "--to", "1s"], "--from is not before --to"),
        (&["report", &small, "--from", "2"], "a time is a number with a unit"),
        (&["report", &small, "--from", "-1s"], "a time is a number with a unit"),
        (&["report", &small, "--threshold", "50"], "it is a number with a unit, such as 50us"),
        (&["report", &small, "--longer-than", "0"], "it is a number with a unit, such as 50us"),
        (&["report", &small, "--longer-than", "1ms", "--by", "port"], "cannot be used with"),
        (&["report", &small, "--longer-than", "1ms", "--threshold", "1us"], "cannot be used with"),
        (&["report", &small, "--csv", "--threshold", "1us"], "cannot be used with"),
        (&["timeline", &small, "--json", "--ascii"], "cannot be used with"),
        (&["experiment", "check", "--schema", "plan.toml"], "cannot be used with"),
        (&["stat", "--count", "0"], "invalid value '0' for '--count"),
        (&["iocm", "watch", "--count", "0"], "invalid value '0' for '--count"),
        (&["report", &small, "--top", "-3"], "invalid value '-3' for '--top"),
        (&["advise", &small, "--idle", "--budget", "-1"], "invalid value '-1' for '--budget"),
        (&["report", "/"], "/ is a directory without `data`"),
        (&["timeline", &small, "--by", "vcpu"], "not by vcpu"),
        (&["report", &small, "--from", "3000000h"], "longer than the longest possible time"),
        (&["guest", "run", "--timeout", "0", "--", "true"], "longer than nothing"),
        (&["guest", "run", "--timeout", "x", "--", "true"], "a time to wait is a number of seconds"),
        (&["lab", "run", "nosuch", "--boot-timeout", "0", "--", "true"], "longer than nothing"),
        (&["trace", "--event", "foo"], "pv-eoi, all"),
        (&["predict", &small, "--host-hz", "x"], "a number of ticks a second"),
        (&["load", "http", "http://192.0.2.7/", "--rate", "x"], "a rate is a number a second"),
    ];
    for (arguments, said) in usage {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(err(&output).contains(said), "{arguments:?}: {}", err(&output));
    }
    let folder = tempfile::tempdir().unwrap();
    let without = command(&["report"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(err(&without).contains("There is no perf.data here"), "{}", err(&without));
    std::fs::write(folder.path().join("perf.data"), "hello").unwrap();
    let other = command(&["report"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(other.status.code(), Some(125));
    assert!(err(&other).contains("perf.data is not a recording of exits"), "{}", err(&other));
    std::fs::write(folder.path().join("perf.data"), [&b"PERFILE2"[..], &[0; 32]].concat()).unwrap();
    let cut = command(&["report"]).current_dir(folder.path()).output().unwrap();
    assert!(err(&cut).contains("the header is cut off") && err(&cut).contains("at byte 40"), "{}", err(&cut));
}

#[test]
fn options_for_recordings_of_xentrace_are_refused_for_others() {
    let small = recording("small");
    for arguments in [
        &["report", &small, "--tsc-hz", "5G"][..],
        &["report", &small, "--longer-than", "1ms", "--isa", "vmx"],
        &["diff", &small, &small, "--isa", "vmx"],
        &["advise", &small, "--tsc-hz", "5G"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", out(&output));
        let said = err(&output);
        assert!(said.contains("--isa and --tsc-hz are for recordings of xentrace"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_threshold_is_told_with_the_exits_beyond_it() {
    let small = recording("small");
    let document = json(&["report", &small, "--threshold", "50us"]);
    assert_eq!(document["threshold_ns"], 50_000);
    assert!(document["rows"][0]["over_threshold"].is_u64(), "{document}");
    assert!(json(&["report", &small])["threshold_ns"].is_null());
}

#[test]
fn outputs_are_never_a_file_called_like_standard_output() {
    let (folder, small) = (tempfile::tempdir().unwrap(), recording("small"));
    let in_folder = |line: &[&str]| command(line).current_dir(folder.path()).output().unwrap();
    let made = ["iocm", "simulate", "--made", "steps"];
    let lines: [&[&str]; 10] = [
        &["report", &small, "--html", "-"],
        &["report", &small, "--parquet", "-"],
        &["timeline", &small, "--html", "-"],
        &["diff", &small, &small, "--html", "-"],
        &["record", "-o", "-"],
        &["profile", &small, "-o", "-"],
        &["experiment", "report", ".", "--output", "-"],
        &["iocm", "report", "x", "-o", "-"],
        &[&made[..], &["--report", "-"]].concat(),
        &[&made[..], &["--write", "-", "--json"]].concat(),
    ];
    for line in lines {
        let refused = in_folder(line);
        assert_eq!(refused.status.code(), Some(2), "{line:?}: {}", err(&refused));
        assert!(err(&refused).contains("a file"), "{line:?}: {}", err(&refused));
    }
    // A load goes to a pipe instead of the tables, and comes from one.
    let trace = in_folder(&[&made[..], &["--write", "-"]].concat());
    assert_eq!(trace.status.code(), Some(0), "{}", err(&trace));
    let kept = folder.path().join("load.trace");
    std::fs::write(&kept, &trace.stdout).unwrap();
    let standard_input = std::fs::File::open(&kept).unwrap();
    let read = command(&["iocm", "simulate", "-"]).stdin(standard_input).output().unwrap();
    assert_eq!(read.status.code(), Some(0), "{}", err(&read));
    assert_eq!(out(&read), out(&in_folder(&made)), "the same load");
    assert!(!folder.path().join("-").exists());
}

/// The words of a command's help about one option.
fn help_of(command: &str, option: &str) -> String {
    let is_option = |line: &str| {
        let text = line.trim_start();
        text.starts_with('-') && line.len() - text.len() < 8
    };
    let help = out(&run(&[command, "--help"]));
    let mut lines = help.lines().skip_while(|line| !(is_option(line) && line.contains(option)));
    let first = lines.next().unwrap_or_else(|| panic!("{command} has no {option}"));
    let words = [first].into_iter().chain(lines.take_while(|line| !is_option(line)));
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn options_that_are_refused_together_are_in_the_page_and_in_the_help() {
    let page = include_str!("../../../../docs/report.md");
    let others = [
        ("--vm", Some("mix")),
        ("--vcpu", Some("0")),
        ("--by", Some("reason")),
        ("--sort", Some("name")),
        ("--threshold", Some("1us")),
        ("--from", Some("1ms")),
        ("--to", Some("2s")),
        ("--top", Some("3")),
        ("--tsc-hz", Some("2G")),
        ("--json", None),
        ("--csv", None),
        ("--html", Some("page")),
        ("--parquet", Some("table")),
        ("--longer-than", Some("1ms")),
    ];
    for (option, own) in [("--longer-than", "1ms"), ("--parquet", "table")] {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{option} "))).unwrap();
        let (_, not_with) = row.split_once("; not with ").unwrap();
        let help = help_of("report", option);
        for (other, value) in others.iter().filter(|(other, _)| *other != option) {
            let mut arguments = vec!["report", "no-such-file", option, own, *other];
            arguments.extend(value);
            let said = err(&run(&arguments));
            let is_refused = said.contains("cannot be used with");
            assert!(is_refused || said.contains("no such recording"), "{arguments:?}: {said}");
            assert_eq!(is_refused, not_with.contains(&format!("`{other}`")), "docs/report.md: {arguments:?}");
            let is_in_help = help.split([' ', ',', '.', ';']).any(|word| word == *other);
            assert!(is_in_help || !is_refused, "help of {option}: {other}");
        }
    }
}

#[test]
fn a_full_standard_output_is_named() {
    for form in [&["report"][..], &["report", "--json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(&[form, &[&recording("small")]].concat()).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{form:?}");
        assert!(
            err(&output).starts_with("exitless: Could not write to standard output: No space"),
            "{}",
            err(&output)
        );
    }
}

#[test]
fn a_full_standard_error_does_not_change_the_status() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&["report", "no.such"]).stderr(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_finds_no_room_says_so() {
    for form in [
        &["--help"][..],
        &["--version"],
        &["help", "stat"],
        &["stat", "-h"],
        &["iocm", "device", "--print-capabilities", "--type=block"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(form).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{form:?}");
        let said = err(&output);
        assert!(
            said.starts_with("exitless: Could not write to standard output: No space"),
            "{form:?}: {said}"
        );
        assert_eq!(run(form).status.code(), Some(0), "{form:?}");
    }
}

#[test]
fn a_recording_with_the_name_that_perf_kvm_chooses_is_found() {
    for name in ["perf.data.guest", "perf.data.kvm", "perf.data.host"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(recording("small"), folder.path().join(name)).unwrap();
        let output = command(&["report"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).starts_with(&format!("recording  {name} ")), "{}", out(&output));
    }
}

#[test]
fn a_timeline_has_the_exits_of_the_report() {
    let small = recording("small");
    let document = json(&["timeline", &small]);
    for row in document["rows"].as_array().unwrap() {
        let slices = row["exits_by_slice"].as_array().unwrap();
        let sum: u64 = slices.iter().map(|slice| slice.as_u64().unwrap()).sum();
        assert_eq!(Some(sum), row["exits"].as_u64());
        let reported = json(&["report", &small]);
        let same = reported["rows"]
            .as_array()
            .unwrap()
            .iter()
            .find(|other| other["reason"] == row["reason"])
            .unwrap();
        assert_eq!((&same["exits"], &same["time_ns"]), (&row["exits"], &row["time_ns"]));
    }
    let drawn = out(&run(&["timeline", &small, "--top", "3"]));
    assert!(drawn.contains('█') && drawn.contains("other (4 rows)"), "{drawn}");
    // Holds too if names are shorter than the column's title.
    let all = out(&run(&["timeline", &small]));
    assert!(drawn.lines().chain(all.lines()).all(|line| line.chars().count() <= 80), "{drawn}{all}");
    for ascii in [
        command(&["timeline", &small, "--ascii"]).output().unwrap(),
        command(&["timeline", &small]).env("LC_ALL", "C").output().unwrap(),
    ] {
        assert!(out(&ascii).is_ascii());
    }
    let qemu = recording("qemu");
    let tables: [&[&str]; 5] = [
        &["report", &small],
        &["report", &small, "--longer-than", "1ms"],
        &["diff", &small, &small],
        &["predict", &small],
        &["profile", &qemu],
    ];
    for line in tables {
        let ascii = command(line).env("LC_ALL", "C").output().unwrap();
        assert_eq!(ascii.status.code(), Some(0), "{line:?}: {}", err(&ascii));
        assert!(out(&ascii).is_ascii(), "{line:?}: {}", out(&ascii));
    }
    let csv = out(&run(&["timeline", &small, "--by", "vm", "--csv"]));
    let sum: u64 =
        csv.lines().skip(1).map(|line| line.split(',').nth(8).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 34_592);
}

#[test]
fn pages_are_written_beside_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    for subcommand in ["report", "timeline"] {
        let output = run(&[subcommand, &recording("small"), "--html", page.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(out(&output).contains("cpuid"));
        let written = std::fs::read_to_string(&page).unwrap();
        assert!(written.starts_with("<!DOCTYPE html>") && written.contains("cpuid"), "{subcommand}");
        std::fs::remove_file(&page).unwrap();
    }
    let nowhere = run(&["report", &recording("small"), "--html", "/no/such/folder/page.html"]);
    assert_eq!(nowhere.status.code(), Some(125));
    assert!(err(&nowhere).contains("Could not write /no/such/folder/page.html"), "{}", err(&nowhere));
}

#[test]
fn every_exit_is_in_the_parquet_table() {
    let folder = tempfile::tempdir().unwrap();
    let table = folder.path().join("exits.parquet");
    let output = run(&["report", &recording("small"), "--parquet", table.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let bytes = std::fs::read(&table).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    // The content is checked elsewhere; this checks that no incomplete file is left.
    std::fs::write(folder.path().join("perf.data"), "hello").unwrap();
    let failed =
        command(&["report", "--parquet", "none.parquet"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(failed.status.code(), Some(125));
    assert!(!folder.path().join("none.parquet").exists());
    let part = run(&["report", &recording("small"), "--vm", "mix", "--parquet", "part.parquet"]);
    assert_eq!(part.status.code(), Some(2));
}

#[test]
fn a_long_exit_comes_so_long_after_its_own_recordings_first_event() {
    let (small, other) = (recording("small"), recording("attached"));
    let first = |more: &[&str]| {
        let text = out(&run(&[&["report", &small, "--longer-than", "31ms"][..], more].concat()));
        text.lines().find(|line| line.contains("31.4 ms")).map(str::to_owned).unwrap()
    };
    for more in [&[][..], &["--from", "3s"], &[&other]] {
        assert!(first(more).trim_start().starts_with("3.49 s"), "{more:?}: {}", first(more));
    }
}

#[test]
fn a_long_exit_is_of_a_recording() {
    let files = ["small", "small61"].map(recording);
    let base = ["report", &files[0], &files[1], "--longer-than", "5ms", "--top", "2"];
    let document = json(&base);
    let of = |at: usize| document["long_exits"][at]["recording"].as_u64();
    assert_eq!([of(0), of(1)], [Some(1), Some(0)], "{document}");
    assert_eq!(
        [0_usize, 1].map(|at| document["files"][at]["name"].as_str()),
        [Some(&*files[0]), Some(&*files[1])]
    );
    let text = out(&command(&base).env("COLUMNS", "300").output().unwrap());
    assert!(text.contains(&format!("recordings 1: {}\n           2: {}\n", files[0], files[1])), "{text}");
    let damaged = run(&["report", &recording("killed"), "--longer-than", "1ms", "--json"]);
    let document: Value = serde_json::from_slice(&damaged.stdout).unwrap();
    assert!(document["files"][0]["damage"]["offset"].is_u64(), "{document}");
}
