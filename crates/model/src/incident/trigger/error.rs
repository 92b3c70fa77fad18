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
    /// The first fault found in the text.
    pub fault: TriggerFault,
}

/// A fault that makes the text of a trigger invalid. Each message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TriggerFault {
    /// The kind does not exist, or users cannot choose it.
    #[error(
        "use wait, late, blocked, throttled, stretch or gap with a time, for example wait>5ms; \
         frame with a program, for example frame:pid=4121; or signal"
    )]
    Kind,
    /// The text contains a target or a threshold, but this kind takes neither.
    #[error("`{kind}` takes no target or time: use {kind} alone")]
    NotAlone {
        /// Kind of the invalid trigger.
        kind: TriggerKind,
    },
    /// The trigger has no threshold.
    #[error("the time is missing: use, for example, {subject}>5ms")]
    NoLimit {
        /// The text before the missing threshold: the kind and the target.
        subject: String,
    },
    /// The threshold starts with `p` like a percentile, but it is not a valid percentile.
    #[error("{0}, for example p99.9")]
    Percentile(PercentileError),
    /// The threshold is not a valid duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The threshold is shorter than [`TriggerSpec::MIN`] or longer than [`TriggerSpec::MAX`].
    #[error("time out of range: choose 10us to 1m")]
    LimitOutOfRange,
    /// The trigger has a target, but fires only on the kernel's own activities.
    #[error("`{kind}` applies to the kernel and takes no target: use {kind}>{limit}")]
    TargetOfKernel {
        /// Kind of the invalid trigger.
        kind: TriggerKind,
        /// Threshold as written.
        limit: String,
    },
    /// The frame trigger does not name a program.
    #[error("`frame` needs a program, for example frame:pid=4121 or frame:comm=gamesrv")]
    NoProgram,
    /// The target of the gap trigger is not a list of CPUs, or the list is empty.
    #[error("`gap` takes only CPUs as its target, for example gap:cpu=2,3>5ms, or none: gap>5ms")]
    TargetOfGap,
    /// The list of CPUs in the gap trigger is invalid.
    #[error(transparent)]
    Cpus(#[from] CpuListError),
    /// The target has no value, or its value contains a NUL byte.
    #[error("the target is incomplete: use pid=N, comm=NAME or cgroup=PATH after the colon")]
    IncompleteTarget,
    /// The target's PID is not a positive number.
    #[error("invalid PID `{pid}`: find PIDs with `pgrep NAME`")]
    Pid {
        /// PID as written.
        pid: String,
    },
    /// The name in the target is longer than the names the kernel stores.
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
        /// The kind of target that the user wrote, such as `user` in `user=NAME`.
        key: String,
    },
}
