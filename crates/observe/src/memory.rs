//! Ends a session before it exceeds its control group's memory limit, because the kernel would kill
//! it at that point.

use std::fs::File;
use std::os::unix::fs::FileExt;

use nix::unistd::{SysconfVar, sysconf};
use ticktax_host::Proc;

/// Fraction of the limit at which the session ends. The rest is for the report and for the kernel's
/// own data about this process, such as BPF programs.
const SHARE: f64 = 0.55;

/// Limits above this are assumed never to be reached.
const AMPLE: u64 = 1 << 30;

/// Memory limit of this process's control group.
pub(crate) struct MemoryGuard {
    limit: u64,
    page: u64,
    /// `/proc/self/statm`.
    usage: File,
}

impl MemoryGuard {
    /// Returns `None` if memory is unlimited, or if the limit is above [`AMPLE`].
    pub(crate) fn new(proc: &Proc) -> Option<Self> {
        let limit = proc.memory_limit().filter(|&limit| limit < AMPLE)?;
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten()?;
        Some(Self {
            limit,
            page: u64::try_from(page).ok()?,
            usage: File::open("/proc/self/statm").ok()?,
        })
    }

    /// Returns the limit in bytes if the process has come too close to it. `buffers` is the size of
    /// the tracer's buffers in bytes, which the kernel counts as well.
    pub(crate) fn exceeded(&self, buffers: u64) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.usage.read_at(&mut text, 0).ok()?;
        let pages = own_pages(std::str::from_utf8(&text[..length]).ok()?)?;
        is_close(pages * self.page + buffers, self.limit).then_some(self.limit)
    }
}

/// Returns how many resident pages are not backed by a file, from the contents of `statm`
/// (Documentation/filesystems/proc.rst).
fn own_pages(statm: &str) -> Option<u64> {
    let mut words = statm.split_ascii_whitespace().skip(1);
    let resident: u64 = words.next()?.parse().ok()?;
    let shared: u64 = words.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

fn is_close(used: u64, limit: u64) -> bool {
    used as f64 > limit as f64 * SHARE
}

#[cfg(test)]
mod tests {
    use super::{is_close, own_pages};

    #[test]
    fn pages_of_files_are_not_counted() {
        assert_eq!(own_pages("5000 3000 1200 400 0 900 0\n"), Some(1_800));
        assert_eq!(own_pages("5000"), None);
    }

    #[test]
    fn a_session_ends_before_the_limit() {
        assert!(!is_close(50 << 20, 96 << 20));
        assert!(is_close(60 << 20, 96 << 20));
    }
}
