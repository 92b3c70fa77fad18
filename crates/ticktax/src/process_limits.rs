//! The limits that this process was started with (`ulimit`), prepared for before any verb begins:
//! each ends in one line and exit code 1, never in a signal.
//!
//! | limit | without this module |
//! |---|---|
//! | open files (`-n`) | the tracer needs more files than some services may have open |
//! | size of a file (`-f`) | SIGXFSZ kills the process, and a `.part` file stays behind |
//! | address space (`-v`) | a failed allocation aborts, and a full stack ends in SIGSEGV |
//! | stack (`-s`) | the main thread overflows it |

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use signal_hook::consts::{SIGABRT, SIGXFSZ};
use signal_hook::flag;
use ticktax_host::{Proc, open_files};

use crate::arguments::Verb;
use crate::failure::Failure;
use crate::interrupt;

/// Address space that every verb may need on top of the loaded program: files read at once, and
/// what an analysis keeps.
const FOR_ANALYSIS: u64 = 64 << 20;
/// Address space for each CPU: a thread's stack, and its share of the tracer's ring.
const FOR_EACH_CPU: u64 = 8 << 20;
/// Stack that the main thread maps at once when address space is limited.
const STACK: usize = 1 << 20;
/// The smallest limit of a stack with which every verb works.
const SMALLEST_STACK: u64 = 1 << 20;
/// Exit code after an abort. The reason is on standard error already.
const ABORTED: i32 = 1;

/// Makes an abort exit with code 1. A failed allocation prints its size and aborts; without this,
/// a shell reports a crash.
pub(crate) fn exit_on_abort() {
    let always = Arc::new(AtomicBool::new(true));
    // Without the handler an abort ends the process all the same.
    let _ = flag::register_conditional_shutdown(SIGABRT, ABORTED, always);
}

/// Checks the main thread's stack, before the arguments are read: that takes a good part of it. The
/// limit is not raised, because programs that ticktax starts would inherit it.
///
/// # Errors
/// The limit is below 1 MiB.
pub(crate) fn require_stack() -> Result<(), Failure> {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((limit, _)) if limit < SMALLEST_STACK => Err(Failure::Stack {
            limit,
            needed: SMALLEST_STACK,
        }),
        _ => Ok(()),
    }
}

/// Prepares this process for its limits.
///
/// # Errors
/// The address space is too small for the verb.
pub(crate) fn prepare(verb: &Verb) -> Result<(), Failure> {
    // These become, or start, programs that inherit this process's limits.
    if matches!(verb, Verb::TryStart(_) | Verb::LabGuest) {
        return Ok(());
    }
    let refused = |error: std::io::Error| Failure::Signals(error.kind().to_string());
    // A write past the limit then fails with EFBIG. The handler does nothing, and goes away when a
    // child runs its program; a signal that is ignored would stay ignored there.
    if !interrupt::is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::default()).map_err(refused)?;
    }
    if !matches!(verb, Verb::Lab { .. } | Verb::LabReplay(_)) {
        open_files::raise();
    }
    match needed_address_space(verb) {
        Some(bytes) => require_address_space(bytes),
        None => Ok(()),
    }
}

/// Address space that a verb needs on top of the loaded program. `None` for small verbs: `undo`,
/// for example, is never refused.
fn needed_address_space(verb: &Verb) -> Option<u64> {
    match verb {
        Verb::Agent(_)
        | Verb::Audit(_)
        | Verb::Net { .. }
        | Verb::Pace(_)
        | Verb::Record(_)
        | Verb::Try(_) => {
            let online = Proc::default().online();
            let cpus = online.map_or(1, |cpus| cpus.iter().count());
            Some(FOR_ANALYSIS + FOR_EACH_CPU * cpus as u64)
        }
        Verb::Beats(_) | Verb::Compare(_) | Verb::Report(_) | Verb::Sim(_) | Verb::Sweep(_) => {
            Some(FOR_ANALYSIS)
        }
        _ => None,
    }
}

/// Fails if this process cannot map `more` bytes.
fn require_address_space(more: u64) -> Result<(), Failure> {
    let limit = match getrlimit(Resource::RLIMIT_AS) {
        Ok((limit, _)) if limit != RLIM_INFINITY => limit,
        _ => return Ok(()),
    };
    let needed = mapped() + more;
    if limit < needed {
        return Err(Failure::AddressSpace { limit, needed });
    }
    map_stack();
    Ok(())
}

/// Address space that this process has mapped, in bytes.
fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Has the kernel map the main thread's stack while there is address space left: a stack that
/// cannot grow ends the process with SIGSEGV.
#[inline(never)]
#[expect(
    clippy::large_stack_arrays,
    reason = "a large array on the stack is the purpose"
)]
fn map_stack() {
    std::hint::black_box([0_u8; STACK]);
}

#[cfg(test)]
mod tests {
    use super::mapped;

    #[test]
    fn the_address_space_in_use_is_known() {
        assert!(mapped() > 1 << 20, "{}", mapped());
    }
}
