//! The limit on this process's open files (`RLIMIT_NOFILE`). It is raised for ticktax itself and
//! restored for the user's command.

use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Soft limit at the start of the process; only set if [`raise`] has raised the limit.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Locked while the original limit is in force, so that no other thread raises the limit.
static LOWERED: Mutex<()> = Mutex::new(());

/// Raises the soft limit to the hard limit. The tracer alone opens about 120 files, and probes open
/// several more per CPU.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        // Only the first value is the original limit.
        let _ = AT_START.set(soft);
    }
}

/// The original soft limit, if [`raise`] raised it.
pub fn limit_at_start() -> Option<u64> {
    AT_START.get().copied()
}

/// Lowers the soft limit to `soft`, for this process and for programs that it starts.
pub fn lower_to(soft: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A process may always lower its soft limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}

/// Calls `start` with the soft limit from before [`raise`], which a program started there inherits.
/// Programs that use select(2) fail if they have more descriptors than they expect.
pub fn with_limit_from_start<T>(start: impl FnOnce() -> T) -> T {
    let Some(soft) = limit_at_start() else {
        return start();
    };
    let _lowered = LOWERED.lock().unwrap_or_else(PoisonError::into_inner);
    let _raised_again = RaisedAgain;
    lower_to(soft);
    start()
}

/// Raises the soft limit again when dropped, even if the caller panics.
struct RaisedAgain;

impl Drop for RaisedAgain {
    fn drop(&mut self) {
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            // A process may always raise its soft limit to the hard limit.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}
