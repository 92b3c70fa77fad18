//! Errors of probes, as shown to the user.

use ticktax_model::pace::SleepMethod;
use ticktax_model::recording::ProbeFailure;
use ticktax_model::{Cpu, CpuList, Nanos};

/// Why a probe did not start, or ended early.
///
/// Each message is a single line that says what failed, on which CPU or file, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No CPU was chosen.
    #[error("no CPU given: choose from {online}")]
    NoCpu {
        /// CPUs that could be chosen.
        online: CpuList,
    },
    /// A chosen CPU is not online.
    #[error("CPU {cpu} is not online: choose from {online}")]
    NotOnline {
        /// The chosen CPU.
        cpu: Cpu,
        /// CPUs that are online.
        online: CpuList,
    },
    /// The kernel refused to pin a thread to a chosen CPU.
    #[error(
        "cannot pin a thread to CPU {cpu} ({why}): its cpuset or container allows {allowed}; \
         choose from these, or start it where CPU {cpu} is allowed"
    )]
    NotAllowed {
        /// The chosen CPU.
        cpu: Cpu,
        /// The kernel's reason.
        why: &'static str,
        /// CPUs that the process may use.
        allowed: CpuList,
    },
    /// The real-time priority is out of range.
    #[error("invalid real-time priority {priority}: choose 1 (lowest) to 99 (highest)")]
    Priority {
        /// The requested priority.
        priority: u8,
    },
    /// A real-time probe on these CPUs would keep all other programs from running.
    #[error(
        "cannot run a real-time spin probe on every online CPU ({online}): it would hang the \
         machine, because real-time throttling is off (kernel.sched_rt_runtime_us is -1); leave \
         out one CPU, or use the idle policy"
    )]
    WouldStarve {
        /// The online CPUs. All of them were chosen.
        online: CpuList,
    },
    /// The sleep interval is out of range. A shorter one leaves no time to sleep, and a longer one
    /// would delay the stop.
    #[error("invalid sleep interval {interval}: choose {min} to {max}")]
    Interval {
        /// The requested interval.
        interval: Nanos,
        /// Minimum interval.
        min: Nanos,
        /// Maximum interval.
        max: Nanos,
    },
    /// A frame's work takes longer than the period.
    #[error("{work} of work does not fit in a frame of {period}: choose less work or a lower rate")]
    Work {
        /// The requested work per frame.
        work: Nanos,
        /// Time between the starts of two frames.
        period: Nanos,
    },
    /// Data could not be sent over the loopback device.
    #[error("cannot use the loopback device ({why}): bring it up with the address 127.0.0.1")]
    Loopback {
        /// The kernel's reason.
        why: String,
    },
    /// The kernel refused a sleep method.
    #[error(
        "the loop cannot sleep with {method} ({why}): raise the limits of this process, or choose \
         another --sleep"
    )]
    Sleep {
        /// The sleep method.
        method: SleepMethod,
        /// The kernel's reason.
        why: &'static str,
    },
    /// The ring's capacity is out of range.
    #[error("invalid ring size of {capacity} entries per CPU: choose {min} to {max}")]
    RingCapacity {
        /// The requested capacity.
        capacity: usize,
        /// Minimum capacity.
        min: usize,
        /// Maximum capacity.
        max: usize,
    },
    /// A kernel file could not be read.
    #[error("cannot read {path} ({why}): mount its file system")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The thread could not be created.
    #[error("cannot start a thread for CPU {cpu} ({why}): raise the thread limit, or free memory")]
    NoThread {
        /// CPU of the thread.
        cpu: Cpu,
        /// The reason.
        why: String,
    },
    /// A thread was created, but was not ready to measure in time.
    #[error(
        "the probe's thread on CPU {cpu} was not ready within {limit}: a higher-priority task \
         occupies the CPU; exclude this CPU, or use SCHED_FIFO"
    )]
    NotReady {
        /// CPU of the thread.
        cpu: Cpu,
        /// Maximum time that a thread may take to get ready.
        limit: Nanos,
    },
    /// A thread did not stop in time. It will end as soon as it can run.
    #[error(
        "the probe's thread on CPU {cpu} did not stop within {limit}, so its results are lost: a \
         higher-priority task occupies the CPU; run the probe with --probe-policy fifo:1"
    )]
    NotStopped {
        /// CPU of the thread.
        cpu: Cpu,
        /// Maximum time that a thread may take to stop.
        limit: Nanos,
    },
    /// The kernel moved a thread to another CPU, which ended the measurement.
    #[error(
        "the probe's thread on CPU {cpu} was moved to CPU {to}, which stopped the measurement: CPU \
         {cpu} went offline or the thread's affinity changed; avoid both during a measurement"
    )]
    Moved {
        /// The measured CPU.
        cpu: Cpu,
        /// CPU that the thread was moved to.
        to: Cpu,
    },
    /// The kernel hides its functions' addresses from the sampler.
    #[error(
        "the kernel hides its function addresses: run as root, with kernel.kptr_restrict below 2"
    )]
    HiddenAddresses,
    /// The kernel refused to sample what a CPU is doing.
    #[error("the kernel refused to sample CPU {cpu} (cpu-clock): {why}")]
    NoSampling {
        /// The CPU.
        cpu: Cpu,
        /// The kernel's reason.
        why: String,
    },
    /// A thread of the probe panicked.
    #[error(
        "the probe's thread on CPU {cpu} crashed and its results are lost: please report this bug"
    )]
    Panicked {
        /// The measured CPU.
        cpu: Cpu,
    },
}

impl ProbeError {
    /// Converts the error to the form used in recordings. Meant for errors that occurred after the
    /// probe had started.
    pub fn failure(&self) -> ProbeFailure {
        match self {
            Self::Moved { to, .. } => ProbeFailure::Moved { to: *to },
            Self::NotStopped { limit, .. } => ProbeFailure::NotStopped { limit: *limit },
            Self::Sleep { method, why } => ProbeFailure::SleepRefused {
                method: *method,
                reason: (*why).to_owned(),
            },
            Self::Panicked { .. } => ProbeFailure::Failed,
            other => ProbeFailure::Other {
                reason: other.to_string(),
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
