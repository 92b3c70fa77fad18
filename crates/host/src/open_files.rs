//! The limit on this process's open files (`RLIMIT_NOFILE`): raised for ticktax, and
//! restored for the user's command.

use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft limit that the process was started with, if [`raise`] raised it.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Held while the limit from the start is restored. A second thread must not raise it in between.
static LOWERED: Mutex<()> = Mutex::new(());

/// Raises the soft limit to the hard one. The tracer alone has some 120 files open, and the probes
/// open more for each CPU.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        // Only the first value is the one from the start.
        let _ = AT_START.set(soft);
    }
}

/// The soft limit from the start, if [`raise`] raised it.
pub fn limit_at_start() -> Option<u64> {
    AT_START.get().copied()
}

/// Lowers the soft limit to `soft` for this process and the programs that it starts.
pub fn lower_to(soft: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A process may always lower its soft limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}

/// Calls `start` with the soft limit from before [`raise`], so that the program which `start`
/// starts inherits it. A program that uses select(2) fails if it can open more files than it
/// expects.
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
            // A process may always raise its soft limit to the hard one.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}
