//! Errors of trials.

use ticktax_knobs::KnobError;
use ticktax_observe::ObserveError;

/// Why a trial cannot start or continue. The message is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The arguments contradict each other.
    #[error("{0}")]
    Senseless(String),
    /// A setting cannot be read or changed.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A run cannot be audited, or the command cannot be run.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// Two arms have different values, but the kernel stored the same value for both.
    #[error(
        "arms {first} and {second} have the same effect ({settings}) although their values \
         differ: choose other values"
    )]
    SameInEffect {
        /// Label of one of the two arms.
        first: String,
        /// Label of the other arm.
        second: String,
        /// The settings, with the value that both arms have.
        settings: String,
    },
    /// The command fails in all arms, so there is nothing to compare.
    #[error(
        "cannot compare: COMMAND fails in every arm ({ended}); use --show-output to see why, \
         or run it \
         alone"
    )]
    AlwaysFails {
        /// How the last run of the command ended.
        ended: String,
    },
    /// The command that prepares each run failed.
    #[error("cannot continue: `--before {command}` failed ({ended}); use --show-output to see why")]
    Before {
        /// The shell command.
        command: String,
        /// How it ended.
        ended: String,
    },
    /// No run has a value for the metric.
    #[error("cannot compare by {metric}: {why}")]
    NoMetric {
        /// The metric.
        metric: String,
        /// Reason and remedy.
        why: String,
    },
    /// The watched process has exited.
    #[error("cannot continue: process {pid} has exited")]
    ProcessEnded {
        /// PID of the process.
        pid: i32,
    },
    /// The command could not be started, or ticktax could not wait for it.
    #[error("cannot run `{command}`: {why}")]
    Start {
        /// The command line.
        command: String,
        /// The reason.
        why: String,
    },
}
