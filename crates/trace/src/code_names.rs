//! Opens sampled code, and later finds the names of the functions in it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Cursor;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::statfs::fstatfs;
use nix::time::{ClockId, clock_gettime};
use ticktax_model::limitation::FunctionsUnnamed;
use ticktax_symbols::{
    BuildId, NamedPlaces, Pause, SymbolError, UnwindFile, functions_at, functions_in_map,
};

/// Maximum size of the kernel's code in a process, in bytes.
const LONGEST_IMAGE: u64 = 256 << 10;

/// Number of clock ticks per second in `/proc`, which is the same on all supported architectures.
const TICKS_PER_S: i64 = 100;

/// Magic numbers of file systems whose files may be on another machine or come from a program: 9p,
/// AFS, Ceph, CIFS, FUSE, NFS and SMB.
const REMOTE: [i128; 9] = [
    0x0102_1997,
    0x5346_414f,
    0x6b41_4653,
    0x00c3_6400,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x6969,
    0x517b,
];

/// Sampled code, which was opened or copied at its first sample.
#[derive(Debug, Default)]
pub(crate) enum Code {
    /// A file.
    File(OpenFile),
    /// Code that the kernel provides to each process (the vDSO).
    Image(Vec<u8>),
    /// Code that a process generated. Its functions are in the process's perf map, if it has one.
    Generated(Option<Process>),
    /// Code that could not be opened.
    #[default]
    Unreadable,
}

/// Names that were found for sampled code.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) build_id: Option<BuildId>,
    pub(crate) functions: Vec<NamedPlaces>,
    /// Why the other functions have no names.
    pub(crate) reason: FunctionsUnnamed,
}

impl Default for Found {
    /// The search did not finish.
    fn default() -> Self {
        Self::nothing(FunctionsUnnamed::TooMany)
    }
}

impl Found {
    fn nothing(reason: FunctionsUnnamed) -> Self {
        Self {
            build_id: None,
            functions: Vec::new(),
            reason,
        }
    }
}

/// A file that is open, but not for reading (`O_PATH`). Opening it does not wait for a network file
/// system or the writer of a pipe, and has no effect on a device.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path_only: File,
    facts: Metadata,
}

impl OpenFile {
    /// Opens a regular file. Refuses a symbolic link if `flags` contain `O_NOFOLLOW`.
    fn open(path: &Path, flags: i32) -> Option<Self> {
        let path_only = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | flags)
            .open(path)
            .ok()?;
        let facts = path_only.metadata().ok()?;
        facts.is_file().then_some(Self { path_only, facts })
    }

    fn copy(&self) -> Option<Self> {
        Some(Self {
            path_only: self.path_only.try_clone().ok()?,
            facts: self.facts.clone(),
        })
    }

    /// Opens the file for reading.
    fn reader(&self) -> Option<File> {
        File::open(own_descriptor(&self.path_only)).ok()
    }

    /// Returns whether the file's contents were not changed since it was opened.
    fn is_unchanged(&self, reader: &File) -> bool {
        let version = |facts: &Metadata| (facts.len(), facts.mtime(), facts.mtime_nsec());
        reader
            .metadata()
            .is_ok_and(|now| version(&now) == version(&self.facts))
    }
}

fn own_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A process, and the perf map that it had at the first sample. The directory in `/proc` stays that
/// of this process, even if another process gets the same ID later.
#[derive(Debug)]
pub(crate) struct Process {
    folder: File,
    map: Option<OpenFile>,
}

impl Code {
    /// Opens a file that `process` has mapped to a range of its `memory`. `path` is the
    /// mapping's path, unless the file was deleted.
    pub(crate) fn mapped(
        proc: &Path,
        process: u32,
        memory: &Range<u64>,
        path: Option<&Path>,
        inode: u64,
    ) -> Self {
        let process = proc.join(process.to_string());
        let mapped = process.join(format!("map_files/{:x}-{:x}", memory.start, memory.end));
        let by_path = || {
            let path = path?.strip_prefix("/").ok()?;
            // Another file can have the path by now.
            OpenFile::open(&process.join("root").join(path), 0)
                .filter(|file| file.facts.ino() == inode)
        };
        let file = OpenFile::open(&mapped, 0).or_else(by_path);
        file.map_or(Self::Unreadable, Self::File)
    }

    /// Copies code that the kernel provides from the memory of `process`.
    pub(crate) fn from_memory(proc: &Path, process: u32, memory: &Range<u64>) -> Self {
        let length = memory.end.saturating_sub(memory.start).min(LONGEST_IMAGE);
        let mut image = vec![0; usize::try_from(length).unwrap_or(0)];
        let file = File::open(proc.join(format!("{process}/mem")));
        match file.and_then(|file| file.read_exact_at(&mut image, memory.start)) {
            Ok(()) => Self::Image(image),
            Err(_) => Self::Unreadable,
        }
    }

    /// Remembers a process that generates code.
    pub(crate) fn generated(proc: &Path, process: u32) -> Self {
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(proc.join(process.to_string()));
        Self::Generated(folder.ok().map(|folder| {
            let map = perf_map(&folder);
            Process { folder, map }
        }))
    }

    /// Returns a copy with its own handles. If too many files are open, the copy is unreadable.
    pub(crate) fn copy(&self) -> Self {
        match self {
            Self::File(file) => file.copy().map_or(Self::Unreadable, Self::File),
            Self::Image(image) => Self::Image(image.clone()),
            Self::Generated(process) => Self::Generated(process.as_ref().and_then(|process| {
                let folder = process.folder.try_clone().ok()?;
                let map = process.map.as_ref().and_then(OpenFile::copy);
                Some(Process { folder, map })
            })),
            Self::Unreadable => Self::Unreadable,
        }
    }

    /// Opens the unwinding table of a file. Returns `None` if it has none, or if reading it could
    /// take forever because it is not on a local file system.
    pub(crate) fn unwind_file(&self) -> Option<UnwindFile<File>> {
        let Self::File(file) = self else {
            return None;
        };
        let system = fstatfs(&file.path_only).ok()?.filesystem_type().0;
        // C libraries disagree about the sign of this number.
        if REMOTE.contains(&i128::from(system)) {
            return None;
        }
        UnwindFile::read(file.reader()?).ok().flatten()
    }

    /// Finds the functions at `offsets`. `process` has or had the code in its memory.
    pub(crate) fn find(
        self,
        proc: &Path,
        process: u32,
        offsets: &[u64],
        pause: Pause<'_>,
    ) -> Found {
        match self {
            Self::File(file) => in_file(&file, proc, process, offsets, pause)
                .unwrap_or_else(|| Found::nothing(FunctionsUnnamed::Unreadable)),
            Self::Image(image) => {
                let named = functions_at(Cursor::new(image), &mut |_| Vec::new(), offsets, pause);
                found(named)
            }
            Self::Generated(process) => {
                let functions = process.and_then(|process| {
                    let map = process.map.or_else(|| perf_map(&process.folder))?;
                    functions_in_map(map.reader()?, offsets, pause).ok()
                });
                Found {
                    functions: functions.unwrap_or_default(),
                    ..Found::nothing(FunctionsUnnamed::NoPerfMap)
                }
            }
            Self::Unreadable => Found::nothing(FunctionsUnnamed::Unreadable),
        }
    }
}

/// Finds functions in a file. Returns `None` if it cannot be read or was changed.
fn in_file(
    file: &OpenFile,
    proc: &Path,
    process: u32,
    offsets: &[u64],
    pause: Pause<'_>,
) -> Option<Found> {
    let reader = file.reader()?;
    let roots = [
        Path::new("/").to_owned(),
        proc.join(format!("{process}/root")),
    ];
    let mut debug = |id: &BuildId| {
        let path = Path::new("usr/lib/debug").join(id.debug_path());
        let files = roots.iter().filter_map(|root| {
            let file = OpenFile::open(&root.join(&path), 0)?;
            file.reader()
        });
        files.collect()
    };
    let named = functions_at(reader.try_clone().ok()?, &mut debug, offsets, pause);
    file.is_unchanged(&reader).then(|| found(named))
}

fn found(named: Result<ticktax_symbols::Named, SymbolError>) -> Found {
    match named {
        Ok(named) => Found {
            build_id: named.build_id,
            functions: named.functions,
            reason: if named.has_all {
                FunctionsUnnamed::NotInTable
            } else {
                FunctionsUnnamed::Stripped
            },
        },
        Err(SymbolError::Io(_)) => Found::nothing(FunctionsUnnamed::Unreadable),
        Err(_) => Found::nothing(FunctionsUnnamed::Stripped),
    }
}

/// Opens the perf map of the process whose directory in `/proc` is `folder`. Anybody can create
/// files in `/tmp`, so the map must belong to the process's user or to root. A map that was written
/// before the process started belonged to an earlier process with the same ID.
fn perf_map(folder: &File) -> Option<OpenFile> {
    let folder = own_descriptor(folder);
    let read = |name: &str| std::fs::read(format!("{folder}/{name}")).ok();
    let status = String::from_utf8_lossy(&read("status")?).into_owned();
    let (pid, user) = pid_and_user(&status)?;
    let path = format!("{folder}/root/tmp/perf-{pid}.map");
    let map = OpenFile::open(Path::new(&path), libc::O_NOFOLLOW)?;
    let started = started_ago_s(&String::from_utf8_lossy(&read("stat")?))?;
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?.tv_sec();
    let is_own = [0, user].contains(&map.facts.uid());
    (is_own && map.facts.mtime() >= now - started - 1).then_some(map)
}

/// Returns the process ID inside the process's own PID namespace, and its effective user ID.
fn pid_and_user(status: &str) -> Option<(u32, u32)> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let pid = line("NSpid:")?.split_ascii_whitespace().next_back()?;
    let user = line("Uid:")?.split_ascii_whitespace().nth(1)?;
    Some((pid.parse().ok()?, user.parse().ok()?))
}

/// Returns how long ago a process started, in seconds, from the text of `/proc/PID/stat`.
fn started_ago_s(stat: &str) -> Option<i64> {
    // The name can contain spaces and brackets.
    let fields = stat.rsplit_once(')')?.1;
    let start: i64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    Some(now.tv_sec() - start / TICKS_PER_S)
}

#[cfg(test)]
mod tests;
