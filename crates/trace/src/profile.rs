//! The clock events of a profile: a timer on each CPU that samples the interrupted code.

use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{PerfEvent, Program, ProgramError};
use ticktax_model::CpuList;

/// A profile's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileClock {
    /// Number of samples per second and CPU, at least 1.
    pub hz: u32,
    /// CPUs to sample, which must be online.
    pub cpus: CpuList,
}

impl ProfileClock {
    /// Loads `program` and attaches it to a clock event on each CPU.
    ///
    /// The event is the kernel's CPU clock, a high-resolution timer. Unlike a hardware counter, it
    /// exists on every machine, also on virtual ones, and stops only while interrupts are disabled.
    pub(crate) fn attach(&self, program: &mut Program) -> Result<(), ProgramError> {
        let program: &mut PerfEvent = program.try_into()?;
        program.load()?;
        let period = SamplePolicy::Period(1_000_000_000 / u64::from(self.hz.max(1)));
        let event = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        for cpu in self.cpus.iter() {
            let scope = PerfEventScope::AllProcessesOneCpu { cpu: cpu.0 };
            program.attach(event, scope, period, false)?;
        }
        Ok(())
    }
}
