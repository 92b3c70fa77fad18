//! Handles Ctrl-C: the first one ends the audit early, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// Exit code after SIGINT, as in a shell.
const ABORTED: i32 = 130;

/// Receives signals that ask the process to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP, except those that were ignored at the start (`nohup`
    /// ignores SIGHUP). The first signal is stored. The second ends the process at once, and the
    /// kernel then removes the tracer's programs.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Signals(error.kind().to_string());
        let signal = Arc::new(AtomicUsize::new(0));
        let has_signal = Arc::new(AtomicBool::new(false));
        for number in Self::heard() {
            let value = usize::try_from(number).unwrap_or_default();
            // Register this before the handler that sets the flag. Otherwise, the first signal
            // would end the process.
            signal_hook::flag::register_conditional_shutdown(
                number,
                ABORTED,
                Arc::clone(&has_signal),
            )
            .and_then(|_| signal_hook::flag::register(number, Arc::clone(&has_signal)))
            .and_then(|_| signal_hook::flag::register_usize(number, Arc::clone(&signal), value))
            .map_err(failed)?;
        }
        // ticktax may have inherited an ignored SIGCHLD. The audited command's exit would then go
        // unnoticed. Any handler prevents this.
        signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(failed)?;
        Ok(Self { signal })
    }

    /// Returns the signals that `listen` handles: those of SIGINT, SIGTERM and SIGHUP that were not
    /// ignored at the start.
    pub(crate) fn heard() -> Vec<i32> {
        let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
        all.filter(|&number| !is_ignored(number)).collect()
    }

    /// Returns the first signal received, if any.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed))
            .ok()
            .filter(|&signal| signal != 0)
    }
}

/// Whether this process was started with signal `number` ignored.
pub(crate) fn is_ignored(number: i32) -> bool {
    ignored() & (1 << (number - 1)) != 0
}

/// Reads the mask of the signals that were ignored at the start; bit n - 1 stands for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
