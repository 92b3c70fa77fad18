//! A guest with a file system on a slow disk. `ticktax storage fsync` must find whose data an fsync
//! writes, in each of the file system's modes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_lab::GuestFile;
use ticktax_lab::guest::TOOLS;
use ticktax_lab::kernel::{Cache, Unpacked, fetch_kernel_package};
use ticktax_lab::qemu::{Clock, Disk};
use ticktax_model::Nanos;
use ticktax_model::storage::{Fsync, FsyncStudy, FsyncVerdict, Journal, StorageLimitation};

use crate::boot::Guest;
use crate::checks::check;
use crate::fixture::{CLOUD, kernel_in};
use crate::inside::{Outcome, ticktax};

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "storage-guest";
/// Parameter on the guest's kernel command line with the type of the file system.
const PARAMETER: &str = "ticktax.storage";

/// The partition with the file system, and its place on the guest's disk.
const PARTITION: &str = "/dev/nvme0n1p1";
const FIRST_SECTOR: u32 = 2_048;
const SECTOR_BYTES: u64 = 512;
/// Bytes that the disk writes per second. It writes up to a tenth of them at once.
const BYTES_HZ: u64 = 32 << 20;
/// Directory at which the partition is mounted.
const FOLDER: &str = "/tmp/disk";
const FOREIGN: u64 = 8 << 20;
const PAIRS: u64 = 3;
/// File with the output of commands that must fail. It is written last.
const REFUSALS: &str = "refusals";

/// User without any rights, and the result for it.
const NOBODY: u32 = 65_534;
const UNPRIVILEGED: &str = "unprivileged.json";

/// A file system to test.
pub(crate) struct FileSystem {
    /// Name of the test.
    pub(crate) test: &'static str,
    name: &'static str,
    /// Command that creates it, without the path, and the package that contains the command.
    make: &'static [&'static str],
    package: &'static str,
    bytes: u64,
    /// Kernel modules in the order in which they are loaded, with their paths below
    /// `/lib/modules/RELEASE/kernel`.
    modules: &'static [(&'static str, &'static str)],
    modes: &'static [Mode],
}

/// A mode of a file system, and what an fsync writes in it.
struct Mode {
    name: &'static str,
    options: &'static str,
    arguments: &'static [&'static str],
    journal: Journal,
    verdict: FsyncVerdict,
}

/// With delayed allocation, new data has no blocks yet, so a commit of ext4's journal does not wait
/// for it. Without, the mode `ordered` writes it before the commit. Journals are not committed at
/// regular intervals during the test.
const EXT4_MODES: &[Mode] = &[
    Mode {
        name: "ordered-new",
        options: "data=ordered,commit=300",
        arguments: &[],
        journal: Journal::Ordered,
        verdict: FsyncVerdict::Metadata,
    },
    ORDERED_AT_ONCE,
    Mode {
        name: "writeback-allocated",
        options: "data=writeback,nodelalloc,commit=300",
        arguments: &[],
        journal: Journal::Writeback,
        verdict: FsyncVerdict::Metadata,
    },
    Mode {
        name: "ordered-overwritten",
        options: "data=ordered,nodelalloc,commit=300",
        arguments: &["--foreign-data", "overwritten"],
        journal: Journal::Ordered,
        verdict: FsyncVerdict::Metadata,
    },
    Mode {
        name: "journalled",
        options: "data=journal,commit=300",
        arguments: &["--overwrite"],
        journal: Journal::Data,
        verdict: FsyncVerdict::Partition,
    },
];
/// The result in this mode is also printed as text and HTML.
const ORDERED_AT_ONCE: Mode = Mode {
    name: "ordered-allocated",
    options: "data=ordered,nodelalloc,commit=300",
    arguments: &[],
    journal: Journal::Ordered,
    verdict: FsyncVerdict::Partition,
};
const TEXT: &str = "page.txt";
const HTML: &str = "page.html";

const XFS_MODES: &[Mode] = &[
    Mode {
        name: "xfs-new",
        options: "",
        arguments: &[],
        journal: Journal::Metadata,
        verdict: FsyncVerdict::Metadata,
    },
    Mode {
        name: "xfs-overwritten",
        options: "",
        arguments: &["--foreign-data", "overwritten"],
        journal: Journal::Metadata,
        verdict: FsyncVerdict::Metadata,
    },
];

const BTRFS_MODES: &[Mode] = &[
    Mode {
        name: "btrfs-new",
        options: "commit=300",
        arguments: &[],
        journal: Journal::CopyOnWrite,
        verdict: FsyncVerdict::Metadata,
    },
    Mode {
        name: "btrfs-overwritten",
        options: "commit=300",
        arguments: &["--foreign-data", "overwritten"],
        journal: Journal::CopyOnWrite,
        verdict: FsyncVerdict::Metadata,
    },
];

pub(crate) const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        test: "an_fsyncs_writes_on_ext4_are_attributed_to_their_owners",
        name: "ext4",
        // Without lazy initialization, nothing but the test writes to the disk.
        make: &[
            "mke2fs",
            "-q",
            "-F",
            "-t",
            "ext4",
            "-J",
            "size=64",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
        ],
        package: "e2fsprogs",
        bytes: 256 << 20,
        modules: &[],
        modes: EXT4_MODES,
    },
    FileSystem {
        test: "an_fsyncs_writes_on_xfs_are_attributed_to_their_owners",
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f"],
        package: "xfsprogs",
        bytes: 320 << 20,
        modules: &[("libcrc32c.ko", "lib"), ("xfs.ko", "fs/xfs")],
        modes: XFS_MODES,
    },
    FileSystem {
        test: "an_fsyncs_writes_on_btrfs_are_attributed_to_their_owners",
        name: "btrfs",
        make: &["mkfs.btrfs", "-q", "-f"],
        package: "btrfs-progs",
        bytes: 256 << 20,
        modules: &[
            ("libcrc32c.ko", "lib"),
            ("xor.ko", "crypto"),
            ("raid6_pq.ko", "lib/raid6"),
            ("zstd_compress.ko", "lib/zstd"),
            ("blake2b_generic.ko", "crypto"),
            ("btrfs.ko", "fs/btrfs"),
        ],
        modes: BTRFS_MODES,
    },
];

impl FileSystem {
    /// Returns why this file system cannot be tested here, or `None` if it can.
    pub(crate) fn why_not(&self) -> Option<String> {
        if !self.modules.is_empty() && cfg!(not(target_arch = "x86_64")) {
            return Some("its kernel module is only known for x86-64".to_owned());
        }
        let (program, package) = (self.make[0], self.package);
        let is_missing = Command::new(program).arg("-V").output().is_err();
        is_missing.then(|| format!("{program} is missing (apt-get install {package})"))
    }

    /// Creates a disk with one partition that contains the file system.
    fn make_disk(&self, folder: &Path) -> Outcome<PathBuf> {
        let (contents, disk) = (folder.join("partition"), folder.join("disk"));
        let contents_file = File::create_new(&contents)?;
        contents_file.set_len(self.bytes)?;
        let made = Command::new(self.make[0])
            .args(&self.make[1..])
            .arg(&contents)
            .output()?;
        check(made.status.success(), || {
            let errors = String::from_utf8_lossy(&made.stderr);
            format!("{:?} failed: {errors}", self.make)
        })?;
        let begin = u64::from(FIRST_SECTOR) * SECTOR_BYTES;
        let disk_file = File::create_new(&disk)?;
        disk_file.set_len(begin + self.bytes)?;
        let sectors = u32::try_from(self.bytes / SECTOR_BYTES)?;
        disk_file.write_all_at(&partition_table(sectors), 0)?;
        let contents_file = File::open(&contents)?;
        let mut block = vec![0; 64 << 10];
        for at in (0..self.bytes).step_by(block.len()) {
            contents_file.read_exact_at(&mut block, at)?;
            // Leave holes.
            if block.iter().any(|&byte| byte != 0) {
                disk_file.write_all_at(&block, begin + at)?;
            }
        }
        fs::remove_file(contents)?;
        Ok(disk)
    }

    /// Returns the kernel and its modules. Only some file systems are built into the kernel.
    fn kernel(&self) -> Outcome<(String, Vec<GuestFile>, Option<Unpacked>)> {
        if self.modules.is_empty() {
            return Ok((CLOUD.to_owned(), Vec::new(), None));
        }
        let variable = std::env::var_os;
        let cache = Cache::of_user(variable("XDG_CACHE_HOME"), variable("HOME"))?;
        let package = fetch_kernel_package(CLOUD, &cache, &mut |_| {})?;
        let (kernel, release) = kernel_in(&package)?;
        let folder = package.files.join("lib/modules").join(release);
        let file = |&(name, below): &(&str, &str)| GuestFile {
            name: name.to_owned(),
            file: folder.join("kernel").join(below).join(name),
        };
        let files = self.modules.iter().map(file).collect();
        let kernel = kernel.to_string_lossy().into_owned();
        Ok((kernel, files, Some(package)))
    }
}

/// Returns a master boot record with one partition.
fn partition_table(sectors: u32) -> Vec<u8> {
    /// Position of the first partition's entry.
    const ENTRY: usize = 446;
    /// Type of a partition with a Linux file system.
    const LINUX: u8 = 0x83;
    let mut record = vec![0; 512];
    record[ENTRY + 4] = LINUX;
    record[ENTRY + 8..ENTRY + 12].copy_from_slice(&FIRST_SECTOR.to_le_bytes());
    record[ENTRY + 12..ENTRY + 16].copy_from_slice(&sectors.to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}

/// Runs in the guest.
pub(crate) fn run() -> Outcome {
    let parameters = fs::read_to_string("/proc/cmdline")?;
    let name = parameters
        .split_whitespace()
        .find_map(|word| word.strip_prefix(PARAMETER)?.strip_prefix('='));
    let tested = FILE_SYSTEMS
        .iter()
        .find(|tested| Some(tested.name) == name)
        .ok_or("no file system is named")?;
    for (module, _) in tested.modules {
        let file = File::open(Path::new(TOOLS).join(module))?;
        finit_module(&file, c"", ModuleInitFlags::empty())
            .map_err(|errno| format!("cannot load {module}: {errno}"))?;
    }
    fs::create_dir_all(FOLDER)?;
    // The flusher would write data that must be dirty. Zero would wake it at once.
    fs::write("/proc/sys/vm/dirty_writeback_centisecs", "360000")?;
    for mode in tested.modes {
        let mut command = fsync(FOLDER, FOREIGN, PAIRS);
        command.args(mode.arguments);
        mounted(tested.name, mode.options, || {
            let output = File::create(format!("{}.json", mode.name))?;
            let status = command.stdout(output).status()?;
            no_files_are_left()?;
            check(status.success(), || format!("it failed ({})", mode.name))
        })?;
    }
    let refused = File::create(REFUSALS)?;
    if tested.name != "ext4" {
        return Ok(());
    }
    mounted("ext4", ORDERED_AT_ONCE.options, || {
        let mut command = ticktax();
        command.args(["storage", "fsync", "--foreign", "8M", "--pairs", "5"]);
        command.args(["--dir", FOLDER, "--html", HTML]);
        let status = command.stdout(File::create(TEXT)?).status()?;
        check(status.success(), || "no text was printed".to_owned())
    })?;
    mounted("ext4", "", || {
        refuse(&mut fsync(FOLDER, 1 << 30, PAIRS), &refused)?;
        stop_early()?;
        fs::set_permissions(FOLDER, fs::Permissions::from_mode(0o777))?;
        let mut command = fsync(FOLDER, FOREIGN, PAIRS);
        let output = File::create(UNPRIVILEGED)?;
        let status = command.uid(NOBODY).gid(NOBODY).stdout(output).status()?;
        no_files_are_left()?;
        check(status.success(), || "it failed without root".to_owned())
    })?;
    mounted("ext4", "ro", || {
        refuse(&mut fsync(FOLDER, FOREIGN, PAIRS), &refused)
    })?;
    refuse(&mut fsync("/dev", FOREIGN, PAIRS), &refused)
}

/// Returns the command that measures fsyncs in a directory. Its output is JSON.
fn fsync(folder: &str, foreign_bytes: u64, pairs: u64) -> Command {
    let mut command = ticktax();
    command.args(["storage", "fsync", "--format", "json", "--fsyncs", "3"]);
    command.args(["--foreign", &foreign_bytes.to_string()]);
    command.args(["--pairs", &pairs.to_string()]);
    command.args(["--dir", folder]);
    command
}

/// Mounts the partition with these options while `work` runs.
fn mounted(file_system: &str, options: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let (flags, options) = match options {
        "ro" => (MsFlags::MS_RDONLY, None),
        options => (MsFlags::empty(), Some(options)),
    };
    mount(Some(PARTITION), FOLDER, Some(file_system), flags, options)?;
    let done = work();
    umount(FOLDER)?;
    done
}

fn no_files_are_left() -> Outcome {
    let names = fs::read_dir(FOLDER)?
        .flatten()
        .map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name != "lost+found").collect();
    check(left.is_empty(), || format!("{left:?} are left"))
}

/// Runs a command that must fail with one line.
fn refuse(command: &mut Command, refused: &File) -> Outcome {
    let status = command
        .stdout(Stdio::null())
        .stderr(refused.try_clone()?)
        .status()?;
    check(status.code() == Some(1), || {
        format!("{command:?} ended with {status}")
    })
}

/// Stops a measurement while its files exist.
fn stop_early() -> Outcome {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut command = fsync(FOLDER, FOREIGN, 1_000);
        let mut running = command.stdout(Stdio::null()).spawn()?;
        while no_files_are_left().is_ok() {
            if let Some(status) = running.try_wait()? {
                return Err(format!("it ended early with {status}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        // A second signal must not prevent the removal.
        for _ in 0..2 {
            kill(Pid::from_raw(i32::try_from(running.id())?), signal)?;
        }
        running.wait()?;
        no_files_are_left()?;
    }
    Ok(())
}

pub(crate) fn test(tested: &FileSystem) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let image = tested.make_disk(folder.path())?;
    let (kernel, files, _unpacked) = tested.kernel()?;
    let cmdline = format!("{PARAMETER}={}", tested.name);
    let guest = Guest {
        kernel: &kernel,
        cmdline: &cmdline,
        clock: Clock::Tcg,
        disk: Some(Disk::File {
            path: &image,
            write_bytes_hz: Some(BYTES_HZ),
        }),
        files: &files,
        ..Guest::counting(VERB)
    };
    let returned = guest.returned("TICKTAX_STORAGE_FOLDER", REFUSALS)?;
    for mode in tested.modes {
        judge(mode, &returned.folder)?;
    }
    if tested.name != "ext4" {
        return Ok(());
    }
    for page in [TEXT, HTML] {
        let page = fs::read_to_string(returned.folder.join(page))?;
        check(page.contains("PARTITION"), || page.clone())?;
    }
    let text = fs::read(returned.folder.join(UNPRIVILEGED))?;
    let found: FsyncStudy = serde_json::from_slice(&text)?;
    let is_untraced = |limitation: &_| matches!(limitation, StorageLimitation::NotTraced { .. });
    check(
        found.verdict.is_none() && found.limitations.iter().any(is_untraced),
        || format!("{found:#?}"),
    )?;
    let counts_bytes = |fsync: &Fsync| fsync.disk_bytes >= Some(4_096);
    check(found.fsyncs.iter().all(counts_bytes), || {
        format!("{found:#?}")
    })?;
    let refusals = fs::read_to_string(returned.folder.join(REFUSALS))?;
    let lines: Vec<&str> = refusals.lines().collect();
    let expected = [
        "MiB are free",
        "mounted read-only",
        "disk to which devtmpfs writes is unknown",
    ];
    let is_refused = |(line, words): (&&str, &str)| line.contains(words);
    check(
        lines.len() == expected.len() && lines.iter().zip(expected).all(is_refused),
        || refusals.clone(),
    )
}

fn judge(mode: &Mode, folder: &Path) -> Result<(), Failed> {
    let text = fs::read(folder.join(format!("{}.json", mode.name)))?;
    let found: FsyncStudy = serde_json::from_slice(&text)?;
    let context = || format!("{}: {found:#?}", mode.name);
    check(found.mount.journal == Some(mode.journal), context)?;
    check(found.verdict == Some(mode.verdict), context)?;
    let is_lossless = |limitation: &StorageLimitation| {
        !matches!(
            limitation,
            StorageLimitation::Lost { .. } | StorageLimitation::NotTraced { .. }
        )
    };
    check(found.limitations.iter().all(is_lossless), context)?;
    // The disk's own counters.
    let counters = found.check.ok_or("no counters")?;
    check(counters.difference() <= 0.01, context)?;
    check(counters.counted_bytes >= PAIRS * FOREIGN, context)?;
    for fsync in &found.fsyncs {
        let own = fsync.own.ok_or("no owners")?;
        check(own.metadata_bytes > 0, context)?;
        check(own.elsewhere_bytes + own.unknown_bytes == 0, context)?;
        if mode.journal != Journal::Data {
            check(own.file_bytes == 4_096, context)?;
        }
        let is_written = fsync.with_foreign && mode.verdict == FsyncVerdict::Partition;
        let foreign = if is_written { FOREIGN } else { 0 };
        check(own.foreign_bytes == foreign, context)?;
        check(fsync.disk_bytes >= Some(own.bytes()), context)?;
        // The disk writes a tenth of a second's bytes at once.
        let at_once = BYTES_HZ / 10;
        let slow = own.bytes().saturating_sub(at_once) as f64 / BYTES_HZ as f64;
        check(fsync.length.as_secs_f64() >= slow * 0.99, context)?;
        let waits = fsync.waits.ok_or("no waits")?;
        if is_written {
            check(waits.others.as_secs_f64() >= slow * 0.99, context)?;
        } else {
            check(waits.others == Nanos::ZERO, context)?;
        }
    }
    let effect = found.effect.ok_or("no effect")?;
    check(effect.pairs == PAIRS, context)?;
    if mode.verdict == FsyncVerdict::Partition {
        check(effect.mean > Nanos::from_millis(100), context)?;
    }
    Ok(())
}
