//! Errors in the text of a trigger.

use super::{TriggerKind, TriggerSpec};
use crate::cpu::CpuListError;
use crate::incident::PercentileError;
use crate::time::DurationError;

/// Why a trigger could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid trigger `{text}`: {fault}")]
pub struct TriggerSpecError {
    /// The text.
    pub text: String,
    /// The first invalid part.
    pub fault: TriggerFault,
}

/// The invalid part of a trigger. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TriggerFault {
    /// Users cannot choose a trigger of this kind, or it does not exist.
    #[error(
        "use wait, late, blocked, throttled, stretch or gap with a time, for example wait>5ms; \
         frame with a program, for example frame:pid=4121; or signal"
    )]
    Kind,
    /// The kind takes neither a target nor a threshold.
    #[error("`{kind}` takes no target or time: use {kind} alone")]
    NotAlone {
        /// Kind of the trigger.
        kind: TriggerKind,
    },
    /// The threshold is missing.
    #[error("the time is missing: use, for example, {subject}>5ms")]
    NoLimit {
        /// Everything before the threshold.
        subject: String,
    },
    /// The threshold starts like a percentile but is not a percentile.
    #[error("{0}, for example p99.9")]
    Percentile(PercentileError),
    /// The threshold is not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The threshold is shorter than [`TriggerSpec::MIN`] or longer than [`TriggerSpec::MAX`].
    #[error("time out of range: choose 10us to 1m")]
    LimitOutOfRange,
    /// A trigger that applies to the kernel has a target.
    #[error("`{kind}` applies to the kernel and takes no target: use {kind}>{limit}")]
    TargetOfKernel {
        /// Kind of the trigger.
        kind: TriggerKind,
        /// Threshold as written.
        limit: String,
    },
    /// A frame trigger does not name a program.
    #[error("`frame` needs a program, for example frame:pid=4121 or frame:comm=gamesrv")]
    NoProgram,
    /// A gap trigger's target is not a list of CPUs, or the list is empty.
    #[error("`gap` takes only CPUs as its target, for example gap:cpu=2,3>5ms, or none: gap>5ms")]
    TargetOfGap,
    /// A gap trigger's list of CPUs is invalid.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The target has no value, or its value contains a zero byte.
    #[error("the target is incomplete: use pid=N, comm=NAME or cgroup=PATH after the colon")]
    IncompleteTarget,
    /// The target's PID is not a positive number.
    #[error("invalid PID `{pid}`: find PIDs with `pgrep NAME`")]
    Pid {
        /// PID as written.
        pid: String,
    },
    /// The target's name is longer than the kernel's names.
    #[error(
        "the kernel stores only {max} bytes of a name: use the first {max} of `{name}`",
        max = TriggerSpec::NAME_MAX
    )]
    LongName {
        /// Name as written.
        name: String,
    },
    /// This kind of target does not exist.
    #[error("unknown target `{key}`: use pid=N, comm=NAME or cgroup=PATH")]
    UnknownTarget {
        /// Kind of target as written.
        key: String,
    },
}
