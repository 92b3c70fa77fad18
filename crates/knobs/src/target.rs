//! Targets: the objects that settings belong to. A target is the machine, a CPU, an interrupt, a
//! disk, a task, a cgroup or a network namespace.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use ticktax_model::knob::KnobScope;
use ticktax_model::{Cpu, CpuList};

use crate::cgroup::Cgroup;
use crate::system::System;

/// An object that a setting belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The whole machine.
    Machine,
    /// A CPU, by number.
    Cpu(u32),
    /// An interrupt, by number.
    Irq(u32),
    /// A block device, by its name in `/sys/block`.
    Disk(String),
    /// A thread, by ID. For a process, this is the ID of its main thread.
    Task(i32),
    /// A cgroup, by its directory.
    Cgroup(PathBuf),
    /// A network namespace, by a file such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    Net(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine => f.write_str("the machine"),
            Self::Cpu(cpu) => write!(f, "CPU {cpu}"),
            Self::Irq(irq) => write!(f, "IRQ {irq}"),
            Self::Disk(name) => write!(f, "disk {name}"),
            Self::Task(tid) => write!(f, "task {tid}"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Net(path) => write!(f, "network namespace {}", path.display()),
        }
    }
}

/// Whether a target exists and, if it does, its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The target exists and has this identity, which no later target of the same name will have.
    /// The identity is empty if there can be no later target of the same name.
    There(String),
    /// The target is a CPU that is offline. It keeps its settings, but they can be restored only
    /// when it is online again.
    Offline,
    Gone,
}

impl Target {
    /// Returns the kind of this target.
    pub const fn scope(&self) -> KnobScope {
        match self {
            Self::Machine => KnobScope::Machine,
            Self::Cpu(_) => KnobScope::Cpu,
            Self::Irq(_) => KnobScope::Irq,
            Self::Disk(_) => KnobScope::Disk,
            Self::Task(_) => KnobScope::Task,
            Self::Cgroup(_) => KnobScope::Cgroup,
            Self::Net(_) => KnobScope::Net,
        }
    }

    /// Returns all targets of a kind. Returns `None` if they cannot be listed, in which case the
    /// user has to name one.
    pub fn all(scope: KnobScope, system: &System) -> Option<Vec<Self>> {
        match scope {
            KnobScope::Machine => Some(vec![Self::Machine]),
            KnobScope::Cpu => {
                let online = online(system).unwrap_or_default();
                Some(online.iter().map(|cpu| Self::Cpu(cpu.0)).collect())
            }
            KnobScope::Irq => {
                let names = system.names("proc/irq").into_iter();
                let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
                numbers.sort_unstable();
                Some(numbers.into_iter().map(Self::Irq).collect())
            }
            KnobScope::Disk => {
                let names = system.names("sys/block").into_iter();
                Some(names.map(Self::Disk).collect())
            }
            KnobScope::Net => Some(vec![Self::Net("/proc/self/ns/net".into())]),
            KnobScope::Task | KnobScope::Cgroup => None,
        }
    }

    pub(crate) fn presence(&self, system: &System) -> Presence {
        let known = |identity: Option<String>| identity.map_or(Presence::Gone, Presence::There);
        match self {
            Self::Machine => Presence::There(String::new()),
            Self::Cpu(cpu) => {
                if !system
                    .path(format!("sys/devices/system/cpu/cpu{cpu}"))
                    .is_dir()
                {
                    return Presence::Gone;
                }
                match online(system) {
                    Some(online) if !online.contains(Cpu(*cpu)) => Presence::Offline,
                    _ => Presence::There(String::new()),
                }
            }
            Self::Irq(irq) => known(system.path(format!("proc/irq/{irq}")).is_dir().then(|| {
                // After a driver has been reloaded, the number can belong to a different device's
                // interrupt.
                let actions = system.text(format!("sys/kernel/irq/{irq}/actions"));
                actions.unwrap_or_default()
            })),
            Self::Disk(name) => {
                let folder = format!("sys/block/{name}");
                let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
                let is_there = is_name && system.path(&folder).is_dir();
                // After disks have been swapped, the name can belong to a different disk.
                let number = || system.text(format!("{folder}/diskseq")).unwrap_or_default();
                known(is_there.then(number))
            }
            Self::Task(tid) => known(start_time(system, *tid)),
            Self::Cgroup(path) => known(
                Cgroup::open(system, path)
                    .and_then(|group| group.identity())
                    .ok(),
            ),
            Self::Net(path) => known(inode(&system.path(path))),
        }
    }

    /// Returns the same target with a path that currently works. For example, a network namespace
    /// may have been given by the path of a process that has since exited. If no other path leads
    /// to the target, returns it unchanged.
    pub(crate) fn found_again(&self, identity: &str, system: &System) -> Self {
        let Self::Net(path) = self else {
            return self.clone();
        };
        let is_same = |path: &Path| inode(&system.path(path)).as_deref() == Some(identity);
        if is_same(path) {
            return self.clone();
        }
        let named = system.names("run/netns").into_iter();
        let named = named.map(|name| format!("/run/netns/{name}"));
        let pids = system.names("proc").into_iter();
        let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let of_pids = pids.map(|pid| format!("/proc/{pid}/ns/net"));
        let mut paths = named.chain(of_pids).map(PathBuf::from);
        paths
            .find(|path| is_same(path))
            .map_or_else(|| self.clone(), Self::Net)
    }
}

fn online(system: &System) -> Option<CpuList> {
    let text = system.text("sys/devices/system/cpu/online").ok()?;
    text.parse().ok()
}

/// Returns when a task started, in clock ticks since boot. Returns `None` if the task has exited.
fn start_time(system: &System, tid: i32) -> Option<String> {
    let fields = stat(system, tid)?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    fields.nth(18).map(str::to_owned)
}

/// Returns the text of `/proc/TID/stat`, starting at field 3. Field 2 is the name, which can
/// contain any characters, including `)` and spaces. Returns `None` if the task has exited.
pub(crate) fn stat(system: &System, tid: i32) -> Option<String> {
    let text = system.text(format!("proc/{tid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.trim_start().to_owned())
}

fn inode(path: &Path) -> Option<String> {
    let facts = fs::metadata(path).ok()?;
    Some(format!("{}:{}", facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use super::{Presence, Target};
    use crate::fixture::Machine;

    #[test]
    fn a_cpu_is_present_offline_or_gone() {
        let machine = Machine::new();
        machine.put("sys/devices/system/cpu/online", "0-1\n");
        for cpu in [0, 1, 2] {
            machine.folder(&format!("sys/devices/system/cpu/cpu{cpu}"));
        }
        let presence = |cpu| Target::Cpu(cpu).presence(&machine.system());
        assert_eq!(presence(1), Presence::There(String::new()));
        assert_eq!(presence(2), Presence::Offline);
        assert_eq!(presence(3), Presence::Gone);
    }

    #[test]
    fn tasks_with_one_id_are_distinguished_by_start_time() {
        let machine = Machine::new();
        let stat = |state: &str, start: &str| {
            let zeros = "0 ".repeat(18);
            machine.put(
                "proc/7/stat",
                &format!("7 (a) b) {state} {zeros}{start} 1 2\n"),
            );
            Target::Task(7).presence(&machine.system())
        };
        assert_eq!(stat("S", "4711"), Presence::There("4711".to_owned()));
        assert_eq!(stat("Z", "4711"), Presence::Gone);
        assert_eq!(Target::Task(8).presence(&machine.system()), Presence::Gone);
        let own_task = Target::Task(std::process::id().try_into().unwrap());
        let present = own_task.presence(&crate::System::default());
        assert!(matches!(present, Presence::There(start) if start.len() > 1));
    }

    #[test]
    fn a_disks_name_is_not_a_path() {
        let machine = Machine::new();
        machine.put("sys/block/vda/diskseq", "3\n");
        let presence = |name: &str| Target::Disk(name.to_owned()).presence(&machine.system());
        assert_eq!(presence("vda"), Presence::There("3".to_owned()));
        for name in ["", "..", "../block/vda", "sda"] {
            assert_eq!(presence(name), Presence::Gone, "{name}");
        }
    }
}
