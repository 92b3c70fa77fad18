//! Limits set by `ulimit`, handled before any verb starts. Exceeding one ends the process with a
//! one-line error and exit code 1, never with a signal.
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

/// Address space that every verb may need beyond the loaded program, for files and analyses.
const FOR_ANALYSIS: u64 = 64 << 20;
/// Address space of the other verbs, which only print.
const FOR_OTHERS: u64 = 4 << 20;
/// Address space per CPU: a thread's stack, and a share of the tracer's ring.
const FOR_EACH_CPU: u64 = 8 << 20;
/// Stack that the main thread maps in advance if address space is limited.
const STACK: usize = 1 << 20;
/// The smallest stack limit that all verbs work with.
const SMALLEST_STACK: u64 = 1 << 20;
/// Exit code after an abort. Its reason is already on standard error.
const ABORTED: i32 = 1;

/// Makes an abort exit with code 1. A failed allocation prints its size and aborts, which a shell
/// would otherwise report as a crash.
pub(crate) fn exit_on_abort() {
    let always = Arc::new(AtomicBool::new(true));
    // If the handler cannot be installed, an abort still ends the process.
    let _ = flag::register_conditional_shutdown(SIGABRT, ABORTED, always);
}

/// Checks the main thread's stack before the arguments are parsed, which needs much of it. The
/// limit is not raised, because child processes would inherit it.
///
/// # Errors
/// Returns an error if the limit is below 1 MiB.
pub(crate) fn require_stack() -> Result<(), Failure> {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((limit, _)) if limit < SMALLEST_STACK => Err(Failure::Stack {
            limit,
            needed: SMALLEST_STACK,
        }),
        _ => Ok(()),
    }
}

///
/// # Errors
/// Returns an error if the address space is too small for the verb.
pub(crate) fn prepare(verb: &Verb) -> Result<(), Failure> {
    // These verbs become or start programs that inherit the limits of this process.
    if matches!(verb, Verb::TryStart(_) | Verb::LabGuest) {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::Signals(error.kind().to_string());
    // With a handler, a write beyond the limit fails with EFBIG. The handler does nothing. A
    // child's program starts without the handler, but it would inherit an ignored signal.
    if !interrupt::is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    }
    if !matches!(verb, Verb::Lab { .. } | Verb::LabReplay(_)) {
        open_files::raise();
    }
    match needed_address_space(verb) {
        Some(bytes) => require_address_space(bytes),
        None => Ok(()),
    }
}

/// Returns the address space that a verb needs in addition to the loaded program, or `None` for
/// `undo`, which always starts.
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
        Verb::Beats(_)
        | Verb::Compare(_)
        | Verb::Incidents(_)
        | Verb::Report(_)
        | Verb::Sim(_)
        | Verb::Sweep(_) => Some(FOR_ANALYSIS),
        Verb::Undo(_) => None,
        _ => Some(FOR_OTHERS),
    }
}

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

fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kibibytes = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Maps the main thread's stack while address space is left. A stack that cannot grow would end the
/// process with SIGSEGV.
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
    fn the_mapped_address_space_can_be_read() {
        assert!(mapped() > 1 << 20, "{}", mapped());
    }
}
