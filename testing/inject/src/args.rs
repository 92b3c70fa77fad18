//! What was typed, and the plan that it means.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use ticktax_inject::{Disturbance, InjectError, Plan, Schedule, Window};
use ticktax_model::{Cpu, Nanos};

/// Runs one disturbance of known size and time on one CPU, and prints the truth about it.
///
/// Everything that it changes on the machine is undone at its end, also upon Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "ticktax-inject", version)]
pub(crate) struct Args {
    /// What disturbs.
    kind: Kind,
    /// The CPU to disturb [default: the last one allowed].
    #[arg(long)]
    cpu: Option<u32>,
    /// From one event to the next.
    #[arg(long, default_value = "10ms")]
    period: Nanos,
    /// How long an event lasts (fifo, block, filter).
    #[arg(long, default_value = "200us")]
    length: Nanos,
    /// Each event is late by up to this.
    #[arg(long, default_value = "0us")]
    jitter: Nanos,
    /// The share of events that do not happen.
    #[arg(long, default_value_t = 0.0)]
    missing: f64,
    /// Events a burst; a burst comes at each period.
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// From one event of a burst to the next.
    #[arg(long, default_value = "500us")]
    spacing: Nanos,
    /// Poisson arrivals, with the period as their mean.
    #[arg(long)]
    random: bool,
    /// What random numbers are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long to go on.
    #[arg(long = "for", default_value = "5s")]
    duration: Nanos,
    /// Print the whole truth as JSON, with a list of the events.
    #[arg(long)]
    pub(crate) json: bool,
    /// The real-time priority (fifo).
    #[arg(long, default_value_t = 50)]
    priority: i32,
    /// Pages unmapped an event (munmap).
    #[arg(long, default_value_t = 16)]
    pages: u32,
    /// Packets an event (softirq).
    #[arg(long, default_value_t = 16)]
    packets: u32,
    /// Cycles from one interrupt to the next (overflow).
    #[arg(long, default_value_t = 1_000_000)]
    cycles: u64,
    /// CPU time a period (throttle) [default: half of the period].
    #[arg(long)]
    quota: Option<Nanos>,
    /// Where to make the file (writeback).
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Bytes written an event (writeback).
    #[arg(long, default_value_t = 1 << 20)]
    bytes: u32,
    /// From which part of a tick on (dodge), as a share of it; below 0 is before the tick.
    #[arg(long, default_value_t = Window::BETWEEN.from, allow_hyphen_values = true)]
    from: f64,
    /// To which part of a tick (dodge).
    #[arg(long, default_value_t = Window::BETWEEN.to)]
    to: f64,
    /// Commit the file system's journal, too (writeback).
    #[arg(long)]
    fsync: bool,
}

/// The kinds, as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A real-time thread that spins (root).
    Fifo,
    /// Function-call interrupts by membarrier.
    Membarrier,
    /// TLB shootdowns by munmap.
    Munmap,
    /// `NET_RX` softirqs by UDP in a network namespace of its own (root).
    Softirq,
    /// A `NET_RX` softirq in one piece, by filters in a network namespace of its own (root).
    Filter,
    /// Timer expiries.
    Timer,
    /// A process held to a quota by CFS bandwidth control (root).
    Throttle,
    /// A thread that waits in the kernel, where no signal reaches it.
    Block,
    /// Stop-class work: a running thread moved away and back.
    Stop,
    /// SIGALRM by setitimer.
    Itimer,
    /// Dirty pages written back.
    Writeback,
    /// A program that works in one part of each tick; the tick's length is --period.
    Dodge,
    /// Interrupts of the performance counters (root).
    Overflow,
    /// Interrupts of the CPU to itself, one each --period (root).
    IrqWork,
    /// Nothing, for control.
    None,
}

impl Args {
    /// What was meant.
    pub(crate) fn plan(&self) -> Result<Plan, InjectError> {
        let cpu = self
            .cpu
            .map_or_else(ticktax_inject::default_cpu, |cpu| Ok(Cpu(cpu)))?;
        let schedule = Schedule {
            period: self.period,
            length: self.length,
            jitter: self.jitter,
            missing: self.missing,
            burst: self.burst,
            spacing: self.spacing,
            random: self.random,
            seed: self.seed,
        };
        let plan = Plan::new(self.disturbance(), cpu);
        Ok(plan.schedule(schedule).duration(self.duration))
    }

    fn disturbance(&self) -> Disturbance {
        match self.kind {
            Kind::Fifo => Disturbance::Fifo {
                priority: self.priority,
            },
            Kind::Membarrier => Disturbance::Membarrier,
            Kind::Munmap => Disturbance::Munmap { pages: self.pages },
            Kind::Softirq => Disturbance::Softirq {
                packets: self.packets,
            },
            Kind::Filter => Disturbance::Filter,
            Kind::Timer => Disturbance::Timer,
            Kind::Throttle => {
                let quota = self.quota.unwrap_or(Nanos(self.period.0 / 2));
                Disturbance::Throttle { quota }
            }
            Kind::Block => Disturbance::Block,
            Kind::Stop => Disturbance::Stop,
            Kind::Dodge => Disturbance::Dodge {
                window: Window {
                    from: self.from,
                    to: self.to,
                },
            },
            Kind::Itimer => Disturbance::Itimer,
            Kind::Writeback => Disturbance::Writeback {
                dir: self.dir.clone(),
                bytes: self.bytes,
                fsync: self.fsync,
            },
            Kind::Overflow => Disturbance::Overflow {
                cycles: self.cycles,
            },
            Kind::IrqWork => Disturbance::IrqWork,
            Kind::None => Disturbance::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::{CommandFactory, Parser};
    use ticktax_model::Nanos;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn options_reach_the_plan() {
        let typed = "ticktax-inject timer --cpu 3 --period 2ms --for 1s --random --missing 0.2";
        let plan = Args::try_parse_from(typed.split(' '))
            .unwrap()
            .plan()
            .unwrap();
        assert_eq!(
            (plan.cpu.0, plan.schedule.period),
            (3, Nanos::from_millis(2))
        );
        assert!(plan.schedule.random);
        assert_eq!(plan.duration, Nanos::from_secs(1));
    }
}
