//! This process's limit on open files (`RLIMIT_NOFILE`). ticktax raises it for itself and restores
//! it for the programs that the user wants to run.

use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Soft limit when the process started. Set only once [`raise`] has raised the limit.
static AT_START: OnceLock<u64> = OnceLock::new();

/// Held while the original limit is temporarily restored, so that no other thread raises the limit
/// in the meantime.
static LOWERED: Mutex<()> = Mutex::new(());

/// Raises the soft limit to the hard limit. The tracer alone opens about 120 files, and the probes
/// open several more for each CPU.
pub fn raise() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        // The first call stores the original limit. Later calls have no effect.
        let _ = AT_START.set(soft);
    }
}

/// Returns the soft limit from before [`raise`] raised it, or `None` if it was not raised.
pub fn limit_at_start() -> Option<u64> {
    AT_START.get().copied()
}

/// Lowers the soft limit to `soft`, for this process and for programs that it starts from now on.
pub fn lower_to(soft: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A process is always allowed to lower its soft limit.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}

/// Restores the original soft limit while `start` runs, so that a program started by `start`
/// inherits it. Some programs use select(2), which fails with file descriptors above 1023.
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
            // A process is always allowed to raise its soft limit to the hard limit.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
    }
}
