//! Runs three tracers in the guest, one after another, and causes disturbances at known times
//! during each of them.
//!
//! The guest checks nothing. It returns each disturbance's `Truth` and everything that ticktax
//! wrote.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ticktax_inject::{Event, Measured, Truth};
use ticktax_model::Nanos;
use ticktax_probes::clock::now;
use ticktax_trace::ThreadPriority;

use super::plan::{self, CPU, Injected};
use crate::inside::{self, Outcome, Tracer, command, files, finish, mount_cgroups, note, start};
use crate::programs;

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "scenario-guest";
/// JSON file that contains the `Truth` of each disturbance, by name.
pub(super) const TRUTHS: &str = "truths.json";
/// Directory in which the recorder keeps its incidents. The guest returns only files, not
/// directories.
const INCIDENTS: &str = "/tmp/incidents";
const REST: Duration = Duration::from_millis(40);

pub(crate) fn run() -> Outcome {
    mount_cgroups()?;
    let mut guest = Guest::default();
    let ran = guest.machine().and_then(|()| guest.victim());
    let ran = ran.and_then(|()| guest.recorder());
    // Write the file even after a failure, because its contents help to find the reason.
    note("end")?;
    fs::write(TRUTHS, serde_json::to_vec(&guest.truths)?)?;
    ran
}

#[derive(Default)]
struct Guest {
    truths: BTreeMap<String, Truth>,
}

impl Guest {
    fn machine(&mut self) -> Outcome {
        note("machine")?;
        let audit = ["audit", "--probe", "none", "--for", "10m"];
        // The host reports on the recording, because that would take 23 s in the guest.
        let save = ["--no-report", "--save", "machine.parquet"];
        let tracer = Tracer::start("machine", &[&audit[..], &save].concat())?;
        for injected in plan::machine() {
            if injected.name == "irq-work" {
                // The kernel takes no samples on an idle CPU, so keep the CPU busy.
                let busy = start("busy", &["spin", "300"])?;
                self.inject(&injected)?;
                finish(busy)?;
            } else {
                self.inject(&injected)?;
            }
            thread::sleep(REST);
        }
        self.stopper()?;
        self.hogs()?;
        self.short_lived()?;
        note("conclusion")?;
        tracer.interrupt()
    }

    fn inject(&mut self, injected: &Injected) -> Outcome {
        note(injected.name)?;
        let truth = inside::inject(injected.name, &injected.plan)?;
        self.truths.insert(injected.name.to_owned(), truth);
        Ok(())
    }

    fn take(&mut self, name: &str) -> Outcome {
        self.truths.insert(name.to_owned(), inside::take(name)?);
        Ok(())
    }

    /// Makes the kernel change the memory type of a range. To do so, the kernel stops all CPUs from
    /// a thread in the highest scheduling class.
    fn stopper(&mut self) -> Outcome {
        note("stopper")?;
        let stopper = format!("migration/{CPU}");
        let tid = ticktax_inject::kernel_thread(&stopper).ok_or("no such thread")?;
        let (ran, runs) = ticktax_inject::run_time(tid).ok_or("no schedstat")?;
        let mut log = Vec::new();
        let start = now();
        for _ in 0..10 {
            let begin = now();
            let range = "base=0x100000000 size=0x1000000 type=uncachable";
            let mut file = fs::OpenOptions::new().write(true).open("/proc/mtrr")?;
            file.write_all(range.as_bytes())?;
            let registers = fs::read_to_string("/proc/mtrr")?;
            let mut lines = registers.lines();
            let ours = lines.find(|line| line.contains("base=0x100000000"));
            let number = ours.and_then(|line| line[3..].split(':').next()?.parse::<u32>().ok());
            let number = number.ok_or_else(|| format!("the range is not in {registers}"))?;
            file.write_all(format!("disable={number}").as_bytes())?;
            log.push(Event {
                due: begin,
                start: begin,
                length: now() - begin,
                cpu_time: None,
            });
            thread::sleep(Duration::from_millis(10));
        }
        let (ran_after, runs_after) = ticktax_inject::run_time(tid).ok_or("no schedstat")?;
        let mut truth = programs::truth(plan::STOPPER, tid, &stopper, start);
        truth.events = runs_after - runs;
        truth.log = log;
        truth.end = now();
        truth.injected = Some(Measured {
            time: ran_after - ran,
            method: "/proc/PID/schedstat".to_owned(),
        });
        self.truths.insert(plan::STOPPER.to_owned(), truth);
        Ok(())
    }

    fn hogs(&mut self) -> Outcome {
        note("hogs")?;
        let begin = (now() + Nanos::from_millis(100)).0.to_string();
        let hog = |name| {
            let (_, truth) = files(name);
            start(name, &["hog", &begin, "400", &truth])
        };
        let running = plan::HOGS.map(hog);
        for child in running {
            finish(child?)?;
        }
        plan::HOGS.into_iter().try_for_each(|name| self.take(name))
    }

    fn short_lived(&mut self) -> Outcome {
        note("short-lived")?;
        let begin = now();
        let mut log = Vec::new();
        let mut truth = programs::truth(plan::SHORT_LIVED, 0, plan::SHORT_LIVED, begin);
        // Each of these programs has hundreds of page faults, because it is not optimized. More of
        // them would fill a row group of the recording, and writing one takes ten seconds here.
        for _ in 0..10 {
            let start_time = now();
            let child = start(plan::SHORT_LIVED, &["nothing"])?;
            // There is no due time, so this field of the `Truth` holds the process ID instead.
            let pid = i64::from(child.id());
            finish(child)?;
            log.push(Event {
                due: Nanos(pid),
                start: start_time,
                length: now() - start_time,
                cpu_time: None,
            });
        }
        truth.events = log.len() as u64;
        truth.end = now();
        truth.log = log;
        self.truths.insert(plan::SHORT_LIVED.to_owned(), truth);
        Ok(())
    }

    fn victim(&mut self) -> Outcome {
        note("victim")?;
        let mut victim = Victim::start()?;
        let pid = victim.child.id().to_string();
        let audit = ["audit", "--probe", "none", "--for", "10m", "--pid", &pid];
        let save = ["--no-report", "--save", "victim.parquet"];
        let crowd = Crowd::start()?;
        let tracer = Tracer::start("victim", &[&audit[..], &save].concat())?;
        crowd.end()?;
        for injected in plan::victim() {
            if plan::is_another_program(injected.name) {
                victim.tell("spin 400")?;
                self.inject(&injected)?;
                victim.answer()?;
            } else {
                self.have_inject(&mut victim, &injected)?;
            }
            thread::sleep(REST);
        }
        self.contend(&mut victim)?;
        self.compete(&mut victim)?;
        self.stop(&mut victim)?;
        self.sleep(&mut victim)?;
        victim.tell(&format!("children {}", plan::CHILDREN))?;
        victim.answer()?;
        note("victim's conclusion")?;
        drop(victim.commands);
        finish(victim.child)?;
        // Wait for the tracer, which exits after its victim.
        tracer.ended()
    }

    fn have_inject(&mut self, victim: &mut Victim, injected: &Injected) -> Outcome {
        let (plan, truth) = files(injected.name);
        fs::write(&plan, serde_json::to_vec(&injected.plan)?)?;
        victim.tell(&format!("inject {plan} {truth}"))?;
        victim.answer()?;
        self.take(injected.name)
    }

    /// Gives the victim a quota while other programs compete for the CPU.
    fn contend(&mut self, victim: &mut Victim) -> Outcome {
        let quota = plan::contended_quota();
        note(quota.name)?;
        let mut running = Vec::new();
        for contender in plan::contenders() {
            running.push(inside::begin(contender.name, &contender.plan)?);
        }
        // The competing programs start during this pause.
        thread::sleep(REST);
        self.have_inject(victim, &quota)?;
        running.into_iter().try_for_each(finish)
    }

    fn compete(&mut self, victim: &mut Victim) -> Outcome {
        let name = plan::COMPETITOR;
        let begin = (now() + Nanos::from_millis(60)).0.to_string();
        let (_, truth) = files(name);
        let hog = start(name, &["hog", &begin, "200", &truth])?;
        victim.tell("spin 300")?;
        victim.answer()?;
        finish(hog)?;
        self.take(name)
    }

    /// Stops the victim with a signal while it spins, and lets it continue with another signal.
    fn stop(&mut self, victim: &mut Victim) -> Outcome {
        victim.tell("spin 200")?;
        thread::sleep(Duration::from_millis(50));
        let pid = Pid::from_raw(i32::try_from(victim.child.id())?);
        let mut truth = programs::truth(plan::STOPPED, pid.as_raw(), plan::VICTIM, now());
        kill(pid, Signal::SIGSTOP)?;
        thread::sleep(Duration::from_millis(300));
        kill(pid, Signal::SIGCONT)?;
        truth.end = now();
        self.truths.insert(plan::STOPPED.to_owned(), truth);
        victim.answer()
    }

    fn sleep(&mut self, victim: &mut Victim) -> Outcome {
        let pid = i32::try_from(victim.child.id())?;
        let mut truth = programs::truth(plan::ASLEEP, pid, plan::VICTIM, now());
        victim.tell("sleep 300")?;
        victim.answer()?;
        truth.end = now();
        self.truths.insert(plan::ASLEEP.to_owned(), truth);
        Ok(())
    }

    /// Runs a flight recorder, and causes one stall for each of its triggers.
    fn recorder(&mut self) -> Outcome {
        note("recorder")?;
        let mut paced = command(plan::PACED, &["paced", plan::READINGS])?;
        let mut paced = paced.stdin(Stdio::piped()).spawn()?;
        let mut command = vec!["record", "--dir", INCIDENTS, "--ring-mib", "16"];
        for trigger in plan::TRIGGERS {
            command.extend(["--trigger", trigger]);
        }
        let tracer = Tracer::start("recorder", &command)?;
        note("learn frames")?;
        tracer.says(" Hz from its wake-ups, learned in ")?;
        // The first frame after the recorder has learned the rhythm shows when frames are due.
        thread::sleep(Duration::from_millis(200));
        self.inject(&plan::frame_stall())?;
        // Wait until the window has ended, 2 s after the delay.
        thread::sleep(Duration::from_secs(3));
        drop(paced.stdin.take());
        finish(paced)?;
        for injected in plan::stalls() {
            if injected.name == plan::WAIT_STALL {
                let spinning = start(plan::HELD_UP, &["spin", "300"])?;
                self.inject(&injected)?;
                finish(spinning)?;
            } else {
                self.inject(&injected)?;
            }
            thread::sleep(Duration::from_secs(5));
        }
        note("signal")?;
        tracer.signal(Signal::SIGUSR1)?;
        thread::sleep(Duration::from_secs(5));
        let mark = inside::ticktax()
            .args(["mark", plan::MARK, "--dir", INCIDENTS])
            .status()?;
        if !mark.success() {
            return Err(format!("ticktax mark: {mark}").into());
        }
        thread::sleep(Duration::from_secs(5));
        tracer.interrupt()?;
        for entry in fs::read_dir(INCIDENTS)? {
            let from = entry?.path();
            if let Some(name) = from.file_name().filter(|_| from.is_file()) {
                fs::copy(&from, name)?;
            }
        }
        Ok(())
    }
}

/// Two programs that spin in a cgroup with 100 times the weight of any other program. While they
/// spin, this thread has a real-time priority, but the processes it starts do not.
struct Crowd {
    spinners: [Child; 2],
    own: ThreadPriority,
}

impl Crowd {
    const CGROUP: &str = "/sys/fs/cgroup/crowd";

    fn start() -> Outcome<Self> {
        let own = ThreadPriority::current().ok_or("this thread has no ordinary priority")?;
        own.raise(1)?;
        let folder = Path::new(Self::CGROUP);
        fs::create_dir(folder)?;
        fs::write(folder.join("cpu.weight"), "10000")?;
        let spin = || start("crowd", &["spin", "600000"]);
        let spinners = [spin()?, spin()?];
        for child in &spinners {
            fs::write(folder.join("cgroup.procs"), child.id().to_string())?;
        }
        Ok(Self { spinners, own })
    }

    fn end(self) -> Outcome {
        for mut child in self.spinners {
            child.kill()?;
            child.wait()?;
        }
        self.own.restore();
        Ok(fs::remove_dir(Self::CGROUP)?)
    }
}

/// The program that the second audit follows. It executes commands from its standard input.
struct Victim {
    child: Child,
    commands: ChildStdin,
    answers: ChildStdout,
}

impl Victim {
    fn start() -> Outcome<Self> {
        let mut command = command(plan::VICTIM, &["victim"])?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        Ok(Self {
            commands: child.stdin.take().ok_or("no standard input")?,
            answers: child.stdout.take().ok_or("no standard output")?,
            child,
        })
    }

    fn tell(&mut self, command: &str) -> Outcome {
        Ok(writeln!(self.commands, "{command}")?)
    }

    /// Waits until the victim has executed the last command.
    fn answer(&mut self) -> Outcome {
        let mut answer = [0; 1];
        Ok(self.answers.read_exact(&mut answer)?)
    }
}
