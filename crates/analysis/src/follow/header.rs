//! Builds the header that a recording would have if it followed a subject.

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::limitation::Limitation;
use ticktax_model::machine::{Counters, Throttling};
use ticktax_model::recording::{EndedEarly, Header};
use ticktax_model::victim::{Target, VictimHeader};
use ticktax_model::{Nanos, SourceTable};

use super::{FollowError, Subject, Thread};
use crate::fast_map::FastMap;

pub(super) fn pids_in(header: &Header, path: &str) -> Result<BTreeSet<i32>, FollowError> {
    let cgroups = header.cgroups.as_ref().ok_or(FollowError::NoCgroups)?;
    let path = path.trim_end_matches('/');
    let is_within = |cgroup: &str| {
        let below = cgroup.strip_prefix(path);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let within = cgroups.iter().filter(|(cgroup, _)| is_within(cgroup));
    Ok(within.flat_map(|(_, pids)| pids).copied().collect())
}

/// Returns whether the recording's tracer already followed the subject.
pub(super) fn is_about(header: &Header, subject: &Subject) -> bool {
    let recorded = header.victim.as_ref().filter(|recorded| recorded.followed);
    recorded.is_some_and(|recorded| match (subject, &recorded.target) {
        (Subject::Processes(pids), _) => pids.len() == 1 && recorded.pid == pids.first().copied(),
        (Subject::Cgroup(_), Target::Cgroup(folder)) => Subject::cgroup(folder) == *subject,
        _ => false,
    })
}

/// Changes a machine-wide recording's header to that of one that follows `threads`, which belong to
/// `subject`.
pub(super) fn followed(
    header: &Header,
    subject: &Subject,
    threads: &FastMap<i32, Thread>,
    sources: &SourceTable,
) -> Header {
    let (pids, names) = processes(threads, sources);
    let pid = match pids.iter().as_slice() {
        _ if matches!(subject, Subject::Cgroup(_)) => None,
        &[pid] => Some(pid),
        _ => None,
    };
    let mut header = header.clone();
    let derived = threads.values().filter(|thread| !thread.is_followed);
    let derived = derived.count() as u64;
    let incomplete = (derived > 0).then_some(Limitation::WaitsDerived { threads: derived });
    header.coverage.limitations.extend(incomplete.clone());
    let begin = header.begin().unwrap_or_default();
    let cgroup = cgroup_of(&header, subject, &pids);
    // The counters of sockets may belong to another program that the recording was made for.
    let others = |counters: Counters| Counters {
        udp_sockets: Vec::new(),
        throttling: cgroup.as_ref().and_then(|path| quota_of(&counters, path)),
        ..counters
    };
    Header {
        before: others(header.before),
        after: others(header.after),
        command: None,
        ended_early: header
            .ended_early
            .filter(|&why| why != EndedEarly::ProgramExited),
        paced: None,
        victim: Some(VictimHeader {
            target: match subject {
                Subject::Cgroup(path) => Target::Cgroup(path.clone()),
                _ if pid.is_some() => Target::Process,
                _ => Target::Processes,
            },
            name: match subject {
                Subject::Cgroup(path) => path.clone(),
                Subject::Program(name) => name.clone(),
                _ => names,
            },
            pid,
            begin,
            followed: true,
            incomplete,
            before: None,
            after: None,
            threads: None,
            freezer: None,
            frozen_by: None,
            deadline: None,
            short_system_calls: None,
            group_settings: None,
            memory_limit: None,
            only_thread: match subject {
                Subject::Thread(tid) => Some(*tid),
                _ => None,
            },
        }),
        ..header
    }
}

/// Returns the path of the only cgroup in which the subject's processes were. Returns `None` if
/// there are several.
fn cgroup_of(header: &Header, subject: &Subject, pids: &[i32]) -> Option<String> {
    if let Subject::Cgroup(path) = subject {
        return Some(path.clone());
    }
    let cgroups = header.cgroups.iter().flatten();
    let mut own = cgroups.filter(|(_, others)| pids.iter().any(|pid| others.contains(pid)));
    let (path, _) = own.next()?;
    own.next().is_none().then(|| path.clone())
}

/// Returns the counters of a cgroup's quota, if it has one.
fn quota_of(counters: &Counters, path: &str) -> Option<Throttling> {
    let is_own = |quota: &&Throttling| match Subject::cgroup(&quota.cgroup) {
        Subject::Cgroup(other) => other == path,
        _ => false,
    };
    counters.quotas.iter().find(is_own).cloned()
}

/// Returns the processes that the threads belong to, and the names of their programs. If a process
/// executed another program, the name is that of the last one.
fn processes(threads: &FastMap<i32, Thread>, sources: &SourceTable) -> (Vec<i32>, String) {
    let mut latest: BTreeMap<i32, (Nanos, &str)> = BTreeMap::new();
    for thread in threads.values() {
        let (at, source) = thread.latest;
        if let Some(thread) = &sources.get(source).thread {
            let named = (at, &*thread.program);
            let known = latest.entry(thread.pid).or_insert(named);
            *known = (*known).max(named);
        }
    }
    let names: BTreeSet<&str> = latest.values().map(|(_, name)| *name).collect();
    let names: Vec<&str> = names.into_iter().collect();
    (latest.into_keys().collect(), names.join(", "))
}
