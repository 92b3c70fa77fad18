//! Why a disturbance could not be made, in words for a person.

use std::io;

use nix::errno::Errno;
use ticktax_model::{Cpu, CpuList};

use crate::schedule::ScheduleError;

/// Why a disturbance could not be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InjectError {
    /// The kind asks for a privilege that the process has not.
    #[error("`{kind}` needs root, to {why}: run it as root, or choose a kind that needs none")]
    NeedsRoot {
        /// The kind asked for.
        kind: &'static str,
        /// What root is needed for.
        why: &'static str,
    },
    /// The CPU is not one that this process may run on.
    #[error("CPU {cpu} does not exist or this process may not run there: choose one of {allowed}")]
    NoSuchCpu {
        /// The CPU asked for.
        cpu: Cpu,
        /// The CPUs allowed.
        allowed: CpuList,
    },
    /// The kind disturbs one CPU from another.
    #[error(
        "`{kind}` disturbs a CPU from another one, and this process may only run on CPU {cpu}: \
         allow it a second CPU"
    )]
    NeedsSecondCpu {
        /// The kind asked for.
        kind: &'static str,
        /// The only CPU.
        cpu: Cpu,
    },
    /// The schedule makes no sense.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The kind cannot do what the plan asks.
    #[error("`{kind}` {why}")]
    Refused {
        /// The kind asked for.
        kind: &'static str,
        /// What is asked too much, and what to do about it.
        why: String,
    },
    /// The system refused something.
    #[error("cannot {tried}: {why}; {hint}")]
    System {
        /// What was tried, and on what.
        tried: String,
        /// What the system said.
        why: String,
        /// What to do about it.
        hint: String,
    },
    /// A thread of the injector broke; everything that it changed has been undone.
    #[error("the injector's own thread broke: this is a fault of the injector, please report it")]
    Panicked,
}

impl InjectError {
    /// A system call refused.
    pub(crate) fn system(tried: impl Into<String>, errno: Errno, hint: impl Into<String>) -> Self {
        Self::System {
            tried: tried.into(),
            why: errno.desc().to_owned(),
            hint: hint.into(),
        }
    }

    /// The standard library refused.
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
    fn an_error_says_no_number() {
        let error = std::fs::read("/nonexistent").unwrap_err();
        let text = InjectError::io("read /nonexistent", &error, "make it").to_string();
        assert_eq!(
            text,
            "cannot read /nonexistent: No such file or directory; make it"
        );
    }
}
