//! Advice on CPU quotas.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::victim::BusyThread;

use super::super::Screen;
use super::commands::quoted;
use crate::text::numbers::{counted, percent};
use crate::text::page::tied;

/// Returns a sentence that describes advice on a quota, and a command.
pub(super) fn words(advice: &Advice, screen: &Screen<'_>) -> (String, Option<String>) {
    let Advice::Throttled {
        program,
        pid,
        cgroup,
        time,
        count,
        exited,
        burst,
        busiest,
        busiest_share,
    } = advice
    else {
        return (String::new(), None);
    };
    let throttled = throttled(*time, *count, screen);
    if let (Some(burst), Some(folder)) = (burst, cgroup) {
        let file = if is_version_1(folder) {
            "cpu.cfs_burst_us"
        } else {
            "cpu.max.burst"
        };
        let sentence = format!(
            "Let its cgroup save up quota for bursts ({file}): its average fits the quota, and a \
             burst of {} would have been enough, but {program} was throttled {throttled}.",
            tied(burst),
        );
        let micros = burst.0 / 1_000;
        let path = quoted(&format!("{}/{file}", folder.trim_end_matches('/')));
        let command = path.map(|path| format!("echo {micros} > {path}"));
        return (sentence, command);
    }
    let sentence = quota(
        (program, quota_file(cgroup.as_deref())),
        &throttled,
        busiest.as_ref().map(|thread| (thread, *busiest_share)),
    );
    let is_polling = busiest.as_ref().is_some_and(is_polling);
    let command = match (cgroup, pid) {
        // The program chooses how long the thread polls, so no setting on the machine can be tried.
        (_, Some(pid)) if is_polling && screen.watched() == Some(*pid) => {
            format!("ps -L -o tid,pcpu,comm -p {pid}   # CPU use of its threads")
        }
        // The quota belongs to the cgroup of the watched process itself.
        (Some(_), Some(pid)) if screen.watched() == Some(*pid) => {
            format!("ticktax try cgroup.cpu_quota=now,max --metric throttled --pid {pid}")
        }
        // The names of the files that contain the quota depend on the cgroup version.
        (Some(folder), _) if quoted(folder).is_some() => {
            let folder = quoted(folder.trim_end_matches('/')).unwrap_or_default();
            format!("grep . {folder}/cpu.*")
        }
        (_, Some(pid)) if !exited && screen.names_processes() => {
            format!("grep . /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/{pid}/cgroup)/cpu.*")
        }
        _ => "grep -r 'nr_throttled [1-9]' --include=cpu.stat /sys/fs/cgroup".to_owned(),
    };
    let sentence = if command.starts_with("grep") {
        format!("{sentence} This shows the quota:")
    } else {
        sentence
    };
    (sentence, Some(command))
}

/// Describes how often and for how long a program was throttled. An audit of the whole machine does
/// not record when throttling ended, so its figure is the time until the program ran again.
fn throttled(time: Nanos, count: u64, screen: &Screen<'_>) -> String {
    let (time, count) = (tied(time), counted(count, "time"));
    let followed = screen
        .statement
        .victim
        .as_ref()
        .and_then(|victim| victim.threads.as_ref());
    match followed {
        Some(_) => format!("for {time}, {count}"),
        None => format!("{count}, for {time} in total, counted until it ran again"),
    }
}

/// Returns whether a thread polls an `io_uring` submission queue (SQPOLL).
fn is_polling(thread: &BusyThread) -> bool {
    thread.name.starts_with("iou-sqp")
}

/// Returns the advice about a quota. `busiest` is the thread that used most of it, with its share.
fn quota(
    (program, file): (&str, &str),
    throttled: &str,
    busiest: Option<(&BusyThread, f64)>,
) -> String {
    let Some((thread, share)) = busiest else {
        return format!("Raise {file}: {program} was throttled {throttled}.");
    };
    let used = format!(
        "its own thread {} used {} of its CPU time",
        tied(&thread.name),
        tied(percent(share))
    );
    if is_polling(thread) {
        return format!(
            "Set a shorter sq_thread_idle for its io_uring, or don't use SQPOLL: {program} was \
             throttled {throttled}, and {used}. Raising {file} is second best."
        );
    }
    format!(
        "Raise {file}, or give the thread less to do: {program} was throttled {throttled}; {used}."
    )
}

/// Returns what the CPU quota is called, and the file that contains it.
fn quota_file(cgroup: Option<&str>) -> &'static str {
    let Some(cgroup) = cgroup else {
        return "the CPU quota (cpu.max or cpu.cfs_quota_us)";
    };
    if is_version_1(cgroup) {
        "the CPU quota (cpu.cfs_quota_us)"
    } else {
        "the CPU quota (cpu.max)"
    }
}

/// Returns whether a cgroup belongs to version 1, which mounts each controller in a directory with
/// the controller's name.
fn is_version_1(cgroup: &str) -> bool {
    let mount = cgroup
        .trim_start_matches("/sys/fs/cgroup/")
        .split('/')
        .next();
    mount.is_some_and(|mount| mount.split(',').any(|controller| controller == "cpu"))
}
