//! Finds the object that a thread waited for in a system call: a file, or the address of a futex.
//!
//! The tracer only knows the number of a file's descriptor, its inode number and its device.
//! `/proc` shows the file's path, but only a little later, when the descriptor may belong to
//! another file. The path therefore counts only if `/proc` shows the same inode number and device.
//!
//! Nothing here accesses the file itself: that could take forever on an unreachable network file
//! system.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts::{Mounts, number_in};

/// System calls of x86-64 whose first argument is a file descriptor.
const WITH_FILE: [&str; 40] = [
    "accept",
    "accept4",
    "connect",
    "copy_file_range",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fallocate",
    "fchmod",
    "fchown",
    "fcntl",
    "fdatasync",
    "flock",
    "fstat",
    "fsync",
    "ftruncate",
    "getdents",
    "getdents64",
    "ioctl",
    "io_uring_enter",
    "lseek",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmsg",
    "sendto",
    "splice",
    "sync_file_range",
    "syncfs",
    "write",
    "writev",
];

/// Magic numbers of the file systems of pipes and of sockets.
const PIPES: u64 = 0x5049_5045;
const SOCKETS: u64 = 0x534f_434b;

/// System calls whose arguments contain a path that the tracer reads, as in `bpf/waited.h`.
const WITH_PATH: [&str; 16] = [
    "lstat",
    "mkdir",
    "mkdirat",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "stat",
    "statx",
    "truncate",
    "unlink",
    "unlinkat",
];

/// Maximum number of processes whose mounts are remembered.
const MOST_PROCESSES: usize = 1 << 8;

/// A file as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) inode: u64,
    /// Major and minor number of the device.
    pub(crate) device: (u32, u32),
    /// Magic number of the file system.
    magic: u64,
}

impl FileId {
    /// Creates an ID from the device number in the kernel's own form, and the magic number of the
    /// file system. The inode number is 0 if the descriptor was not open.
    pub(crate) fn new(inode: u64, device: u32, magic: u64) -> Option<Self> {
        let device = (device >> 20, device & 0xf_ffff);
        (inode != 0).then_some(Self {
            inode,
            device,
            magic,
        })
    }

    /// Returns the name of a pipe or a socket, as `/proc` shows it.
    fn unmounted(self) -> Option<String> {
        match self.magic {
            PIPES => Some(format!("pipe:[{}]", self.inode)),
            SOCKETS => Some(format!("socket:[{}]", self.inode)),
            _ => None,
        }
    }
}

/// A file that is mapped at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedFile {
    pub(crate) path: String,
    pub(crate) inode: u64,
    pub(crate) device: (u32, u32),
}

/// Finds the objects of system calls.
#[derive(Debug)]
pub(crate) struct Objects {
    proc: PathBuf,
    sys: PathBuf,
    mounts: HashMap<u32, Mounts>,
}

/// The arguments of a system call in which a thread waited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallArguments<'a> {
    /// Name of the system call.
    pub(crate) call: &'a str,
    /// First argument.
    pub(crate) first: u64,
    /// File that the first argument stood for when the call ended, if it is a descriptor.
    pub(crate) file: Option<FileId>,
    /// Path in the arguments or, if the first argument is a descriptor, the file's name without its
    /// directory. Can be empty.
    pub(crate) path: &'a str,
}

impl Objects {
    /// Creates a finder that reads process and device information under `proc` and `sys`.
    pub(crate) fn new(proc: &Path, sys: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            sys: sys.to_owned(),
            mounts: HashMap::new(),
        }
    }

    /// Returns the object of a system call of `process`, or `None` if it is unknown.
    pub(crate) fn of_call(&mut self, process: u32, arguments: CallArguments<'_>) -> Option<String> {
        if arguments.call.starts_with("futex") && arguments.call != "futex_waitv" {
            return Some(format!("{:#x}", arguments.first));
        }
        if WITH_PATH.contains(&arguments.call) {
            return Some(arguments.path.to_owned());
        }
        let file = arguments
            .file
            .filter(|_| WITH_FILE.contains(&arguments.call))?;
        if let Some(name) = file.unmounted() {
            return Some(name);
        }
        let descriptor = arguments.first & u64::from(u32::MAX);
        let path = self.path(process, descriptor, file);
        Some(path.unwrap_or_else(|| self.without_path(file, arguments.path)))
    }

    /// Returns the object of a page fault, or `None` if no file was mapped at its address. `found`
    /// is the path and the inode number that are mapped there now, and `name` is the file's name
    /// without its directory.
    pub(crate) fn mapped(
        &self,
        found: Option<MappedFile>,
        file: Option<FileId>,
        name: &str,
    ) -> Option<String> {
        let file = file?;
        let found = found.filter(|found| (found.inode, found.device) == (file.inode, file.device));
        Some(found.map_or_else(|| self.without_path(file, name), |found| found.path))
    }

    /// Returns the path of a file that is open as `descriptor`, unless this is another file by now.
    fn path(&mut self, process: u32, descriptor: u64, file: FileId) -> Option<String> {
        let process_folder = self.proc.join(process.to_string());
        let link = process_folder.join(format!("fd/{descriptor}"));
        let before = fs::read_link(&link).ok()?;
        let about = process_folder.join(format!("fdinfo/{descriptor}"));
        let about = fs::read_to_string(about).ok()?;
        let inode = number_in(&about, "ino:")?;
        // Many objects without a path share an inode, so only a path identifies the file. The
        // program may have opened another file under the same number between these reads.
        let is_same = before.is_absolute()
            && inode == file.inode
            && self.device(process, number_in(&about, "mnt_id:")?) == Some(file.device)
            && fs::read_link(&link).is_ok_and(|after| after == before);
        let path = before.to_string_lossy().into_owned();
        is_same.then_some(path)
    }

    /// Returns the device of a mount.
    fn device(&mut self, process: u32, mount: u64) -> Option<(u32, u32)> {
        let known = self.mounts.get(&process);
        if let Some(mount) = known.and_then(|mounts| mounts.with_id(mount)) {
            return Some(mount.device);
        }
        if self.mounts.len() >= MOST_PROCESSES {
            self.mounts.clear();
        }
        let mounts = Mounts::read(&self.proc, process)?;
        let device = mounts.with_id(mount).map(|mount| mount.device);
        self.mounts.insert(process, mounts);
        device
    }

    /// Describes a file whose directory is unknown. `name` is empty if the file has none.
    fn without_path(&self, file: FileId, name: &str) -> String {
        let (major, minor) = file.device;
        let device = fs::read_link(self.sys.join(format!("dev/block/{major}:{minor}"))).ok();
        let device = device.as_ref().and_then(|path| path.file_name());
        let device = device.map_or_else(
            || format!("{major}:{minor}"),
            |device| device.to_string_lossy().into_owned(),
        );
        let place = format!("inode {} on {device}", file.inode);
        match name {
            "" => place,
            name => format!("…/{name} ({place})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{CallArguments, FileId, MappedFile, Objects};

    fn object(call: &str, file: Option<FileId>, path: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("proc/7");
        for name in ["fd", "fdinfo"] {
            fs::create_dir_all(process.join(name)).unwrap();
        }
        symlink("/var/lib/db/wal", process.join("fd/3")).unwrap();
        let about = "pos:\t0\nflags:\t02\nmnt_id:\t36\nino:\t131\n";
        fs::write(process.join("fdinfo/3"), about).unwrap();
        let mounts = "35 1 0:7 / /proc rw - proc proc rw\n36 1 254:1 / /var rw - ext4 /dev/x rw\n";
        fs::write(process.join("mountinfo"), mounts).unwrap();
        let devices = folder.path().join("sys/dev/block");
        fs::create_dir_all(&devices).unwrap();
        symlink(
            "../../devices/virtio1/block/vda/vda1",
            devices.join("254:1"),
        )
        .unwrap();
        let mut objects = Objects::new(&folder.path().join("proc"), &folder.path().join("sys"));
        let arguments = CallArguments {
            call,
            first: 3,
            file,
            path,
        };
        objects.of_call(7, arguments)
    }

    fn file(inode: u64, minor: u32) -> Option<FileId> {
        FileId::new(inode, 254 << 20 | minor, 0xef53)
    }

    #[test]
    fn a_descriptor_is_resolved_to_the_same_file() {
        let path = object("fsync", file(131, 1), "");
        assert_eq!(path.as_deref(), Some("/var/lib/db/wal"));
        let pipe = object("read", FileId::new(55, 14, 0x5049_5045), "");
        assert_eq!(pipe.as_deref(), Some("pipe:[55]"));
        let socket = object("recvfrom", FileId::new(56, 9, 0x534f_434b), "");
        assert_eq!(socket.as_deref(), Some("socket:[56]"));
    }

    #[test]
    fn a_descriptor_that_was_reused_has_no_path() {
        let other = object("fsync", file(132, 1), "log");
        assert_eq!(other.as_deref(), Some("…/log (inode 132 on vda1)"));
        let elsewhere = object("fsync", file(131, 2), "");
        assert_eq!(elsewhere.as_deref(), Some("inode 131 on 254:2"));
    }

    #[test]
    fn a_page_fault_names_the_file_only_if_it_is_still_mapped() {
        let nowhere = std::path::Path::new("/nonexistent");
        let objects = Objects::new(nowhere, nowhere);
        let mapped = |inode| {
            let found = MappedFile {
                path: "/usr/lib/x.so".to_owned(),
                inode,
                device: (254, 1),
            };
            objects.mapped(Some(found), file(131, 1), "x.so")
        };
        assert_eq!(mapped(131).as_deref(), Some("/usr/lib/x.so"));
        let other = mapped(132);
        assert_eq!(other.as_deref(), Some("…/x.so (inode 131 on 254:1)"));
        assert_eq!(objects.mapped(None, None, ""), None);
    }

    #[test]
    fn other_calls_have_other_objects() {
        assert_eq!(object("futex", file(131, 1), "").as_deref(), Some("0x3"));
        let path = object("openat", file(131, 1), "/mnt/x");
        assert_eq!(path.as_deref(), Some("/mnt/x"));
        assert_eq!(object("munmap", file(131, 1), ""), None);
        assert_eq!(object("read", None, ""), None);
    }
}
