//! A program whose first thread is in one state when something ends or renames it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use ticktax_inject::absent::Absent;
use ticktax_inject::victims as sys;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::{AFTER, Change, DISK, End, HELPER, RENAMED, State};
use crate::inside::{command, start};
use crate::programs::spin;

type Outcome<T = ()> = Result<T, Failed>;

/// Time that the first thread has to enter its state, and the time that it then stays there.
const ENTER: Duration = Duration::from_millis(10);
const STAY: Duration = Duration::from_millis(STAY_MILLIS);
const STAY_MILLIS: u64 = 50;

/// State shared by the victim's two threads.
struct Shared {
    state: State,
    change: Change,
    /// Control group of the first thread alone.
    own_group: PathBuf,
    /// File that receives the [`End`].
    file: PathBuf,
    /// When the first thread last ran in user mode.
    last: AtomicI64,
    lock: Mutex<()>,
    /// The first thread enters its state when both threads have come here.
    ready: Barrier,
}

impl Shared {
    fn note(&self) {
        self.last.store(now().0, Ordering::Relaxed);
    }
}

/// Enters `state` until `change` happens. `group` is the control group of this program.
pub(crate) fn run(state: &str, change: &str, group: &str, file: &str) -> Outcome {
    let shared = Arc::new(Shared {
        state: State::from_name(state).ok_or("no such state")?,
        change: Change::from_name(change).ok_or("no such change")?,
        own_group: Path::new(group).join("first"),
        file: file.into(),
        last: AtomicI64::new(0),
        lock: Mutex::new(()),
        ready: Barrier::new(2),
    });
    let own = std::process::id().to_string();
    fs::write(Path::new(group).join("cgroup.procs"), &own)?;
    let file = File::create("/tmp/locked")?;
    if shared.state == State::Lock {
        let file = file.try_clone()?;
        thread::spawn(move || Absent::new()?.write_to(&file));
        // The other thread takes the file's lock during this pause.
        thread::sleep(ENTER);
    }
    let mut absent = Absent::new()?;
    let other = Arc::clone(&shared);
    thread::Builder::new()
        .name(HELPER.to_owned())
        .spawn(move || {
            let failed = help(&other).err().unwrap_or_else(|| "it lives".into());
            // Without this thread, the process would stay in its state.
            let _ = fs::write(&other.file, failed.message().unwrap_or_default());
            let _ = kill(Pid::this(), Signal::SIGKILL);
        })?;
    // The helper stays in the other group.
    if matches!(shared.state, State::Frozen | State::Throttled) {
        let group = &shared.own_group;
        fs::create_dir(group)?;
        fs::write(group.join("cgroup.type"), "threaded")?;
        let parent = group.with_file_name("cgroup.subtree_control");
        fs::write(parent, "+cpu")?;
        fs::write(group.join("cgroup.threads"), &own)?;
    }
    if shared.state == State::Throttled {
        fs::write(shared.own_group.join("cpu.max"), "10000 100000")?;
    }
    let (mut end, _begin) = std::io::pipe()?;
    shared.ready.wait();
    shared.note();
    match shared.state {
        State::Sleep => thread::sleep(Duration::from_secs(1)),
        State::Futex => drop(shared.lock.lock().unwrap_or_else(PoisonError::into_inner)),
        State::Pipe => end.read_exact(&mut [0])?,
        State::Disk => drop(File::open(DISK)?.read_at(&mut [0], 1 << 20)?),
        State::Lock => file.write_all_at(&[0], 0)?,
        State::PageFault => absent.touch(),
        State::Frozen | State::Stopped | State::Throttled | State::Waiting | State::User => loop {
            shared.note();
        },
    }
    Err(format!("{state} was left").into())
}

/// Makes the first thread's state, unless that does it itself, and changes it after a while. Its
/// priority keeps the other threads away.
fn help(shared: &Shared) -> Outcome {
    sys::set_fifo(60)?;
    let process = std::process::id();
    let _held = shared.lock.lock().unwrap_or_else(PoisonError::into_inner);
    shared.ready.wait();
    if shared.state == State::Throttled {
        wait_for_period(&shared.own_group)?;
    }
    thread::sleep(ENTER);
    let entered = shared.last.load(Ordering::Relaxed);
    match shared.state {
        State::Frozen => fs::write(shared.own_group.join("cgroup.freeze"), "1")?,
        State::Stopped => drop(start("debugger", &["debugger", &process.to_string()])?),
        _ => {}
    }
    match shared.state {
        State::Waiting => spin(now() + Nanos::from_millis(STAY_MILLIS.cast_signed())),
        _ => thread::sleep(STAY),
    }
    // The first thread is in user mode whenever it notes the time.
    let began = match shared.state {
        State::User => entered,
        _ => shared.last.load(Ordering::Relaxed),
    };
    let end = End {
        state: shared.state,
        change: shared.change,
        tid: i32::try_from(process)?,
        helper: nix::unistd::gettid().as_raw(),
        began: Nanos(began),
        changed: now(),
    };
    let mut file = File::create(&shared.file)?;
    file.write_all(&serde_json::to_vec(&end)?)?;
    match shared.change {
        Change::Killed => {}
        Change::Replaced => {
            let error = command(AFTER, &["spin", "5"])?.exec();
            return Err(error.into());
        }
        Change::Renamed => {
            fs::write(format!("/proc/self/task/{process}/comm"), RENAMED)?;
            thread::sleep(STAY);
        }
    }
    Ok(kill(Pid::this(), Signal::SIGKILL)?)
}

/// Waits until a period of the group's quota ends in which the quota was used up. The first thread
/// is then throttled for most of the next period.
fn wait_for_period(group: &Path) -> Outcome {
    loop {
        let text = fs::read_to_string(group.join("cpu.stat"))?;
        let mut lines = text.lines();
        let periods = lines.find_map(|line| line.strip_prefix("nr_throttled "));
        if periods.ok_or("cpu.stat has no throttled periods")? != "0" {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Stops the first thread of a program like a debugger, for much longer than the program runs.
pub(crate) fn debugger(process: &str) -> Outcome {
    let process = Pid::from_raw(process.parse()?);
    ptrace::seize(process, ptrace::Options::empty())?;
    // The program runs during this pause.
    thread::sleep(ENTER);
    ptrace::interrupt(process)?;
    waitpid(process, None)?;
    thread::sleep(STAY * 5);
    Ok(())
}
