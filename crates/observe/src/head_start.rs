//! A real-time priority for a thread that is about to start a session.

use ticktax_model::Nanos;
use ticktax_trace::Tracer;

use crate::governor::{Buffers, Governor};

/// Gives the calling thread a real-time priority, in slices of 80 µs, for as long as it gets less
/// than half of a CPU. Ends when it is dropped, or with the session that it is passed to.
///
/// Take it as early as possible: on a machine with no CPU to spare, an ordinary thread needs
/// seconds just to parse its arguments. The kernel may refuse the priority. The session then starts
/// at the thread's own priority and, if events were lost or read late, its header gives the reason.
#[derive(Default)]
pub struct HeadStart {
    governor: Option<Governor>,
    refusal: Option<&'static str>,
}

impl HeadStart {
    /// Raises the calling thread if the kernel allows it. Does nothing if the thread already has a
    /// policy other than `SCHED_OTHER` or `SCHED_BATCH`.
    pub fn take() -> Self {
        match Governor::start() {
            Ok(governor) => Self {
                governor: Some(governor),
                refusal: None,
            },
            Err(refusal) => Self {
                governor: None,
                refusal,
            },
        }
    }

    /// Returns whether the calling thread gets a real-time priority when it needs one.
    pub(crate) fn is_granted(&self) -> bool {
        self.governor.is_some()
    }

    /// Returns the kernel's reason for refusing the priority, or `None` if it did not refuse.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.refusal
    }

    /// Returns the governor, which watches the tracer's buffers from now until `end`. Returns
    /// `None` without a tracer or a governor.
    pub(crate) fn for_buffers(
        self,
        tracer: Option<&mut Tracer>,
        end: Option<Nanos>,
    ) -> Option<Governor> {
        let backlog = tracer?.backlog().ok()?;
        let governor = self.governor?;
        governor.watch(Some(Buffers { backlog, end }));
        Some(governor)
    }
}
