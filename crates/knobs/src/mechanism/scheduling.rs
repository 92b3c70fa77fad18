//! A task's scheduling attributes: its policy and priority, nice value, and slice.

use nix::errno::Errno;

use crate::error::Trouble;
use crate::sys::{SchedAttr, sched_getattr, sched_setattr, set_nice as call_set_nice};
use crate::system::System;
use crate::target::stat;
use crate::values::Form;

const SCHED_FIFO: u32 = 1;
const SCHED_RR: u32 = 2;
const SCHED_DEADLINE: u32 = 6;
/// Policies that share CPU time by weight, each with its number in the kernel.
const FAIR: [(u32, &str); 4] = [(0, "other"), (3, "batch"), (5, "idle"), (7, "ext")];
/// `SCHED_FLAG_RESET_ON_FORK`: the task's children start with the default policy.
const RESET_ON_FORK: u64 = 1;
const RESET_WORD: &str = "reset-on-fork";
const SLICE_WORD: &str = "slice=";
const DEFAULT: &str = "default";
/// Slices that the kernel accepts, in ns.
const SLICES: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

pub(crate) const POLICY: Form = Form {
    about: "other, batch, idle, fifo:1 to fifo:99, rr:1 to rr:99, or \
        deadline:RUNTIME/DEADLINE/PERIOD in ns; append `,reset-on-fork` to any",
    parse: parse_policy,
};

pub(crate) const SLICE: Form = Form {
    about: "default, or 100000 to 100000000",
    parse: parse_slice,
};

fn parse_policy(text: &str) -> Option<String> {
    read_policy(text).map(|attr| words(attr, 0))
}

fn parse_slice(text: &str) -> Option<String> {
    if text == DEFAULT {
        return Some(text.to_owned());
    }
    let slice: u64 = text.parse().ok()?;
    SLICES.contains(&slice).then(|| slice.to_string())
}

/// Parses a policy in the form that [`words`] returns. Returns `None` if it has any other form.
fn read_policy(text: &str) -> Option<SchedAttr> {
    let mut parts = text.split(',');
    let policy = parts.next()?;
    let (name, priority) = match policy.split_once(':') {
        Some((name, priority)) => (name, Some(priority)),
        None => (policy, None),
    };
    let mut attr = SchedAttr::default();
    match (name, priority) {
        ("fifo" | "rr", Some(priority)) => {
            attr.policy = if name == "rr" { SCHED_RR } else { SCHED_FIFO };
            attr.priority = priority
                .parse()
                .ok()
                .filter(|priority| (1..=99).contains(priority))?;
        }
        ("deadline", Some(times)) => {
            let times: Result<Vec<u64>, _> = times.split('/').map(str::parse).collect();
            let [runtime, deadline, period] = times.ok()?.try_into().ok()?;
            attr.policy = SCHED_DEADLINE;
            (attr.runtime, attr.deadline, attr.period) = (runtime, deadline, period);
        }
        (name, None) => attr.policy = FAIR.iter().find(|(_, word)| *word == name)?.0,
        _ => return None,
    }
    for part in parts {
        if part == RESET_WORD {
            attr.flags |= RESET_ON_FORK;
        } else {
            let slice = part.strip_prefix(SLICE_WORD)?.parse().ok()?;
            attr.runtime = Some(slice).filter(|_| is_fair(attr.policy))?;
        }
    }
    Some(attr)
}

/// Returns `policy` with the flag added that makes children start with the default policy and a
/// nice value of at least 0. Returns `None` if `policy` cannot be parsed.
pub(crate) fn resetting_children(policy: &str) -> Option<String> {
    let mut attr = read_policy(policy)?;
    attr.flags |= RESET_ON_FORK;
    Some(words(attr, 0))
}

pub(crate) fn without_slice(policy: &str) -> String {
    let parts = policy
        .split(',')
        .filter(|part| !part.starts_with(SLICE_WORD));
    parts.collect::<Vec<_>>().join(",")
}

/// Returns whether tasks with this policy run ahead of all tasks that share CPU time by weight.
pub(crate) fn is_real_time(policy: &str) -> bool {
    read_policy(policy).is_some_and(|attr| !is_fair(attr.policy))
}

/// Returns a policy as text. Includes the slice only if it differs from `default_slice`.
fn words(attr: SchedAttr, default_slice: u64) -> String {
    let fair = FAIR.iter().find(|(number, _)| *number == attr.policy);
    let mut words = match (attr.policy, fair) {
        (_, Some((_, name))) => (*name).to_owned(),
        (SCHED_FIFO, _) => format!("fifo:{}", attr.priority),
        (SCHED_RR, _) => format!("rr:{}", attr.priority),
        (SCHED_DEADLINE, _) => {
            let (runtime, deadline, period) = (attr.runtime, attr.deadline, attr.period);
            format!("deadline:{runtime}/{deadline}/{period}")
        }
        (other, None) => format!("policy-{other}"),
    };
    if attr.flags & RESET_ON_FORK != 0 {
        words = format!("{words},{RESET_WORD}");
    }
    if fair.is_some() && attr.runtime != 0 && attr.runtime != default_slice {
        words = format!("{words},{SLICE_WORD}{}", attr.runtime);
    }
    words
}

fn is_fair(policy: u32) -> bool {
    FAIR.iter().any(|(number, _)| *number == policy)
}

/// Returns the calling thread's slice in ns, which is taken as the default. Returns 0 if the kernel
/// does not support slices.
fn default_slice() -> u64 {
    let attr = sched_getattr(0).ok();
    let fair = attr.filter(|attr| is_fair(attr.policy));
    fair.map_or(0, |attr| attr.runtime)
}

fn scheduling_of(tid: i32) -> Result<SchedAttr, Trouble> {
    sched_getattr(tid).map_err(Trouble::of_call)
}

pub(super) fn policy(tid: i32) -> Result<String, Trouble> {
    Ok(words(scheduling_of(tid)?, default_slice()))
}

/// Sets a task's policy. The system call sets the nice value as well, so this passes the task's
/// current one.
pub(super) fn set_policy(system: &System, tid: i32, value: &str) -> Result<(), Trouble> {
    let attr = read_policy(value).ok_or_else(|| Trouble::new(POLICY.about))?;
    let nice: i32 = nice(system, tid)?.parse().unwrap_or_default();
    sched_setattr(tid, SchedAttr { nice, ..attr }).map_err(Trouble::of_call)
}

pub(super) fn nice(system: &System, tid: i32) -> Result<String, Trouble> {
    let fields = stat(system, tid).ok_or_else(|| Trouble::of_call(Errno::ESRCH))?;
    // Field 19 of the complete line is word 16 here, because `fields` starts at field 3.
    let nice = fields.split_ascii_whitespace().nth(16);
    nice.map(str::to_owned)
        .ok_or_else(|| Trouble::new(format!("/proc/{tid}/stat is truncated")))
}

/// Sets a task's nice value, with a system call that leaves its slice alone.
pub(super) fn set_nice(tid: i32, value: &str) -> Result<(), Trouble> {
    let nice = value
        .parse()
        .map_err(|_| Trouble::new(format!("`{value}` is not a nice value")))?;
    call_set_nice(tid, nice).map_err(Trouble::of_call)
}

pub(super) fn slice(tid: i32) -> Result<String, Trouble> {
    let attr = scheduling_of(tid)?;
    if !is_fair(attr.policy) {
        let policy = words(attr, 0);
        return Err(Trouble::new(format!(
            "threads with policy {policy} have no slice"
        )));
    }
    match attr.runtime {
        0 => Err(Trouble::new(
            "this kernel does not support per-thread slices; use Linux 6.12 or later",
        )),
        slice if slice == default_slice() => Ok(DEFAULT.to_owned()),
        slice => Ok(slice.to_string()),
    }
}

pub(super) fn set_slice(tid: i32, value: &str) -> Result<(), Trouble> {
    let attr = scheduling_of(tid)?;
    let runtime = match value {
        DEFAULT => 0,
        slice => slice.parse().map_err(|_| Trouble::new(SLICE.about))?,
    };
    sched_setattr(tid, SchedAttr { runtime, ..attr }).map_err(Trouble::of_call)
}

#[cfg(test)]
mod tests {
    use super::{is_real_time, parse_policy, parse_slice, read_policy, resetting_children, words};

    #[test]
    fn policies_are_parsed_into_the_text_that_reading_gives() {
        for text in [
            "other",
            "idle,reset-on-fork",
            "fifo:50",
            "rr:1,reset-on-fork",
            "batch,slice=3000000",
            "deadline:1000/2000/3000",
        ] {
            assert_eq!(parse_policy(text).as_deref(), Some(text));
        }
        for text in [
            "",
            "fifo",
            "fifo:0",
            "fifo:100",
            "other:1",
            "fifo:5,slice=3",
            "OTHER",
            "other,x",
            "deadline:1/2",
            "deadline:1/2/3/4",
        ] {
            assert_eq!(parse_policy(text), None, "{text}");
        }
    }

    #[test]
    fn children_are_reset_only_once() {
        for (policy, resetting) in [
            ("fifo:20", "fifo:20,reset-on-fork"),
            ("batch,slice=3000000", "batch,reset-on-fork,slice=3000000"),
            ("other,reset-on-fork", "other,reset-on-fork"),
        ] {
            assert_eq!(resetting_children(policy).as_deref(), Some(resetting));
        }
        assert!(is_real_time("deadline:1/2/3") && is_real_time("rr:1"));
        assert!(!is_real_time("other,slice=3000000") && !is_real_time("ext"));
    }

    #[test]
    fn the_default_slice_is_omitted() {
        let attr = read_policy("other,slice=3000000").unwrap();
        assert_eq!(words(attr, 3_000_000), "other");
        assert_eq!(words(attr, 2_800_000), "other,slice=3000000");
    }

    #[test]
    fn slices_outside_the_kernels_range_are_refused() {
        assert_eq!(parse_slice("default").as_deref(), Some("default"));
        assert_eq!(parse_slice("100000").as_deref(), Some("100000"));
        for text in ["0", "99999", "100000001", "3ms", ""] {
            assert_eq!(parse_slice(text), None, "{text}");
        }
    }
}
