//! Ctrl-C: the first ends the audit early, the second the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// As shells say that a process was ended by SIGINT.
const ABORTED: i32 = 130;

/// Whether a signal asks for an end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP, as far as whoever started the process did not have
    /// them ignored (`nohup` does). Whichever comes first is noted; the next ends the process at
    /// once, and the kernel then takes the tracer's programs out.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let refused = |error: std::io::Error| Failure::Signals(error.kind().to_string());
        let signal = Arc::new(AtomicUsize::new(0));
        let came = Arc::new(AtomicBool::new(false));
        for number in Self::heard() {
            let noted = usize::try_from(number).unwrap_or_default();
            // The order matters: the signal that sets the flag must not find it set already.
            signal_hook::flag::register_conditional_shutdown(number, ABORTED, Arc::clone(&came))
                .and_then(|_| signal_hook::flag::register(number, Arc::clone(&came)))
                .and_then(|_| signal_hook::flag::register_usize(number, Arc::clone(&signal), noted))
                .map_err(refused)?;
        }
        // A parent that ignores SIGCHLD bequeaths that, and the audited command's end would then
        // be nobody's to hear of. Any handler undoes it.
        signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(refused)?;
        Ok(Self { signal })
    }

    /// The signals that are listened for: those that whoever started the process did not have ignored.
    pub(crate) fn heard() -> Vec<i32> {
        let all = [SIGINT, SIGTERM, SIGHUP].into_iter();
        all.filter(|&number| !is_ignored(number)).collect()
    }

    /// The signal that came.
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

/// The signals that this process was started with ignored, bit n - 1 for signal n.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
