//! Describes a program's stalls.

use ticktax_model::kernel_words::{LOCAL_TIMER, SLEEP_FUNCTION};
use ticktax_model::victim::{BlockedOn, Delay, EndedBy, HoldUp, Release, Stall, StallSeries};

use super::numbers::MIGRATION;
use super::page::tied;
use super::wait_code::object;

/// Returns the name of a kind of stall, for a row in a table.
pub(super) fn row_name(stall: &Stall) -> String {
    let call = call(stall);
    match (stall.kind, call, main_ender(stall)) {
        (HoldUp::SystemCall, Some(call), _) => format!("its {call} call"),
        (HoldUp::OwnThread, _, Some(by)) => format!("its {} thread", thread_name(&by.name)),
        (HoldUp::OtherThread, _, Some(by)) => format!("wait for {}", by.name),
        (HoldUp::ChildProcess, _, Some(by)) => format!("its child {}", by.name),
        (kind, ..) => kind_name(kind).to_owned(),
    }
}

/// Returns a stall's series, if it has several that must be kept apart.
pub(super) fn apart(stall: &Stall) -> &[StallSeries] {
    let are_complete = stall.series.iter().all(|series| series.is_complete);
    match &*stall.series {
        several @ [_, _, ..] if are_complete => several,
        _ => &[],
    }
}

/// Formats a share without decimals.
fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Describes how much of a time a thread ran, given the share. `whole` refers to that time.
pub(super) fn ran_for(share: f64, whole: &str) -> String {
    if share >= 0.995 {
        "ran throughout".to_owned()
    } else {
        format!("ran for {} of {whole}", tied(whole_percent(share)))
    }
}

/// Returns a stall's system call, if all of the stall's time belongs to one.
fn call(stall: &Stall) -> Option<&str> {
    match &*stall.syscalls {
        [call] => Some(call_name(call)),
        _ => None,
    }
}

/// Returns the name of a system call. The tracer names page faults as if they were system calls.
pub(super) fn call_name(call: &str) -> &str {
    match call {
        "page_fault" => "page faults",
        "clone" | "clone3" | "vfork" => "fork",
        call => call,
    }
}

/// Returns a thread's name without that of its program.
pub(super) fn thread_name(name: &str) -> &str {
    name.rsplit_once(" of ").map_or(name, |(thread, _)| thread)
}

/// Returns the name of a kind of stall.
pub(super) fn kind_name(kind: HoldUp) -> &'static str {
    match kind {
        HoldUp::Waiting => "run-queue wait",
        HoldUp::Migration => MIGRATION,
        HoldUp::Interrupts => "interrupts",
        HoldUp::Steal => "steal",
        HoldUp::Quota => "CPU quota",
        HoldUp::PageFaults => "page faults",
        HoldUp::Reclaim => "memory reclaim",
        HoldUp::Disk => "disk I/O",
        HoldUp::Lock => "kernel lock",
        HoldUp::Stopped => "stopped",
        HoldUp::Frozen => "frozen",
        HoldUp::Deadline => "deadline budget",
        HoldUp::RealTimeLimit => "real-time limit",
        HoldUp::Writeback => "dirty-page limit",
        HoldUp::FrozenFileSystem => "frozen file system",
        HoldUp::AddressSpace => "address-space lock",
        HoldUp::Memory => "memory shortage",
        HoldUp::MemoryLimit => "memory limit",
        HoldUp::OwnThread => "wait for its own threads",
        HoldUp::OtherThread => "wait for another program",
        HoldUp::ChildProcess => "wait for its child processes",
        HoldUp::TimerSlack => "timer slack",
        HoldUp::LateTimer => "late timer",
        HoldUp::SystemCall => "its own system calls",
        HoldUp::OwnWork => "its own work",
        HoldUp::OwnSleep => "asleep when due",
        HoldUp::Unexplained => "unexplained",
    }
}

/// Describes what a thread waits for.
pub(super) fn place_name(on: BlockedOn) -> &'static str {
    match on {
        BlockedOn::Timer => "timer",
        BlockedOn::Input => "input",
        BlockedOn::Thread => "another thread",
        BlockedOn::Child => "child process",
        BlockedOn::Disk => "disk",
        BlockedOn::Writeback => "dirty-page limit",
        BlockedOn::FrozenFileSystem => "frozen file system",
        BlockedOn::AddressSpace => "address-space lock",
        BlockedOn::Lock => "kernel lock",
        BlockedOn::Memory => "memory",
        BlockedOn::MemoryLimit => "memory limit",
        BlockedOn::Frozen => "freezer",
        BlockedOn::Stopped => "stopped",
        BlockedOn::Deadline => "deadline budget",
        BlockedOn::Unknown => "unknown",
    }
}

/// Describes a delay that is a stall, or returns `None` for any other delay.
pub(super) fn delay_in_words(delay: &Delay) -> Option<String> {
    let place = delay.stall.as_ref()?;
    let call = place.syscall.as_deref().map(call_name);
    let object = place.code.as_ref().and_then(|code| object(code, true));
    let object = object.map_or_else(String::new, |object| format!(" {object}"));
    let within = call.map_or_else(String::new, |call| {
        format!(" in {}", tied(format!("{call}{object}")))
    });
    let by = delay.woken_by.as_deref().filter(|by| !is_timer(by));
    let woken = by.map_or_else(String::new, |by| format!(", woken by {}", tied(by)));
    // No thread returns to user mode with a kernel lock.
    let holding = place.release.as_ref().filter(|_| by.is_some());
    let holding = holding.and_then(|release| release.syscall.as_deref().map(call_name));
    let holding = holding.map_or_else(String::new, |call| format!(" in {}", tied(call)));
    Some(match place.kind {
        HoldUp::Frozen => match by {
            Some(by) => format!("frozen, thawed by {}", tied(by)),
            None => "frozen".to_owned(),
        },
        HoldUp::Stopped => match by {
            Some(by) => format!("stopped, continued by {}", tied(by)),
            None => "stopped".to_owned(),
        },
        HoldUp::Deadline => "its own SCHED_DEADLINE budget was used up".to_owned(),
        HoldUp::OwnWork => "its own work".to_owned(),
        HoldUp::TimerSlack => "woken late by its timer slack".to_owned(),
        HoldUp::LateTimer => "woken late: its timer fired late".to_owned(),
        HoldUp::SystemCall => match call {
            Some(call) => format!("its own {call}() call"),
            None => "its own system call".to_owned(),
        },
        HoldUp::OwnThread => {
            let ran = delay.ran.first();
            let ran = ran.map_or_else(String::new, |ran| {
                format!(", which {}", ran_for(ran.time.share_of(delay.length), "it"))
            });
            match by {
                Some(by) => {
                    let thread = tied(format!("{} thread", thread_name(by)));
                    format!("blocked by its {thread}{ran}")
                }
                None => "blocked by another of its threads".to_owned(),
            }
        }
        // The time run is known only for threads of the program itself.
        kind => match by.filter(|_| !delay.ran.is_empty()) {
            Some(by) => format!(
                "{}{within}, held by {}{holding}",
                kind_name(kind),
                tied(thread_name(by)),
            ),
            None => format!("{}{within}{woken}{holding}", kind_name(kind)),
        },
    })
}

/// Formats the code that released a lock: ", released in FUNCTION <- SYSTEM CALL". Returns an empty
/// string if it is unknown.
pub(super) fn released(release: Option<&Release>) -> String {
    let Some(release) = release else {
        return String::new();
    };
    let function = release.function.as_deref();
    let call = release.syscall.as_deref().map(call_name);
    let code: Vec<&str> = function.into_iter().chain(call).collect();
    format!(", released in {}", tied(code.join(" <- ")))
}

/// Returns whether a source is the timer behind a timed sleep.
fn is_timer(name: &str) -> bool {
    name.starts_with(LOCAL_TIMER) || name.ends_with(SLEEP_FUNCTION)
}

/// Returns the source that ended most of the stall's time. Returns `None` if that is a timer, or if
/// most of the time has no known source.
pub(super) fn main_ender(stall: &Stall) -> Option<&EndedBy> {
    let by = stall.ended_by.first()?;
    (!is_timer(&by.name) && by.time + by.time > stall.time).then_some(by)
}

#[cfg(test)]
mod tests {
    use ticktax_model::victim::Release;

    use super::released;

    #[test]
    fn the_code_that_released_a_lock_has_one_form() {
        let release = |function: Option<&str>, syscall: Option<&str>| {
            let owned = |name: Option<&str>| name.map(str::to_owned);
            let release = Release {
                function: owned(function),
                syscall: owned(syscall),
            };
            released(Some(&release)).replace('\u{a0}', " ")
        };
        let both = release(Some("__mm_populate"), Some("mlock"));
        assert_eq!(both, ", released in __mm_populate <- mlock");
        let worker = release(Some("wb_workfn"), None);
        assert_eq!(worker, ", released in wb_workfn");
        assert_eq!(release(None, Some("clone3")), ", released in fork");
        assert_eq!(released(None), "");
    }
}
