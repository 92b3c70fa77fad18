//! Handles Ctrl-C. The first one ends the run early, and the second one ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// Exit code after a second signal. A shell uses the same code for SIGINT.
const ABORTED: i32 = 130;

/// Remembers the first signal that asks the process to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP, except for those that were ignored when ticktax
    /// started (for example, `nohup` ignores SIGHUP). The first signal is stored. The second one
    /// ends the process immediately, and the kernel then removes the tracer's BPF programs.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Signals(error.kind().to_string());
        let signal = Arc::new(AtomicUsize::new(0));
        let has_signal = Arc::new(AtomicBool::new(false));
        for number in Self::heard() {
            let value = usize::try_from(number).unwrap_or_default();
            // Register this handler before the one that sets the flag. Otherwise, the first signal
            // would already end the process.
            signal_hook::flag::register_conditional_shutdown(
                number,
                ABORTED,
                Arc::clone(&has_signal),
            )
            .and_then(|_| signal_hook::flag::register(number, Arc::clone(&has_signal)))
            .and_then(|_| signal_hook::flag::register_usize(number, Arc::clone(&signal), value))
            .map_err(failed)?;
        }
        // If ticktax inherited an ignored SIGCHLD, it would not notice that the audited command
        // exits. Any handler prevents this.
        signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(failed)?;
        Ok(Self { signal })
    }

    /// Listens for the same signals as [`listen`](Self::listen), but ignores all except the first,
    /// so that the verb can remove its files.
    pub(crate) fn listen_until_removed() -> Result<Self, Failure> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in Self::heard() {
            let value = usize::try_from(number).unwrap_or_default();
            signal_hook::flag::register_usize(number, Arc::clone(&signal), value)
                .map_err(|error| Failure::Signals(error.kind().to_string()))?;
        }
        Ok(Self { signal })
    }

    /// Returns the signals that [`listen`](Self::listen) handles.
    pub(crate) fn heard() -> Vec<i32> {
        let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
        all.filter(|&number| !is_ignored(number)).collect()
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::Relaxed))
            .ok()
            .filter(|&signal| signal != 0)
    }
}

/// Returns whether signal `number` was ignored when this process started.
pub(crate) fn is_ignored(number: i32) -> bool {
    ignored() & (1 << (number - 1)) != 0
}

/// Returns the mask of the signals that were ignored when this process started. Bit n - 1 stands
/// for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
