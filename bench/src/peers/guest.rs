//! Runs an audit, rtla and cyclictest in the guest, one after the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ticktax_host::Proc;
use ticktax_lab::{LabError, guest};
use ticktax_model::recording::World;

use super::statement::Peer;
use super::{
    CYCLICTEST, EVENTS, OSNOISE, OSNOISE_THRESHOLD, PeersError, RECORDING, RUNS, Ran, TIMERLAT,
};

/// The subcommand of this program that runs in the guest.
pub const VERB: &str = "peers-guest";
/// Name of the ticktax executable in the guest.
pub(super) const AUDIT: &str = "ticktax";
/// Exit code of an audit that finished but whose accounts do not balance.
const UNBALANCED: i32 = 3;

/// Directory in which the kernel provides its tracers.
const TRACEFS: &str = "/sys/kernel/tracing";
/// The osnoise tracer's events: gaps in its loop, and the interferences that cause them.
const OSNOISE_EVENTS: [&str; 5] = [
    "sample_threshold",
    "irq_noise",
    "softirq_noise",
    "thread_noise",
    "nmi_noise",
];
/// Size of the trace buffer on each CPU, in KiB. That is plenty: an event takes about 60 bytes, and
/// there are about a thousand events per second.
const ROOM: &str = "8192";

/// Measurement period of osnoise, in µs. The sums that osnoise prints cover only complete periods,
/// so with a short period little time is missing from them.
const PERIOD: &str = "100000";

/// Runs every tool for `seconds` and leaves its output in the current directory. If a tool fails,
/// continues with the next one.
///
/// # Errors
/// Returns an error outside a lab guest, where the tools could starve other programs. Also returns
/// an error if the tracer's events cannot be recorded, or if the output cannot be written.
pub fn run(seconds: u32) -> Result<(), PeersError> {
    if ticktax_host::world(&Proc::default().machine()).0 != World::Lab {
        let why = format!("{VERB} is for a lab's guest alone: run `ticktax-bench peers`");
        return Err(PeersError::Place(why));
    }
    let length = format!("{seconds}s");
    let runs = [
        audit(&length),
        osnoise(&length).map_err(|error| not_done("record osnoise's events", &error))?,
        timerlat(&length),
        cyclictest(seconds),
    ];
    let text = serde_json::to_string(&runs).unwrap_or_default();
    fs::write(RUNS, text).map_err(|error| not_done("write what was run", &error))
}

fn audit(length: &str) -> Ran {
    let mut command = Command::new(Path::new(guest::TOOLS).join(AUDIT));
    command.args([
        "audit", "--probe", "spin", "--for", length, "--keep", "spans",
    ]);
    command.args(["--output", "statement.txt", "--save", RECORDING]);
    let mut ran = ran(Peer::Audit, &mut command, None);
    // Show a shorter command, without the paths of the files, which do not matter.
    ran.command = format!("ticktax audit --probe spin --for {length}");
    ran
}

fn osnoise(length: &str) -> io::Result<Ran> {
    if let Some(absent) = without_tracer(Peer::Osnoise) {
        return Ok(absent);
    }
    let events = Events::record()?;
    let mut command = tool("rtla");
    command.args(["osnoise", "top", "--quiet", "--duration", length]);
    command.args(["--period", PERIOD, "--runtime", PERIOD]);
    command.args(["--threshold", &OSNOISE_THRESHOLD.to_string()]);
    let ran = ran(Peer::Osnoise, &mut command, Some(OSNOISE));
    events.keep(EVENTS)?;
    Ok(ran)
}

fn timerlat(length: &str) -> Ran {
    without_tracer(Peer::Timerlat).unwrap_or_else(|| {
        let mut command = tool("rtla");
        command.args(["timerlat", "top", "--quiet", "--nano", "--duration", length]);
        ran(Peer::Timerlat, &mut command, Some(TIMERLAT))
    })
}

/// Runs cyclictest with timerlat's default priority and interval.
fn cyclictest(seconds: u32) -> Ran {
    let mut command = tool("cyclictest");
    command.args(["--quiet", "--nsecs", "--mlockall", "--smp"]);
    command.args(["--priority=95", "--interval=1000", "--duration"]);
    command.arg(seconds.to_string());
    ran(Peer::Cyclictest, &mut command, Some(CYCLICTEST))
}

/// Creates a command for a program that the host copied into the guest.
fn tool(name: &str) -> Command {
    let mut command = Command::new(Path::new(guest::TOOLS).join(name));
    command.env("LD_LIBRARY_PATH", guest::TOOLS);
    command
}

/// Runs a tool until it exits, and saves its output in `file` if one is given.
fn ran(peer: Peer, command: &mut Command, file: Option<&str>) -> Ran {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    Ran {
        peer,
        command: words.join(" "),
        failed: finish(peer, command, file).err(),
        absent: None,
    }
}

fn finish(peer: Peer, command: &mut Command, file: Option<&str>) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("it cannot be run: {}", error.kind()))?;
    if let Some(file) = file {
        fs::write(file, &output.stdout).map_err(|error| error.kind().to_string())?;
    }
    // Accept an audit whose accounts do not balance, because its recording is still usable.
    let unbalanced = peer == Peer::Audit && output.status.code() == Some(UNBALANCED);
    if output.status.success() || unbalanced {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = complaint.lines().rfind(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned()))
}

/// Returns the entry for an rtla tool that cannot run because its tracer is missing from the
/// kernel. Returns `None` if the kernel has the tracer.
fn without_tracer(peer: Peer) -> Option<Ran> {
    let name = peer.name();
    let known = fs::read_to_string(format!("{TRACEFS}/available_tracers")).unwrap_or_default();
    if known.split_whitespace().any(|tracer| tracer == name) {
        return None;
    }
    Some(Ran {
        peer,
        command: format!("rtla {name} (was not run)"),
        failed: None,
        absent: Some(format!("this kernel has no {name} tracer")),
    })
}

/// A tracefs instance (a separate trace buffer) that records the osnoise tracer's events.
struct Events(PathBuf);

impl Events {
    fn record() -> io::Result<Self> {
        let folder = Path::new(TRACEFS).join("instances/ticktax");
        fs::create_dir(&folder)?;
        fs::write(folder.join("buffer_size_kb"), ROOM)?;
        for event in OSNOISE_EVENTS {
            fs::write(
                folder.join("events/osnoise").join(event).join("enable"),
                "1",
            )?;
        }
        Ok(Self(folder))
    }

    fn keep(self, file: &str) -> io::Result<()> {
        fs::write(self.0.join("tracing_on"), "0")?;
        fs::write(file, fs::read(self.0.join("trace"))?)?;
        fs::remove_dir(&self.0)
    }
}

fn not_done(what: &str, error: &io::Error) -> PeersError {
    LabError::NoResult(format!("it could not {what}: {}", error.kind())).into()
}
