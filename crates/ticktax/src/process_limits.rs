//! Handles the process limits that `ulimit` sets, before any verb starts. Exceeding a limit ends
//! the process with a one-line error and exit code 1, never with a signal.
//!
//! | limit | what would happen without this module |
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

/// Address space, beyond that of the loaded program, for the files and analyses of a verb that
/// measures, simulates or reads a recording. The thread that decodes rows needs more than half of
/// it, because the C library reserves 64 MiB for a thread's heap.
const FOR_ANALYSIS: u64 = 136 << 20;
/// Address space, beyond that of the loaded program, for a verb that only prints.
const FOR_OTHERS: u64 = 4 << 20;
/// Address space for each CPU: one thread's stack, and the CPU's share of the tracer's ring buffer.
const FOR_EACH_CPU: u64 = 8 << 20;
/// Part of the main thread's stack that is mapped in advance if address space is limited.
const STACK: usize = 1 << 20;
/// Smallest stack size limit with which all verbs work.
const SMALLEST_STACK: u64 = 1 << 20;
/// Exit code after an abort. The reason for the abort is already on standard error.
const ABORTED: i32 = 1;

/// Makes an abort end the process with exit code 1. A failed allocation prints its size and aborts,
/// which a shell would otherwise report as a crash.
pub(crate) fn exit_on_abort() {
    let always = Arc::new(AtomicBool::new(true));
    // If the handler cannot be installed, an abort ends the process with a signal.
    let _ = flag::register_conditional_shutdown(SIGABRT, ABORTED, always);
}

/// Checks that the main thread's stack limit is at least 1 MiB. This must happen before the
/// arguments are parsed, because parsing needs a large stack. ticktax does not raise the limit,
/// because child processes would inherit it.
pub(crate) fn require_stack() -> Result<(), Failure> {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((limit, _)) if limit < SMALLEST_STACK => Err(Failure::Stack {
            limit,
            needed: SMALLEST_STACK,
        }),
        _ => Ok(()),
    }
}

/// Prepares the process for the limits on file size, open files and address space.
///
/// # Errors
/// Returns an error if the address space is too small for the verb.
pub(crate) fn prepare(verb: &Verb) -> Result<(), Failure> {
    // These verbs become or start other programs, which would inherit the limits, so skip them.
    if matches!(verb, Verb::TryStart(_) | Verb::LabGuest) {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failure::Signals(error.kind().to_string());
    // With a handler, a write beyond the file size limit fails with EFBIG instead of killing the
    // process. The handler itself does nothing. Ignoring the signal would not do: a child program
    // inherits an ignored signal, but not a handler.
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

/// Returns the address space that a verb needs beyond that of the loaded program, or `None` for
/// `undo`, which must start under any limit.
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

/// Maps the main thread's stack now, while there is address space left. If the stack could not grow
/// later, the process would end with SIGSEGV.
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
