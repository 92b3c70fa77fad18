//! What a person can do about lost CPU time: rules over a whole statement.
//!
//! A rule says something only where the statement's own numbers bear it out, and hands over those
//! numbers. With a watched program the rules are about its time, otherwise about the machine's.

mod machine;
mod program;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ticktax_model::Nanos;
use ticktax_model::advice::{Advice, CrowdingProgram, Standing};
use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::finding::Severity;
use ticktax_model::policy::SpecialPolicy;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Account, Class, Statement};
use ticktax_model::victim::ThreadPolicy;

use crate::ran::Ran;

/// Rules of findings that are not about CPU time.
const OTHER_TOPICS: [&str; 2] = ["fstab-", "sysctl-"];

/// What is known of processes, for what can be done about them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processes<'a> {
    /// Their groups by session.
    pub(crate) autogroups: &'a [ProcessAutogroup],
    /// Threads that are not scheduled by the ordinary rules.
    pub(crate) policies: &'a [ThreadPolicy],
    /// Those that were there at the end; none where that is not known of all.
    pub(crate) present: Option<&'a BTreeSet<i32>>,
    /// Which of their threads had a CPU: those others were kept from it by, and not each that there is.
    pub(crate) ran: Option<&'a Ran>,
    /// Those that are the watched program's.
    pub(crate) followed: &'a [i32],
}

impl Processes<'_> {
    fn has_ended(&self, pid: i32) -> bool {
        self.present.is_some_and(|there| !there.contains(&pid))
    }

    /// The part of the process' time that was of threads which are scheduled in such a way.
    fn share(&self, pid: i32, is_such: impl Fn(SpecialPolicy) -> bool) -> f64 {
        let share = self
            .ran
            .and_then(|ran| ran.share(pid, self.policies, is_such));
        share.unwrap_or_default()
    }

    /// The policy of the thread that had most of its time, where threads which go before all ordinary ones had more than
    /// half of that.
    fn goes_first(&self, pid: i32) -> Option<SpecialPolicy> {
        let policy = self.ran?.policy_of_most(pid, self.policies)?;
        (policy.goes_first() && self.is_real_time(pid)).then_some(policy)
    }

    /// Whether most of its time was of real-time threads.
    fn is_real_time(&self, pid: i32) -> bool {
        self.share(pid, SpecialPolicy::goes_first) > 0.5
    }

    /// Whether all of its time was of threads of the lowest priority.
    fn is_lowest(&self, pid: i32) -> bool {
        self.share(pid, |policy| policy == SpecialPolicy::LOWEST) >= 1.0
    }

    /// Which of these a nice value does not help against, for the sake of `gaining`, where these are known.
    fn standing(&self, pids: &[i32], gaining: Option<&[i32]>) -> Standing {
        let mut standing = Standing::default();
        for &pid in pids {
            if self.has_ended(pid) {
                standing.ended.push(pid);
            } else if self.is_real_time(pid) {
                standing.real_time.push(pid);
            } else if self.is_lowest(pid) {
                standing.lowest.push(pid);
            } else if !self.shares_with(pid, gaining) {
                standing.apart.push(pid);
            }
        }
        standing
    }

    /// A program that had so much time, for whoever has to make room for others; `gaining` are processes of those
    /// that are to gain by it, where these are known.
    fn crowding(
        &self,
        (program, pids, time): (&str, Vec<i32>, Nanos),
        gaining: Option<&[i32]>,
    ) -> CrowdingProgram {
        CrowdingProgram {
            program: program.to_owned(),
            autogroup_pids: self.of_each_group(&pids, gaining),
            standing: self.standing(&pids, gaining),
            pids,
            time,
        }
    }

    /// The group by session of a process.
    fn group(&self, pid: i32) -> Option<u32> {
        let known = self.autogroups.iter().find(|process| process.pid == pid)?;
        Some(known.group.number)
    }

    /// Whether the process' nice value counts beside one of `gaining`: it is in the same group, or there are none.
    fn shares_with(&self, pid: i32, gaining: Option<&[i32]>) -> bool {
        let Some(group) = self.group(pid) else {
            return self.autogroups.is_empty();
        };
        let own = gaining.into_iter().flatten();
        own.filter_map(|&pid| self.group(pid))
            .any(|own| own == group)
    }

    /// A process of each group by session that `pids` are in, of those that are there and are not real-time; none
    /// where one of `gaining` is in one of them, or the group of none of these is known.
    fn of_each_group(&self, pids: &[i32], gaining: Option<&[i32]>) -> Vec<i32> {
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

/// What to do about what `statement` says, the most important first; [`Statement::advice`] is not
/// looked at. Nothing where little could be seen: counters do not tell who took the time.
pub(crate) fn advise(statement: &Statement, processes: &Processes<'_>) -> Vec<Advice> {
    let mut advice = Vec::new();
    if statement.level == Level::Kernel {
        let lost = statement.coverage.events_lost();
        // How many of them were lost in a part of the recording is not known.
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

/// Findings that cost CPU time now.
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

/// The time of all CPUs together.
fn whole(statement: &Statement) -> Nanos {
    statement.balance.elapsed
}

/// The programs by name, with their processes and their time, the costliest first.
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
