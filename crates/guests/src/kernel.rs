//! The kernel's command line for guests that boot the guest image.

use guest::{AGENT_ARGUMENT, Settings};

/// Arguments of every guest. The crypto self-tests, which are slow on an emulated CPU, are off. So is `trace_eval_init`,
/// without which the formats of events contain the names of enumerators instead of their values. With
/// `ftrace_check_for_weak_functions` it takes a fifth of a guest's boot on an emulated CPU.
const ARGUMENTS: &str = concat!(
    "panic=-1 oops=panic cryptomgr.notests net.ifnames=0 rdinit=/init initcall_blacklist=",
    guest::needless_initcalls!(),
    ",trace_eval_init"
);

/// The command line: arguments of this kind of machine, of all guests, of the agent and of the plan.
pub(crate) fn command_line(machine: &str, settings: &Settings, given: &[String]) -> String {
    let (own, given) = (settings.arguments().join(" "), given.join(" "));
    format!("{machine} {ARGUMENTS} {own} {given} -- {AGENT_ARGUMENT}")
}
