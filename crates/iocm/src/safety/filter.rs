//! The seccomp filter: the system calls that a running daemon needs.
//!
//! All others are refused. The filter does not see the operations of io_uring; the kernel checks these against the same
//! user and the same capabilities.

use seccompiler::{
    BackendError, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::error::Error;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that are made with any arguments.
const ANY: &[libc::c_long] = &[
    // Files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    // To test for the access control list of a directory.
    libc::SYS_getxattr,
    libc::SYS_lseek,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_getdents64,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_memfd_create,
    libc::SYS_pipe2,
    // Waiting.
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_delete,
    libc::SYS_gettimeofday,
    libc::SYS_futex,
    libc::SYS_restart_syscall,
    // Sockets; socket(2) has a rule of its own.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads, identity, and exit. The other filter refuses `clone3`.
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getpriority,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getrandom,
    libc::SYS_prlimit64,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// The ioctls on files: non-blocking mode, terminals, the blocks of a disk (`BLKSSZGET`), and taps (linux/if_tun.h).
const CONTROLS: &[u64] = &[
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::TCGETS,
    0x1268,
    0x4004_54ca,
    0x8004_54cf,
    0x4004_54d0,
    0x4004_54d8,
    0x4004_54d9,
    0x4004_54dc,
];

/// The prctl(2) operations that are allowed: thread names, timer slack, and the auxiliary vector.
const OF_THREADS: &[libc::c_int] =
    &[libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_TIMERSLACK, PR_GET_AUXV];

/// Linux 6.4 (include/uapi/linux/prctl.h): reads the auxiliary vector, which has the size of a page.
const PR_GET_AUXV: libc::c_int = 0x4155_5856;

/// The ioctls that configure network interfaces, on a socket.
const INTERFACES: &[u64] = &[libc::SIOCGIFFLAGS, libc::SIOCSIFFLAGS, libc::SIOCSIFMTU];

/// Limits the system calls of this thread, and of all that it starts. Other calls fail, or with `kill` end the process.
/// With `interfaces`, network interfaces may be configured.
pub(super) fn install(kill: bool, interfaces: bool) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The C library falls back to `clone`, whose arguments a filter can check.
    let no_clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let refused = match kill {
        true => SeccompAction::KillProcess,
        false => SeccompAction::Errno(libc::EPERM.unsigned_abs()),
    };
    for (rules, mismatch, matched) in
        [(no_clone3, SeccompAction::Allow, unknown), (allowed(interfaces)?, refused, SeccompAction::Allow)]
    {
        let filter = SeccompFilter::new(rules, mismatch, matched, TargetArch::x86_64)?;
        let program: seccompiler::BpfProgram = filter.try_into()?;
        apply_filter(&program)?;
    }
    Ok(())
}

fn allowed(interfaces: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = ANY.iter().map(|call| (*call, Vec::new())).collect();
    let is = |argument, value: u64| rule(argument, SeccompCmpOp::Eq, value);
    let without = |argument, bits: u64| rule(argument, SeccompCmpOp::MaskedEq(bits), 0);
    let with = |argument, bits: u64| rule(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let of = |flag: libc::c_int| u64::from(flag.unsigned_abs());
    let mut sockets = vec![is(0, of(libc::AF_UNIX))?];
    let mut controls = CONTROLS.to_vec();
    if interfaces {
        sockets.push(is(0, of(libc::AF_INET))?);
        controls.extend(INTERFACES);
    }
    rules.insert(libc::SYS_socket, sockets);
    // No executable mappings: nothing that was written can be run.
    rules.insert(libc::SYS_mmap, vec![without(2, of(libc::PROT_EXEC))?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, of(libc::PROT_EXEC))?]);
    // For the mode of a socket before it is bound, without the setuid bits.
    rules.insert(libc::SYS_fchmod, vec![without(1, (!0o777_u32).into())?]);
    // Threads, but no processes.
    rules.insert(libc::SYS_clone, vec![with(0, of(libc::CLONE_THREAD))?]);
    // For abort(3): signals to this process only.
    rules.insert(libc::SYS_tgkill, vec![is(0, std::process::id().into())?]);
    // The slice and the weight of the calling thread.
    rules.insert(libc::SYS_sched_getattr, vec![is(0, 0)?]);
    rules.insert(libc::SYS_sched_setattr, vec![is(0, 0)?]);
    rules.insert(libc::SYS_prctl, OF_THREADS.iter().map(|what| is(0, of(*what))).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_ioctl, controls.iter().map(|what| is(1, *what)).collect::<Result<_, _>>()?);
    Ok(rules)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_power_is_not_allowed() {
        let rules = allowed(false).unwrap();
        let never = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_fork,
            libc::SYS_vfork,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_capset,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_kill,
            libc::SYS_bpf,
            libc::SYS_init_module,
            libc::SYS_chroot,
            libc::SYS_pivot_root,
            libc::SYS_keyctl,
            libc::SYS_userfaultfd,
            libc::SYS_rename,
            libc::SYS_chmod,
            libc::SYS_chown,
        ];
        for call in never {
            assert!(!rules.contains_key(&call), "{call}");
        }
        let limited = [
            libc::SYS_socket,
            libc::SYS_fchmod,
            libc::SYS_mmap,
            libc::SYS_clone,
            libc::SYS_ioctl,
            libc::SYS_sched_setattr,
        ];
        for call in limited {
            assert!(!rules[&call].is_empty(), "{call} is looked at");
        }
    }
}
