//! Advice on lost CPU time, from rules that read a complete statement.
//!
//! A rule gives advice only if the statement's numbers support it, and the advice includes those
//! numbers. If a program was watched, the rules look at that program's time. Otherwise they look at
//! the whole machine's.

mod confined;
mod machine;
pub(crate) mod precedence;
mod program;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::Nanos;
use ticktax_model::advice::{Advice, CompetingProgram, ExemptPids, GroupContest};
use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::finding::Severity;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Account, Class, Statement};
use ticktax_model::victim::{ThreadPolicy, VictimHeader};

use self::precedence::{Places, Relation};
use crate::ran::Ran;

/// ID prefixes of rules whose findings are not about CPU time.
const OTHER_TOPICS: [&str; 2] = ["fstab-", "sysctl-"];

/// Facts about processes that decide which advice applies to them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processes<'a> {
    /// Autogroups of the processes. An autogroup is the scheduling group of a session.
    pub(crate) autogroups: &'a [ProcessAutogroup],
    /// Threads whose scheduling policy is not the default.
    pub(crate) policies: &'a [ThreadPolicy],
    /// Processes that existed at the end of the recording, or `None` if unknown.
    pub(crate) present: Option<&'a BTreeSet<i32>>,
    /// CPU time of each thread. Only a thread that ran can have kept others waiting.
    pub(crate) ran: Option<&'a Ran>,
    /// Processes that belong to the watched program.
    pub(crate) followed: &'a [i32],
    /// Cgroups of the processes, or `None` if unknown.
    pub(crate) places: Option<&'a Places<'a>>,
    /// Settings of the watched program, if there is one.
    pub(crate) watched: Option<&'a VictimHeader>,
}

impl Processes<'_> {
    fn has_ended(&self, pid: i32) -> bool {
        self.present.is_some_and(|present| !present.contains(&pid))
    }

    /// Returns the share of a process's CPU time that was used by threads whose policy satisfies
    /// `is_such`.
    fn share(&self, pid: i32, is_such: impl Fn(SpecialPolicy) -> bool) -> f64 {
        let share = self
            .ran
            .and_then(|ran| ran.share(pid, self.policies, is_such));
        share.unwrap_or_default()
    }

    /// Returns the policy of the thread that used the most CPU time in a process. Returns `None`
    /// unless threads that preempt all ordinary ones used more than half of the process's time.
    fn goes_first(&self, pid: i32) -> Option<SpecialPolicy> {
        let policy = self.ran?.policy_of_most(pid, self.policies)?;
        (policy.goes_first() && self.is_real_time(pid)).then_some(policy)
    }

    fn is_real_time(&self, pid: i32) -> bool {
        self.share(pid, SpecialPolicy::goes_first) > 0.5
    }

    fn is_lowest(&self, pid: i32) -> bool {
        self.share(pid, |policy| policy == SpecialPolicy::LOWEST) >= 1.0
    }

    /// Returns the processes that a higher nice value would not slow down, grouped by reason.
    /// `gaining` lists the processes meant to benefit, if known.
    fn standing(&self, pids: &[i32], gaining: Option<&[i32]>) -> ExemptPids {
        let mut standing = ExemptPids::default();
        for &pid in pids {
            if self.has_ended(pid) {
                standing.exited_pids.push(pid);
            } else if self.is_real_time(pid) {
                standing.real_time_pids.push(pid);
            } else if self.is_lowest(pid) {
                standing.lowest_priority_pids.push(pid);
            } else if !self.shares_with(pid, gaining) {
                standing.other_session_pids.push(pid);
            }
        }
        standing
    }

    /// Describes a program that takes `time` away from others. `gaining` lists the processes meant
    /// to benefit, if known.
    fn crowding(
        &self,
        (program, pids, time): (&str, Vec<i32>, Nanos),
        gaining: Option<&[i32]>,
    ) -> CompetingProgram {
        CompetingProgram {
            program: program.to_owned(),
            autogroup_pids: self.one_per_group(&pids, gaining),
            standing: self.standing(&pids, gaining),
            contest: self.contest(&pids, gaining.unwrap_or_default()),
            pids,
            time,
        }
    }

    /// Returns the contest with the first process in `pids` that has not exited. If all have
    /// exited, the contest is with the first of them, because the next one will be in the same
    /// cgroup. Processes that preempt all ordinary threads anyway do not count.
    fn contest(&self, pids: &[i32], gaining: &[i32]) -> Option<Box<GroupContest>> {
        let ordinary = || pids.iter().copied().filter(|pid| !self.is_real_time(*pid));
        let present = ordinary().find(|pid| !self.has_ended(*pid));
        let other = present.or_else(|| ordinary().next())?;
        let contest = |&own: &i32| match self.places?.relation(own, other) {
            Relation::Contest(contest) => Some(contest),
            Relation::Unknown | Relation::SameCgroup { .. } => None,
        };
        gaining.iter().find_map(contest)
    }

    fn group(&self, pid: i32) -> Option<u32> {
        let known = self.autogroups.iter().find(|process| process.pid == pid)?;
        Some(known.group.number)
    }

    /// Returns whether process `pid`'s nice value matters to any of `gaining`. It does if the two
    /// are in the same cgroup and, if that is the root, in the same autogroup.
    fn shares_with(&self, pid: i32, gaining: Option<&[i32]>) -> bool {
        let Some(places) = self.places else {
            return self.shares_session(pid, gaining);
        };
        let Some(gaining) = gaining else {
            return places.is_in_root(pid) && self.shares_session(pid, None);
        };
        gaining.iter().any(|&own| match places.relation(own, pid) {
            Relation::SameCgroup { root: true } => self.shares_session(pid, Some(&[own])),
            Relation::SameCgroup { root: false } => true,
            Relation::Unknown | Relation::Contest(_) => false,
        })
    }

    /// Returns whether process `pid` shares an autogroup with any of `gaining`, or autogroups are
    /// not in use.
    fn shares_session(&self, pid: i32, gaining: Option<&[i32]>) -> bool {
        let Some(group) = self.group(pid) else {
            return self.autogroups.is_empty();
        };
        let own = gaining.into_iter().flatten();
        own.filter_map(|&pid| self.group(pid))
            .any(|own| own == group)
    }

    /// Returns one process from each autogroup of `pids`, ignoring exited and real-time processes.
    /// Returns nothing if any of `gaining` is in one of these autogroups, or if no autogroup of
    /// `gaining` is known.
    fn one_per_group(&self, pids: &[i32], gaining: Option<&[i32]>) -> Vec<i32> {
        let lowered = |pid: &i32| !self.has_ended(*pid) && !self.is_real_time(*pid);
        let pids = pids.iter().copied().filter(lowered);
        let groups: BTreeMap<u32, i32> = pids
            .filter_map(|pid| Some((self.group(pid)?, pid)))
            .collect();
        if let Some(gaining) = gaining {
            let mut own = gaining.iter().filter_map(|&pid| self.group(pid)).peekable();
            if own.peek().is_none() || own.any(|own| groups.contains_key(&own)) {
                return Vec::new();
            }
        }
        groups.into_values().collect()
    }
}

/// Returns advice on `statement`, most important first. Ignores its [`Statement::advice`]. Below
/// level `kernel`, the counters do not show which programs used the time, so only findings lead to
/// advice.
pub(crate) fn advise(statement: &Statement, processes: &Processes<'_>) -> Vec<Advice> {
    let mut advice = Vec::new();
    if statement.level == Level::Kernel {
        let lost = statement.coverage.events_lost();
        // For part of a recording, the number of lost events in it is unknown, so give this advice
        // only for a whole recording.
        if statement.part.is_none() && lost > statement.cost.events / 100 {
            advice.push(Advice::EventsLost { events: lost });
        }
        let threads = statement.victim.as_ref().and_then(|v| v.threads.as_ref());
        match (&statement.victim, threads) {
            (Some(victim), Some(threads)) => {
                advice.extend(program::advise(statement, victim, threads, processes));
            }
            _ => advice.extend(machine::advise(statement, processes)),
        }
    }
    advice.extend(findings(statement));
    advice
}

/// Returns advice from findings about problems that currently cost CPU time.
fn findings(statement: &Statement) -> impl Iterator<Item = Advice> {
    let serious = statement.findings.iter().filter(|finding| {
        let other = OTHER_TOPICS
            .iter()
            .any(|topic| finding.rule.starts_with(topic));
        finding.severity == Severity::Serious && !other
    });
    serious.map(|finding| Advice::Finding {
        rule: finding.rule.clone(),
        title: finding.title.clone(),
        remedy: finding.remedy.clone(),
        proposal: finding.proposal.clone(),
    })
}

fn total_time(statement: &Statement) -> Nanos {
    statement.balance.elapsed
}

/// Groups the accounts by program name, costliest first. Each group has a name, its processes and
/// their CPU time.
fn programs(accounts: &[Account]) -> Vec<(&str, Vec<i32>, Nanos)> {
    let mut by_name: BTreeMap<&str, (Vec<i32>, Nanos)> = BTreeMap::new();
    for account in accounts.iter().filter(|a| a.class == Class::Program) {
        let entry = by_name.entry(&account.name).or_default();
        entry.0.extend(account.pid);
        entry.1 += account.time;
    }
    let mut programs: Vec<_> = by_name
        .into_iter()
        .map(|(name, (pids, time))| (name, pids, time))
        .collect();
    programs.sort_by_key(|&(name, _, time)| (std::cmp::Reverse(time), name));
    programs
}
