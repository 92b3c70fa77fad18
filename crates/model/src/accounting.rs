//! Compares the kernel's own accounting of CPU time with the traced CPU time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::CpuTimes;
use crate::{Cpu, CpuList, Nanos};

/// Result of the accounting check, which compares `/proc/stat`, `/proc/PID/stat` and the figures
/// that `top` derives from them with ticktax's accounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingStatement {
    /// How this kernel accounts CPU time.
    #[serde(alias = "counting")]
    pub config: Counting,
    /// Each CPU's line of `/proc/stat`, compared with its traced time.
    pub cpus: Vec<CpuCheck>,
    /// Programs with the most CPU time, whether traced or reported by the kernel.
    pub programs: Vec<ProgramCheck>,
    /// Number of programs not listed in `programs`.
    pub programs_left_out: u64,
    /// Online CPUs that ticktax did not watch. If there are any, [`ProgramCheck::shown`] is
    /// missing, because the kernel reports a program's time only as a total over all CPUs.
    #[serde(default, alias = "unwatched")]
    pub unwatched_cpus: CpuList,
}

/// How the kernel accounts CPU time, judging by its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counting {
    /// Accounting options in force, as named in the kernel's configuration.
    pub options: Vec<String>,
    /// How a CPU's user and system times are determined; `None` if the configuration is unknown.
    pub method: Option<Method>,
    /// Tick period according to the configured HZ; `None` if unknown.
    #[serde(rename = "tick_ns")]
    pub tick: Option<Nanos>,
    /// Whether interrupts and softirqs are measured separately (`IRQ_TIME_ACCOUNTING`) rather than
    /// charged to the context that they interrupt.
    pub interrupts_measured: Option<bool>,
}

/// How a CPU's user and system times are determined (`init/Kconfig`, "Cputime accounting").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `TICK_CPU_ACCOUNTING`: each tick charges a whole tick period to the context that it
    /// interrupts.
    Sampled,
    /// `VIRT_CPU_ACCOUNTING_GEN`: measured at each kernel entry and exit on `nohz_full` CPUs,
    /// sampled on the others.
    MeasuredWithoutTick,
    /// `VIRT_CPU_ACCOUNTING_NATIVE`: measured at each kernel entry and exit.
    Measured,
}

/// One CPU's times in `/proc/stat`, compared with its traced times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCheck {
    /// CPU that was checked.
    pub cpu: Cpu,
    /// Time between the two readings of `/proc/stat`.
    #[serde(rename = "stat_elapsed_ns", alias = "between_ns")]
    pub stat_elapsed: Nanos,
    /// Time added to each column of `/proc/stat` between the readings.
    pub columns: CpuTimes,
    /// Busy time according to the columns: user, nice, system, irq and softirq, without the time of
    /// a spin probe or soaker.
    #[serde(rename = "shown_busy_ns")]
    pub shown_busy: Nanos,
    /// Busy share as `top` shows it: busy time divided by the sum of all columns, 0 to 1.
    pub shown_share: f64,
    /// Part of [`CpuCheck::stat_elapsed`] missing from all columns; negative if columns count time
    /// twice.
    #[serde(rename = "uncounted_ns")]
    pub uncounted: Nanos,
    /// Time covered by the accounts.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Busy time according to the accounts: programs, kernel threads, interrupts including their
    /// entry and exit, and ticktax itself. At level `proc`, the time that the witness did not get.
    /// `None` if unknown.
    #[serde(rename = "busy_ns")]
    pub busy: Option<Nanos>,
    /// `busy` as a share of [`CpuCheck::elapsed`], 0 to 1.
    pub busy_share: Option<f64>,
    /// Unexplained time: gaps, and threads whose context switches the kernel did not report. It is
    /// not part of [`CpuCheck::busy`], although the CPU may have been busy.
    #[serde(default, rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// Time of interrupts, softirqs and NMIs according to the accounts, including entry and exit.
    #[serde(rename = "interrupts_ns")]
    pub interrupts: Option<Nanos>,
    /// Time in which the hypervisor or firmware held the CPU, so that neither the kernel nor a
    /// program ran.
    #[serde(rename = "hypervisor_or_firmware_ns", alias = "outside_ns")]
    pub hypervisor_or_firmware: Option<Nanos>,
    /// CPU time left for a lowest-priority thread, measured by a witness that used all of it.
    #[serde(alias = "left")]
    pub spare: Option<SpareTime>,
    /// Number of ticks on this CPU.
    pub ticks: Option<u64>,
    /// Causes of the difference, largest effect first. They include programs shown too high or too
    /// low.
    pub causes: Vec<Bias>,
}

impl CpuCheck {
    /// Error of `top`'s busy share, as a fraction; positive if `top` shows more than was traced.
    pub fn off(&self) -> Option<f64> {
        Some(self.shown_share - self.busy_share?)
    }

    /// The certain part of [`CpuCheck::off`]: 0 if the unexplained time could account for all of
    /// it.
    pub fn surely_off(&self) -> Option<f64> {
        let off = self.off()?;
        let unexplained = self.unexplained.share_of(self.elapsed);
        Some(if off > 0.0 {
            (off - unexplained).max(0.0)
        } else {
            off
        })
    }
}

/// CPU time available to a lowest-priority thread, measured by that thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpareTime {
    /// Thread that took the measurement.
    #[serde(alias = "witness")]
    pub measured_by: SpareTimeSource,
    /// Length of the measurement.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// CPU time that the witness got.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// A thread that uses up idle CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpareTimeSource {
    /// The spin probe. Its CPU time is the time that its loop ran between gaps.
    Spin,
    /// The soaker. Its CPU time is the number of work blocks completed times the time per block.
    Soaker,
}

/// One cause of a difference between a CPU's columns and its traced time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bias {
    /// Kind of cause.
    pub kind: BiasKind,
    /// Time by which the columns are too high; negative if they are too low. For
    /// [`BiasKind::TickPhase`], the program's time is compared, because another program may have
    /// received its samples. For all other kinds, the CPU's busy time is compared.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Program that causes the difference; `None` if no program does.
    pub program: Option<String>,
    /// Process id of that program.
    pub pid: Option<i32>,
    /// Time that the program or activity spent on the CPU.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// The part of `ran` that the columns include.
    #[serde(rename = "sampled_ns")]
    pub sampled: Nanos,
}

/// Why a CPU's columns differ from its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BiasKind {
    /// Sampling error of all threads together, except probe threads: the net effect on the CPU of
    /// chance and of programs in phase with the tick.
    Sampling,
    /// A program's bursts stay at one phase of the tick, so samples hit it too rarely or too often.
    /// The deviation exceeds five standard deviations.
    TickPhase,
    /// Ticks that were due while a task ran did not arrive, so no task was charged. The time is
    /// limited to the amount by which the columns fall short of the tasks' time.
    TicksLost,
    /// The kernel did not report the context switches of some threads that ran. The columns include
    /// these threads' time, but no account does.
    #[serde(alias = "not_reported")]
    SwitchesNotReported,
    /// Interrupts are not measured. The columns charge their time to the interrupted context, or to
    /// none if that was idle time or a probe.
    InterruptsNotMeasured,
    /// The hypervisor took CPU time that its steal clock did not report.
    #[serde(alias = "stolen_silently")]
    StealNotReported,
    /// The hypervisor's steal clock reports more time than ticktax saw. The accounts charge the
    /// excess to the threads that were running.
    #[serde(alias = "stolen_unseen")]
    StealNotObserved,
}

/// One program's times in `/proc/PID/stat`, compared with its traced times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramCheck {
    /// Program name.
    pub name: String,
    /// Process id.
    pub pid: i32,
    /// CPU time according to the accounts, without interrupts; `None` at level `proc`.
    #[serde(rename = "ran_ns")]
    pub ran: Option<Nanos>,
    /// Time on a CPU, including interrupts that arrived during that time.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// CPU time in `/proc/PID/stat`, which `top` shows; `None` unless it was read at both the start
    /// and the end.
    #[serde(rename = "shown_ns")]
    pub shown: Option<Nanos>,
    /// CPU time estimated from one sample per tick, as the CPU columns count it. Kernels that do
    /// not scale a program's own times count those the same way. On CPUs with measured columns, the
    /// program's actual time is used instead. `None` if the times of the ticks are unknown or no
    /// CPU is sampled.
    #[serde(rename = "sampled_ns")]
    pub sampled: Option<Nanos>,
    /// Minimum deviation of `sampled` from the value expected by chance, in standard deviations.
    /// Missing ticks count as if they had arrived.
    pub deviations: Option<f64>,
}
