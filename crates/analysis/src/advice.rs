//! What a person can do about lost CPU time: rules over a whole statement.
//!
//! A rule says something only where the statement's own numbers bear it out, and hands over those
//! numbers. With a watched program the rules are about its time, otherwise about the machine's.

mod machine;
mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::autogroup::ProcessAutogroup;
use ticktax_model::finding::Severity;
use ticktax_model::recording::Level;
use ticktax_model::statement::{Account, Class, Statement};

/// Rules of findings that are not about CPU time.
const OTHER_TOPICS: [&str; 2] = ["fstab-", "sysctl-"];

/// What to do about what `statement` says, the most important first; [`Statement::advice`] is not
/// looked at. Nothing where little could be seen: counters do not tell who took the time. Processes were
/// in these groups by session.
pub fn advise(statement: &Statement, autogroups: &[ProcessAutogroup]) -> Vec<Advice> {
    let mut advice = Vec::new();
    if statement.level == Level::Kernel {
        let lost = statement.coverage.events_lost();
        if lost > statement.cost.events / 100 {
            advice.push(Advice::EventsLost { events: lost });
        }
        let threads = statement.victim.as_ref().and_then(|v| v.threads.as_ref());
        match (&statement.victim, threads) {
            (Some(victim), Some(threads)) => {
                advice.extend(program::advise(statement, victim, threads, autogroups));
            }
            _ => advice.extend(machine::advise(statement, autogroups)),
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
    })
}

/// A process of each group by session that `pids` are in; none where `watched` is in one of them.
fn autogroup_pids(autogroups: &[ProcessAutogroup], pids: &[i32], watched: Option<i32>) -> Vec<i32> {
    let group = |pid: i32| {
        let known = autogroups.iter().find(|process| process.pid == pid)?;
        Some(known.group.number)
    };
    let groups: BTreeMap<u32, i32> = pids
        .iter()
        .filter_map(|&pid| Some((group(pid)?, pid)))
        .collect();
    let own = watched.map(group);
    if own.is_some_and(|own| own.is_none_or(|own| groups.contains_key(&own))) {
        return Vec::new();
    }
    groups.into_values().collect()
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
