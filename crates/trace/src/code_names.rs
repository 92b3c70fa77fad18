//! Opens sampled code, and later finds the names of the functions in it.

use std::fs::{File, OpenOptions};
use std::io::Cursor;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp, statx};
use ticktax_model::limitation::FunctionsUnnamed;
use ticktax_symbols::{
    BuildId, NamedPlaces, Pause, SymbolError, UnwindFile, functions_at, functions_in_map,
};

use crate::mounts::{Mounts, mount_of};

/// Maximum size of the kernel's code in a process, in bytes.
const LONGEST_IMAGE: u64 = 256 << 10;

/// Number of clock ticks per second in `/proc`, which is the same on all supported architectures.
const TICKS_PER_S: i64 = 100;

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

/// Facts about a file that are known without asking the server of a network file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    inode: u64,
    user: u32,
    length: u64,
    /// Time of the last change, in seconds and nanoseconds.
    changed: (i64, u32),
}

impl Facts {
    /// Returns the facts about a regular file. `flags` say whether to ask the server.
    fn of(file: &File, flags: AtFlags) -> Option<Self> {
        let flags = flags | AtFlags::EMPTY_PATH;
        let facts = statx(file, "", flags, StatxFlags::BASIC_STATS).ok()?;
        let kind = FileType::from_raw_mode(facts.stx_mode.into());
        let StatxTimestamp {
            tv_sec, tv_nsec, ..
        } = facts.stx_mtime;
        (kind == FileType::RegularFile).then_some(Self {
            inode: facts.stx_ino,
            user: facts.stx_uid,
            length: facts.stx_size,
            changed: (tv_sec, tv_nsec),
        })
    }
}

/// A file that is open, but not for reading (`O_PATH`). Opening it through `map_files` does not
/// wait for a network file system or the writer of a pipe, and has no effect on a device.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path_only: File,
    facts: Facts,
}

impl OpenFile {
    /// Opens a regular file. Refuses a symbolic link if `flags` contain `O_NOFOLLOW`.
    fn open(path: &Path, flags: i32) -> Option<Self> {
        let path_only = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | flags)
            .open(path)
            .ok()?;
        let facts = Facts::of(&path_only, AtFlags::STATX_DONT_SYNC)?;
        Some(Self { path_only, facts })
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
        let version = |facts: &Facts| (facts.length, facts.changed);
        let now = Facts::of(reader, AtFlags::STATX_SYNC_AS_STAT);
        now.is_some_and(|now| version(&now) == version(&self.facts))
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

/// The unwinding table of a file.
#[derive(Debug)]
pub(crate) enum Table {
    Known(UnwindFile<File>),
    /// The file has none, or reading it could take forever because its file system is not local.
    None,
    /// The file could not be read this time. Its process may have exited.
    Unreadable,
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
        let folder = proc.join(process.to_string());
        let mapped = folder.join(format!("map_files/{:x}-{:x}", memory.start, memory.end));
        let by_path = || {
            let path = path?;
            let is_local = Mounts::read(proc, process)?.at(path)?.is_local();
            let path = path.strip_prefix("/").ok().filter(|_| is_local)?;
            // Another file can have the path by now.
            OpenFile::open(&folder.join("root").join(path), 0)
                .filter(|file| file.facts.inode == inode)
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

    /// Opens the unwinding table of a file that `process` has mapped.
    pub(crate) fn unwind_file(&self, proc: &Path, process: u32) -> Table {
        let Self::File(file) = self else {
            return Table::Unreadable;
        };
        let mount = mount_of(&file.path_only);
        // A process in another root directory does not see all mounts that its files are on.
        let mut all = [process.to_string(), "self".to_owned()]
            .into_iter()
            .filter_map(|of| Mounts::read_in(&proc.join(of)));
        let mount = mount.and_then(|mount| all.find_map(|mounts| mounts.with_id(mount).cloned()));
        match mount {
            Some(mount) if mount.is_local() => {}
            Some(_) => return Table::None,
            None => return Table::Unreadable,
        }
        match file.reader().map(UnwindFile::read) {
            Some(Ok(Some(table))) => Table::Known(table),
            Some(Err(SymbolError::Io(_))) | None => Table::Unreadable,
            Some(Ok(None) | Err(_)) => Table::None,
        }
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
    let map = format!("tmp/perf-{pid}.map");
    let mounts = Mounts::read_in(Path::new(&folder))?;
    // Looking for the map would wait for the server of a network file system.
    let mount = mounts.at(&Path::new("/").join(&map))?;
    mount.is_local().then_some(())?;
    let path = format!("{folder}/root/{map}");
    let map = OpenFile::open(Path::new(&path), libc::O_NOFOLLOW)?;
    let started = started_ago_s(&String::from_utf8_lossy(&read("stat")?))?;
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?.tv_sec();
    let is_own = [0, user].contains(&map.facts.user);
    (is_own && map.facts.changed.0 >= now - started - 1).then_some(map)
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
