//! The accounting check, which compares the CPU times that the kernel reports with those that
//! ticktax traced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::CpuTimes;
use crate::{Cpu, CpuList, Nanos};

/// Result of the accounting check, which compares ticktax's accounts with `/proc/stat`, with
/// `/proc/PID/stat` and with the figures that `top` derives from these files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingStatement {
    /// How this kernel accounts CPU time.
    #[serde(alias = "counting")]
    pub config: Counting,
    /// Each CPU's line in `/proc/stat`, compared with its traced time.
    pub cpus: Vec<CpuCheck>,
    /// Programs that used the most CPU time, whether by the trace or by the kernel's count.
    pub programs: Vec<ProgramCheck>,
    /// Number of programs checked but not listed in `programs`.
    pub programs_left_out: u64,
    /// Online CPUs that ticktax did not watch. If there are any, [`ProgramCheck::shown`] is
    /// missing, because the kernel reports a program's time only as a total over all CPUs.
    #[serde(default, alias = "unwatched")]
    pub unwatched_cpus: CpuList,
}

/// How the kernel accounts CPU time, according to its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counting {
    /// Accounting options in force, as named in the kernel's configuration.
    pub options: Vec<String>,
    /// How a CPU's user and system times are determined; `None` if the configuration is unknown.
    pub method: Option<Method>,
    /// Tick period according to the configured tick frequency (HZ); `None` if unknown.
    #[serde(rename = "tick_ns")]
    pub tick: Option<Nanos>,
    /// Whether the kernel measures interrupts and softirqs separately (`IRQ_TIME_ACCOUNTING`). If
    /// not, it charges their time to the context they interrupt.
    pub interrupts_measured: Option<bool>,
}

/// How a CPU's user and system times are determined (`init/Kconfig`, "Cputime accounting").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// `TICK_CPU_ACCOUNTING`: each tick charges a whole tick period to the context it interrupts.
    Sampled,
    /// `VIRT_CPU_ACCOUNTING_GEN`: on `nohz_full` CPUs, the times are measured at each kernel entry
    /// and exit; on all other CPUs, they are sampled at each tick.
    MeasuredWithoutTick,
    /// `VIRT_CPU_ACCOUNTING_NATIVE`: the times are measured at each kernel entry and exit.
    Measured,
}

/// One CPU's times in `/proc/stat`, compared with its traced times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuCheck {
    /// The CPU.
    pub cpu: Cpu,
    /// Time between the two readings of `/proc/stat`.
    #[serde(rename = "stat_elapsed_ns", alias = "between_ns")]
    pub stat_elapsed: Nanos,
    /// Growth of each column of the CPU's line between the two readings of `/proc/stat`.
    pub columns: CpuTimes,
    /// Busy time according to the columns: user, nice, system, irq and softirq, excluding ticktax's
    /// spin probe or soaker.
    #[serde(rename = "shown_busy_ns")]
    pub shown_busy: Nanos,
    /// Busy share as `top` shows it: busy time divided by the sum of all columns, 0 to 1.
    pub shown_share: f64,
    /// Part of [`CpuCheck::stat_elapsed`] that no column includes. It is negative if the columns
    /// count some time twice.
    #[serde(rename = "uncounted_ns")]
    pub uncounted: Nanos,
    /// Length of the time that the accounts cover on this CPU.
    #[serde(rename = "elapsed_ns")]
    pub elapsed: Nanos,
    /// Busy time according to the accounts: programs, kernel threads, interrupts including their
    /// entry and exit, and ticktax itself. At level `proc`, where nothing is traced, it is the time
    /// that the lowest-priority witness thread did not get. `None` if unknown.
    #[serde(rename = "busy_ns")]
    pub busy: Option<Nanos>,
    /// `busy` as a share of [`CpuCheck::elapsed`], 0 to 1.
    pub busy_share: Option<f64>,
    /// Time that the accounts cannot explain: gaps, and the run time of threads whose context
    /// switches the kernel did not report. The CPU may have been busy during this time, but
    /// [`CpuCheck::busy`] does not include it.
    #[serde(default, rename = "unexplained_ns")]
    pub unexplained: Nanos,
    /// Time spent in interrupts, softirqs and NMIs according to the accounts, including kernel
    /// entry and exit.
    #[serde(rename = "interrupts_ns")]
    pub interrupts: Option<Nanos>,
    /// Time that the hypervisor or firmware held the CPU, so that neither the kernel nor a program
    /// ran.
    #[serde(rename = "hypervisor_or_firmware_ns", alias = "outside_ns")]
    pub hypervisor_or_firmware: Option<Nanos>,
    /// CPU time left over for a lowest-priority thread. A witness thread measured it by using all
    /// of it.
    #[serde(alias = "left")]
    pub spare: Option<SpareTime>,
    /// Number of ticks on this CPU.
    pub ticks: Option<u64>,
    /// Reasons why `shown_share` differs from `busy_share`, largest effect first. Programs whose
    /// CPU time the kernel shows too high or too low are listed as well.
    pub causes: Vec<Bias>,
}

impl CpuCheck {
    /// Returns the error in the busy share that `top` shows: shown share minus traced share. It is
    /// positive if `top` shows too much, and `None` if the traced share is unknown.
    pub fn off(&self) -> Option<f64> {
        Some(self.shown_share - self.busy_share?)
    }

    /// Returns the part of [`CpuCheck::off`] that is certain; `None` if the traced share is
    /// unknown. If `top` shows more than was traced, the CPU may have been busy during the
    /// unexplained time, so that time is subtracted from the error, down to 0.
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

/// CPU time that was available at the lowest priority, measured by a thread that used it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpareTime {
    /// Thread that took the measurement.
    #[serde(alias = "witness")]
    pub measured_by: SpareTimeSource,
    /// Duration of the measurement.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// CPU time that the thread got.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}

/// A lowest-priority thread that uses up idle CPU time and thereby measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpareTimeSource {
    /// The spin probe. Its CPU time is the time its loop ran, excluding the gaps in between.
    Spin,
    /// The soaker, which repeats a fixed block of work. Its CPU time is the number of completed
    /// blocks multiplied by the time per block.
    Soaker,
}

/// One reason why a CPU's columns in `/proc/stat` differ from its traced time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bias {
    /// Kind of cause.
    pub kind: BiasKind,
    /// Excess time that the columns show because of this cause; negative if they show too little.
    /// For [`BiasKind::TickPhase`], it is the error in one program's time, because the samples the
    /// program missed may have hit another program. For all other kinds, it is the error in the
    /// CPU's busy time.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// Program that causes the difference; `None` if the cause is not a single program.
    pub program: Option<String>,
    /// Process id of `program`.
    pub pid: Option<i32>,
    /// CPU time of the program or activity that causes the difference.
    #[serde(rename = "ran_ns")]
    pub ran: Nanos,
    /// Part of `ran` that the columns include.
    #[serde(rename = "sampled_ns")]
    pub sampled: Nanos,
}

/// Why a CPU's columns differ from its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BiasKind {
    /// Sampling error at the tick, summed over all threads except probe threads. It includes random
    /// error, and errors from programs whose bursts are in phase with the tick.
    Sampling,
    /// A program's bursts of work stay at one phase of the tick, so that ticks hit the program too
    /// rarely or too often. Its sample count differs from the expected count by at least five
    /// standard deviations.
    TickPhase,
    /// Ticks that were due before a program ran came late and hit the program. They were charged to
    /// it, although it was not running when they were due.
    TicksLate,
    /// Ticks that were due while a task ran did not arrive, so their time was charged to no task.
    /// The time reported here never exceeds the amount by which the columns fall short of the
    /// tasks' time.
    TicksLost,
    /// The kernel did not report some context switches. The columns include the run time of the
    /// threads involved, but none of the accounts do.
    #[serde(alias = "not_reported")]
    SwitchesNotReported,
    /// The kernel does not measure interrupt time. The columns charge it to the interrupted task,
    /// or omit it if the CPU was idle or running a probe.
    InterruptsNotMeasured,
    /// The hypervisor took CPU time that its steal clock does not show.
    #[serde(alias = "stolen_silently")]
    StealNotReported,
    /// The hypervisor's steal clock shows more stolen time than ticktax observed. The accounts
    /// charge the excess to the threads that were running.
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
    /// CPU time according to the accounts, excluding interrupts; `None` at level `proc`, which
    /// traces nothing.
    #[serde(rename = "ran_ns")]
    pub ran: Option<Nanos>,
    /// Time the program spent on a CPU, including interrupts that occurred while it was there.
    #[serde(rename = "on_cpu_ns")]
    pub on_cpu: Option<Nanos>,
    /// CPU time in `/proc/PID/stat`, which `top` shows; `None` unless the file was read at both the
    /// start and the end of the recording.
    #[serde(rename = "shown_ns")]
    pub shown: Option<Nanos>,
    /// CPU time estimated by charging a whole tick period to the program for each tick that hit it.
    /// This is how the CPU columns are counted, and so are the times in `/proc/PID/stat` unless the
    /// kernel scales them. On CPUs whose columns are measured, the program's actual time is used
    /// instead. `None` if the times of the ticks are unknown or if no CPU is sampled.
    #[serde(rename = "sampled_ns")]
    pub sampled: Option<Nanos>,
    /// Distance of `sampled` from its expected value, in standard deviations; negative if too few
    /// ticks hit the program. The true deviation is at least this large. Ticks that were due while
    /// the program ran but did not arrive count as hits.
    pub deviations: Option<f64>,
}
