//! The code that ticktax runs as PID 1 in a guest.
//!
//! PID 1 mounts the file systems that verbs read, and waits until the kernel has settled. It then
//! runs one verb in a child process, and sends the files that the verb wrote to the host over a
//! serial line. Finally, it reboots the machine, which makes QEMU exit.

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

/// First argument that makes ticktax act as PID 1 in a guest.
pub const WORD: &str = "lab-guest";
/// The verb that runs a case's programs in a guest.
pub const REPLAY: &str = "lab-replay";
/// File in the initramfs with the verb's command line. Each argument ends with a NUL.
pub const JOB: &str = "/lab/job";
/// File in the initramfs with the command lines of programs to run alongside the verb. Each
/// argument ends with a NUL, and each command line with another NUL.
pub const BESIDE: &str = "/lab/beside";
/// Name of the file that a verb writes its recording to.
pub const RECORDING: &str = "recording.parquet";
/// The verb's working directory. All files in it are sent to the host.
pub const OUT: &str = "/lab/out";
/// Directory for the third-party programs that the verb runs, and for their libraries.
pub const TOOLS: &str = "/lab/tools";
/// Path of the serial device over which results are sent.
const LINE: &str = Arch::HOST.line();
/// Name of the last frame, which contains the verb's exit code.
pub const EXIT: &str = "exit";
/// Name of the frame that is sent when the verb starts.
pub const BEGIN: &str = "begin";
/// File that contains the verb's standard output.
pub const STANDARD_OUTPUT: &str = "stdout";
/// File that contains the verb's standard error.
pub const STANDARD_ERROR: &str = "stderr";

/// Uptime that the guest must reach before the verb starts. By then, the kernel has refined its
/// clock calibration twice, which takes one second each time. Only then are high-resolution timers
/// available.
const SETTLED: Duration = Duration::from_secs(4);

/// Number of bytes written to the serial line at a time on kernels with threaded interrupts.
const PIECE: usize = 16 << 10;
/// Pause between two writes of [`PIECE`] bytes. With threaded interrupts, the serial line's handler
/// runs late, so the kernel considers further interrupts spurious. After 100 000 spurious
/// interrupts, each less than a tenth of a second after the one before, the kernel disables the
/// interrupt (`kernel/irq/spurious.c`). Sending the rest would then take hours.
const REST: Duration = Duration::from_millis(200);

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

/// Returns whether this process is PID 1.
pub fn is_init() -> bool {
    nix::unistd::getpid().as_raw() == 1
}

/// Does the work of PID 1 and then reboots the machine. Returns only if the reboot fails, with the
/// reason.
pub fn run() -> String {
    if let Err(error) = job() {
        // Report errors on the console, because the serial line may be what failed.
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
    // Without the seed, the guest only takes longer.
    let _ = crate::sys::seed_random_numbers();
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

/// Starts the programs in [`BESIDE`], if any. Each writes its output to its own files, which are
/// named after the program and its index.
fn start_beside() -> Result<Vec<Child>, Trouble> {
    let jobs = fs::read(BESIDE).unwrap_or_default();
    if !jobs.is_empty() {
        // Mount cgroups only for these programs, because they may need CPU quotas. In general, the
        // guest should do as little as possible.
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

/// Splits the contents of [`BESIDE`] into command lines, and each command line into its arguments.
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

/// Terminates the programs that are still running. Waiting until they have exited ensures that
/// their output files are complete.
fn end_all(running: Vec<Child>) {
    for mut child in running {
        if let Ok(pid) = i32::try_from(child.id()) {
            // If the program has already exited, this fails harmlessly.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        drop(child.wait());
    }
}

/// Lists the files in the verb's working directory, sorted by name.
fn written() -> Result<Vec<PathBuf>, Trouble> {
    let listing = fs::read_dir(OUT).map_err(trouble(format!("cannot list {OUT}")))?;
    let mut files: Vec<PathBuf> = listing.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}

/// Mounts the file systems that verbs read. Ignores failures, because a verb can do without a file
/// system that the kernel doesn't support.
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

/// Opens the serial line in raw mode.
fn open_line() -> io::Result<File> {
    let line = OpenOptions::new().read(true).write(true).open(LINE)?;
    let mut settings = tcgetattr(&line)?;
    cfmakeraw(&mut settings);
    tcsetattr(&line, SetArg::TCSANOW, &settings)?;
    Ok(line)
}

fn send(line: &mut File, frame: &Frame) -> Result<(), Trouble> {
    // Recognize a real-time kernel by its version string. `/sys/kernel/realtime` exists only on
    // kernels before 6.12 with the out-of-tree patches.
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
