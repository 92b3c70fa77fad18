//! Names of the groups (services, containers, pods) that programs belong to.

use std::collections::HashMap;

use ticktax_model::statement::{Class, StartedProcesses, Statement};

use super::page::{columns, elide};

/// Maximum number of columns for a program's name with its group in a section.
pub(crate) const NAME_WIDTH: usize = 60;

/// Minimum number of short-lived processes to show together with the program that started them.
const MANY: u64 = 20;

/// Minimum number of columns for a shortened name of a group.
const SHORTEST: usize = 6;

/// The group names of a statement's programs.
pub(crate) struct GroupNames<'s> {
    by_pid: HashMap<i32, &'s str>,
    short_lived: &'s [StartedProcesses],
    /// Whether the programs are in different groups, or only some are in a group. If all are in the
    /// same group, its name distinguishes nothing.
    differ: bool,
}

impl<'s> GroupNames<'s> {
    pub(crate) fn new(statement: &'s Statement) -> Self {
        let groups = statement.groups.iter();
        let by_pid: HashMap<i32, &str> = groups
            .flat_map(|group| group.pids.iter().map(|&pid| (pid, &*group.name)))
            .collect();
        let programs = statement.accounts.iter();
        let mut programs = programs.filter(|account| account.class == Class::Program);
        let others =
            programs.any(|account| account.pid.is_none_or(|pid| !by_pid.contains_key(&pid)));
        Self {
            differ: statement.groups.len() + usize::from(others) > 1,
            by_pid,
            short_lived: &statement.short_lived,
        }
    }

    /// Returns the program that started most of these processes of program `name`, as in `by sh
    /// 4121`. Returns `None` unless there are many of them and they are short-lived.
    pub(crate) fn starter(&self, name: &str, processes: usize) -> Option<String> {
        let named = self.short_lived.iter().filter(|sum| sum.name == name);
        let most = named.max_by_key(|sum| sum.count)?;
        let is_most = most.count >= MANY && most.count * 2 > processes as u64;
        is_most.then(|| format!("by {} {}", most.started_by, most.started_by_pid))
    }

    /// Returns the group of a process.
    pub(crate) fn of(&self, pid: Option<i32>) -> Option<&'s str> {
        self.by_pid.get(&pid?).copied()
    }

    /// Returns the group to show next to the name of a program with these processes, or `None`
    /// unless all of them are in the same group.
    pub(crate) fn shown(&self, pids: &[i32]) -> Option<&'s str> {
        let (first, others) = pids.split_first().filter(|_| self.differ)?;
        let group = self.of(Some(*first));
        let is_same = others.iter().all(|&pid| self.of(Some(pid)) == group);
        group.filter(|_| is_same)
    }
}

/// Appends the group to a program's title, as in `gamesrv (26320, game.service)`. If the title then
/// exceeds `room`, shortens the group's name or leaves it out.
pub(crate) fn with_group(title: &str, group: Option<&str>, room: usize) -> String {
    let Some(group) = group else {
        return title.to_owned();
    };
    let (name, threads) = title
        .find("  ")
        .map_or((title, ""), |end| title.split_at(end));
    let (before, separator) = match name.strip_suffix(')') {
        Some(before) if is_pid(before) => (before, ", "),
        _ => (name, " ("),
    };
    let taken = columns(before) + columns(separator) + columns(threads) + 1;
    let left = room.saturating_sub(taken);
    if left < columns(group).min(SHORTEST) {
        return title.to_owned();
    }
    format!("{before}{separator}{}){threads}", elide(group, left))
}

/// Returns whether the text ends with an opening parenthesis and a number.
fn is_pid(text: &str) -> bool {
    let pid = text.rsplit_once(" (").map(|(_, pid)| pid.parse::<u32>());
    pid.is_some_and(|pid| pid.is_ok())
}

#[cfg(test)]
mod tests {
    use super::with_group;

    #[test]
    fn a_group_follows_the_name_if_there_is_room() {
        let group = Some("backup.service");
        for (title, room, expected) in [
            ("tar x2", 30, "tar x2 (backup.service)"),
            ("tar (7)", 30, "tar (7, backup.service)"),
            (
                "tar (7)  2 threads",
                40,
                "tar (7, backup.service)  2 threads",
            ),
            ("a (b)", 40, "a (b) (backup.service)"),
            ("tar (7)", 18, "tar (7, backup.…)"),
            ("tar (7)", 14, "tar (7)"),
            ("tar", 80, "tar (backup.service)"),
        ] {
            assert_eq!(
                with_group(title, group, room),
                expected,
                "{title} in {room}"
            );
            assert_eq!(with_group(title, None, room), title);
        }
        assert_eq!(with_group("tar", Some("db"), 8), "tar (db)");
    }
}
