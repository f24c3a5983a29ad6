//! The daemon as a process of its own: killed under load, and with its privileges given away.
//!
//! This program is the tests and the daemon, for a daemon gives privileges away before it has threads, which the usual
//! harness has.

mod blkio_disk;

mod process {
    pub(crate) mod daemon;
    pub(crate) mod killed;
    pub(crate) mod killed_libblkio;
    pub(crate) mod machine;
    pub(crate) mod migrated;
    pub(crate) mod safe;
}

const TESTS: &[(&str, fn())] = &[
    ("killed_under_load_it_loses_nothing_split", process::killed::split),
    ("killed_under_load_it_loses_nothing_packed", process::killed::packed),
    ("killed_under_load_libblkio_finds_what_it_was_told", process::killed_libblkio::finds_what_was_told),
    ("a_machine_goes_on_when_the_daemon_is_killed", process::machine::goes_on),
    ("a_machine_that_migrates_takes_along_what_was_read", process::migrated::takes_its_memory_along),
    ("privileges_are_given_away", process::safe::given_away),
    ("what_runs_can_still_be_changed", process::safe::changes),
    ("without_rights_files_and_directories_are_refused", process::safe::refused),
];

/// As much of the usual harness as is asked for: a list, and tests by name.
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    if let [word, config] = &arguments[..]
        && word == "daemon"
    {
        return process::daemon::serve(config);
    }
    if has("--list") {
        if !has("--ignored") {
            TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in TESTS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}
