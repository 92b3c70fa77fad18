//! Loads for the benchmark: computing processes, and a generator of events. Each process ends after
//! a set time, or when the benchmark ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::{env, fmt};

use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::setsid;
use ticktax_model::{Cpu, Nanos};
use ticktax_probes::clock::now;

use crate::peer::Running;
use crate::{Outcome, machine, ping_pong};

/// The hidden subcommand that turns this program into a computing process.
pub(crate) const SPINNER: &str = "starved-spinner";
/// The hidden subcommand that turns this program into the generator of events.
pub(crate) const GENERATOR: &str = "starved-generator";

/// Round trips per millisecond on all CPUs together. Each one has two switches and two wake-ups.
const TRIPS: u64 = 50;
const PACE: Nanos = Nanos::from_millis(1);

/// A process that computes only part of the time does so once in each interval of this length.
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Real-time priorities: the hog's, which takes most of each CPU, and the event generator's.
const HOG: &str = "10";
const ABOVE_HOG: &str = "20";

/// A load that takes all CPUs, or `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Nothing,
    Weighted,
    Sessions,
    RealTime,
}

impl Load {
    pub(crate) const ALL: [Self; 4] = [
        Self::Nothing,
        Self::Weighted,
        Self::Sessions,
        Self::RealTime,
    ];
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "the machine's own",
            Self::Weighted => "two spinners a CPU in a group of the highest weight",
            Self::Sessions => "16 spinners in as many sessions",
            Self::RealTime => "a FIFO hog at 95 % of each CPU",
        })
    }
}

/// A running load. Dropping it stops its processes and removes its group.
pub(crate) struct Loaded {
    // Dropped before the group, which cannot be removed until its processes are gone.
    processes: Vec<Running>,
    group: Option<Group>,
}

impl Loaded {
    /// Starts a load. The processes in `members` join its control group, if it has one.
    pub(crate) fn start(load: Load, length: Duration, members: &[u32]) -> Result<Self, String> {
        let mut loaded = Self {
            processes: Vec::new(),
            group: None,
        };
        let cpus: Vec<Cpu> = cpus()?;
        match load {
            Load::Nothing => {}
            Load::Weighted => {
                let group = Group::create()?;
                for member in members {
                    fs::write(group.folder.join("cgroup.procs"), member.to_string())
                        .map_err(|error| format!("cannot join the group: {error}"))?;
                }
                for cpu in cpus.iter().chain(&cpus) {
                    let mut spinner = spinner(length)?;
                    spinner.args(["--cpu", &cpu.to_string(), "--group"]);
                    let started = Running::start(spinner.arg(&group.folder))?;
                    loaded.processes.push(started);
                }
                loaded.group = Some(group);
            }
            Load::Sessions => {
                for _ in 0..16 {
                    loaded
                        .processes
                        .push(Running::start(&mut spinner(length)?)?);
                }
            }
            Load::RealTime => {
                for cpu in cpus {
                    let mut hog = real_time(HOG, SPINNER, length)?;
                    hog.args(["--cpu", &cpu.to_string(), "--percent", "95"]);
                    loaded.processes.push(Running::start(&mut hog)?);
                }
            }
        }
        Ok(loaded)
    }
}

/// Starts the program to watch, which computes like the load's processes.
pub(crate) fn watched(length: Duration) -> Result<Running, String> {
    Running::start(&mut spinner(length)?)
}

/// Starts the generator of events.
pub(crate) fn events(length: Duration) -> Result<Running, String> {
    Running::start(&mut real_time(ABOVE_HOG, GENERATOR, length)?)
}

fn cpus() -> Result<Vec<Cpu>, String> {
    let online = ticktax_probes::online_cpus().map_err(|error| error.to_string())?;
    Ok(online.iter().collect())
}

fn spinner(length: Duration) -> Result<Command, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.args([SPINNER, &length.as_secs().to_string()]);
    Ok(command)
}

/// Creates a command that runs a hidden subcommand at a real-time priority, through `chrt` from
/// util-linux.
fn real_time(priority: &str, verb: &str, length: Duration) -> Result<Command, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("chrt");
    command.args(["-f", priority]).arg(own);
    command.args([verb, &length.as_secs().to_string()]);
    Ok(command)
}

/// A control group with the highest weight. Dropping it removes the group.
struct Group {
    folder: PathBuf,
}

impl Group {
    fn create() -> Result<Self, String> {
        let name = format!("ticktax-bench-{}", std::process::id());
        let of_version = |root: &str, file: &str, weight: &str| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self { folder };
            fs::write(group.folder.join(file), weight).ok()?;
            Some(group)
        };
        of_version("/sys/fs/cgroup/cpu", "cpu.shares", "262144")
            .or_else(|| of_version("/sys/fs/cgroup", "cpu.weight", "10000"))
            .ok_or_else(|| "no control group with a weight can be made".to_owned())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Try several times: a process that has just exited can still be in the group.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Arguments of a computing process.
#[derive(Debug, Args)]
pub(crate) struct Spinner {
    /// Length in seconds
    seconds: u32,
    /// Control group to join
    #[arg(long)]
    group: Option<PathBuf>,
    /// CPU to compute on; all by default
    #[arg(long)]
    cpu: Option<u32>,
    /// Share of the time in which it computes
    #[arg(long, default_value_t = 100)]
    percent: u32,
}

/// Starts a session and computes in it until its time is up.
pub(crate) fn spin(spinner: &Spinner) -> Outcome {
    set_pdeathsig(Signal::SIGKILL)?;
    // The leader of a process group cannot start a session. The benchmark's children do not lead
    // theirs, so this succeeds.
    setsid()?;
    if let Some(group) = &spinner.group {
        fs::write(group.join("cgroup.procs"), std::process::id().to_string())?;
    }
    if let Some(cpu) = spinner.cpu {
        machine::pin(Cpu(cpu))?;
    }
    let end = now() + Nanos::from_secs(spinner.seconds.into());
    let mut begin = now();
    while begin < end {
        let until = begin + Nanos(INTERVAL.0 / 100 * i64::from(spinner.percent));
        while now() < until {
            std::hint::spin_loop();
        }
        begin += INTERVAL;
        let left = u64::try_from((begin - now()).0).unwrap_or(0);
        if spinner.percent < 100 {
            thread::sleep(Duration::from_nanos(left));
        }
    }
    Ok(())
}

/// Produces events on every CPU.
pub(crate) fn generate(seconds: u32) -> Outcome {
    set_pdeathsig(Signal::SIGKILL)?;
    let cpus = cpus()?;
    let trips = (TRIPS / cpus.len() as u64).max(1);
    let length = Nanos::from_secs(seconds.into());
    thread::scope(|scope| {
        let pairs: Vec<_> = cpus
            .iter()
            .map(|&cpu| scope.spawn(move || ping_pong::run_paced(cpu, trips, PACE, length)))
            .collect();
        for pair in pairs {
            pair.join().map_err(|_| "the generator panicked")??;
        }
        Ok(())
    })
}
