//! A sampler: what each CPU is found doing by a timer's interrupt, as profilers have it.
//!
//! Its timer is a high-resolution one of the kernel (the software event `cpu-clock` of `perf_event_open`), whose
//! interrupt waits while another is being handled. So it never finds one, and what interrupts take is missing from
//! what it says, or is somebody else's: that is what it is for.

mod records;
mod symbols;
mod sys;

use std::fs;

use ticktax_model::net::Sample;
use ticktax_model::{Cpu, CpuList, Nanos};

use records::Record;
use symbols::Functions;
use sys::Ring;

/// How long from a sample to the next: not a whole part of any tick.
pub const PERIOD: Nanos = Nanos(997_003);

/// A sampler at work.
#[derive(Debug)]
pub struct Sampler {
    rings: Vec<Ring>,
    functions: Functions,
    report: SampleReport,
}

/// What it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleReport {
    /// All samples, those of a CPU in order.
    pub samples: Vec<Sample>,
    /// Samples that found no room.
    pub lost: u64,
}

impl Sampler {
    /// Samples these CPUs from now on.
    ///
    /// # Errors
    /// The kernel lets nobody sample, or hides where its functions are; in words.
    pub fn start(cpus: &CpuList) -> Result<Self, String> {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let functions = Functions::of(&symbols).ok_or(
            "the kernel hides where its functions are: run as root, with kernel.kptr_restrict below 2",
        )?;
        let open = |cpu: Cpu| {
            Ring::open(cpu, PERIOD).map_err(|error| {
                let why = error.desc().to_lowercase();
                format!("the kernel takes no samples of CPU {cpu} (cpu-clock): {why}")
            })
        };
        let rings = cpus.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            rings,
            functions,
            report: SampleReport::default(),
        })
    }

    /// Takes what has been found meanwhile; once a second is often enough.
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

    /// Ends it: what was found.
    pub fn stop(mut self) -> SampleReport {
        self.drain();
        self.report
    }
}
