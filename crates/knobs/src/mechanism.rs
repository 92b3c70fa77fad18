//! The mechanisms by which settings are read and written, each in its own file.

mod boot;
mod choice;
mod dirty_limit;
mod dma_latency;
mod features;
mod file;
mod idle_states;
mod mask;
mod namespace;
mod quota;
mod scheduling;
mod task_affinity;

use std::fs::File;

use crate::error::Trouble;
use crate::system::System;
use crate::target::Target;

pub(crate) use dirty_limit::FORM as DIRTY_LIMIT;
pub(crate) use features::parse as parse_features;
pub(crate) use idle_states::FORM as IDLE_STATES;
pub(crate) use quota::FORM as QUOTA;
pub(crate) use scheduling::{POLICY, SLICE, is_real_time, resetting_children, without_slice};

/// How a setting is read and written. In paths, `{}` stands for the target: a CPU's number, a
/// disk's name, or a cgroup's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mechanism {
    /// A file that contains nothing but the value.
    File(&'static str),
    /// A file that lists words and puts the active one in brackets.
    Choice(&'static str),
    /// A file that contains a set of CPUs as a bit mask.
    Mask(&'static str),
    /// A file whose contents differ between network namespaces.
    Namespaced(&'static str),
    /// The set of idle states that are disabled for a CPU.
    IdleStates,
    /// A limit on dirty memory: either a percentage in one file or a number of bytes in another.
    /// Writing to either file sets the other to 0.
    DirtyLimit {
        ratio: &'static str,
        bytes: &'static str,
    },
    /// A device file that limits the CPUs' wake-up latency while it is open.
    DmaLatency,
    /// A cgroup's file that contains nothing but the value. Its name depends on the cgroup version.
    CgroupFile {
        v2: &'static str,
        v1: &'static str,
    },
    /// A cgroup's CPU quota (v1 or v2).
    Quota,
    /// A file that lists features. The names of those that are off start with `NO_`.
    Features(&'static str),
    Nice,
    Policy,
    Slice,
    TaskAffinity,
    /// A kernel parameter that can be set only on the boot command line.
    Boot(&'static str),
}

/// Keeps a value in effect for as long as this object exists.
#[derive(Debug)]
pub(crate) struct HeldValue {
    _file: File,
}

impl Mechanism {
    pub(crate) fn place(&self) -> String {
        match self {
            Self::File(path) | Self::Choice(path) | Self::Mask(path) | Self::Namespaced(path) => {
                match path.strip_prefix("{}/") {
                    Some(file) => format!("{file} in the cgroup's directory"),
                    None => format!("/{}", path.replace("{}", "N")),
                }
            }
            Self::IdleStates => {
                format!("/{}/stateM/disable", idle_states::FOLDER.replace("{}", "N"))
            }
            Self::DirtyLimit { ratio, bytes } => format!("/{ratio}, /{bytes}"),
            Self::DmaLatency => format!("/{}", dma_latency::DEVICE),
            Self::CgroupFile { v2, v1 } => {
                let name = |path: &str| path.trim_start_matches("{}/").to_owned();
                format!(
                    "{} in the cgroup's directory; {} with cgroup version 1",
                    name(v2),
                    name(v1)
                )
            }
            Self::Features(path) => format!("/{path}"),
            Self::Quota => {
                "cpu.max in the cgroup's directory; cpu.cfs_quota_us and cpu.cfs_period_us with \
                 cgroup version 1"
                    .to_owned()
            }
            Self::Nice => "setpriority(2)".to_owned(),
            Self::Policy | Self::Slice => "sched_setattr(2)".to_owned(),
            Self::TaskAffinity => "sched_setaffinity(2)".to_owned(),
            Self::Boot(name) => format!("{name}= in /proc/cmdline"),
        }
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::Boot(_))
    }

    /// Returns whether a value stays in effect only as long as the process that wrote it keeps a
    /// file open.
    pub(crate) const fn is_held(&self) -> bool {
        matches!(self, Self::DmaLatency)
    }

    pub(crate) fn read(&self, system: &System, target: &Target) -> Result<String, Trouble> {
        match self {
            Self::File(path) => file::read_of(system, target, path),
            Self::Choice(path) => choice::read(system, &expanded(path, target)),
            Self::Mask(path) => mask::read(system, &expanded(path, target)),
            Self::Namespaced(path) => namespace::read(system, target, path),
            Self::IdleStates => idle_states::read(system, target),
            Self::DirtyLimit { ratio, bytes } => dirty_limit::read(system, ratio, bytes),
            Self::DmaLatency => dma_latency::read(system),
            Self::CgroupFile { v2, v1 } => {
                file::read_of(system, target, file::existing(system, target, v2, v1))
            }
            Self::Features(path) => features::read(system, path),
            Self::Quota => quota::read(system, target),
            Self::Nice => scheduling::nice(system, task(target)?),
            Self::Policy => scheduling::policy(task(target)?),
            Self::Slice => scheduling::slice(task(target)?),
            Self::TaskAffinity => task_affinity::read(system, task(target)?),
            Self::Boot(name) => boot::read(system, name),
        }
    }

    /// Writes a value, which must be in the form in which reading returns it. If this returns a
    /// [`HeldValue`], the value stays in effect until the `HeldValue` is dropped.
    pub(crate) fn write(
        &self,
        system: &System,
        target: &Target,
        value: &str,
    ) -> Result<Option<HeldValue>, Trouble> {
        match self {
            Self::File(path) | Self::Choice(path) => file::write_of(system, target, path, value)?,
            Self::Mask(path) => mask::write(system, &expanded(path, target), value)?,
            Self::Namespaced(path) => namespace::write(system, target, path, value)?,
            Self::IdleStates => idle_states::write(system, target, value)?,
            Self::DirtyLimit { ratio, bytes } => dirty_limit::write(system, ratio, bytes, value)?,
            Self::DmaLatency => return dma_latency::hold(system, value).map(Some),
            Self::CgroupFile { v2, v1 } => {
                let path = file::existing(system, target, v2, v1);
                file::write_of(system, target, path, value)?;
            }
            Self::Features(path) => features::write(system, path, value)?,
            Self::Quota => quota::write(system, target, value)?,
            Self::Nice => scheduling::set_nice(task(target)?, value)?,
            Self::Policy => scheduling::set_policy(system, task(target)?, value)?,
            Self::Slice => scheduling::set_slice(task(target)?, value)?,
            Self::TaskAffinity => task_affinity::write(task(target)?, value)?,
            Self::Boot(_) => return Err(Trouble::new("the kernel reads it only at boot")),
        }
        Ok(None)
    }

    pub(crate) fn offered(&self, system: &System, target: &Target) -> Vec<String> {
        match self {
            Self::Choice(path) => choice::offered(system, &expanded(path, target)),
            Self::Features(path) => features::offered(system, path),
            _ => Vec::new(),
        }
    }

    pub(crate) fn offered_in(&self, system: &System, target: &Target, path: &str) -> Vec<String> {
        match self {
            Self::Namespaced(_) => {
                let list = namespace::read(system, target, path).unwrap_or_default();
                list.split_ascii_whitespace().map(str::to_owned).collect()
            }
            _ => choice::offered(system, &expanded(path, target)),
        }
    }
}

/// Replaces `{}` in `path` with the target's number or name. For two kinds of target, the path
/// stays unchanged: a cgroup's files are opened through a handle ([`file::read_of`]), and a network
/// namespace is entered instead.
fn expanded(path: &str, target: &Target) -> String {
    let name = match target {
        Target::Machine | Target::Cgroup(_) | Target::Net(_) => return path.to_owned(),
        Target::Cpu(number) | Target::Irq(number) => number.to_string(),
        Target::Task(tid) => tid.to_string(),
        Target::Disk(name) => name.clone(),
    };
    path.replace("{}", &name)
}

fn task(target: &Target) -> Result<i32, Trouble> {
    match target {
        Target::Task(tid) => Ok(*tid),
        other => Err(Trouble::new(format!("{other} is not a thread"))),
    }
}
