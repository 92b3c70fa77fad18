//! What the kernel's own counters say beside the tracer, read at both ends.

use ticktax_host::Proc;
use ticktax_model::witness::SwitchWitness;
use ticktax_trace::Tracer;

/// Context switches so far, by the kernel's counter and by the tracer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchReading {
    counted: u64,
    reported: u64,
    /// Those that were reported while the counter was read.
    margin: u64,
}

impl SwitchReading {
    /// Reads both; `None` where the kernel does not say.
    pub(crate) fn take(tracer: &Tracer, proc: &Proc) -> Option<Self> {
        let before = tracer.switches();
        let counted = proc.context_switches()?;
        Some(Self {
            counted,
            reported: before,
            margin: tracer.switches() - before,
        })
    }

    /// What happened from `begin` to here.
    pub(crate) fn since(self, begin: Self) -> SwitchWitness {
        SwitchWitness {
            counted: self.counted - begin.counted,
            reported: self.reported - begin.reported,
            margin: self.margin + begin.margin,
        }
    }
}
