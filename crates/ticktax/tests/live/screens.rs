//! Tests on a terminal with 80 columns and 24 lines. Under every disturbance, the culprit's name
//! must be visible when the audit ends, without scrolling.
//!
//! The terminal is tmux. If it is not installed, the tests are reported as ignored.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_fixture::{books, header, off_cpu, process, whole};
use ticktax_inject::{Disturbance, Plan, Schedule};
use ticktax_model::hook::Hook;
use ticktax_model::recording::{Header, Row, RowSink};
use ticktax_model::victim::{Target, VictimHeader};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};
use ticktax_store::recording::RecordingWriter;

use super::fixture::{RecordingDir, check, injector};

/// Time between two checks of the screen.
const LOOK: Duration = Duration::from_millis(200);
/// Number of checks before a command that has not exited counts as hung.
const LOOKS: u32 = 300;

pub(crate) fn has_tmux() -> bool {
    let version = Command::new("tmux").arg("-V").output();
    version.is_ok_and(|output| output.status.success())
}

/// Runs `command` in a separate terminal, and returns the text that is visible afterwards.
fn screen_of(command: &str) -> Result<String, Failed> {
    // tmux leaves its socket behind, so put it in a directory that is removed.
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("tmux");
    let tmux = |arguments: &[&str]| {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&socket).args(["-f", "/dev/null"]);
        tmux.args(arguments);
        tmux.env_remove("TMUX").output()
    };
    // The text `ended=` takes up the last line, as a shell's prompt would.
    let held = format!("{command}; printf ended=$?; sleep 60");
    tmux(&["new-session", "-d", "-x", "80", "-y", "24", &held])?;
    let mut screen = String::new();
    for _ in 0..LOOKS {
        thread::sleep(LOOK);
        screen = String::from_utf8_lossy(&tmux(&["capture-pane", "-p"])?.stdout).into_owned();
        if screen.contains("ended=") {
            break;
        }
    }
    tmux(&["kill-server"])?;
    check(screen.contains("ended="), || {
        format!("no end after a minute:\n{screen}")
    })?;
    Ok(screen)
}

/// Checks that the command succeeds, that the first line of its output, which starts with `first`,
/// is still at the top of the screen, and that all `words` are visible.
fn shows(command: &str, first: &str, words: &[&str]) -> Result<(), Failed> {
    let screen = screen_of(command)?;
    check(screen.contains("ended=0"), || screen.clone())?;
    for word in words {
        check(screen.contains(word), || {
            format!("{word} is not on the screen:\n{screen}")
        })?;
    }
    let top = screen.lines().next().unwrap_or_default();
    check(top.starts_with(first), || {
        format!("the screen does not begin with `{first}`, as the page does:\n{screen}")
    })
}

/// Returns the machine's name, which all output about the machine starts with.
fn machine() -> Result<String, Failed> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(format!("{}, ", name.trim()))
}

/// Checks that the note about a saved file is printed above the other output. Below it, the note
/// would scroll the first line off the screen.
pub(crate) fn a_page_that_is_saved_keeps_its_verdict() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let file = dir.file("saved.parquet");
    let screen = screen_of(&format!(
        "{} audit --for 3 --save {}",
        ticktax(),
        file.display()
    ))?;
    check(screen.contains("ended=0"), || screen.clone())?;
    let verdict = machine()?;
    check(
        screen.lines().any(|line| line.starts_with(&verdict)),
        || format!("the verdict has left the screen:\n{screen}"),
    )
}

fn ticktax() -> &'static str {
    env!("CARGO_BIN_EXE_ticktax")
}

/// A running process, which is killed when this is dropped.
struct Running(Child);

impl Running {
    /// Runs a command at a higher priority than all ordinary programs, because a machine that
    /// builds software may run many of them.
    fn above(policy: &[&str], command: &[OsString]) -> Result<Self, Failed> {
        let mut chrt = Command::new("chrt");
        chrt.args(policy).args(command);
        let child = chrt.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        thread::sleep(Duration::from_millis(300));
        Ok(Self(child))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignore errors: the process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Copies a program to a file called `name`, which the screen then shows as its name.
fn renamed(program: &Path, name: &str, dir: &RecordingDir) -> Result<PathBuf, Failed> {
    let named = dir.file(name);
    fs::copy(program, &named)?;
    Ok(named)
}

/// Starts a shell called `name` that runs a script on the disturbed CPU.
fn shell(name: &str, script: &str, dir: &RecordingDir) -> Result<Running, Failed> {
    let shell = dir.file(name);
    if !shell.exists() {
        renamed(Path::new("/bin/sh"), name, dir)?;
    }
    on_the_cpu(vec![shell.into(), "-c".into(), script.into()])
}

/// Starts a program on the disturbed CPU.
fn on_the_cpu(program: Vec<OsString>) -> Result<Running, Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let command = ["taskset", "-c", &cpu.to_string()].map(OsString::from);
    let command: Vec<OsString> = command.into_iter().chain(program).collect();
    Running::above(&["-r", "1"], &command)
}

fn busy_server(dir: &RecordingDir) -> Result<Running, Failed> {
    shell("gamesrv", "while :; do :; done", dir)
}

/// Starts a program called `backupd` that makes a disturbance. It runs for longer than any audit in
/// these tests.
fn backup(
    disturbance: Disturbance,
    schedule: Schedule,
    dir: &RecordingDir,
) -> Result<Running, Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(disturbance, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(60));
    let (command, _) = injector(&plan, dir)?;
    let named = renamed(&env::current_exe()?, "backupd", dir)?;
    let rest = command
        .into_iter()
        .skip_while(|word| Path::new(word) != env::current_exe().unwrap());
    let command: Vec<OsString> = std::iter::once(named.into()).chain(rest.skip(1)).collect();
    Running::above(&["-f", "3"], &command)
}

fn audit(server: &Running) -> String {
    format!("{} audit --pid {} --for 3", ticktax(), server.pid())
}

/// Starts a server whose loop measures itself: a copy of ticktax that runs `pace`.
fn paced_server(rate: &str, work: &str, dir: &RecordingDir) -> Result<Running, Failed> {
    let server = renamed(Path::new(ticktax()), "gamesrv", dir)?;
    let cpu = ticktax_inject::default_cpu()?.to_string();
    // Give the server's loop a higher priority than all ordinary programs, like the disturbance.
    let arguments = [
        "pace", "--rate", rate, "--work", work, "--for", "60", "--cpu", &cpu, "--policy", "rr:1",
    ];
    let arguments = arguments.into_iter().map(OsString::from);
    let server = on_the_cpu(std::iter::once(server.into()).chain(arguments).collect())?;
    thread::sleep(Duration::from_secs(2));
    Ok(server)
}

pub(crate) fn a_real_time_thief_is_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    // The server and the thief leave half of the CPU unused. If they left less than a twentieth,
    // the kernel would throttle all real-time threads in each second, and the thief would drift
    // relative to the server. The two rates have no common phase, so some frames are late
    // regardless of when the programs start.
    let server = paced_server("37", "8ms", &dir)?;
    let schedule = Schedule::every(Nanos::from_millis(50), Nanos::from_millis(10));
    let _thief = backup(Disturbance::Fifo { priority: 50 }, schedule, &dir)?;
    shows(
        &audit(&server),
        "gamesrv (",
        &["gamesrv", "LAGGING", "backupd", " 50.", "taskset"],
    )
}

pub(crate) fn a_compiler_is_one_name_with_its_processes() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let server = busy_server(&dir)?;
    // Do not use the name of a real compiler, because this machine may be building something.
    let compile = |_| shell("ttx-cc1", "while :; do :; done", &dir);
    let _compilers = (0..3).map(compile).collect::<Result<Vec<_>, _>>()?;
    shows(
        &audit(&server),
        "gamesrv (",
        // The compilers are real-time threads, on which nice values have no effect, so the advice
        // must use `chrt`.
        &["gamesrv", "DELAYED", "ttx-cc1 x3", "chrt -a -o"],
    )
}

pub(crate) fn a_quota_is_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let cpu = ticktax_inject::default_cpu()?;
    // The quota is so small that it is used up even on a busy machine.
    let quota = Nanos::from_millis(5);
    let plan = Plan::new(Disturbance::Throttle { quota }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(100), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let (command, _) = injector(&plan, &dir)?;
    let program = env::current_exe()?;
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    // The kernel keeps only the first 15 characters of a program's name.
    let named: String = program.chars().take(15).collect();
    let words = command.iter().map(|word| word.to_string_lossy());
    let command = words.collect::<Vec<_>>().join(" ");
    shows(
        &format!("{} audit --probe none -- {command}", ticktax()),
        // The audited command is this test binary, so its name is what the screen shows.
        &named,
        &["THROTTLED", "Raise the CPU quota"],
    )
}

pub(crate) fn packets_that_take_long_are_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    // The disturbance uses a third of the CPU, nearly all of it in the softirq. Even if other
    // programs use the rest of the CPU, this is at least a tenth of the used time.
    let schedule = Schedule::every(Nanos::from_millis(3), Nanos::from_millis(1));
    let _filter = backup(Disturbance::Filter, schedule, &dir)?;
    shows(
        &format!("{} audit --for 3 --probe none", ticktax()),
        &machine()?,
        &["KERNEL AND HYPERVISOR", "NET_RX"],
    )
}

pub(crate) fn a_storm_of_timers_is_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let server = busy_server(&dir)?;
    let schedule = Schedule::every(Nanos::from_micros(100), Nanos::ZERO);
    let _storm = backup(Disturbance::Timer, schedule, &dir)?;
    shows(
        &audit(&server),
        "gamesrv (",
        &["gamesrv", "backupd", "Interrupted by: local_timer"],
    )
}

pub(crate) fn an_undisturbed_program_is_reported_as_such() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let server = paced_server("50", "8ms", &dir)?;
    let words = ["OK (", "Nothing to change"];
    // If the hypervisor delayed a frame, the screen rightly blames the hypervisor, so try again.
    let mut seen = Ok(());
    for _ in 0..5 {
        seen = shows(&audit(&server), "gamesrv (", &words);
        if seen.is_ok() {
            break;
        }
    }
    seen
}

/// Saves a 2 s recording of one CPU. `cycle` contains a source and a length in ms for each row.
/// These rows repeat until the recording is full.
fn recording(
    dir: &RecordingDir,
    change: impl Fn(&mut Header),
    cycle: &[(Source, i64)],
) -> Result<PathBuf, Failed> {
    const MS: i64 = 1_000_000;
    let mut sources = SourceTable::default();
    let file = dir.file("screen.parquet");
    let mut writer = RecordingWriter::create(&file)?;
    let mut now = 0;
    while now < 2_000 * MS {
        for (source, ms) in cycle {
            let id = sources.intern(source.clone());
            let dur = ms * MS;
            // While a thread is off CPU, its CPU runs something else, so the next row starts at the
            // same time as the thread's wait.
            let row: Row = whole(0, now, dur, id);
            writer.row(&sources, &row);
            if source.kind != Kind::Wait {
                now += dur;
            }
        }
    }
    let mut header_of_recording = header();
    header_of_recording.cpus.push(books(0, 0, now));
    "vm-7".clone_into(&mut header_of_recording.machine.host);
    change(&mut header_of_recording);
    writer.finish(&header_of_recording)?;
    Ok(file)
}

fn report(file: &Path) -> String {
    format!("{} report {}", ticktax(), file.display())
}

pub(crate) fn a_hypervisor_that_takes_time_is_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let cycle = [
        (process(Owner::Program, "gamesrv", 4_290), 40),
        (Source::kernel(Kind::Steal, "steal", ""), 10),
    ];
    let guest = |header: &mut Header| header.machine.hypervisor = Some("KVM".to_owned());
    let file = recording(&dir, guest, &cycle)?;
    shows(
        &report(&file),
        "vm-7 SIMULATED, ",
        &["20.0 % stolen", "steal", "the hypervisor or firmware took"],
    )
}

pub(crate) fn a_storm_of_page_faults_is_named() -> Result<(), Failed> {
    let dir = RecordingDir::new();
    let server = process(Owner::Program, "gamesrv", 4_290);
    let fault = Source {
        detail: "page_fault".into(),
        ..server.clone()
    };
    let idle = Source::idle();
    let cycle = [
        (server.clone(), 15),
        (fault, 20),
        // The thread sleeps while the CPU is idle.
        (off_cpu(server, "sleeping"), 15),
        (idle, 15),
    ];
    let followed = |header: &mut Header| {
        header.coverage.attached.push(Hook::PageFault);
        header.victim = Some(VictimHeader {
            pid: Some(4_290),
            ..VictimHeader::new(Target::Process, "gamesrv".to_owned(), Nanos::ZERO)
        });
    };
    let file = recording(&dir, followed, &cycle)?;
    shows(
        &report(&file),
        "gamesrv (4290)",
        &[
            "gamesrv",
            "DELAYED",
            "in page faults 800 ms",
            "page faults took",
        ],
    )
}
