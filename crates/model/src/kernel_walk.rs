//! Lists of objects that kernel functions walk, and what a sampled walk costs.
//!
//! Some kernel functions visit each object of a list while they hold a spinlock, or without
//! offering the CPU to anybody else. On a machine with many objects, one call can therefore keep a
//! CPU for tens of milliseconds.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

/// A kind of objects that the kernel keeps in lists, and whose number any user can read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum KernelList {
    /// Inodes: the files that the kernel has in memory.
    Inodes,
    /// Dentries: names in directories that the kernel has in memory.
    Dentries,
    /// Threads of all programs, and kernel threads.
    Threads,
}

impl KernelList {
    /// All lists.
    pub const ALL: [Self; 3] = [Self::Inodes, Self::Dentries, Self::Threads];

    /// Returns the name of the objects, in the plural.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inodes => "inodes",
            Self::Dentries => "dentries",
            Self::Threads => "threads",
        }
    }

    /// Returns the file that contains the number of objects, without the leading slash.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Inodes => "proc/sys/fs/inode-state",
            Self::Dentries => "proc/sys/fs/dentry-state",
            Self::Threads => "proc/loadavg",
        }
    }

    /// Parses the number of objects from the text of [`file`](Self::file).
    pub fn count(self, text: &str) -> Option<u64> {
        let mut words = text.split_whitespace();
        match self {
            Self::Inodes | Self::Dentries => words.next()?.parse().ok(),
            // As in `0.2 0.1 0.1 2/117 4213`.
            Self::Threads => words.nth(3)?.split_once('/')?.1.parse().ok(),
        }
    }

    /// Returns the list that a kernel function walks; `None` if it is not known to walk one.
    pub fn walked_by(function: &str) -> Option<Self> {
        let found = WALKS.iter().find(|(name, _)| *name == function);
        found.map(|&(_, list)| list)
    }
}

impl fmt::Display for KernelList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kernel functions that visit each object of a list, or each one in a directory or file system.
/// They are in `fs/inode.c`, `fs/dcache.c`, `fs/libfs.c`, `fs/drop_caches.c`, `fs/quota/dquot.c`,
/// `fs/notify` and `kernel/signal.c` of Linux 5.10 to 6.18.
const WALKS: [(&str, KernelList); 12] = [
    ("add_dquot_ref", KernelList::Inodes),
    ("drop_pagecache_sb", KernelList::Inodes),
    ("evict_inodes", KernelList::Inodes),
    ("fsnotify_sb_delete", KernelList::Inodes),
    ("fsnotify_unmount_inodes", KernelList::Inodes),
    ("invalidate_inodes", KernelList::Inodes),
    ("__fsnotify_update_child_dentry_flags", KernelList::Dentries),
    ("d_walk", KernelList::Dentries),
    ("fsnotify_set_children_dentry_flags", KernelList::Dentries),
    ("scan_positives", KernelList::Dentries),
    ("simple_empty", KernelList::Dentries),
    ("kill_something_info", KernelList::Threads),
];

/// A walk that samples found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SampledWalk {
    /// Kernel function that walks the list.
    pub function: String,
    /// The list.
    pub list: KernelList,
    /// Number of samples in the function or in functions that it called.
    pub samples: u64,
    /// Number of objects on the entire machine: the larger of the numbers at the start and at the
    /// end of the recording. The walk may be limited to a directory or a file system, so it visits
    /// this many objects or fewer. `None` if the number is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Longest single time for which the program waited while samples found the walk. `None` if
    /// this is not about a program that waited.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "longest_ns"
    )]
    pub longest: Option<Nanos>,
    /// Lower bound of the time per object: `longest` divided by `objects`. It is correct if the
    /// kernel walks the list only once in that time.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "per_object_ns"
    )]
    pub per_object: Option<Nanos>,
}

#[cfg(test)]
mod tests {
    use super::{KernelList, WALKS};

    #[test]
    fn numbers_are_parsed_from_the_kernels_files() {
        let count = |list: KernelList, text| list.count(text);
        assert_eq!(
            count(KernelList::Inodes, "86782\t0\t0\t0\t0\n"),
            Some(86_782)
        );
        assert_eq!(
            count(KernelList::Dentries, "231879 229820 45 0\n"),
            Some(231_879)
        );
        assert_eq!(
            count(KernelList::Threads, "0.2 0.1 0.1 2/117 4213\n"),
            Some(117)
        );
        for list in KernelList::ALL {
            for text in ["", "many", "1.0 2", "-3 4 5 6/x"] {
                assert_eq!(count(list, text), None, "{list} {text}");
            }
        }
    }

    #[test]
    fn functions_have_one_list_each() {
        for (index, (function, list)) in WALKS.iter().enumerate() {
            assert_eq!(KernelList::walked_by(function), Some(*list));
            assert!(WALKS[..index].iter().all(|(other, _)| other != function));
        }
        assert_eq!(KernelList::walked_by("vfs_write"), None);
    }
}
