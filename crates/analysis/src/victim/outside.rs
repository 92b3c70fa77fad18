//! Time that the hypervisor took from the CPUs of a loop.

use ticktax_model::recording::Header;
use ticktax_model::statement::Class;
use ticktax_model::witness::Proof;
use ticktax_model::{Cpu, CpuList, Moment, Nanos};

use crate::ledger::Books;

/// Time that the hypervisor took from a loop's CPUs, with its uncertainty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// The loop's CPU, if the loop ran on only one. Otherwise, stolen time cannot be attributed to
    /// the loop, which may have been on another CPU.
    pub(crate) cpu: Option<Cpu>,
    /// Number of the probe's empty gaps that could contain something other than stolen time. `None`
    /// if any gap could, or on a machine without a hypervisor.
    pub(crate) unseen: Option<usize>,
    /// Intervals in which the hypervisor or the firmware provably held a CPU.
    pub(crate) stops: Vec<Moment>,
    /// The part of `stops` in which the loop's thread was on that CPU.
    pub(crate) stops_while_running: Vec<Moment>,
    /// Upper bound on the total stolen time. `None` if the hypervisor does not report it.
    pub(crate) stolen: Option<Nanos>,
}

impl Outside {
    /// Returns the values for a thread that is pinned to `cpu`. Use this if only the thread's own
    /// rows are available.
    pub(crate) fn of_cpu(cpu: Option<Cpu>) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }

    /// Returns the values for a loop that ran on `cpus`, from the recording's header and accounts.
    pub(crate) fn from_books(cpus: &CpuList, header: &Header, books: &Books) -> Self {
        let cpus: Vec<Cpu> = cpus.iter().collect();
        let cpu = match *cpus {
            [cpu] => Some(cpu),
            _ => None,
        };
        if header.machine.hypervisor.is_none() {
            return Self {
                cpu,
                ..Self::default()
            };
        }
        let proof = books.proofs.iter().find(|proof| Some(proof.cpu) == cpu);
        // If the steal clock never advanced, the hypervisor possibly does not implement it, so its
        // zero proves nothing.
        let tells = header.after.tells_steal();
        let stolen = |&cpu: &Cpu| {
            let clock = header.after.steal_since(&header.before, cpu)?;
            let books = books.cpus.iter().filter(|books| books.cpu == cpu);
            let seen = books.map(|books| {
                books.time_of(Class::Steal) + books.time_of(Class::HypervisorOrFirmware)
            });
            let seen: Nanos = seen.sum();
            (tells || seen > Nanos::ZERO).then(|| clock.max(seen))
        };
        Self {
            cpu,
            unseen: proof.and_then(|proof| match proof.proof {
                Proof::Proven | Proof::Unconfirmed => Some(0),
                Proof::Bounded(unseen) => usize::try_from(unseen).ok(),
                Proof::Unproven => None,
            }),
            stolen: cpus.iter().map(stolen).sum(),
            ..Self::default()
        }
    }
}
