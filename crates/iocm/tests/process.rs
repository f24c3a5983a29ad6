//! The daemon as a process of its own: killed under load, and without its privileges.
//!
//! This program contains both the tests and the daemon: a daemon drops its privileges before it starts threads, and the
//! usual test harness has threads already.

mod blkio_disk;

mod process {
    pub(crate) mod daemon;
    pub(crate) mod hostile {
        pub(crate) mod connections;
        pub(crate) mod descriptors;
        pub(crate) mod floods;
        pub(crate) mod held;
        pub(crate) mod inflight;
        pub(crate) mod memory;
        pub(crate) mod requests;
        pub(crate) mod stage;
    }
    pub(crate) mod killed;
    pub(crate) mod killed_libblkio;
    pub(crate) mod machine;
    pub(crate) mod migrated;
    pub(crate) mod rust_vmm;
    pub(crate) mod safe;
}

const TESTS: &[(&str, fn())] = &[
    ("killed_under_load_it_loses_nothing_split", process::killed::split),
    ("killed_under_load_it_loses_nothing_packed", process::killed::packed),
    ("killed_under_load_libblkio_finds_what_it_was_told", process::killed_libblkio::finds_what_was_told),
    ("killed_under_load_it_loses_nothing_of_rust_vmms_front_end", process::rust_vmm::killed),
    ("rust_vmms_front_end_uses_all_that_is_offered", process::rust_vmm::uses_what_is_offered),
    ("a_machine_goes_on_when_the_daemon_is_killed", process::machine::goes_on),
    ("a_machine_that_migrates_takes_along_what_was_read", process::migrated::takes_its_memory_along),
    ("privileges_are_given_away", process::safe::given_away),
    ("root_becomes_the_usual_user", process::safe::usual_user),
    ("what_runs_can_still_be_changed", process::safe::changes),
    ("a_request_as_large_as_the_disk_is_an_error", process::hostile::requests::as_large_as_the_disk),
    ("what_is_not_aligned_is_read_in_pieces", process::hostile::requests::not_aligned),
    ("zeroes_without_end_stop_nobody_else", process::hostile::requests::zeroes_without_end),
    ("ranges_beyond_the_limit_are_errors", process::hostile::requests::ranges_beyond_the_limit),
    ("a_guest_that_is_never_quiet_starves_nobody", process::hostile::requests::never_quiet),
    ("requests_of_empty_pieces_are_no_requests", process::hostile::requests::pieces_of_nothing),
    ("what_is_no_request_counts_against_a_limit", process::hostile::requests::nonsense_against_a_limit),
    ("an_eventfd_to_call_that_is_full_stops_nobody", process::hostile::descriptors::a_full_call),
    (
        "a_full_eventfd_that_switches_blocking_on_and_off_stops_nobody",
        process::hostile::descriptors::a_full_call_that_switches,
    ),
    ("an_eventfd_for_errors_that_is_full_stops_nobody", process::hostile::descriptors::a_full_error),
    ("kicks_that_are_taken_back_stop_nobody", process::hostile::descriptors::kicks_taken_back),
    ("what_is_no_eventfd_is_refused", process::hostile::descriptors::no_eventfd),
    ("a_front_end_that_does_not_read_stops_nobody", process::hostile::descriptors::a_full_socket),
    ("a_file_system_that_does_not_answer_stops_nobody", process::hostile::held::by_a_file_system),
    ("a_socket_that_lingers_stops_nobody", process::hostile::held::by_a_socket),
    ("what_a_front_end_left_unread_stops_nobody", process::hostile::held::by_what_was_not_read),
    ("what_was_never_accepted_stops_nobody", process::hostile::held::by_what_was_not_accepted),
    ("the_connection_for_requests_stops_nobody", process::hostile::held::by_the_back_ends_connection),
    ("full_eventfds_one_after_the_other_leave_nothing", process::hostile::floods::full_eventfds),
    ("connections_with_half_a_message_leave_nothing", process::hostile::floods::half_messages),
    ("descriptors_without_number_are_closed", process::hostile::floods::descriptors_without_number),
    ("pages_that_are_lost_apart_use_up_no_mappings", process::hostile::floods::pages_lost_apart),
    ("pages_that_are_lost_in_packets_use_up_no_mappings", process::hostile::floods::pages_lost_in_packets),
    ("messages_without_end_stop_nobody", process::hostile::floods::messages_without_end),
    ("memory_that_is_cut_is_never_written_to_a_disk", process::hostile::memory::cut_while_it_is_used),
    ("huge_pages_that_are_not_there_end_nobody", process::hostile::memory::huge_pages_that_are_not_there),
    ("a_file_that_is_no_memory_is_refused", process::hostile::memory::no_memory),
    ("memory_that_can_be_sealed_is", process::hostile::memory::sealed),
    ("lists_of_requests_in_flight_that_loop_are_refused", process::hostile::inflight::looping_lists),
    ("a_request_that_kills_is_an_error_at_last", process::hostile::inflight::a_request_that_kills),
    ("memory_of_requests_in_flight_that_is_cut_ends_nobody", process::hostile::inflight::cut),
    ("without_descriptors_the_daemon_waits", process::hostile::connections::no_descriptor_left),
    ("without_rights_files_and_directories_are_refused", process::safe::refused),
];

/// The part of the usual test harness that is needed: the list of tests, and running tests by name.
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
