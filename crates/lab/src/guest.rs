//! The code that ticktax runs as PID 1 of a guest.
//!
//! It mounts the file systems that its verbs read, and waits until the kernel has settled. It runs
//! one verb as a separate process, and sends all files that the verb wrote over a serial line.
//! Finally it restarts the machine, which makes QEMU exit.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::arch::Arch;
use crate::wire::Frame;

/// First argument that makes ticktax act as PID 1 of a guest.
pub const WORD: &str = "lab-guest";
/// Verb that runs the programs of a case in a guest.
pub const REPLAY: &str = "lab-replay";
/// File in the initramfs with the job: arguments, each ended by a NUL.
pub const JOB: &str = "/lab/job";
/// File with the programs that run during the verb. Its format is that of [`JOB`], with another NUL
/// after the last argument of each program.
pub const BESIDE: &str = "/lab/beside";
/// File in which a verb leaves its recording.
pub const RECORDING: &str = "recording.parquet";
/// Folder for the verb's files; all files in it are sent.
pub const OUT: &str = "/lab/out";
/// Folder with third-party programs that the verb runs, and their libraries.
pub const TOOLS: &str = "/lab/tools";
/// The serial line for results.
const LINE: &str = Arch::HOST.line();
/// Name of the frame with the verb's exit code, which comes last.
pub const EXIT: &str = "exit";
/// Name of the frame that marks the start of the verb.
pub const BEGIN: &str = "begin";
/// File with the verb's standard output.
pub const STANDARD_OUTPUT: &str = "stdout";
/// File with the verb's standard error.
pub const STANDARD_ERROR: &str = "stderr";

/// Time between boot and the start of the verb, on the guest's clock. High-resolution timers are
/// available only after the kernel has refined its clock calibration, which takes a second, twice.
const SETTLED: Duration = Duration::from_secs(4);

/// Number of bytes written at once to the line on kernels with threaded interrupts.
const PIECE: usize = 16 << 10;
/// Pause after each piece. Such a kernel runs the line's thread later than its interrupts come, and
/// considers them spurious. It disables the line after 100 000 of them with less than a tenth of a
/// second in between (`kernel/irq/spurious.c`). The rest of a result would then take hours.
const REST: Duration = Duration::from_millis(200);

/// Why a guest could not do its job.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
struct Trouble {
    what: String,
    why: io::Error,
}

fn trouble(what: impl Into<String>) -> impl FnOnce(io::Error) -> Trouble {
    let what = what.into();
    move |why| Trouble { what, why }
}

/// Whether this process is PID 1.
pub fn is_init() -> bool {
    nix::unistd::getpid().as_raw() == 1
}

/// Does the job, and restarts the machine. Returns only if the restart fails, with the reason.
pub fn run() -> String {
    if let Err(error) = job() {
        // Report to the console, because the line may have failed.
        drop(writeln!(io::stderr(), "ticktax in the guest: {error}"));
    }
    nix::unistd::sync();
    match reboot(RebootMode::RB_AUTOBOOT) {
        Ok(never) => match never {},
        Err(errno) => format!("cannot restart the guest: {}", errno.desc()),
    }
}

fn job() -> Result<(), Trouble> {
    mount_everything();
    let mut line = open_line().map_err(trouble(format!("cannot open {LINE}")))?;
    let job = fs::read(JOB).map_err(trouble(format!("cannot read {JOB}")))?;
    let arguments = job
        .split(|&byte| byte == 0)
        .filter(|argument| !argument.is_empty())
        .map(std::ffi::OsStr::from_bytes);
    let mut arguments = arguments.collect::<Vec<_>>().into_iter();
    let program = arguments.next().unwrap_or_default();
    fs::create_dir_all(OUT).map_err(trouble(format!("cannot create {OUT}")))?;
    let sink = |name: &str| {
        let file = Path::new(OUT).join(name);
        File::create(&file).map_err(trouble(format!("cannot create {}", file.display())))
    };
    let (output, errors) = (sink(STANDARD_OUTPUT)?, sink(STANDARD_ERROR)?);
    settle();
    send(&mut line, &Frame::new(BEGIN, Vec::new()))?;
    let beside = start_beside()?;
    let status = Command::new(program)
        .args(arguments)
        .current_dir(OUT)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .map_err(trouble(format!("cannot run {}", program.display())))?;
    end_all(beside);
    for file in written()? {
        let contents =
            fs::read(&file).map_err(trouble(format!("cannot read {}", file.display())))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        send(&mut line, &Frame::new(&name, contents))?;
    }
    let code = status.code().unwrap_or(-1);
    send(&mut line, &Frame::new(EXIT, code.to_string().into_bytes()))
}

/// Starts the additional programs, if there are any. Each writes to separate files, named after the
/// program and its index.
fn start_beside() -> Result<Vec<Child>, Trouble> {
    let jobs = fs::read(BESIDE).unwrap_or_default();
    if !jobs.is_empty() {
        // These programs may need a quota. A guest without them should do as little as possible.
        mount_one("cgroup2", "/sys/fs/cgroup");
    }
    let mut running = Vec::new();
    for (number, words) in beside(&jobs).into_iter().enumerate() {
        let (Some(program), arguments) = (words.first(), &words[1..]) else {
            continue;
        };
        let name = Path::new(program).file_name().unwrap_or_default();
        let sink = |stream: &str| {
            let file = Path::new(OUT).join(format!("{}-{number}.{stream}", name.to_string_lossy()));
            File::create(&file).map_err(trouble(format!("cannot create {}", file.display())))
        };
        let child = Command::new(program)
            .args(arguments)
            .current_dir(OUT)
            .stdin(Stdio::null())
            .stdout(sink(STANDARD_OUTPUT)?)
            .stderr(sink(STANDARD_ERROR)?)
            .spawn()
            .map_err(trouble(format!("cannot run {}", name.display())))?;
        running.push(child);
    }
    Ok(running)
}

/// Parses a file like [`BESIDE`] into the words of each program.
fn beside(jobs: &[u8]) -> Vec<Vec<&OsStr>> {
    let mut all = Vec::new();
    let mut words: Vec<&OsStr> = Vec::new();
    for word in jobs.split(|&byte| byte == 0) {
        if !word.is_empty() {
            words.push(OsStr::from_bytes(word));
        } else if !words.is_empty() {
            all.push(std::mem::take(&mut words));
        }
    }
    all
}

/// Ends the programs that are still running, so that their output is complete.
fn end_all(running: Vec<Child>) {
    for mut child in running {
        if let Ok(pid) = i32::try_from(child.id()) {
            // It may have ended on its own.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        drop(child.wait());
    }
}

/// Files that the verb wrote, sorted.
fn written() -> Result<Vec<PathBuf>, Trouble> {
    let listing = fs::read_dir(OUT).map_err(trouble(format!("cannot list {OUT}")))?;
    let mut files: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// Mounts all available file systems. A kernel that lacks one does not need it.
fn mount_everything() {
    for (kind, place) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("debugfs", "/sys/kernel/debug"),
        ("tracefs", "/sys/kernel/tracing"),
        ("tmpfs", "/tmp"),
    ] {
        mount_one(kind, place);
    }
}

fn mount_one(kind: &str, place: &str) {
    drop(fs::create_dir_all(place));
    let _ = mount(
        Some(kind),
        place,
        Some(kind),
        MsFlags::empty(),
        None::<&str>,
    );
}

/// Opens the line in raw mode.
fn open_line() -> io::Result<File> {
    let line = OpenOptions::new().read(true).write(true).open(LINE)?;
    let mut settings = tcgetattr(&line)?;
    cfmakeraw(&mut settings);
    tcsetattr(&line, SetArg::TCSANOW, &settings)?;
    Ok(line)
}

fn send(line: &mut File, frame: &Frame) -> Result<(), Trouble> {
    // /sys/kernel/realtime exists only with the patches from before 6.12.
    let version = fs::read_to_string("/proc/version");
    let realtime = version.is_ok_and(|version| version.contains("PREEMPT_RT"));
    for piece in frame.to_bytes().chunks(PIECE) {
        line.write_all(piece)
            .and_then(|()| nix::sys::termios::tcdrain(&*line).map_err(io::Error::from))
            .map_err(trouble(format!("cannot send {} over {LINE}", frame.name)))?;
        if realtime {
            thread::sleep(REST);
        }
    }
    Ok(())
}

/// Waits until the machine has been up long enough to settle.
fn settle() {
    let up = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    thread::sleep(SETTLED.saturating_sub(up));
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn programs_are_separated() {
        assert!(beside(b"").is_empty());
        let jobs = beside(b"/lab/tools/a\0-x\0\0/lab/tools/b\0\0");
        assert_eq!(jobs, [vec!["/lab/tools/a", "-x"], vec!["/lab/tools/b"]]);
    }
}
