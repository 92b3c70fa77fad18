//! The mounts of a process, as its `mountinfo` lists them.
//!
//! The list comes from the kernel's memory. Unlike `statfs`, reading it does not ask the server of
//! a network file system, which may never answer.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Types of file systems whose files may be on another machine or come from a program. A type with
/// a suffix, such as `fuse.sshfs`, counts as the type before the dot.
const REMOTE: [&str; 19] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs2", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs",
];

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    id: u64,
    /// Major and minor number of the device.
    pub(crate) device: (u32, u32),
    /// Directory in which it is mounted.
    point: PathBuf,
    /// Type of the file system.
    system: String,
}

impl Mount {
    /// Returns whether reading a file needs neither another machine nor another program.
    pub(crate) fn is_local(&self) -> bool {
        let kind = self.system.split('.').next().unwrap_or_default();
        !REMOTE.contains(&kind)
    }

    /// Parses a line such as `36 35 98:0 /mnt1 /mnt2 rw master:1 - ext3 /dev/root rw`.
    fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.parse().ok()?;
        let (major, minor) = words.nth(1)?.split_once(':')?;
        let point = words.nth(1)?;
        let system = words.skip_while(|&word| word != "-").nth(1)?;
        Some(Self {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            point: unescaped(point),
            system: system.to_owned(),
        })
    }
}

/// The mounts that a process sees, in the order in which the kernel lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads the mounts of a process. Returns `None` if it has exited.
    pub(crate) fn read(proc: &Path, process: u32) -> Option<Self> {
        Self::read_in(&proc.join(process.to_string()))
    }

    /// Reads the mounts of the process whose directory in `/proc` is `folder`.
    pub(crate) fn read_in(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join("mountinfo")).ok()?;
        let text = String::from_utf8_lossy(&text);
        Some(Self(text.lines().filter_map(Mount::from_line).collect()))
    }

    /// Returns the mount with an ID, as `fdinfo` shows it.
    pub(crate) fn with_id(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Returns the mount that contains an absolute path without links. The last mount at a
    /// directory hides the earlier ones.
    pub(crate) fn at(&self, path: &Path) -> Option<&Mount> {
        let containing = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        containing.max_by_key(|mount| mount.point.as_os_str().len())
    }
}

/// Returns the ID of the mount of one of ticktax's own open files.
pub(crate) fn mount_of(file: &impl AsRawFd) -> Option<u64> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    number_in(&about, "mnt_id:")
}

/// Returns the number on the line that starts with `name` in the text of `fdinfo`.
pub(crate) fn number_in(about: &str, name: &str) -> Option<u64> {
    let value = about.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

/// Replaces octal numbers such as `\040`, which stand for spaces, line breaks and backslashes.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Mounts, mount_of};

    const MOUNTS: &str = "\
21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
35 21 0:7 / /proc rw - proc proc rw
36 21 0:44 / /srv/game\\040data rw shared:9 master:2 - nfs4 server:/x rw
37 21 0:45 / /srv/user rw - fuse.sshfs host: rw
38 37 8:2 / /srv/user rw - xfs /dev/sda2 rw
garbage
";

    #[test]
    fn the_type_of_a_file_system_shows_whether_it_is_local() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/mountinfo"), MOUNTS).unwrap();
        assert_eq!(Mounts::read(folder.path(), 8), None);
        let mounts = Mounts::read(folder.path(), 7).unwrap();
        let local = |path: &str| mounts.at(Path::new(path)).map(super::Mount::is_local);
        assert_eq!(local("/usr/lib/x.so"), Some(true));
        assert_eq!(local("/srv/game data/x.so"), Some(false));
        assert_eq!(local("/srv/game data 2/x.so"), Some(true));
        // A later mount hides the first one.
        assert_eq!(local("/srv/user/x.so"), Some(true));
        assert_eq!(local("x.so"), None);
        let by_id = |id| {
            mounts
                .with_id(id)
                .map(|mount| (mount.device, mount.is_local()))
        };
        assert_eq!(by_id(36), Some(((0, 44), false)));
        assert_eq!(by_id(37), Some(((0, 45), false)));
        assert_eq!(by_id(38), Some(((8, 2), true)));
        assert_eq!(by_id(99), None);
    }

    #[test]
    fn the_mount_of_an_open_file_is_listed() {
        let process = std::process::id();
        let mounts = Mounts::read(Path::new("/proc"), process).unwrap();
        let id = mount_of(&fs::File::open("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(mounts.with_id(id).unwrap().system, "proc");
    }
}
