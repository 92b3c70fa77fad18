//! Runs each kind of disturbance briefly. Tests that require root are named `root::…` and are
//! ignored for other users. No test depends on exact times.

use std::error::Error;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use ticktax_inject::{Disturbance, InjectError, Plan, Running, Schedule, Truth};
use ticktax_model::Nanos;

type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let mut arguments = Arguments::from_args();
    // Tests would disturb each other if they ran concurrently. Also, a process has only one cgroup
    // for throttling.
    arguments.test_threads = Some(1);
    let root = nix::unistd::geteuid().is_root();
    let mut trials: Vec<Trial> = kinds()
        .into_iter()
        .map(|kind| each_kind(kind, root))
        .collect();
    trials.extend([
        trial(
            "live::a_spawned_disturbance_can_be_stopped",
            true,
            stopped_early,
        ),
        trial("live::a_failure_names_the_place", true, fails_clearly),
        trial("live::a_seed_gives_the_same_plan", true, same_seed),
        trial("root::throttle_leaves_no_group", root, no_group_left),
        trial(
            "root::a_killed_injectors_group_is_removed",
            root,
            stale_group_removed,
        ),
        trial("unprivileged::root_kinds_say_so", !root, says_needs_root),
    ]);
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: &str, can_run: bool, test: fn() -> Outcome) -> Trial {
    Trial::test(name, move || {
        test().map_err(|e| Failed::from(e.to_string()))
    })
    .with_ignored_flag(!can_run)
}

fn each_kind(kind: Disturbance, root: bool) -> Trial {
    let needs_root = kind.needs_root().is_some();
    let name = format!(
        "{}::{}",
        if needs_root { "root" } else { "live" },
        kind.name()
    );
    Trial::test(name, move || {
        one_kind(kind).map_err(|e| Failed::from(e.to_string()))
    })
    .with_ignored_flag(needs_root && !root)
}

/// Returns a writable directory on a disk.
fn scratch() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn kinds() -> Vec<Disturbance> {
    vec![
        Disturbance::Fifo { priority: 10 },
        Disturbance::Membarrier,
        Disturbance::Munmap { pages: 4 },
        Disturbance::Softirq { packets: 8 },
        Disturbance::Filter,
        Disturbance::Timer,
        // The quota is a tenth of each period. The process is throttled only if its quota is less
        // than the CPU time that it would get, even if it shares the CPU with several others.
        Disturbance::Throttle {
            quota: Nanos::from_millis(2),
        },
        Disturbance::Block,
        Disturbance::Stop,
        Disturbance::Itimer,
        Disturbance::Writeback {
            dir: scratch(),
            bytes: 4096,
            fsync: false,
        },
        Disturbance::IrqWork,
        Disturbance::None,
    ]
}

fn plan(kind: Disturbance) -> Result<Plan, InjectError> {
    let period = match kind {
        Disturbance::Throttle { .. } => Nanos::from_millis(20),
        _ => Nanos::from_millis(5),
    };
    let schedule = Schedule::every(period, Nanos::from_micros(100));
    let duration = Nanos::from_millis(300);
    Ok(Plan::new(kind, ticktax_inject::default_cpu()?)
        .schedule(schedule)
        .duration(duration))
}

/// Runs a kind of disturbance, and checks the properties that the truth about every kind must have.
fn one_kind(kind: Disturbance) -> Outcome {
    let second_cpu = matches!(
        kind,
        Disturbance::Membarrier | Disturbance::Munmap { .. } | Disturbance::Stop
    );
    if second_cpu && ticktax_inject::allowed_cpus()?.len() < 2 {
        return Ok(());
    }
    let (name, comm, is_none) = (kind.name(), kind.comm(), kind == Disturbance::None);
    let throttles = matches!(kind, Disturbance::Throttle { .. });
    let busy = (kind == Disturbance::IrqWork).then(busy).transpose()?;
    let truth = ticktax_inject::run(&plan(kind)?)?;
    drop(busy);
    check(truth.kind == name, "the truth is about another kind")?;
    check(
        truth.comm == comm || throttles,
        "the truth is about another thread",
    )?;
    check(
        (truth.events > 0) != is_none,
        "there were no events, or there were some of `none`",
    )?;
    check(
        truth.end - truth.start >= Nanos::from_millis(300),
        "it ended early",
    )?;
    check(!truth.stopped, "nobody stopped it")?;
    check(truth.events <= truth.planned, "more events than were due")?;
    check(
        truth.log.is_sorted_by_key(|event| event.start),
        "events out of order",
    )?;
    for event in &truth.log {
        check(event.start >= event.due, "an event began before it was due")?;
        check(truth.start <= event.start, "an event before the start")?;
    }
    if !throttles {
        let listed = truth.log.len() as u64 + truth.log_left_out;
        check(listed == truth.events, "the list of events lacks some")?;
    }
    sums_agree(&truth)?;
    let read_back: Truth = serde_json::from_str(&serde_json::to_string(&truth)?)?;
    check(
        read_back == truth,
        "the truth changes when written and read",
    )
}

/// Starts a disturbance that keeps the CPU busy most of the time.
fn busy() -> Result<Running, Box<dyn Error>> {
    let ms = Nanos::from_millis;
    let plan = Plan::new(
        Disturbance::Fifo { priority: 10 },
        ticktax_inject::default_cpu()?,
    );
    let plan = plan.schedule(Schedule::every(ms(10), ms(8)));
    Ok(ticktax_inject::spawn(&plan.duration(ms(10_000)))?)
}

/// Checks that the truth's figures are consistent with each other.
fn sums_agree(truth: &Truth) -> Outcome {
    let listed: Nanos = truth.log.iter().filter_map(|event| event.cpu_time).sum();
    match truth.kind.as_str() {
        "fifo" | "writeback" => {
            let injected = truth.injected.as_ref().map(|injected| injected.time);
            check(injected == Some(listed), "the CPU times do not add up")?;
            let all = truth.measured.first().map(|own| own.time);
            check(all >= injected, "the thread used less than its events")
        }
        "softirq" => {
            let sent = truth.count("packets sent");
            check(sent == Some(8 * truth.events), "packets sent do not add up")?;
            check(truth.count("packets received") == sent, "packets were lost")?;
            check(
                truth.count("/proc/softirqs NET_RX") > Some(0),
                "no softirq was counted",
            )
        }
        "filter" => {
            let sockets = truth.count("sockets that filter");
            check(sockets > Some(0), "nobody filters")
        }
        "throttle" => {
            check(
                truth.count("nr_throttled") == Some(truth.events),
                "throttlings differ",
            )?;
            let injected = truth.injected.as_ref().map(|injected| injected.time);
            check(
                injected > Some(Nanos::ZERO),
                "the kernel says that nothing was throttled",
            )
        }
        "irq-work" => {
            let period = Nanos::from_millis(5);
            let most = (truth.end - truth.start).0 / period.0 + 1;
            check(
                truth.events.cast_signed() <= most,
                "more samples than periods",
            )?;
            let counted = truth.count("/proc/interrupts IRQ work interrupts");
            // The last interrupt may still be pending.
            check(
                counted.is_some_and(|counted| counted + 1 >= truth.events),
                "the kernel counted fewer interrupts than samples",
            )
        }
        "membarrier" | "munmap" => {
            let hit = truth.count("calls with a gap in the target");
            check(hit <= Some(truth.events), "more calls hit than were made")
        }
        _ => Ok(()),
    }
}

fn stopped_early() -> Outcome {
    for kind in [Disturbance::Timer, Disturbance::Itimer, Disturbance::None] {
        let plan = plan(kind)?.duration(Nanos::from_secs(3600));
        let running = ticktax_inject::spawn(&plan)?;
        let truth = running.stop()?;
        check(truth.stopped, "it says that it was not stopped")?;
        check(
            truth.end - truth.start < plan.duration,
            "it went on to its end",
        )?;
    }
    // Dropping a disturbance must also stop it. Otherwise, the test would hang.
    drop(ticktax_inject::spawn(
        &plan(Disturbance::None)?.duration(Nanos::from_secs(3600)),
    )?);
    Ok(())
}

fn fails_clearly() -> Outcome {
    let dir = PathBuf::from("/nonexistent/place");
    let kind = Disturbance::Writeback {
        dir,
        bytes: 1,
        fsync: false,
    };
    let error = ticktax_inject::run(&plan(kind)?)
        .err()
        .ok_or("it wrote to a place that is not")?;
    let text = error.to_string();
    check(text.contains("/nonexistent/place"), &text)?;
    check(!text.contains("os error"), &text)
}

fn same_seed() -> Outcome {
    let mut plan = plan(Disturbance::Timer)?;
    plan.schedule.random = true;
    let dues = |truth: &Truth| -> Vec<Nanos> {
        truth
            .log
            .iter()
            .map(|event| event.due - truth.start)
            .collect()
    };
    let (one, other) = (ticktax_inject::run(&plan)?, ticktax_inject::run(&plan)?);
    let (one, other) = (dues(&one), dues(&other));
    let length = one.len().min(other.len());
    check(
        length > 0 && one[..length] == other[..length],
        "the same seed was due at other times",
    )
}

fn no_group_left() -> Outcome {
    let kind = Disturbance::Throttle {
        quota: Nanos::from_millis(5),
    };
    let running = ticktax_inject::spawn(&plan(kind)?.duration(Nanos::from_secs(60)))?;
    let group = own_group().ok_or("there is no group while it runs")?;
    check(running.stop()?.stopped, "it says that it was not stopped")?;
    check(!group.exists(), "the group is still there")
}

fn stale_group_removed() -> Outcome {
    let kind = Disturbance::Throttle {
        quota: Nanos::from_millis(5),
    };
    let running = ticktax_inject::spawn(&plan(kind)?.duration(Nanos::from_secs(60)))?;
    let parent = own_group().and_then(|group| group.parent().map(Path::to_path_buf));
    running.stop()?;
    // This PID is above the kernel's maximum, so no process can have it.
    let stale = parent
        .ok_or("there is no group while it runs")?
        .join("ticktax-inject-99999999");
    std::fs::create_dir(&stale)?;
    check(
        ticktax_inject::remove_stale_groups() >= 1,
        "nothing was removed",
    )?;
    check(!stale.exists(), "the stale group is still there")
}

/// Returns the cgroup that this process created, in any hierarchy that has the `cpu` controller.
fn own_group() -> Option<PathBuf> {
    let name = format!("ticktax-inject-{}", std::process::id());
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let roots = mounts.lines().filter(|line| line.contains(" cgroup"));
    roots
        .filter_map(|line| line.split_whitespace().nth(1))
        .map(|root| Path::new(root).join(&name))
        .find(|group| group.exists())
}

fn says_needs_root() -> Outcome {
    for kind in kinds() {
        if kind.needs_root().is_some() {
            let error = plan(kind)?.check().err();
            check(
                matches!(error, Some(InjectError::NeedsRoot { .. })),
                "it does not report that",
            )?;
        }
    }
    Ok(())
}

fn check(holds: bool, otherwise: &str) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
