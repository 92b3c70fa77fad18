//! What a sampler and a soaker say of the same time, beside the books.

use ticktax_analysis::net::TrafficThreads;
use ticktax_host::Proc;
use ticktax_model::net::{End, Sampled};
use ticktax_model::recording::Header;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::net::Prepared;
use ticktax_probes::sampler::{PERIOD, SampleReport, Sampler};

use crate::terminal::Terminal;

/// Starts sampling all CPUs; without, where the kernel does not let us, and why is said.
pub(super) fn sampler(terminal: &Terminal) -> Option<Sampler> {
    let cpus = Proc::default().times_of_cpus().into_keys().map(Cpu);
    match Sampler::start(&cpus.collect()) {
        Ok(sampler) => Some(sampler),
        Err(why) => {
            terminal.complain(&format_args!("no samples beside the accounts: {why}"));
            None
        }
    }
}

/// What it found between the first byte and the last.
pub(super) fn sampled(
    report: &SampleReport,
    ends: &[Prepared],
    header: &Header,
    window: (Nanos, Nanos),
) -> Option<Sampled> {
    let tid = |end| ends.iter().find(|it| it.end == end).map(|it| it.tid);
    let threads = TrafficThreads {
        sender: tid(End::Sender),
        receiver: tid(End::Receiver),
        soakers: header.soakers.iter().map(|it| it.tid).collect(),
    };
    threads.count(&report.samples, window, (PERIOD, report.lost))
}

/// What the soakers of all CPUs got between the first byte and the last, by their own work.
pub(super) fn soaked(header: &Header, (begin, end): (Nanos, Nanos)) -> Option<Nanos> {
    let each = header.soakers.iter().map(|it| it.time_between(begin, end));
    let each: Vec<Nanos> = each.collect::<Option<_>>()?;
    (!each.is_empty()).then(|| each.iter().sum())
}
