//! The kernel's command line of guests of the image.

use guest::{AGENT_ARGUMENT, Settings};

/// Arguments of every guest. Self-tests, which are slow on an emulated CPU, are off. Two initcalls prepare for tracing the
/// guest from inside, a fifth of its boot on an emulated CPU. Without `ftrace_check_for_weak_functions` ftrace finds the
/// places that are no functions when it lists them; without `trace_eval_init` the formats of events keep the names of
/// enumerations.
const ARGUMENTS: &str = "panic=-1 oops=panic cryptomgr.notests net.ifnames=0 rdinit=/init \
    initcall_blacklist=load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init,\
    ftrace_check_for_weak_functions,trace_eval_init";

/// The arguments of this kind of machine, those of all guests, what the agent is told, and what the plan gives.
pub(crate) fn command_line(machine: &str, settings: &Settings, given: &[String]) -> String {
    let (own, given) = (settings.arguments().join(" "), given.join(" "));
    format!("{machine} {ARGUMENTS} {own} {given} -- {AGENT_ARGUMENT}")
}
