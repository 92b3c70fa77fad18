//! Starts programs and tracers inside a guest.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_inject::{Plan, Truth};
use ticktax_lab::guest::TOOLS;

use crate::checks::attached;
use crate::programs::PROGRAM;

pub(crate) type Outcome<T = ()> = Result<T, Failed>;

/// Name of the ticktax binary in the guest.
pub(crate) const COMMAND: &str = "ticktax";
/// Directory with symbolic links to this binary, one for each program name.
const NAMES: &str = "/tmp/names";
/// Number of times to check for a message, and the time between checks.
const LOOKS: u32 = 1_500;
const LOOK: Duration = Duration::from_millis(40);
/// Interval at which to check how much CPU time ticktax uses. If it used less than a tenth of the
/// interval, it has read its buffers.
const CAUGHT_UP: Duration = Duration::from_millis(200);

/// Mounts the cgroup file system and enables the cpu controller, which quotas need. An injector
/// that enabled the controller itself would disable it at its end, while another injector may still
/// need it.
pub(crate) fn mount_cgroups() -> Outcome {
    let group = Some("cgroup2");
    let (flags, none) = (MsFlags::empty(), None::<&str>);
    mount(group, "/sys/fs/cgroup", group, flags, none)?;
    Ok(fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")?)
}

/// Prints the name of the next step on the console, with the guest's uptime and idle time in
/// seconds. The steps in which the guest is busy are those that cost the host CPU time.
pub(crate) fn note(step: &str) -> Outcome {
    let uptime = fs::read_to_string("/proc/uptime")?;
    // The kernel prints messages of this priority even when booted with `quiet`.
    let line = format!("<2>guest: {} {step}\n", uptime.trim());
    Ok(fs::write("/dev/kmsg", line)?)
}

pub(crate) fn ticktax() -> Command {
    Command::new(Path::new(TOOLS).join(COMMAND))
}

/// Returns the paths of two files: the plan of the disturbance `name`, and its `Truth`.
pub(crate) fn files(name: &str) -> (String, String) {
    (format!("/tmp/{name}.plan"), format!("/tmp/{name}.truth"))
}

/// Starts this binary as a program called `name`.
pub(crate) fn start(name: &str, arguments: &[&str]) -> Outcome<Child> {
    Ok(command(name, arguments)?.spawn()?)
}

pub(crate) fn command(name: &str, arguments: &[&str]) -> Outcome<Command> {
    fs::create_dir_all(NAMES)?;
    let link: PathBuf = [NAMES, name].iter().collect();
    if !link.exists() {
        symlink(std::env::current_exe()?, &link)?;
    }
    let mut command = Command::new(link);
    command.arg(PROGRAM).args(arguments).stdin(Stdio::null());
    Ok(command)
}

pub(crate) fn finish(mut child: Child) -> Outcome {
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("a program of the guest ended with {status}").into())
}

/// Runs a disturbance in a program called `name`, and waits until it ends.
pub(crate) fn inject(name: &str, plan: &Plan) -> Outcome<Truth> {
    finish(begin(name, plan)?)?;
    take(name)
}

/// Starts a disturbance in a program called `name`.
pub(crate) fn begin(name: &str, plan: &Plan) -> Outcome<Child> {
    let (plan_file, truth) = files(name);
    fs::write(&plan_file, serde_json::to_vec(plan)?)?;
    start(name, &["inject", &plan_file, &truth])
}

pub(crate) fn take(name: &str) -> Outcome<Truth> {
    let (_, truth) = files(name);
    Ok(serde_json::from_slice(&fs::read(truth)?)?)
}

/// A running ticktax that is tracing. Its output files are named after it.
pub(crate) struct Tracer {
    name: &'static str,
    child: Child,
}

impl Tracer {
    /// Starts ticktax, and waits until its tracer is attached.
    pub(crate) fn start(name: &'static str, arguments: &[&str]) -> Outcome<Self> {
        let child = ticktax()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(File::create(format!("{name}.json"))?)
            .stderr(File::create(format!("{name}.err"))?)
            .spawn()?;
        let tracer = Self { name, child };
        match attached::wait_in_guest(tracer.child.id()) {
            Ok(_) => Ok(tracer),
            Err(_) => Err(format!("{name} did not attach: {}", tracer.messages()).into()),
        }
    }

    fn messages(&self) -> String {
        fs::read_to_string(format!("{}.err", self.name)).unwrap_or_default()
    }

    /// Waits until ticktax prints a message that contains `words`.
    pub(crate) fn says(&self, words: &str) -> Outcome {
        for _ in 0..LOOKS {
            if self.messages().contains(words) {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        Err(format!("{} did not say `{words}`: {}", self.name, self.messages()).into())
    }

    pub(crate) fn signal(&self, signal: Signal) -> Outcome {
        Ok(kill(
            Pid::from_raw(i32::try_from(self.child.id())?),
            signal,
        )?)
    }

    /// Stops ticktax, so that it does not use the guest's only CPU. The kernel keeps tracing into
    /// its buffers, which are large enough for a few seconds.
    pub(crate) fn pause(&self) -> Outcome {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets ticktax continue, and waits until it has read its buffers.
    pub(crate) fn catch_up(&self) -> Outcome {
        self.signal(Signal::SIGCONT)?;
        let file = format!("/proc/{}/schedstat", self.child.id());
        let used = || -> Outcome<u64> {
            let text = fs::read_to_string(&file)?;
            let used = text.split_whitespace().next().ok_or("no CPU time")?;
            Ok(used.parse()?)
        };
        let mut before = used()?;
        for _ in 0..LOOKS {
            thread::sleep(CAUGHT_UP);
            let now = used()?;
            if Duration::from_nanos(now - before) * 10 < CAUGHT_UP {
                return Ok(());
            }
            before = now;
        }
        Err(format!("{} did not catch up", self.name).into())
    }

    /// Interrupts ticktax as Ctrl-C would, and waits for it to exit.
    pub(crate) fn interrupt(self) -> Outcome {
        self.signal(Signal::SIGINT)?;
        // The tracer may be paused.
        self.signal(Signal::SIGCONT)?;
        self.ended()
    }

    pub(crate) fn ended(mut self) -> Outcome {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(format!("{} ended with {status}: {}", self.name, self.messages()).into())
    }
}
