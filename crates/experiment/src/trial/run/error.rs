//! Why nothing can be tried, or not to the end.

use ticktax_knobs::KnobError;
use ticktax_observe::ObserveError;

/// Why a trial cannot begin or go on. Each text is one line for a person.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// What was typed makes no sense together.
    #[error("{0}")]
    Senseless(String),
    /// A setting cannot be read or changed.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// A run cannot be observed, or the command cannot be run.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The kernel makes the same of two arms.
    #[error(
        "arms {first} and {second} are the same in effect ({settings}), although different values \
         were requested"
    )]
    SameInEffect {
        /// An arm.
        first: String,
        /// Another one.
        second: String,
        /// What is set in both.
        settings: String,
    },
    /// The command fails in every arm before anything is compared.
    #[error(
        "cannot compare: COMMAND fails in every arm ({ended}); find out why with --show-output, or \
         run it alone"
    )]
    AlwaysFails {
        /// How it ended.
        ended: String,
    },
    /// No run has a value of a metric.
    #[error("cannot compare by {metric}: {why}")]
    NoMetric {
        /// The metric.
        metric: String,
        /// Why, and what to do.
        why: String,
    },
    /// The process that is watched has ended.
    #[error("cannot go on: process {pid} has ended")]
    ProcessEnded {
        /// Which.
        pid: i32,
    },
    /// The command could not be started or waited for.
    #[error("cannot run `{command}`: {why}")]
    Start {
        /// Which.
        command: String,
        /// Why.
        why: String,
    },
}
