//! Starts one victim after another in the guest, during a single audit.
//!
//! The audit follows this program and everything that it starts, because each start of the tracer
//! takes far longer than a situation. The host then cuts out the time of each victim.
//!
//! The tracer does not run during a situation, because an unoptimised one would take up to 42 % of
//! the guest's only CPU. It reads its buffers between two situations.
//!
//! The guest checks nothing. It returns the recording, and what it did to each victim.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_lab::qemu::Disk;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::{Facts, ends, states};
use crate::boot::Guest as Boot;
use crate::inside::{Outcome, Tracer, command, finish, mount_cgroups, note, start};

/// The argument that selects what this guest does.
pub(crate) const VERB: &str = "trials-guest";
/// Name of the recording, without its extension.
pub(super) const RECORDING: &str = "trials";
/// JSON file that contains the [`Facts`] of each situation, by name.
pub(super) const FACTS: &str = "facts.json";

/// File that contains the tracer's error message, if it failed.
pub(super) const FAILURE: &str = "failure";

/// Directory in which the control groups are mounted.
pub(super) const GROUPS: &str = "/sys/fs/cgroup";

/// Situation in which the kernel walks a list.
pub(super) const WALK: &str = "walk";
/// Number of names in the directory that is walked.
pub(super) const WALKED_NAMES: u64 = 60_000;

/// Returns the guest to boot. It has a disk, and counts the delays of threads.
pub(super) fn guest() -> Boot<'static> {
    Boot {
        cmdline: "transparent_hugepage=never delayacct",
        disk: Some(Disk::Zeros),
        files: &[],
        ..Boot::counting(VERB)
    }
}

pub(crate) fn run() -> Outcome {
    mount_cgroups()?;
    fs::write(
        Path::new(GROUPS).join("cgroup.subtree_control"),
        "+memory +io",
    )?;
    let own = std::process::id().to_string();
    let audit = ["audit", "--probe", "none", "--for", "10m", "--pid", &own];
    let file = format!("{RECORDING}.parquet");
    let save = ["--no-report", "--save", &file];
    note("tracer")?;
    let mut guest = Guest {
        facts: BTreeMap::new(),
        groups: GROUPS.into(),
        tracer: Tracer::start(RECORDING, &[&audit[..], &save].concat())?,
        stopped: None,
    };
    let ran = guest.everything();
    note("end")?;
    let Guest {
        facts,
        tracer,
        stopped,
        ..
    } = guest;
    // The host needs the recording even if its accounts do not balance.
    if let Err(failed) = tracer.interrupt() {
        fs::write(FAILURE, failed.message().unwrap_or_default())?;
    }
    if let Some(mut victim) = stopped {
        victim.kill()?;
        victim.wait()?;
    }
    // Write the file even after a failure, because its contents help to find the reason.
    fs::write(FACTS, serde_json::to_vec(&facts)?)?;
    ran
}

struct Guest {
    facts: BTreeMap<String, Facts>,
    /// Root of the control groups.
    groups: PathBuf,
    tracer: Tracer,
    /// A victim that is stopped until the recording has ended.
    stopped: Option<Child>,
}

/// A situation in progress.
struct Stage<'a> {
    victim: &'a Child,
    group: &'a Path,
    facts: &'a mut Facts,
}

impl Guest {
    fn everything(&mut self) -> Outcome {
        let file = "/tmp/states.json";
        self.stage(states::NAME, &["states", file], |stage| {
            rest(1_000)?;
            stage.facts.spent = serde_json::from_slice(&fs::read(file)?)?;
            Ok(())
        })?;
        self.ends()?;
        self.own()?;
        self.frozen()?;
        self.limited()?;
        self.neighbours()?;
        self.version_1()?;
        self.real_time_limit()
    }

    /// Threads that end in all kinds of states.
    fn ends(&mut self) -> Outcome {
        note(ends::NAME)?;
        self.tracer.pause()?;
        let ends = ends::run(&self.groups, || {
            self.tracer.catch_up()?;
            self.tracer.pause()
        })?;
        self.tracer.catch_up()?;
        let facts = Facts {
            ends,
            ..Facts::default()
        };
        self.facts.insert(ends::NAME.to_owned(), facts);
        Ok(())
    }

    /// Situations that the victim itself makes.
    fn own(&mut self) -> Outcome {
        let plain = |millis| move |_: &mut Stage<'_>| rest(millis);
        self.stage("deadline", &["deadline"], plain(1_200))?;
        self.stage("mmap-lock", &["search", "24"], plain(2_000))?;
        self.stage("interpreter", &["interpreter"], plain(1_200))?;
        self.stage("fork", &["store", "200"], plain(2_500))?;
        self.stage("futex", &["lock"], plain(2_000))?;
        self.stage("pipe", &["pipe"], plain(1_500))?;
        self.stage("faults", &["faults"], plain(2_000))?;
        self.stage("two-jobs", &["jobs"], plain(2_500))?;
        self.stage("child", &["children"], plain(2_000))?;
        self.slow_server()?;
        self.stage("long-call", &["calls"], plain(2_000))?;
        let own = std::env::current_exe()?;
        let own = own.to_str().ok_or("this program has no printable path")?;
        self.stage("slack", &["slack", "15", own], plain(1_500))
    }

    /// A program whose requests another program answers late.
    fn slow_server(&mut self) -> Outcome {
        let socket = "/tmp/authd.socket";
        let mut server = start("authd", &["answers", socket])?;
        let done = self.stage("slow-server", &["asks", socket], |_| rest(2_000));
        server.kill()?;
        server.wait()?;
        done
    }

    /// Freezers and stops.
    fn frozen(&mut self) -> Outcome {
        let freeze = |stage: &mut Stage<'_>| {
            for _ in 0..3 {
                rest(350)?;
                let start = now();
                fs::write(stage.group.join("cgroup.freeze"), "1")?;
                rest(150)?;
                fs::write(stage.group.join("cgroup.freeze"), "0")?;
                stage.facts.held.push((start, now() - start));
            }
            rest(200)
        };
        self.stage("frozen", &["loop", "3000"], freeze)?;
        let once = |stage: &mut Stage<'_>| {
            rest(500)?;
            let start = now();
            fs::write(stage.group.join("cgroup.freeze"), "1")?;
            rest(150)?;
            fs::write(stage.group.join("cgroup.freeze"), "0")?;
            stage.facts.held.push((start, now() - start));
            rest(500)
        };
        self.stage("frozen-threads", &["two-threads"], once)?;
        self.stage("stopped", &["loop", "3000"], |stage| {
            let pid = Pid::from_raw(i32::try_from(stage.victim.id())?);
            for _ in 0..3 {
                rest(300)?;
                let start = now();
                kill(pid, Signal::SIGSTOP)?;
                rest(120)?;
                kill(pid, Signal::SIGCONT)?;
                stage.facts.held.push((start, now() - start));
            }
            rest(200)
        })
    }

    /// Limits of the victim's control group.
    fn limited(&mut self) -> Outcome {
        self.stage("sqpoll", &["relay", "2000"], |stage| {
            fs::write(stage.group.join("cpu.max"), "50000 100000")?;
            rest(1_200)
        })?;
        self.stage("burst", &["bursty", "60", "330"], |stage| {
            fs::write(stage.group.join("cpu.max"), "40000 100000")?;
            let before = throttled(stage.group)?;
            rest(2_000)?;
            stage.facts.throttled = throttled(stage.group)? - before;
            Ok(())
        })?;
        self.stage("burst-allowed", &["bursty", "60", "300"], |stage| {
            fs::write(stage.group.join("cpu.max"), "40000 100000")?;
            fs::write(stage.group.join("cpu.max.burst"), "40000")?;
            rest(2_000)
        })?;
        self.stage("atlas", &["atlas"], |stage| {
            fs::write(stage.group.join("io.max"), ends::DISK_LIMIT)?;
            rest(2_000)
        })?;
        self.stage("memory-limit", &["grows"], |stage| {
            fs::write(stage.group.join("memory.high"), "8M")?;
            rest(2_000)
        })
    }

    /// Other programs that compete for the victim's CPU.
    fn neighbours(&mut self) -> Outcome {
        self.stage("weight", &["loop", "3000"], |stage| {
            fs::write(stage.group.join("cpu.weight"), "2")?;
            finish(start("hog", &["spin", "1500"])?)
        })?;
        self.stage("spinner", &["loop", "3000"], |stage| {
            for _ in 0..4 {
                rest(250)?;
                let start_time = now();
                finish(start("backupd", &["fifo-spin", "50"])?)?;
                stage.facts.held.push((start_time, now() - start_time));
            }
            rest(200)
        })?;
        self.walk()
    }

    /// A program that watches a directory with many names. The kernel then visits each name while
    /// it holds a spinlock.
    fn walk(&mut self) -> Outcome {
        let (folder, walks) = ("/tmp/walked", "/tmp/walks.json");
        fs::create_dir(folder)?;
        let file = Path::new(folder).join("file");
        fs::write(&file, "")?;
        for number in 1..WALKED_NAMES {
            fs::hard_link(&file, Path::new(folder).join(number.to_string()))?;
        }
        self.stage(WALK, &["bursty", "1", "4"], |stage| {
            finish(start("indexer", &["watches", folder, walks])?)?;
            stage.facts.held = serde_json::from_slice(&fs::read(walks)?)?;
            rest(200)
        })
    }

    /// A freezer of version 1, which can be mounted next to version 2.
    fn version_1(&mut self) -> Outcome {
        let folder = Path::new("/tmp/freezer");
        fs::create_dir(folder)?;
        let kind = Some("cgroup");
        mount(kind, folder, kind, MsFlags::empty(), Some("freezer"))?;
        let group = folder.join("ckpt");
        fs::create_dir(&group)?;
        self.stage("frozen-v1", &["loop", "3000"], |stage| {
            fs::write(group.join("cgroup.procs"), stage.victim.id().to_string())?;
            for _ in 0..3 {
                rest(350)?;
                let start = now();
                fs::write(group.join("freezer.state"), "FROZEN")?;
                rest(150)?;
                fs::write(group.join("freezer.state"), "THAWED")?;
                stage.facts.held.push((start, now() - start));
            }
            rest(200)
        })
    }

    /// A real-time program that needs 99 % of a CPU, while the kernel leaves it 95 %. The recording
    /// contains the policies of those threads that exist at its end, so the victim is only stopped.
    fn real_time_limit(&mut self) -> Outcome {
        let during = |stage: &mut Stage<'_>| {
            rest(3_200)?;
            let pid = Pid::from_raw(i32::try_from(stage.victim.id())?);
            Ok(kill(pid, Signal::SIGSTOP)?)
        };
        let victim = self.victim("real-time-limit", &["fifo-loop", "19800"], during)?;
        self.stopped = Some(victim);
        self.tracer.catch_up()
    }

    /// Starts a victim in a new control group, and does something to it. Then kills it.
    fn stage(
        &mut self,
        name: &str,
        victim: &[&str],
        during: impl FnOnce(&mut Stage<'_>) -> Outcome,
    ) -> Outcome {
        let mut victim = self.victim(name, victim, during)?;
        victim.kill()?;
        victim.wait()?;
        self.tracer.catch_up()?;
        // Its children may still be exiting.
        drop(fs::remove_dir(self.group(name)));
        Ok(())
    }

    fn group(&self, name: &str) -> PathBuf {
        self.groups.join(format!("{name}-group"))
    }

    /// Starts a victim in a new control group, and does something to it while the tracer is paused.
    fn victim(
        &mut self,
        name: &str,
        victim: &[&str],
        during: impl FnOnce(&mut Stage<'_>) -> Outcome,
    ) -> Outcome<Child> {
        note(name)?;
        let group = self.group(name);
        fs::create_dir(&group)?;
        let arguments = [&["trial"], victim].concat();
        let mut child = command(name, &arguments)?.spawn()?;
        fs::write(group.join("cgroup.procs"), child.id().to_string())?;
        // The victim starts during this pause, and the tracer reads its mappings.
        rest(300)?;
        self.tracer.pause()?;
        let mut facts = Facts {
            pid: i32::try_from(child.id())?,
            begin: now(),
            ..Facts::default()
        };
        let done = during(&mut Stage {
            victim: &child,
            group: &group,
            facts: &mut facts,
        });
        facts.end = now();
        self.facts.insert(name.to_owned(), facts);
        if done.is_err() {
            child.kill()?;
            child.wait()?;
        }
        done.map(|()| child)
    }
}

/// Returns how long a control group has been throttled so far. This does not include a period in
/// which it still is.
fn throttled(group: &Path) -> Result<Nanos, Failed> {
    let text = fs::read_to_string(group.join("cpu.stat"))?;
    let mut lines = text.lines();
    let time = lines.find_map(|line| line.strip_prefix("throttled_usec "));
    let time = time.ok_or("cpu.stat has no throttled time")?;
    Ok(Nanos::from_micros(time.parse()?))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands for the actions of a situation, which can fail"
)]
pub(super) fn rest(millis: u64) -> Outcome {
    thread::sleep(Duration::from_millis(millis));
    Ok(())
}
