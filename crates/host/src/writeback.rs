//! Reads how much data the kernel writes to swap and to NFS servers.

use nix::unistd::{SysconfVar, sysconf};
use ticktax_model::machine::Writeback;

use super::Proc;

impl Proc {
    /// Reads `/proc/vmstat` and `/proc/self/mountstats`. Returns `None` if `/proc/vmstat` cannot be
    /// read.
    pub(super) fn writeback(&self) -> Option<Writeback> {
        let vmstat = self.text("proc/vmstat")?;
        let mounts = self.text("proc/self/mountstats").unwrap_or_default();
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten()?;
        Some(writeback(&vmstat, &mounts, u64::try_from(page).ok()?))
    }
}

fn writeback(vmstat: &str, mounts: &str, page_bytes: u64) -> Writeback {
    let pages = |name: &str| -> u64 {
        let value = |line: &str| {
            line.strip_prefix(name)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        };
        vmstat.lines().find_map(value).unwrap_or(0)
    };
    let bytes = |name: &str| pages(name).saturating_mul(page_bytes);
    Writeback {
        swapped_out_bytes: bytes("pswpout"),
        nfs_sent_bytes: nfs_sent(mounts),
        dirty_bytes: bytes("nr_dirty"),
        // `nr_unstable` was a separate count until Linux 5.8. Since then, it has been 0.
        writing_bytes: bytes("nr_writeback").saturating_add(bytes("nr_unstable")),
    }
}

/// Returns how many bytes were sent to NFS servers: the sixth number in the `bytes:` line of each
/// mount, summed up.
fn nfs_sent(mounts: &str) -> Option<u64> {
    let sent = |line: &str| {
        let counts = line.trim_start().strip_prefix("bytes:")?;
        counts.split_ascii_whitespace().nth(5)?.parse::<u64>().ok()
    };
    let all: Vec<u64> = mounts.lines().filter_map(sent).collect();
    (!all.is_empty()).then(|| all.iter().copied().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use ticktax_model::machine::Writeback;

    use super::writeback;

    const VMSTAT: &str =
        "nr_dirty 3\nnr_dirty_threshold 900\nnr_writeback 2\nnr_unstable 1\npswpin 8\npswpout 7\n";
    const MOUNTS: &str = "device proc mounted on /proc with fstype proc\n\
        device server:/home mounted on /home with fstype nfs4 statvers=1.1\n\
        \tage:\t100\n\tbytes:\t1 2 3 4 5 600 7 8\n\
        device server:/srv mounted on /srv with fstype nfs4 statvers=1.1\n\
        \tbytes:\t1 2 3 4 5 40 7 8\n";

    #[test]
    fn pages_and_mounts_are_summed() {
        let counts = writeback(VMSTAT, MOUNTS, 4096);
        let expected = Writeback {
            swapped_out_bytes: 7 * 4096,
            nfs_sent_bytes: Some(640),
            dirty_bytes: 3 * 4096,
            writing_bytes: 3 * 4096,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn invalid_lines_are_ignored() {
        let counts = writeback(
            "pswpout\npswpoutx 5\nnr_dirty -1\n",
            "\tbytes:\t1 2\n",
            4096,
        );
        assert_eq!(counts, Writeback::default());
    }
}
