//! Watches the cgroups that processes start in and move to.
//!
//! The programs run when a thread is created or a cgroup changes, but not at context switches.

use aya::Btf;
use ticktax_model::Nanos;

use crate::error::TraceError;
use crate::standalone::{Attached, Object};

/// The programs, which `cargo xtask bpf` builds from `bpf/groups.bpf.c`.
const OBJECT: Object = Object {
    code: aya::include_bytes_aligned!("../bpf/groups.bpf.o"),
    programs: &["cgroup_mkdir", "cgroup_attach_task", "task_newtask"],
    replacements: &[],
    events: "group_events",
    lost: "groups_lost",
    bytes: 1 << 19,
};

/// Name of the object's constant.
const HIERARCHY: &str = "hierarchy";

/// Size of the part that all events have, in bytes. A path can follow.
const EVENT_BYTES: usize = 32;

/// Something that happened to a cgroup or to a process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEvent {
    /// When it happened, on `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// ID of the cgroup, which is the inode number of its directory.
    pub cgroup: u64,
    /// What happened.
    pub change: GroupChange,
}

/// A change to cgroups. Paths start at the root of the hierarchy, not at the root of a cgroup
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// The cgroup was created.
    Created {
        /// Path of the cgroup.
        path: String,
    },
    /// A process or one of its threads moved to the cgroup.
    Entered {
        /// Path of the cgroup.
        path: String,
        /// Process ID.
        pid: i32,
        /// ID of the thread that moved alone, or `None` if the entire process moved.
        tid: Option<i32>,
    },
    /// A process was created in the cgroup, or a thread was created in a cgroup other than that of
    /// its process.
    Started {
        /// Process ID.
        pid: i32,
        /// ID of the thread, or `None` for a process.
        tid: Option<i32>,
    },
}

/// Receives the changes. Watching stops when this is dropped.
pub(crate) struct GroupWatch(Attached);

impl GroupWatch {
    /// Loads and attaches the programs for the cgroups in the hierarchy with this number.
    pub(crate) fn load(btf: &Btf, hierarchy: u32) -> Result<Self, TraceError> {
        OBJECT.attach(btf, &[(HIERARCHY, hierarchy)]).map(Self)
    }

    /// Returns the changes since the last call, in order.
    pub(crate) fn take(&mut self) -> Vec<GroupEvent> {
        self.0.take(decode)
    }

    /// Returns the number of changes that did not fit into the buffer.
    pub(crate) fn lost(&self) -> u64 {
        self.0.lost(0)
    }
}

/// Decodes a `struct group_event` and the path after it. Returns `None` if the event is incomplete
/// or of an unknown kind.
fn decode(bytes: &[u8]) -> Option<GroupEvent> {
    let (event, path) = bytes.split_at_checked(EVENT_BYTES)?;
    let long = |at: usize| Some(u64::from_ne_bytes(event.get(at..at + 8)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(event.get(at..at + 4)?.try_into().ok()?));
    let id = |at: usize| i32::try_from(word(at)?).ok();
    let path = || {
        let end = path.iter().position(|&byte| byte == 0)?;
        let path = String::from_utf8_lossy(&path[..end]);
        path.starts_with('/').then(|| path.into_owned())
    };
    let (pid, tid) = (id(16)?, id(20).filter(|&tid| tid > 0));
    let change = match word(24)? {
        1 => GroupChange::Created { path: path()? },
        2 => GroupChange::Entered {
            path: path()?,
            pid,
            tid,
        },
        3 => GroupChange::Started { pid, tid },
        _ => return None,
    };
    Some(GroupEvent {
        at: Nanos(long(0)?.cast_signed()),
        cgroup: long(8)?,
        change,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{GroupChange, GroupEvent, decode};

    fn bytes(kind: u32, tid: u32, path: &[u8]) -> Vec<u8> {
        let mut bytes = 5_u64.to_ne_bytes().to_vec();
        bytes.extend(77_u64.to_ne_bytes());
        for word in [12, tid, kind, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(path);
        bytes
    }

    #[test]
    fn each_kind_of_event_is_decoded() {
        let decoded = |kind, tid, path: &[u8]| decode(&bytes(kind, tid, path)).unwrap();
        let path = || "/a/b".to_owned();
        let event = decoded(1, 0, b"/a/b\0/c");
        let expected = GroupEvent {
            at: Nanos(5),
            cgroup: 77,
            change: GroupChange::Created { path: path() },
        };
        assert_eq!(event, expected);
        let (pid, tid) = (12, Some(13));
        let entered = |tid| GroupChange::Entered {
            path: path(),
            pid,
            tid,
        };
        assert_eq!(decoded(2, 0, b"/a/b\0").change, entered(None));
        assert_eq!(decoded(2, 13, b"/a/b\0").change, entered(tid));
        let started = GroupChange::Started { pid, tid };
        assert_eq!(decoded(3, 13, b"").change, started);
    }

    #[test]
    fn an_incomplete_event_is_ignored() {
        for (kind, path) in [
            (0, &b"/a\0"[..]),
            (4, b"/a\0"),
            (1, b""),
            (1, b"/a"),
            (2, b"\0"),
            (2, b"a\0"),
        ] {
            assert_eq!(decode(&bytes(kind, 0, path)), None, "{kind} {path:?}");
        }
        let whole = bytes(3, 0, b"");
        for end in 0..whole.len() {
            assert_eq!(decode(&whole[..end]), None, "{end}");
        }
    }

    #[test]
    fn a_path_can_contain_any_bytes() {
        let event = decode(&bytes(1, 0, b"/\x1b[31m\xff\"\0")).unwrap();
        let path = "/\u{1b}[31m\u{fffd}\"".to_owned();
        assert_eq!(event.change, GroupChange::Created { path });
    }
}
