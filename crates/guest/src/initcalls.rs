//! Initcalls of Linux that emulated machines skip.

/// The initcalls that no emulated host and no guest needs, and that take an emulated CPU long, for `initcall_blacklist=`:
/// certificates, the collection of entropy from jitter, two registrations for BPF, and ftrace's search for weak functions,
/// which it then makes when it lists functions. A macro, because `concat!` takes literals only.
#[macro_export]
macro_rules! needless_initcalls {
    () => {
        "load_system_certificate_list,jent_mod_init,bpf_tcp_ca_kfunc_init,bpf_dummy_struct_ops_init,\
         ftrace_check_for_weak_functions"
    };
}
