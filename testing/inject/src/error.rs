//! Errors that disturbances report. Their messages are addressed to the user.

use std::io;

use nix::errno::Errno;
use ticktax_model::{Cpu, CpuList};

use crate::schedule::ScheduleError;

/// Why a disturbance failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InjectError {
    /// This kind of disturbance requires root, but the process is not running as root.
    #[error("`{kind}` needs root, to {why}: run it as root, or choose a kind that needs none")]
    NeedsRoot {
        /// The requested kind.
        kind: &'static str,
        /// The action that requires root.
        why: &'static str,
    },
    /// The CPU does not exist, or this process is not allowed to run on it.
    #[error("CPU {cpu} does not exist or this process may not run there: choose one of {allowed}")]
    NoSuchCpu {
        /// The requested CPU.
        cpu: Cpu,
        /// The CPUs on which this process may run.
        allowed: CpuList,
    },
    /// This kind disturbs a CPU from a different one, but this process may run on only one.
    #[error(
        "`{kind}` disturbs a CPU from another one, and this process may only run on CPU {cpu}: \
         allow it a second CPU"
    )]
    NeedsSecondCpu {
        /// The requested kind.
        kind: &'static str,
        /// The only CPU on which this process may run.
        cpu: Cpu,
    },
    /// The schedule is invalid.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// This kind of disturbance does not support the plan.
    #[error("`{kind}` {why}")]
    Refused {
        /// The requested kind.
        kind: &'static str,
        /// The unsupported part of the plan, and a remedy.
        why: String,
    },
    /// The operating system refused a request from the injector.
    #[error("cannot {tried}: {why}; {hint}")]
    System {
        /// The operation that was tried.
        tried: String,
        /// The operating system's description of the error.
        why: String,
        /// A remedy for the user.
        hint: String,
    },
    /// A thread of the injector panicked. All changes that it made have been undone.
    #[error("the injector's own thread broke: this is a fault of the injector, please report it")]
    Panicked,
}

impl InjectError {
    /// Creates an error for a failed system call.
    pub(crate) fn system(tried: impl Into<String>, errno: Errno, hint: impl Into<String>) -> Self {
        Self::System {
            tried: tried.into(),
            why: errno.desc().to_owned(),
            hint: hint.into(),
        }
    }

    /// Creates an error for a failed call to the standard library.
    pub(crate) fn io(tried: impl Into<String>, error: &io::Error, hint: impl Into<String>) -> Self {
        let why = match error.raw_os_error() {
            Some(errno) => Errno::from_raw(errno).desc().to_owned(),
            None => error.to_string(),
        };
        Self::System {
            tried: tried.into(),
            why,
            hint: hint.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InjectError;

    #[test]
    fn error_messages_contain_no_error_numbers() {
        let error = std::fs::read("/nonexistent").unwrap_err();
        let text = InjectError::io("read /nonexistent", &error, "make it").to_string();
        assert_eq!(
            text,
            "cannot read /nonexistent: No such file or directory; make it"
        );
    }
}
