//! Groups of sources that share the columns of a timeline, and how each group is drawn. Each
//! program has its own group, and so does each kind of kernel work.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use ticktax_model::{Kind, Nanos, Owner, Source, SourceId, SourceTable};

use crate::html::escape::plain;
use crate::text::numbers::displayed;

/// Number of programs with their own look, meaning a colour and a pattern.
const PROGRAMS: usize = 5;
/// Names of the looks of these programs.
const LOOKS: [&str; PROGRAMS] = ["p0", "p1", "p2", "p3", "p4"];

/// A group of sources, with the time that it has used so far.
#[derive(Debug)]
struct Group {
    kind: Kind,
    owner: Owner,
    /// Name of the program. Empty if the group is not a program.
    program: Arc<str>,
    /// Total time of the group, without interruptions by other sources.
    time: Nanos,
}

/// Groups of all sources.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<Group>,
    of_source: HashMap<SourceId, u16>,
    by_name: HashMap<(Kind, Owner, Arc<str>), u16>,
}

/// Maximum number of programs that get separate groups.
const MOST_PROGRAMS: usize = 20_000;

impl Groups {
    /// Returns the index of a source's group, and creates the group if necessary.
    pub(super) fn group_of(&mut self, sources: &SourceTable, id: SourceId) -> u16 {
        if let Some(&group) = self.of_source.get(&id) {
            return group;
        }
        let Source {
            kind,
            owner,
            thread,
            ..
        } = sources.get(id);
        let program = match (kind, owner, thread) {
            (Kind::Task, Owner::Program, Some(thread)) if self.all.len() < MOST_PROGRAMS => {
                thread.program.clone()
            }
            _ => Arc::from(""),
        };
        let all = &mut self.all;
        let name = (*kind, *owner, program.clone());
        let group = *self.by_name.entry(name).or_insert_with(|| {
            all.push(Group {
                kind: *kind,
                owner: *owner,
                program,
                time: Nanos::ZERO,
            });
            // The number of groups fits, because there are at most `MOST_PROGRAMS` programs, plus
            // one group for each kind and owner.
            u16::try_from(all.len() - 1).unwrap_or(0)
        });
        self.of_source.insert(id, group);
        group
    }

    /// Returns the group of a source, or `None` if the source has not been seen yet.
    pub(super) fn known(&self, id: SourceId) -> Option<u16> {
        self.of_source.get(&id).copied()
    }

    /// Adds own time to a group.
    pub(super) fn add(&mut self, group: u16, time: Nanos) {
        self.all[usize::from(group)].time += time;
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the classes to draw, and the index of each group's class. The watched program comes
    /// first, then the programs that used the most time.
    pub(super) fn classes(&self, victim: Option<&str>) -> (Vec<Class>, Vec<usize>) {
        let is_program = |group: &&Group| !group.program.is_empty();
        let mut programs: Vec<&Group> = self.all.iter().filter(is_program).collect();
        let is_victim = |group: &Group| Some(&*group.program) == victim;
        programs.sort_by_key(|group| (!is_victim(group), Reverse(group.time)));
        programs.truncate(PROGRAMS);
        let mut classes: Vec<Class> = Vec::new();
        let class_of = |group: &Group| {
            let of_program = programs
                .iter()
                .position(|program| program.program == group.program);
            match (group.kind, group.owner, of_program) {
                (Kind::Task, Owner::Program, Some(place)) => {
                    Class::new(&plain(&group.program), 0, LOOKS[place])
                }
                (Kind::Task, Owner::Program, None) => Class::new("other programs", 0, "others"),
                (Kind::Task, Owner::Kernel, _) => Class::new("kernel threads", 0, "kernel"),
                (Kind::Task, Owner::Tool | Owner::Probe, _) => {
                    Class::new("ticktax itself", 0, "tool")
                }
                (Kind::Softirq, ..) => Class::new("softirqs", 1, "softirq"),
                (Kind::Irq, ..) => Class::new("interrupts", 2, "irq"),
                (Kind::Nmi, ..) => Class::new("non-maskable interrupts (NMIs)", 2, "nmi"),
                (Kind::Steal, ..) => Class::new("stolen by the hypervisor", 3, "steal"),
                (Kind::Gap, ..) => Class::new("gaps measured by the probe", 3, "gap"),
                (Kind::Idle | Kind::Wait | Kind::Frame | Kind::Late, ..) => {
                    Class::new("idle", 0, "idle")
                }
            }
        };
        let of_groups: Vec<Class> = self.all.iter().map(class_of).collect();
        for class in &of_groups {
            if !classes.contains(class) {
                classes.push(class.clone());
            }
        }
        let order = |class: &Class| LOOK_ORDER.iter().position(|look| *look == class.look);
        classes.sort_by_key(order);
        let place = |class: &Class| classes.iter().position(|other| other == class).unwrap_or(0);
        let places = of_groups.iter().map(place).collect();
        (classes, places)
    }
}

/// All looks, in the order in which they are stacked and listed.
const LOOK_ORDER: [&str; 14] = [
    "p0", "p1", "p2", "p3", "p4", "others", "kernel", "tool", "softirq", "irq", "nmi", "steal",
    "gap", "idle",
];

/// A class of sources that are drawn alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Class {
    pub(super) name: String,
    /// Lane within the CPU's row, counted from the bottom: 0 for threads, 1 for softirqs, 2 for
    /// interrupts, 3 for time drawn across these lanes.
    pub(super) lane: u8,
    /// Name of the class's colour and pattern.
    pub(super) look: &'static str,
}

impl Class {
    fn new(name: &str, lane: u8, look: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            lane,
            look,
        }
    }

    /// Returns whether the class is drawn across the other lanes and is not part of CPU time.
    pub(super) fn is_aside(&self) -> bool {
        self.lane == 3
    }
}

/// Returns the name of a source in a timeline. The name of a thread includes its program and
/// process.
pub(super) fn source_name(source: &Source) -> String {
    let name = plain(displayed(&source.to_string()));
    match &source.thread {
        Some(thread) if thread.pid <= 0 => name,
        Some(thread) if *thread.program == *source.name => format!("{name} ({})", thread.pid),
        Some(thread) => format!("{name} of {} ({})", plain(&thread.program), thread.pid),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use ticktax_fixture::process;
    use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};

    use super::{Groups, source_name};

    #[test]
    fn the_watched_program_comes_first() {
        let (mut sources, mut groups) = (SourceTable::default(), Groups::default());
        for place in 0..8 {
            let name = format!("p{place}");
            let id = sources.intern(process(Owner::Program, &name, 100 + place));
            let group = groups.group_of(&sources, id);
            groups.add(group, Nanos(100 - i64::from(place)));
        }
        let tick = sources.intern(Source::kernel(Kind::Irq, "local_timer", ""));
        assert_eq!(groups.group_of(&sources, tick), 8);
        let (classes, places) = groups.classes(Some("p7"));
        let names: Vec<&str> = classes.iter().map(|class| &*class.name).collect();
        let expected = ["p7", "p0", "p1", "p2", "p3", "other programs", "interrupts"];
        assert_eq!(names, expected);
        assert_eq!(places, [1, 2, 3, 4, 5, 5, 5, 0, 6]);
        assert_eq!(source_name(sources.get(tick)), "local_timer");
        let first = sources.iter().next().unwrap().1;
        assert_eq!(source_name(first), "p0 (100)");
    }
}
