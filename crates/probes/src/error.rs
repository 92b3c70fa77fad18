//! What can go wrong with a probe, in words for the person who started it.

use ticktax_model::pace::SleepMethod;
use ticktax_model::recording::ProbeFailure;
use ticktax_model::{Cpu, CpuList, Nanos};

/// Why a probe did not start, or what cut it short.
///
/// Each message is one line: what was tried, on what, why it failed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The list of CPUs to measure is empty.
    #[error("no CPU was chosen to measure: name at least one of {online}")]
    NoCpu {
        /// The CPUs that could be chosen.
        online: CpuList,
    },
    /// A CPU was named that the kernel does not run.
    #[error("CPU {cpu} is not online on this machine (online: {online})")]
    NotOnline {
        /// The CPU that was named.
        cpu: Cpu,
        /// The CPUs that are online.
        online: CpuList,
    },
    /// The kernel refused to put a thread on a CPU.
    #[error(
        "a thread could not be pinned to CPU {cpu} ({why}): its cpuset or container allows {allowed}, \
         choose from these or start it where CPU {cpu} is allowed"
    )]
    NotAllowed {
        /// The CPU that was refused.
        cpu: Cpu,
        /// The kernel's reason.
        why: &'static str,
        /// The CPUs that the process may use.
        allowed: CpuList,
    },
    /// A real-time priority that does not exist.
    #[error("{priority} is not a real-time priority: choose 1 (lowest) to 99 (highest)")]
    Priority {
        /// The priority that was asked for.
        priority: u8,
    },
    /// The probe would take every CPU from every other program, for as long as it runs.
    #[error(
        "a real-time spin on every online CPU ({online}) would stop the machine, because real-time \
         throttling is off (kernel.sched_rt_runtime_us is -1): leave one CPU out, or spin as SCHED_IDLE"
    )]
    WouldStarve {
        /// The CPUs that are online, all of which were chosen.
        online: CpuList,
    },
    /// An interval that is too short to sleep for, or too long to be stopped in.
    #[error("a sleep interval of {interval} cannot be measured: choose {min} to {max}")]
    Interval {
        /// The interval that was asked for.
        interval: Nanos,
        /// The shortest that is accepted.
        min: Nanos,
        /// The longest that is accepted.
        max: Nanos,
    },
    /// More work than there is time for.
    #[error("{work} of work do not fit into a frame of {period}: choose less work or a lower rate")]
    Work {
        /// The work that was asked for.
        work: Nanos,
        /// The time from one frame to the next.
        period: Nanos,
    },
    /// Nothing can be sent over the loopback device.
    #[error("cannot send over the loopback device ({why}): it has to be up, with 127.0.0.1")]
    Loopback {
        /// The kernel's reason.
        why: String,
    },
    /// The kernel refuses a way of sleeping.
    #[error(
        "the loop cannot sleep by {method} ({why}): raise the limits of this process or choose \
         another --sleep"
    )]
    Sleep {
        /// The way.
        method: SleepMethod,
        /// The kernel's reason.
        why: &'static str,
    },
    /// A ring that holds nothing, or more than memory should.
    #[error("a ring of {capacity} entries per CPU is out of range: choose {min} to {max}")]
    RingCapacity {
        /// The capacity that was asked for.
        capacity: usize,
        /// The smallest that is accepted.
        min: usize,
        /// The largest that is accepted.
        max: usize,
    },
    /// A file of the kernel could not be read.
    #[error("{path} could not be read ({why}): mount the file system that it belongs to")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The system gave no thread.
    #[error(
        "no thread could be started for CPU {cpu} ({why}): raise the limit on threads or free memory"
    )]
    NoThread {
        /// The CPU that it was meant for.
        cpu: Cpu,
        /// The reason.
        why: String,
    },
    /// A thread was created but never got as far as its measurement.
    #[error(
        "the probe's thread on CPU {cpu} was not ready within {limit}: the CPU is held by work of \
         higher priority, leave it out or ask for SCHED_FIFO"
    )]
    NotReady {
        /// The CPU that it waits for.
        cpu: Cpu,
        /// How long it was waited for.
        limit: Nanos,
    },
    /// A thread did not come to its end in time. It ends by itself once it gets its CPU.
    #[error(
        "the probe's thread on CPU {cpu} did not stop within {limit}, its figures are lost: the CPU \
         is held by work of higher priority, ask for SCHED_FIFO"
    )]
    NotStopped {
        /// The CPU that it waits for.
        cpu: Cpu,
        /// How long it was waited for.
        limit: Nanos,
    },
    /// The kernel moved a thread off its CPU; it measured until then.
    #[error(
        "the probe's thread on CPU {cpu} was moved to CPU {to}, its measurement ended there: CPU {cpu} \
         went offline or the thread's affinity was changed, leave both alone during a measurement"
    )]
    Moved {
        /// The CPU that was measured.
        cpu: Cpu,
        /// Where the thread found itself.
        to: Cpu,
    },
    /// A defect of the probe itself.
    #[error(
        "the probe's thread on CPU {cpu} failed, its figures are lost: please report this as a defect"
    )]
    Panicked {
        /// The CPU that was measured.
        cpu: Cpu,
    },
}

impl ProbeError {
    /// The same as a recording has it, of a probe that had started.
    pub fn failure(&self) -> ProbeFailure {
        match self {
            Self::Moved { to, .. } => ProbeFailure::Moved { to: *to },
            Self::NotStopped { limit, .. } => ProbeFailure::NotStopped { limit: *limit },
            Self::Sleep { method, why } => ProbeFailure::SleepRefused {
                method: *method,
                why: (*why).to_owned(),
            },
            Self::Panicked { .. } => ProbeFailure::Failed,
            other => ProbeFailure::Other {
                why: other.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::{Cpu, Nanos};

    use super::ProbeError;

    #[test]
    fn messages_are_one_line_each() {
        let allowed = "0-1".parse().unwrap();
        let refused = ProbeError::NotAllowed {
            cpu: Cpu(7),
            why: "Invalid argument",
            allowed,
        }
        .to_string();
        let moved = ProbeError::Moved {
            cpu: Cpu(3),
            to: Cpu(0),
        }
        .to_string();
        let late = ProbeError::NotStopped {
            cpu: Cpu(3),
            limit: Nanos::from_secs(5),
        }
        .to_string();
        for text in [&refused, &moved, &late] {
            assert!(!text.contains('\n') && !text.contains("  "), "{text}");
        }
        assert!(refused.contains("CPU 7 (Invalid argument)"), "{refused}");
        assert!(late.contains("within 5.00 s"), "{late}");
    }
}
