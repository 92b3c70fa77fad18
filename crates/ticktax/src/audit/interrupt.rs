//! Ctrl-C: the first ends the audit early, the second the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// As shells say that a process was ended by SIGINT.
const ABORTED: i32 = 130;

/// Whether somebody wants the audit to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP. Whichever comes first is noted; the next ends the
    /// process at once, and the kernel then takes the tracer's programs out.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let wanted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the signal that sets the flag must not find it set already.
            signal_hook::flag::register_conditional_shutdown(signal, ABORTED, Arc::clone(&wanted))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&wanted)))
                .map_err(|error| Failure::Signals(error.kind().to_string()))?;
        }
        Ok(Self(wanted))
    }

    /// Whether it came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
