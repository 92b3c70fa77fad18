//! Runs the tracer with the same settings as `ticktax audit`.

use std::time::Duration;

use ticktax_host::Proc;
use ticktax_model::recording::Row;
use ticktax_model::{CpuList, SourceTable};
use ticktax_probes::clock::now;
use ticktax_trace::{Closing, Output, TraceSettings, Tracer};

/// Traces spans, with the buffer size that `ticktax audit` uses.
pub(crate) const SPANS: Output = Output::Spans { per_cpu: 1 << 16 };

/// Traces sums, with the buffer size that `ticktax audit` uses.
pub(crate) const SUMS: Output = Output::Sums { entries: 1 << 14 };

/// Traces for a flight recorder, with the buffer sizes that `ticktax record` uses.
pub(crate) const FLIGHT: Output = Output::Flight {
    per_cpu: 1 << 19,
    entries: 1 << 12,
};

/// Interval at which `ticktax audit` drains the buffers.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// A tracer whose rows are counted and then discarded.
pub(crate) struct Tracing {
    tracer: Tracer,
    online: CpuList,
    sources: SourceTable,
    pub(crate) rows: u64,
}

impl Tracing {
    pub(crate) fn load(output: Output) -> Result<Self, String> {
        let proc = Proc::default();
        let settings = TraceSettings {
            output,
            ..TraceSettings::default()
        };
        let tracer = Tracer::load(&settings, proc.room_for_cpus())
            .map_err(|error| format!("the tracer cannot be loaded: {error}"))?;
        Ok(Self {
            tracer,
            online: proc.online().unwrap_or_default(),
            sources: SourceTable::default(),
            rows: 0,
        })
    }

    /// Starts accounting for the time on every CPU.
    pub(crate) fn start(&mut self) {
        self.tracer.start(&self.online, &self.online);
    }

    /// Returns the number of kernel hooks that the tracer is attached to.
    pub(crate) fn hooks(&self) -> usize {
        self.tracer.attached().len()
    }

    pub(crate) fn drain(&mut self) {
        let rows = &mut self.rows;
        let mut count = |_: &SourceTable, _: &Row| *rows += 1;
        self.tracer.drain(now(), &mut self.sources, &mut count);
    }

    pub(crate) fn close(mut self) -> Closing {
        let mut count = |_: &SourceTable, _: &Row| {};
        self.tracer
            .close(&self.online, now(), &mut self.sources, &mut count)
    }
}
