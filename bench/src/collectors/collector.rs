//! Starts, scrapes and stops each collector.

use std::error::Error;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use crate::peer::{Running, Tool as Peer, in_path, with_tracefs};
use crate::tool::Tool;
use crate::{Bench, Outcome};

const NODE_EXPORTER: Peer = Peer {
    program: "prometheus-node-exporter",
    package: "prometheus-node-exporter",
};
/// Name of a collector that Debian does not package.
const REZOLUS: &str = "rezolus";
const PERF: Peer = Peer {
    program: "perf",
    package: "linux-perf",
};

/// The events that the agent's flight recorder sees, except those that perf cannot record. The
/// kernel refuses to sample interrupts that perf itself causes (`irq_work`,
/// `arch/x86/include/asm/trace/irq_vectors.h`).
const EVENTS: &str = "sched:sched_switch,sched:sched_waking,irq:*,irq_vectors:local_timer*,\
                      irq_vectors:reschedule*,irq_vectors:call_function*,workqueue:workqueue_queue_work";
/// Size of perf's ring buffer on each CPU, equal to the agent's largest ring buffer on a machine
/// with two CPUs.
const RING: &str = "32M";

/// Number of times to check whether a collector has started, with a pause of [`PAUSE`] between
/// checks. Together, that is long enough for the kernel's verifier, which can take a minute.
const LOOKS: u32 = 1_800;
const PAUSE: Duration = Duration::from_millis(50);
/// Time to wait for perf, which does not report when it is ready.
const SETTLE: Duration = Duration::from_secs(2);
/// Time for a collector to settle after it has started.
const QUIET: Duration = Duration::from_secs(1);

/// A program that monitors a machine continuously.
#[derive(Clone, Debug)]
pub(super) enum Collector {
    /// The agent. It has a flight recorder if a trigger is given.
    Agent(Option<&'static str>),
    NodeExporter(PathBuf),
    Rezolus(PathBuf),
    /// `perf record`, which overwrites its ring buffers until it receives a signal.
    Perf(PathBuf),
}

/// The total CPU time a collector had used at some moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) time: Nanos,
    pub(super) cpu: Nanos,
}

pub(super) struct Watching {
    running: Running,
    /// Address and path of the collector's metrics, or `None` if it does not serve any.
    page: Option<(String, &'static str)>,
}

impl Collector {
    /// All installed collectors.
    pub(super) fn all() -> Vec<Self> {
        // No thread ever waits for 10 s, so the recorder never triggers.
        let mut all = vec![Self::Agent(None), Self::Agent(Some("wait>10s"))];
        all.extend(NODE_EXPORTER.find().map(Self::NodeExporter));
        let rezolus = in_path(REZOLUS);
        if rezolus.is_none() {
            println!(
                "\n{REZOLUS} is not in PATH, its row is left out; no package of Debian has it."
            );
        }
        all.extend(rezolus.map(Self::Rezolus));
        all.extend(PERF.find().map(Self::Perf));
        all
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Agent(None) => "ticktax agent",
            Self::Agent(Some(_)) => "ticktax agent --trigger",
            Self::NodeExporter(_) => "node_exporter",
            Self::Rezolus(_) => "Rezolus",
            Self::Perf(_) => "perf record --overwrite",
        }
    }

    /// Returns whether the table compares the costs of `other` with those of this collector.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        match other {
            Self::Perf(_) | Self::Agent(Some(_)) => matches!(self, Self::Agent(Some(_))),
            _ => matches!(self, Self::Agent(None)),
        }
    }

    /// Starts the collector, which may write to `folder`, and waits until it is ready. It serves
    /// metrics only on the loopback device.
    pub(super) fn start(
        &self,
        bench: &Bench,
        tool: &Tool,
        folder: &Path,
    ) -> Result<Watching, Box<dyn Error>> {
        // Find a free port for the collector by binding to one and releasing it.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (running, path) = match self {
            Self::Agent(trigger) => {
                let incidents = folder.join("incidents").display().to_string();
                let mut arguments = vec!["--listen", &address];
                if let Some(trigger) = trigger {
                    arguments.extend(["--trigger", trigger, "--incidents", &incidents]);
                }
                (tool.agent(&arguments)?, Some("/metrics"))
            }
            Self::NodeExporter(program) => {
                let mut command = Command::new(program);
                command.arg(format!("--web.listen-address={address}"));
                (Running::start(&mut command)?, Some("/metrics"))
            }
            Self::Rezolus(program) => {
                let settings = folder.join("rezolus.toml");
                let words = format!(
                    "[general]\nlisten = \"{address}\"\n[log]\nlevel = \"error\"\n[defaults]\nenabled = true\n"
                );
                fs::write(&settings, words)?;
                let mut command = Command::new(program);
                (
                    Running::start(command.arg(&settings))?,
                    Some("/metrics/binary"),
                )
            }
            Self::Perf(program) => {
                let mut command = with_tracefs(program);
                command.args([
                    "record",
                    "-q",
                    "-a",
                    "--overwrite",
                    "--switch-output=signal",
                ]);
                command.args(["-m", RING, "-e", EVENTS, "-o"]);
                command.arg(folder.join("perf.data"));
                (Running::start(&mut command)?, None)
            }
        };
        let mut watching = Watching {
            running,
            page: path.map(|path| (address, path)),
        };
        if watching.page.is_none() {
            bench.pause(SETTLE)?;
        }
        for _ in 0..LOOKS {
            watching.running.check()?;
            if watching.scrape().is_ok() {
                bench.pause(QUIET)?;
                return Ok(watching);
            }
            bench.pause(PAUSE)?;
        }
        Err("it serves nothing".into())
    }
}

impl Watching {
    /// Fetches the collector's metrics, if it serves any.
    pub(super) fn scrape(&self) -> Outcome {
        let Some((address, path)) = &self.page else {
            return Ok(());
        };
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut page = Vec::new();
        stream.read_to_end(&mut page)?;
        if page.starts_with(b"HTTP/1.1 200") {
            return Ok(());
        }
        let first = page.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Err(format!("it answers {}", String::from_utf8_lossy(first)).into())
    }

    fn pid(&self) -> Result<i32, Box<dyn Error>> {
        Ok(i32::try_from(self.running.pid())?)
    }

    /// Reads the total CPU time of all the collector's threads.
    pub(super) fn at(&self) -> Result<At, Box<dyn Error>> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.pid()?))?;
        let time = clock_gettime(clock)?;
        Ok(At {
            time: now(),
            cpu: Nanos(time.tv_sec() * 1_000_000_000 + time.tv_nsec()),
        })
    }

    /// Reads the collector's peak memory, in MiB.
    pub(super) fn peak_memory(&self) -> Result<f64, Box<dyn Error>> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.ok_or("its memory is not told")? / 1_024.0)
    }

    pub(super) fn end(self) -> Outcome {
        Ok(self.running.interrupt().map(drop)?)
    }
}

/// Creates a directory that the agent's user can enter.
pub(super) fn folder() -> Result<tempfile::TempDir, std::io::Error> {
    tempfile::Builder::new()
        .prefix("ticktax-bench")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/tmp")
}
