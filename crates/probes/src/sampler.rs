//! A sampler that works like a profiler: at timer interrupts, it records what each CPU is doing.
//!
//! The samples come from a high-resolution kernel timer (the software event `cpu-clock` of
//! `perf_event_open`). While another interrupt is being handled, the timer's interrupt has to wait,
//! so the sampler never sees interrupts. Their time is either missing or charged to other code.
//! This sampler exists to demonstrate that error.

mod records;
mod symbols;
mod sys;

use std::fs;

use ticktax_model::net::Sample;
use ticktax_model::{Cpu, CpuList, Nanos};

use crate::error::ProbeError;
use records::Record;
use symbols::Functions;
use sys::Ring;

/// Time between samples. It deliberately does not divide any tick period.
pub const PERIOD: Nanos = Nanos(997_003);

/// A running sampler.
#[derive(Debug)]
pub struct Sampler {
    rings: Vec<Ring>,
    functions: Functions,
    report: SampleReport,
}

/// Results of sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleReport {
    /// Samples from all CPUs, in chronological order for each CPU.
    pub samples: Vec<Sample>,
    /// Number of samples that were lost because a ring was full.
    pub lost: u64,
}

impl Sampler {
    /// Starts sampling what `cpus` are doing.
    ///
    /// # Errors
    /// Returns [`ProbeError::HiddenAddresses`] if the kernel hides its functions' addresses, and
    /// [`ProbeError::NoSampling`] if it does not permit sampling.
    pub fn start(cpus: &CpuList) -> Result<Self, ProbeError> {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let functions = Functions::parse(&symbols).ok_or(ProbeError::HiddenAddresses)?;
        let open = |cpu: Cpu| {
            Ring::open(cpu, PERIOD).map_err(|errno| ProbeError::NoSampling {
                cpu,
                why: errno.desc().to_lowercase(),
            })
        };
        let rings = cpus.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            rings,
            functions,
            report: SampleReport::default(),
        })
    }

    /// Collects new samples from the rings. Once per second is enough.
    pub fn drain(&mut self) {
        for ring in &mut self.rings {
            let bytes = ring.take();
            for record in records::records(&bytes) {
                match record {
                    Record::Sample { at, tid, chain } => self.report.samples.push(Sample {
                        at,
                        tid,
                        code: self.functions.code(chain),
                    }),
                    Record::Lost(count) => self.report.lost += count,
                }
            }
        }
    }

    /// Stops sampling and returns the results.
    pub fn stop(mut self) -> SampleReport {
        self.drain();
        self.report
    }
}
