//! Independent measurements of the traffic's CPU time for checking the accounts: a sampler and a
//! soak probe.

use ticktax_analysis::net::TrafficThreads;
use ticktax_host::Proc;
use ticktax_model::net::{End, Sampled};
use ticktax_model::recording::Header;
use ticktax_model::{Cpu, Interval, Nanos};
use ticktax_probes::sampler::{PERIOD, SampleReport, Sampler};
use ticktax_traffic::Prepared;

use crate::terminal::Terminal;

/// Starts sampling all CPUs. If the kernel does not permit it, prints the reason and returns
/// `None`.
pub(super) fn sampler(terminal: &Terminal) -> Option<Sampler> {
    let cpus = Proc::default().times_of_cpus().into_keys().map(Cpu);
    match Sampler::start(&cpus.collect()) {
        Ok(sampler) => Some(sampler),
        Err(why) => {
            terminal.complain(&format_args!(
                "cannot check the accounts with samples: {why}"
            ));
            None
        }
    }
}

/// Counts the samples taken between the traffic's first byte and its last.
pub(super) fn sampled(
    report: &SampleReport,
    ends: &[Prepared],
    header: &Header,
    traffic: Interval,
) -> Option<Sampled> {
    let tid = |end| {
        ends.iter()
            .find(|prepared| prepared.end == end)
            .map(|prepared| prepared.tid)
    };
    let threads = TrafficThreads {
        sender: tid(End::Sender),
        receiver: tid(End::Receiver),
        soakers: header.soakers.iter().map(|soaker| soaker.tid).collect(),
    };
    threads.count(&report.samples, traffic, PERIOD, report.lost)
}

/// Returns the CPU time that the soak probes on all CPUs received between the traffic's first byte
/// and its last, computed from the work that the probes did.
pub(super) fn soaked(header: &Header, traffic: Interval) -> Option<Nanos> {
    let each = header
        .soakers
        .iter()
        .map(|soaker| soaker.time_between(traffic.start, traffic.end));
    let each: Vec<Nanos> = each.collect::<Option<_>>()?;
    (!each.is_empty()).then(|| each.iter().sum())
}
