//! The events that all formats are read into.

use std::sync::Arc;

use ticktax_model::Kind;

use crate::names::NameId;

/// One event of a trace. Every format is read into these events, and `Converter` turns them into
/// the rows of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Time in nanoseconds, on the clock of the trace.
    pub(crate) at: i64,
    pub(crate) cpu: u32,
    /// Id of the thread that the CPU was running; `None` if the trace does not say.
    pub(crate) context: Option<i32>,
    pub(crate) action: Action,
}

/// The action that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The CPU switched from one thread to another.
    Switch { prev: Task, left: Left, next: Task },
    /// The wake-up of a thread began (`sched_waking`).
    Waking(Task),
    /// A woken thread became runnable (`sched_wakeup`).
    Wakeup(Task),
    /// A new thread became runnable for the first time (`sched_wakeup_new`).
    WakeupNew(Task),
    /// A thread was created.
    Created(Task),
    /// An interrupt or softirq started.
    Enter(Kind, NameId),
    /// An interrupt or softirq ended.
    Leave(Kind),
    /// A timer's function started.
    TimerStart(NameId),
    /// A timer's function returned.
    TimerEnd,
    /// A softirq was raised.
    Raised(NameId),
    /// A work item with this function was queued.
    Queued(NameId),
    /// A work item with this function started.
    WorkStart(NameId),
    /// A work item ended.
    WorkEnd,
    /// The running thread used this much CPU time since it started to run, or since the previous
    /// such event (`sched_stat_runtime`).
    Ran(i64),
    /// Events were lost just before this time.
    Lost(u64),
    /// An event that only shows which thread was running.
    Seen,
}

/// A thread as an event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) tid: i32,
    /// Name of the thread; `None` if the event does not contain it.
    pub(crate) name: Option<NameId>,
}

/// State in which a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The thread could have continued: it was preempted.
    Runnable,
    /// The thread cannot run again without a wake-up.
    Asleep,
    Unknown,
}

impl Left {
    /// Bits that mark a sleeping, stopped or dead thread in every version of the kernel. Higher
    /// bits changed their meaning, and some mark a preempted thread.
    const ASLEEP: u64 = 0xff;

    /// Converts the `prev_state` field. `next` is the id of the next thread.
    pub(crate) fn from_number(state: u64, next: i32) -> Self {
        match state {
            state if state & Self::ASLEEP != 0 => Self::Asleep,
            0 => Self::Runnable,
            // The idle loop does not replace a thread that can run, so the bit has another meaning
            // in this kernel.
            _ if next == 0 => Self::Unknown,
            _ => Self::Runnable,
        }
    }

    /// Converts the letters that text formats use, such as `S` or `R+`, or a number.
    pub(crate) fn from_text(text: &str, next: i32) -> Self {
        if let Ok(state) = text.parse() {
            return Self::from_number(state, next);
        }
        match text.as_bytes().first() {
            Some(b'R') => Self::Runnable,
            Some(b'S' | b'D' | b'T' | b't' | b'X' | b'Z' | b'x' | b'K' | b'W' | b'P' | b'I') => {
                Self::Asleep
            }
            _ => Self::Unknown,
        }
    }
}

/// Facts about the traced machine. A fact is empty or `None` if the trace does not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) arch: String,
    /// Number of CPUs, including those without events.
    pub(crate) cpus: Option<u32>,
    /// Start of the trace in seconds since 1970.
    pub(crate) began_unix: Option<i64>,
    /// Name of the clock, if it is not synchronised between CPUs.
    pub(crate) local_clock: Option<Arc<str>>,
    /// Unit of the timestamps in nanoseconds, if it is longer than one.
    pub(crate) unit: Option<i64>,
    /// Whether the trace ends in the middle of an event.
    pub(crate) truncated: bool,
    /// Number of events that could not be decoded.
    pub(crate) undecoded: u64,
}

#[cfg(test)]
mod tests {
    use super::Left;

    #[test]
    fn states_of_old_and_new_kernels_are_understood() {
        for (state, next, left) in [
            // TASK_RUNNING, and its mark for preemption before and since Linux 4.14.
            (0, 7, Left::Runnable),
            (4096, 7, Left::Runnable),
            (256, 7, Left::Runnable),
            // TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE and TASK_IDLE.
            (1, 7, Left::Asleep),
            (2, 7, Left::Asleep),
            (1026, 7, Left::Asleep),
            // Idle time cannot preempt anything.
            (256, 0, Left::Unknown),
            (0, 0, Left::Runnable),
        ] {
            assert_eq!(Left::from_number(state, next), left, "{state}");
            assert_eq!(Left::from_text(&state.to_string(), next), left);
        }
        for (text, left) in [
            ("R", Left::Runnable),
            ("R+", Left::Runnable),
            ("S", Left::Asleep),
            ("D|K", Left::Asleep),
            ("?", Left::Unknown),
            ("", Left::Unknown),
        ] {
            assert_eq!(Left::from_text(text, 0), left, "{text}");
        }
    }
}
