//! The kernel's own counters, read at both ends to cross-check the tracer.

use ticktax_host::Proc;
use ticktax_model::witness::SwitchWitness;
use ticktax_trace::Tracer;

/// Number of context switches so far, as counted by the kernel and by the tracer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchReading {
    counted: u64,
    reported: u64,
    /// Number of switches that the tracer reported while the kernel's counter was being read.
    margin: u64,
}

impl SwitchReading {
    /// Reads both counts; `None` if the kernel does not provide its own.
    pub(crate) fn take(tracer: &Tracer, proc: &Proc) -> Option<Self> {
        let before = tracer.switches();
        let counted = proc.context_switches()?;
        Some(Self {
            counted,
            reported: before,
            margin: tracer.switches() - before,
        })
    }

    /// Number of switches that the kernel and the tracer each counted between `begin` and this
    /// reading.
    pub(crate) fn since(self, begin: Self) -> SwitchWitness {
        SwitchWitness {
            counted: self.counted - begin.counted,
            reported: self.reported - begin.reported,
            margin: self.margin + begin.margin,
        }
    }
}
