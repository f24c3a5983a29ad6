//! The kernel's command line for guests that boot the guest image.

use guest::{AGENT_ARGUMENT, Settings};

/// Arguments of every guest. The crypto self-tests, which are slow on an emulated CPU, are off. So are two initcalls
/// that prepare tracing inside the guest, and take a fifth of its boot on an emulated CPU. Without
/// `ftrace_check_for_weak_functions` ftrace looks for weak functions only when it lists functions; without
/// `trace_eval_init` the formats of events contain the names of enumerators instead of their values.
const ARGUMENTS: &str = "panic=-1 oops=panic cryptomgr.notests net.ifnames=0 rdinit=/init \
    initcall_blacklist=load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init,\
    ftrace_check_for_weak_functions,trace_eval_init";

/// The command line: arguments of this kind of machine, of all guests, of the agent and of the plan.
pub(crate) fn command_line(machine: &str, settings: &Settings, given: &[String]) -> String {
    let (own, given) = (settings.arguments().join(" "), given.join(" "));
    format!("{machine} {ARGUMENTS} {own} {given} -- {AGENT_ARGUMENT}")
}
