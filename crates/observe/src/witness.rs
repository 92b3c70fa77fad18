//! Reads the kernel's own counters at the start and at the end, to cross-check the tracer.

use ticktax_host::Proc;
use ticktax_model::witness::SwitchWitness;
use ticktax_trace::Tracer;

/// Number of context switches so far, according to the kernel and to the tracer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchReading {
    counted: u64,
    reported: u64,
    /// Number of switches that the tracer reported while the kernel's counter was being read.
    margin: u64,
}

impl SwitchReading {
    /// Reads both counts. Returns `None` if the kernel does not provide its own.
    pub(crate) fn take(tracer: &Tracer, proc: &Proc) -> Option<Self> {
        let before = tracer.switches();
        let counted = proc.context_switches()?;
        Some(Self {
            counted,
            reported: before,
            margin: tracer.switches() - before,
        })
    }

    /// Returns how many switches occurred between `begin` and this reading, according to the kernel
    /// and to the tracer.
    pub(crate) fn since(self, begin: Self) -> SwitchWitness {
        SwitchWitness {
            counted: self.counted - begin.counted,
            reported: self.reported - begin.reported,
            margin: self.margin + begin.margin,
        }
    }
}
