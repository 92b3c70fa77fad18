//! A terminal of 80 columns and 24 lines, whatever disturbs a program: the culprit's name is on the screen when the audit has ended, without scrolling.
//!
//! The terminal is tmux; where it is not installed, the tests are reported as ignored, by name.

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
use ticktax_model::recording::{Header, RecordingWriter, Row, RowSink};
use ticktax_model::victim::{Target, VictimHeader};
use ticktax_model::{Kind, Nanos, Owner, Source, SourceTable};

use super::fixture::{Place, check, injector};

/// How often a screen is looked at,
const LOOK: Duration = Duration::from_millis(200);
/// and how many times, until its command must have ended.
const LOOKS: u32 = 300;

/// Whether there is a terminal to look at.
pub(crate) fn has_tmux() -> bool {
    let version = Command::new("tmux").arg("-V").output();
    version.is_ok_and(|output| output.status.success())
}

/// What is visible at the end of a command, in a terminal of its own.
fn screen_of(command: &str) -> Result<String, Failed> {
    // The socket goes with its folder: tmux leaves it where it was.
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("tmux");
    let tmux = |arguments: &[&str]| {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&socket).args(["-f", "/dev/null"]);
        tmux.args(arguments);
        tmux.env_remove("TMUX").output()
    };
    // The prompt of a shell, which has the last line.
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

/// Fails unless the command succeeded, the screen it left begins with the page's first line, which begins with `first`,
/// and all of these words are on it.
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

/// How the page about a machine begins, which has the name of this one.
fn machine() -> Result<String, Failed> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(format!("{}: ", name.trim()))
}

/// What is said of a file that was saved does not cost the page its first line: it stands above it.
pub(crate) fn a_page_that_is_saved_keeps_its_verdict() -> Result<(), Failed> {
    let place = Place::new();
    let file = place.file("saved.parquet");
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

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// Runs a command above all ordinary programs, of which a machine that builds may have many.
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
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program under another name, by which it is known on the screen.
fn renamed(program: &Path, name: &str, place: &Place) -> Result<PathBuf, Failed> {
    let named = place.file(name);
    fs::copy(program, &named)?;
    Ok(named)
}

/// A shell called `name` with a script, on the CPU that is disturbed.
fn shell(name: &str, script: &str, place: &Place) -> Result<Running, Failed> {
    let shell = place.file(name);
    if !shell.exists() {
        renamed(Path::new("/bin/sh"), name, place)?;
    }
    on_the_cpu(vec![shell.into(), "-c".into(), script.into()])
}

/// A program on the CPU that is disturbed.
fn on_the_cpu(program: Vec<OsString>) -> Result<Running, Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let command = ["taskset", "-c", &cpu.to_string()].map(OsString::from);
    let command: Vec<OsString> = command.into_iter().chain(program).collect();
    Running::above(&["-r", "1"], &command)
}

/// A server that always has something to do.
fn busy_server(place: &Place) -> Result<Running, Failed> {
    shell("gamesrv", "while :; do :; done", place)
}

/// A disturbance by a program called `backupd`, for longer than any audit here.
fn backup(disturbance: Disturbance, schedule: Schedule, place: &Place) -> Result<Running, Failed> {
    let cpu = ticktax_inject::default_cpu()?;
    let plan = Plan::new(disturbance, cpu)
        .schedule(schedule)
        .duration(Nanos::from_secs(60));
    let (command, _) = injector(&plan, place)?;
    let named = renamed(&env::current_exe()?, "backupd", place)?;
    let rest = command
        .into_iter()
        .skip_while(|word| Path::new(word) != env::current_exe().unwrap());
    let command: Vec<OsString> = std::iter::once(named.into()).chain(rest.skip(1)).collect();
    Running::above(&["-f", "3"], &command)
}

fn audit(server: &Running) -> String {
    format!("{} audit --pid {} --for 3", ticktax(), server.pid())
}

/// A server with a loop that the command measures by itself.
fn paced_server(rate: &str, work: &str, place: &Place) -> Result<Running, Failed> {
    let server = renamed(Path::new(ticktax()), "gamesrv", place)?;
    let cpu = ticktax_inject::default_cpu()?.to_string();
    // Its loop, too, is above all ordinary programs.
    let arguments = [
        "pace", "--rate", rate, "--work", work, "--for", "60", "--cpu", &cpu, "--policy", "rr:1",
    ];
    let arguments = arguments.into_iter().map(OsString::from);
    let server = on_the_cpu(std::iter::once(server.into()).chain(arguments).collect())?;
    // Until its loop runs.
    thread::sleep(Duration::from_secs(2));
    Ok(server)
}

pub(crate) fn a_real_time_thief_is_named() -> Result<(), Failed> {
    let place = Place::new();
    // Both together leave half of the CPU: with less than a twentieth the kernel stops all real-time threads
    // for a while in each second, and the thief comes later each time. The rates have no common phase: some
    // frames are late, wherever they begin.
    let server = paced_server("37", "8ms", &place)?;
    let schedule = Schedule::every(Nanos::from_millis(50), Nanos::from_millis(10));
    let _thief = backup(Disturbance::Fifo { priority: 50 }, schedule, &place)?;
    shows(
        &audit(&server),
        "gamesrv (",
        &["gamesrv", "LAGGING", "backupd", "EVERY 50", "taskset"],
    )
}

pub(crate) fn a_compiler_is_one_name_with_its_processes() -> Result<(), Failed> {
    let place = Place::new();
    let server = busy_server(&place)?;
    // No real compiler's name: this machine may be building something.
    let compile = |_| shell("ttx-cc1", "while :; do :; done", &place);
    let _compilers = (0..3).map(compile).collect::<Result<Vec<_>, _>>()?;
    shows(
        &audit(&server),
        "gamesrv (",
        // They are real-time threads, to which nice values mean nothing.
        &["gamesrv", "HELD UP", "ttx-cc1  x3", "chrt -a -o"],
    )
}

pub(crate) fn a_quota_is_named() -> Result<(), Failed> {
    let place = Place::new();
    let cpu = ticktax_inject::default_cpu()?;
    // So little that it is used up on a busy machine as well.
    let quota = Nanos::from_millis(5);
    let plan = Plan::new(Disturbance::Throttle { quota }, cpu)
        .schedule(Schedule::every(Nanos::from_millis(100), Nanos::ZERO))
        .duration(Nanos::from_secs(3));
    let (command, _) = injector(&plan, &place)?;
    let program = env::current_exe()?;
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    // The kernel keeps 15 letters of it.
    let named: String = program.chars().take(15).collect();
    let words = command.iter().map(|word| word.to_string_lossy());
    let command = words.collect::<Vec<_>>().join(" ");
    shows(
        &format!("{} audit --probe none -- {command}", ticktax()),
        // The program that it runs has the name of this one.
        &named,
        &["THROTTLED", "Raise the CPU quota"],
    )
}

pub(crate) fn packets_that_take_long_are_named() -> Result<(), Failed> {
    let place = Place::new();
    // A third of a CPU, nearly all of it in the softirq: a tenth of what is used also where other programs use all the rest.
    let schedule = Schedule::every(Nanos::from_millis(3), Nanos::from_millis(1));
    let _filter = backup(Disturbance::Filter, schedule, &place)?;
    shows(
        &format!("{} audit --for 3 --probe none", ticktax()),
        &machine()?,
        &["KERNEL AND HYPERVISOR", "NET_RX"],
    )
}

pub(crate) fn a_storm_of_timers_is_named() -> Result<(), Failed> {
    let place = Place::new();
    let server = busy_server(&place)?;
    let schedule = Schedule::every(Nanos::from_micros(100), Nanos::ZERO);
    let _storm = backup(Disturbance::Timer, schedule, &place)?;
    shows(
        &audit(&server),
        "gamesrv (",
        &["gamesrv", "backupd", "Interrupted by: local_timer"],
    )
}

pub(crate) fn where_nothing_is_wrong_the_screen_says_so() -> Result<(), Failed> {
    let place = Place::new();
    let server = paced_server("50", "8ms", &place)?;
    let words = ["NOT HELD UP", "Nothing to change"];
    // A hypervisor may make a frame late now and then, and the screen says so then, rightly.
    let mut seen = Ok(());
    for _ in 0..5 {
        seen = shows(&audit(&server), "gamesrv (", &words);
        if seen.is_ok() {
            break;
        }
    }
    seen
}

/// Saves a recording of 2 s of one CPU, whose rows repeat every 50 ms as told: a source and its ms.
fn recording(
    place: &Place,
    change: impl Fn(&mut Header),
    turn: &[(Source, i64)],
) -> Result<PathBuf, Failed> {
    const MS: i64 = 1_000_000;
    let mut sources = SourceTable::default();
    let file = place.file("told.parquet");
    let mut writer = RecordingWriter::create(&file)?;
    let mut now = 0;
    while now < 2_000 * MS {
        for (source, ms) in turn {
            let id = sources.intern(source.clone());
            let dur = ms * MS;
            // Nobody has the CPU's time while a thread is off it: the next row begins at once.
            let row: Row = whole(0, now, dur, id);
            writer.row(&sources, &row);
            if source.kind != Kind::Wait {
                now += dur;
            }
        }
    }
    let mut told = header();
    told.books.push(books(0, 0, now));
    "vm-7".clone_into(&mut told.machine.host);
    change(&mut told);
    writer.finish(&told)?;
    Ok(file)
}

fn report(file: &Path) -> String {
    format!("{} report {}", ticktax(), file.display())
}

pub(crate) fn a_hypervisor_that_takes_time_is_named() -> Result<(), Failed> {
    let place = Place::new();
    let turn = [
        (process(Owner::Program, "gamesrv", 4_290), 40),
        (Source::kernel(Kind::Steal, "steal", ""), 10),
    ];
    let guest = |header: &mut Header| header.machine.hypervisor = Some("KVM".to_owned());
    let file = recording(&place, guest, &turn)?;
    shows(
        &report(&file),
        "vm-7 SIMULATED: ",
        &["hypervisor 20", "steal", "the hypervisor or firmware took"],
    )
}

pub(crate) fn a_storm_of_page_faults_is_named() -> Result<(), Failed> {
    let place = Place::new();
    let server = process(Owner::Program, "gamesrv", 4_290);
    let fault = Source {
        detail: "page_fault".into(),
        ..server.clone()
    };
    let idle = Source::idle();
    let turn = [
        (server.clone(), 15),
        (fault, 20),
        // While the CPU idles, it sleeps.
        (off_cpu(server, "sleeping"), 15),
        (idle, 15),
    ];
    let followed = |header: &mut Header| {
        header.coverage.attached.push(Hook::PageFault);
        header.victim = Some(VictimHeader {
            target: Target::Process,
            name: "gamesrv".to_owned(),
            pid: Some(4_290),
            begin: Nanos::ZERO,
            followed: true,
            incomplete: None,
            before: None,
            after: None,
            threads: None,
        });
    };
    let file = recording(&place, followed, &turn)?;
    shows(
        &report(&file),
        "gamesrv (4290)",
        &[
            "gamesrv",
            "HELD UP",
            "in page faults 800 ms",
            "page faults took",
        ],
    )
}
