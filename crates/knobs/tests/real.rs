//! Changes and restores settings of the running kernel. The test creates all of its targets: child
//! processes, a network namespace and a cgroup. The machine's own settings stay unchanged.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use libtest_mimic::{Arguments, Failed, Trial};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};
use tempfile::TempDir;
use ticktax_fixture::Sleeper;
use ticktax_knobs::{
    Change, Consent, Controller, KnobError, Session, System, Target, cgroup_of_process, registry,
    undo,
};
use ticktax_model::knob::{KnobScope, UndoOutcome};

/// Starts a child process that sleeps. Returns the process and, as the target, its main thread.
fn sleeper() -> (Sleeper, Target) {
    let sleeper = Sleeper::start().unwrap();
    let task = Target::Task(sleeper.pid());
    (sleeper, task)
}

/// Same as [`sleeper`], but gives the process a timer slack of 123,456 ns.
fn sleeper_with_slack() -> Result<(Sleeper, Target), Failed> {
    let (sleeper, task) = sleeper();
    fs::write(format!("/proc/{}/timerslack_ns", sleeper.pid()), "123456")?;
    Ok((sleeper, task))
}

/// A cgroup created by the test, by its directory.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let root = Self::root().unwrap();
        let folder = root.join(format!("ticktax-knobs-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Finds a cgroup (v1 or v2) whose children can use the CPU controller.
    fn root() -> Option<&'static Path> {
        let roots = [
            "/sys/fs/cgroup/cpu",
            "/sys/fs/cgroup/cpu,cpuacct",
            "/sys/fs/cgroup",
        ];
        let mut roots = roots.into_iter().map(Path::new);
        roots.find(|root| {
            let given = fs::read_to_string(root.join("cgroup.subtree_control"));
            let is_given =
                given.is_ok_and(|list| list.split_whitespace().any(|word| word == "cpu"));
            root.join("cpu.shares").is_file() || is_given
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A thread in its own network namespace.
struct Namespace {
    thread: Option<JoinHandle<()>>,
    end: Option<Sender<()>>,
    place: PathBuf,
}

impl Namespace {
    fn new() -> Self {
        let (send_tid, receive_tid) = channel();
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            send_tid.send(gettid()).unwrap();
            let _ = ended.recv();
        });
        let tid = receive_tid.recv().unwrap();
        let place = format!("/proc/{}/task/{tid}/ns/net", std::process::id()).into();
        Self {
            thread: Some(thread),
            end: Some(end),
            place,
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct TestSession {
    folder: TempDir,
    session: Session,
}

impl TestSession {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal");
        let begun = Session::begin(&System::default(), &journal, "a test");
        Self {
            session: begun.unwrap().0,
            folder,
        }
    }

    fn set(&mut self, id: &str, target: &Target, value: &str) -> Result<Change, KnobError> {
        let knob = registry::find(id).unwrap();
        self.session.set(knob, target, value, Consent::Withheld)
    }
}

fn read(id: &str, target: &Target) -> Result<String, KnobError> {
    registry::find(id).unwrap().read(&System::default(), target)
}

/// Sets a value, reads it back, and checks that the original value is restored when the session
/// ends.
fn change_and_restore(id: &str, target: &Target, value: &str) -> Result<(), Failed> {
    let before = read(id, target)?;
    let mut test = TestSession::new();
    let change = test.set(id, target, value)?;
    let now = read(id, target)?;
    if before == value || change.got != value || now != value || change.old != before {
        return Err(format!("{id}: {before}, {change:?}, {now}").into());
    }
    let statement = test.session.undo();
    let after = read(id, target)?;
    let mut settings = statement.settings.iter();
    if after != before || !settings.any(|setting| setting.outcome == UndoOutcome::Restored) {
        return Err(format!("{id}: {before}, then {after}: {statement:?}").into());
    }
    Ok(())
}

fn a_task() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper();
    change_and_restore("proc.nice", &task, "7")?;
    change_and_restore("proc.timer_slack", &task, "1000000")?;
    change_and_restore("proc.policy", &task, "fifo:1")?;
    change_and_restore("proc.policy", &task, "batch,reset-on-fork")?;
    let cpus = read("proc.affinity", &task)?;
    let one = cpus.split(['-', ',']).next().unwrap();
    if one != cpus {
        change_and_restore("proc.affinity", &task, one)?;
    }
    Ok(())
}

fn has_slack(task: &Target, slack: &str) -> Result<(), Failed> {
    let found = read("proc.timer_slack", task)?;
    if found == slack {
        Ok(())
    } else {
        Err(format!("{found} ns").into())
    }
}

/// Real-time tasks have no timer slack, so the kernel resets it when a task becomes real-time.
/// Restoring the policy must restore the slack as well.
fn timer_slack_outlives_a_change_of_policy() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper_with_slack()?;
    change_and_restore("proc.policy", &task, "rr:2")?;
    has_slack(&task, "123456")
}

fn a_slice() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper();
    if let Err(error) = read("proc.slice", &task) {
        // Kernels before 6.12 do not support slices.
        let why = error.to_string();
        return if why.contains("6.12") {
            Ok(())
        } else {
            Err(why.into())
        };
    }
    change_and_restore("proc.slice", &task, "5000000")?;
    let mut test = TestSession::new();
    test.set("proc.slice", &task, "5000000")?;
    // The policy's text includes the slice. Changing the nice value must leave the slice alone.
    test.set("proc.nice", &task, "3")?;
    let policy = read("proc.policy", &task)?;
    if policy != "other,slice=5000000" {
        return Err(policy.into());
    }
    test.set("proc.policy", &task, "fifo:1")?;
    drop(test);
    let (slice, nice) = (read("proc.slice", &task)?, read("proc.nice", &task)?);
    if (&*slice, &*nice) == ("default", "0") {
        Ok(())
    } else {
        Err(format!("slice {slice}, nice {nice}").into())
    }
}

/// The value 0 selects the default slack. The kernel stores that default instead of 0, and the
/// session must read it back.
fn a_value_that_the_kernel_replaces() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper_with_slack()?;
    let mut test = TestSession::new();
    let change = test.set("proc.timer_slack", &task, "0")?;
    if change.got == "0" || change.got == change.old {
        return Err(format!("{change:?}").into());
    }
    drop(test);
    has_slack(&task, "123456")
}

fn refused_values_are_reported_and_undone() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper();
    let before = read("proc.affinity", &task)?;
    let mut test = TestSession::new();
    // No machine has this CPU.
    let error = test.set("proc.affinity", &task, "1023");
    let Err(error) = error else {
        return Err("CPU 1023 was allowed".into());
    };
    let error = error.to_string();
    if !error.contains("rejected the value") || error.contains('\n') {
        return Err(error.into());
    }
    let statement = test.session.undo();
    if read("proc.affinity", &task)? == before && statement.is_complete() {
        Ok(())
    } else {
        Err(format!("{statement:?}").into())
    }
}

fn a_task_that_ends_during_the_session() -> Result<(), Failed> {
    let (sleeper, task) = sleeper();
    let mut test = TestSession::new();
    test.set("proc.nice", &task, "5")?;
    drop(sleeper);
    let error = test.set("proc.nice", &task, "6");
    if !matches!(error, Err(KnobError::Gone { .. })) {
        return Err(format!("{error:?}").into());
    }
    let statement = test.session.undo();
    let outcomes: Vec<UndoOutcome> = statement
        .settings
        .iter()
        .map(|setting| setting.outcome)
        .collect();
    if outcomes == [UndoOutcome::Gone] {
        Ok(())
    } else {
        Err(format!("{statement:?}").into())
    }
}

fn a_sysctl_of_a_network_namespace() -> Result<(), Failed> {
    let namespace = Namespace::new();
    let there = Target::Net(namespace.place.clone());
    let here = Target::Net("/proc/self/ns/net".into());
    let id = "net.ipv4.tcp_autocorking";
    let ours = read(id, &here)?;
    let other = if read(id, &there)? == "1" { "0" } else { "1" };
    change_and_restore(id, &there, other)?;
    let mut test = TestSession::new();
    test.set(id, &there, other)?;
    if read(id, &here)? != ours {
        return Err("the namespace of the test was changed".into());
    }
    Ok(())
}

fn a_quota_and_a_weight() -> Result<(), Failed> {
    let group = Group::new();
    let target = Target::Cgroup(group.0.clone());
    change_and_restore("cgroup.cpu_quota", &target, "5000/20000")?;
    let bursts = ["cpu.cfs_burst_us", "cpu.max.burst"];
    if bursts.iter().any(|file| group.0.join(file).is_file()) {
        let mut quota = TestSession::new();
        quota.set("cgroup.cpu_quota", &target, "40000/100000")?;
        change_and_restore("cgroup.cpu_burst", &target, "30000")?;
        // The kernel refuses a burst that exceeds the quota.
        let refused = TestSession::new().set("cgroup.cpu_burst", &target, "50000");
        if refused.is_ok() {
            return Err("a burst above the quota was accepted".into());
        }
        quota.session.undo();
    }
    if group.0.join("cpu.rt_runtime_us").is_file() {
        change_and_restore("cgroup.rt_runtime", &target, "1000")?;
    }
    if group.0.join("cpu.idle").is_file() {
        change_and_restore("cgroup.cpu_idle", &target, "1")?;
    }
    let is_first = group.0.join("cpu.shares").is_file();
    let weight = if is_first {
        "cgroup.cpu_shares"
    } else {
        "cgroup.cpu_weight"
    };
    change_and_restore(weight, &target, "512")?;
    let mut test = TestSession::new();
    test.set("cgroup.cpu_quota", &target, "max/50000")?;
    drop(group);
    let statement = test.session.undo();
    let outcomes: Vec<UndoOutcome> = statement
        .settings
        .iter()
        .map(|setting| setting.outcome)
        .collect();
    if outcomes == [UndoOutcome::Gone] {
        Ok(())
    } else {
        Err(format!("{statement:?}").into())
    }
}

/// Even root cannot write a sysctl that is on a read-only mount.
fn a_sysctl_that_is_read_only() -> Result<(), Failed> {
    // Make the mount read-only in a new mount namespace that only this thread uses.
    let tried = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let run = |arguments: &[&str]| Command::new("mount").args(arguments).status().unwrap();
        let private = run(&["--make-rprivate", "/"]).success();
        let bound = run(&["--bind", "/proc/sys", "/proc/sys"]).success();
        let read_only = run(&["-o", "remount,ro,bind", "/proc/sys"]).success();
        (private && bound && read_only).then(|| {
            let mut test = TestSession::new();
            let before = read("vm.stat_interval", &Target::Machine).unwrap();
            let other = if before == "1" { "2" } else { "1" };
            let error = test.set("vm.stat_interval", &Target::Machine, other);
            let statement = test.session.undo();
            let journal = test.folder.path().join("journal");
            let again = undo(&System::default(), &journal).unwrap();
            (error, statement, again)
        })
    });
    let Some((error, statement, again)) = tried.join().unwrap() else {
        // In a container, the privilege to mount can be missing.
        return Ok(());
    };
    let error = error.err().ok_or("it could be written")?.to_string();
    let complete = statement.is_complete() && again.settings.is_empty();
    if error.contains("read-only") && complete {
        Ok(())
    } else {
        Err(format!("{error}; {statement:?}").into())
    }
}

fn every_setting_can_be_read_or_explains_why_not() -> Result<(), Failed> {
    let system = System::default();
    let mut values = 0;
    for knob in registry::all() {
        for target in Target::all(knob.scope(), &system).unwrap_or_default() {
            match knob.read(&system, &target) {
                Ok(value) if value.contains('\n') => {
                    return Err(format!("{knob:?}: {value}").into());
                }
                Ok(_) => values += 1,
                Err(error) => {
                    let error = error.to_string();
                    if error.contains('\n') || error.contains("os error") {
                        return Err(error.into());
                    }
                }
            }
        }
    }
    // Most of the machine's settings exist on every kernel.
    let sysctls = registry::all()
        .filter(|knob| knob.scope() == KnobScope::Machine)
        .count();
    if values * 2 > sysctls {
        Ok(())
    } else {
        Err(format!("only {values} values").into())
    }
}

/// Creates a cgroup for a command, moves a process into it, and removes the cgroup. The process
/// must then be back in its original cgroup.
fn a_group_for_a_command() -> Result<(), Failed> {
    let sleeper = Sleeper::start()?;
    let pid = sleeper.pid();
    let system = System::default();
    let group_of = || cgroup_of_process(&system, pid, Controller::Cpu);
    let home = group_of()?;
    let mut test = TestSession::new();
    let group = test.session.make_group(Controller::Cpu)?;
    test.session.join_group(&group, pid)?;
    if Target::Cgroup(group_of()?) != group {
        return Err(format!("it is in {}, and not in {group}", group_of()?.display()).into());
    }
    test.set("cgroup.cpu_quota", &group, "50000/100000")?;
    let statement = test.session.undo();
    let (back, Target::Cgroup(folder)) = (group_of()?, group) else {
        return Err("it is no group".into());
    };
    if back != home || folder.exists() || !statement.is_complete() {
        return Err(format!("{}, {statement:?}", back.display()).into());
    }
    Ok(())
}

/// Root must not trust a journal if another user owns it or its directory.
fn a_journal_of_another_user_is_refused() -> Result<(), Failed> {
    let (_sleeper, task) = sleeper();
    let nobody = Some(65_534);
    for owned in ["state/deep/journal", "state/deep", "state"] {
        let place = tempfile::tempdir()?;
        let journal = place.path().join("state/deep/journal");
        let mut session = Session::begin(&System::default(), &journal, "a test")?.0;
        let knob = registry::find("proc.nice")?;
        session.set(knob, &task, "5", Consent::Withheld)?;
        let planted = fs::read(&journal)?;
        drop(session);
        fs::write(&journal, &planted)?;
        chown(place.path().join(owned), nobody, None)?;
        for refused in [
            undo(&System::default(), &journal).err(),
            Session::begin(&System::default(), &journal, "a test").err(),
        ] {
            let error = refused.ok_or(format!("{owned} of nobody's was trusted"))?;
            let error = error.to_string();
            if !error.contains("belongs to user 65534") || error.contains('\n') {
                return Err(error.into());
            }
        }
        if fs::read(&journal)? != planted {
            return Err(format!("{owned}: the journal was changed").into());
        }
    }
    Ok(())
}

fn children_of_a_running_task_start_without_its_priority() -> Result<(), Failed> {
    for (id, value, changed) in [
        ("proc.policy", "fifo:1", "fifo:1,reset-on-fork"),
        ("proc.nice", "-5", "-5"),
    ] {
        let mut parent = Command::new("sh")
            .args(["-c", "read go; sleep 60 & echo $!; read stop; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let task = Target::Task(parent.id().try_into()?);
        let mut stdin = parent.stdin.take().ok_or("no pipe")?;
        let mut stdout = BufReader::new(parent.stdout.take().ok_or("no pipe")?);
        let values = |task: &Target| -> Result<[String; 2], KnobError> {
            Ok([read("proc.policy", task)?, read("proc.nice", task)?])
        };
        let before = values(&task)?;
        let mut test = TestSession::new();
        let knob = registry::find(id)?;
        let original = knob.read(&System::default(), &task)?;
        let change =
            (test.session).set_on_running(knob, &task, value, &original, Consent::Withheld)?;
        stdin.write_all(b"\n")?;
        let mut pid = String::new();
        stdout.read_line(&mut pid)?;
        let child = values(&Target::Task(pid.trim().parse()?))?;
        drop(test);
        let after = values(&task)?;
        stdin.write_all(b"\n")?;
        parent.wait()?;
        if change.got != changed || child != ["other", "0"] || after != before {
            return Err(format!("{id}: {change:?}, child {child:?}, then {after:?}").into());
        }
    }
    Ok(())
}

/// Changing the slice changes the policy's text, and restoring the policy changes the slice. After
/// the undo, the task must have its original policy and slice.
fn a_policy_changed_for_a_nice_value_is_restored() -> Result<(), Failed> {
    for (original, last) in [("default", "default"), ("4000000", "6000000")] {
        let (_sleeper, task) = sleeper();
        if read("proc.slice", &task).is_err() {
            // Kernels before 6.12 do not support slices, which `a_slice` checks.
            return Ok(());
        }
        let mut owner = TestSession::new();
        owner.set("proc.slice", &task, original)?;
        let ids = ["proc.policy", "proc.nice", "proc.slice"];
        let values = || ids.map(|id| read(id, &task).unwrap());
        let before = values();
        let mut test = TestSession::new();
        test.set("proc.slice", &task, "5000000")?;
        let nice = registry::find("proc.nice")?;
        (test.session).set_on_running(nice, &task, "-5", "0", Consent::Withheld)?;
        test.set("proc.slice", &task, last)?;
        let changed = values();
        let statement = test.session.undo();
        let after = values();
        let is_reset = changed[0].contains("reset-on-fork") && changed[1] == "-5";
        if !is_reset || after != before || !statement.is_complete() {
            return Err(format!("{before:?}, {changed:?}, {after:?}: {statement:?}").into());
        }
    }
    Ok(())
}

type Test = fn() -> Result<(), Failed>;

const ROOT: &[(&str, Test)] = &[
    ("a_task", a_task),
    (
        "timer_slack_outlives_a_change_of_policy",
        timer_slack_outlives_a_change_of_policy,
    ),
    ("a_slice", a_slice),
    (
        "a_policy_changed_for_a_nice_value_is_restored",
        a_policy_changed_for_a_nice_value_is_restored,
    ),
    (
        "children_of_a_running_task_start_without_its_priority",
        children_of_a_running_task_start_without_its_priority,
    ),
    (
        "a_value_that_the_kernel_replaces",
        a_value_that_the_kernel_replaces,
    ),
    (
        "refused_values_are_reported_and_undone",
        refused_values_are_reported_and_undone,
    ),
    (
        "a_task_that_ends_during_the_session",
        a_task_that_ends_during_the_session,
    ),
    (
        "a_sysctl_of_a_network_namespace",
        a_sysctl_of_a_network_namespace,
    ),
    ("a_sysctl_that_is_read_only", a_sysctl_that_is_read_only),
    (
        "a_journal_of_another_user_is_refused",
        a_journal_of_another_user_is_refused,
    ),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let allowed = geteuid().is_root();
    let root = ROOT.iter().map(|&(name, test)| {
        Trial::test(format!("root::{name}"), test).with_ignored_flag(!allowed)
    });
    let anybody = Trial::test(
        "every_setting_can_be_read_or_explains_why_not",
        every_setting_can_be_read_or_explains_why_not,
    );
    let cgroup = Trial::test("root::a_quota_and_a_weight", a_quota_and_a_weight)
        .with_ignored_flag(!allowed || Group::root().is_none());
    let group = Trial::test("root::a_group_for_a_command", a_group_for_a_command)
        .with_ignored_flag(!allowed || Group::root().is_none());
    let all = root.chain([cgroup, group, anybody]).collect();
    libtest_mimic::run(&arguments, all).exit_code()
}
