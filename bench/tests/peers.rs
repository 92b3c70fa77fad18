//! Tests the comparison of third-party tools with an audit in guests. Tests whose names start with
//! `vm::` boot a guest. They are reported as ignored, with the reason, if QEMU, a kernel, a tool or
//! the ticktax executable next to the benchmarks is missing.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test whose setup fails should fail, with the reason"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Trial};
use ticktax_bench::peers::statement::{Latency, Noise, Peer, PeerOutcome, PeersStatement};
use ticktax_fixture::guests::{apt_has, why_no_guest};
use ticktax_model::Nanos;
use ticktax_model::recording::World;

/// Debian's cloud kernel, which has neither of the tracers that rtla needs (osnoise and timerlat).
const CLOUD: &str = "linux-image-cloud-amd64";
/// Debian's real-time kernel, which has both tracers that rtla needs (osnoise and timerlat).
const RT: &str = "linux-image-rt-amd64";

type Test = fn();

/// Tests that do not boot a guest, each with its name.
const ANYWHERE: &[(&str, Test)] = &[
    ("without_apt_one_line_says_so", without_apt_one_line_says_so),
    ("damaged_tools_are_refused", damaged_tools_are_refused),
    ("a_missing_ticktax_is_named", a_missing_ticktax_is_named),
    (
        "the_guests_verbs_are_nobody_elses",
        the_guests_verbs_are_nobody_elses,
    ),
];

/// Tests that boot a guest, each with its name and the kernel that it needs.
const IN_A_GUEST: &[(&str, &str, Test)] = &[
    (
        "peers_measure_the_same_kernel",
        RT,
        peers_measure_the_same_kernel,
    ),
    (
        "a_kernel_without_tracers_has_the_others",
        CLOUD,
        a_kernel_without_tracers_has_the_others,
    ),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Run one test at a time, because each test keeps a CPU busy.
    arguments.test_threads = Some(1);
    let trial = |name: &str, test: Test| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let mut trials: Vec<Trial> = ANYWHERE
        .iter()
        .map(|&(name, test)| trial(name, test))
        .collect();
    for &(name, kernel, test) in IN_A_GUEST {
        let why = ticktax_fixture::left_out("kernels").or_else(|| why_not(kernel));
        if let Some(why) = &why {
            eprintln!("vm::{name} is ignored: {why}");
        }
        trials.push(trial(&format!("vm::{name}"), test).with_ignored_flag(why.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Returns why a test with this kernel cannot run on this machine, or `None` if it can. apt is not
/// needed if the tools and the kernel are in the cache.
fn why_not(kernel: &str) -> Option<String> {
    if let Some(why) = why_no_guest() {
        return Some(why);
    }
    if !beside().is_file() {
        return Some("ticktax is not built: cargo build -p ticktax".to_owned());
    }
    let caches = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let lab = caches.or_else(home)?.join("ticktax/lab");
    let has = |part: String, packages: &[&str]| {
        let missing = !lab.join(part).exists() && !apt_has(packages);
        let names = packages.join(" and ");
        missing.then(|| format!("the cache lacks {names}, and apt does not know them"))
    };
    has(format!("kernels/{kernel}"), &[kernel])
        .or_else(|| has("tools".to_owned(), &["rtla", "rt-tests"]))
}

/// Returns the path of the ticktax executable next to the benchmarks.
fn beside() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_ticktax-bench")).with_file_name("ticktax")
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ticktax-bench"));
    command.args(arguments);
    command
}

/// Returns a command's standard error as text.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that the command failed, and that the last line of its standard error contains `words`.
fn last_line(output: &Output, words: &str) {
    let complaint = complaint(output);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    let last = complaint.lines().last().unwrap_or_default();
    assert!(last.contains(words), "{complaint}");
}

/// Creates a `peers` command for tests that fail before a guest boots. Its kernel is an arbitrary
/// file, and its ticktax executable is an arbitrary program.
fn peers_with(cache: &Path) -> Command {
    let mut command = bench(&["peers", "--kernel", "/proc/self/exe"]);
    command.args(["--ticktax", env!("CARGO_BIN_EXE_ticktax-bench")]);
    command.env("XDG_CACHE_HOME", cache);
    command
}

fn without_apt_one_line_says_so() {
    let cache = tempfile::tempdir().unwrap();
    let mut peers = peers_with(cache.path());
    let mut words = "cannot run `apt-get`";
    if ticktax_host::is_root() {
        // As root, the program looks for helper programs in a fixed PATH, so hide the apt-get that
        // is there.
        let mut hidden = Command::new("unshare");
        let script = "mount --bind /dev/null \"$(command -v apt-get)\" && exec \"$@\"";
        hidden.args(["--mount", "sh", "-c", script, "sh"]);
        hidden.arg(peers.get_program()).args(peers.get_args());
        let set = peers
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        hidden.envs(set);
        peers = hidden;
        words = "`apt-get` failed: permission denied";
    } else {
        peers.env("PATH", "/nonexistent");
    }
    last_line(&peers.output().unwrap(), words);
}

fn damaged_tools_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    let tools = cache.path().join("ticktax/lab/tools");
    fs::create_dir_all(&tools).unwrap();
    fs::write(tools.join("rtla"), "garbage").unwrap();
    fs::write(tools.join("manifest"), "file rtla 0123\n").unwrap();
    let output = peers_with(cache.path()).output().unwrap();
    last_line(&output, "rtla is not what was stored");
}

fn a_missing_ticktax_is_named() {
    let output = bench(&["peers", "--ticktax", "/nonexistent/ticktax"]).output();
    last_line(&output.unwrap(), "no /nonexistent/ticktax");
}

fn the_guests_verbs_are_nobody_elses() {
    for (verb, words) in [
        (&["lab-guest"][..], "PID 1"),
        (&["peers-guest", "1"], "a lab's guest alone"),
    ] {
        last_line(&bench(verb).output().unwrap(), words);
    }
}

/// Runs all tools for `seconds` each. Returns the statement and the printed page.
fn peers(kernel: &str, seconds: u32) -> (PeersStatement, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("peers.json");
    let length = format!("{seconds}s");
    let mut command = bench(&["peers", "--kernel", kernel, "--for", &length]);
    let output = command.arg("--save").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
    let page = String::from_utf8(output.stdout).unwrap();
    let statement: PeersStatement = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(statement.world, World::Lab);
    let ran: Vec<Peer> = statement.tools.iter().map(|tool| tool.peer).collect();
    assert_eq!(ran, Peer::ALL);
    (statement, page)
}

fn outcome(statement: &PeersStatement, peer: Peer) -> &PeerOutcome {
    let tool = statement.tools.iter().find(|tool| tool.peer == peer);
    &tool.unwrap().outcome
}

fn noise(statement: &PeersStatement, peer: Peer) -> &Noise {
    match outcome(statement, peer) {
        PeerOutcome::Noise(noise) => noise,
        other => panic!("{other:?}"),
    }
}

fn latency(statement: &PeersStatement, peer: Peer) -> Latency {
    match outcome(statement, peer) {
        PeerOutcome::Latency(latency) => *latency,
        other => panic!("{other:?}"),
    }
}

/// Asserts that `count` events in the time `over` match a rate of about `rate` per second: at least
/// 98 % and less than 125 % of the expected number.
fn at_rate(count: u64, rate: f64, over: Nanos) {
    let expected = rate * over.as_secs_f64();
    let share = count as f64 / expected;
    assert!((0.98..1.25).contains(&share), "{count} of {expected}");
}

fn peers_measure_the_same_kernel() {
    let (statement, page) = peers(RT, 2);
    let hz = f64::from(statement.machine.hz_configured.unwrap());
    let second = Nanos::from_secs(1);
    for peer in [Peer::Audit, Peer::Osnoise] {
        let noise = noise(&statement, peer);
        let counts = noise.counts.unwrap();
        // The loop keeps the CPU busy, so the tick never stops and each tick is one interrupt.
        at_rate(counts.irq, hz, noise.watched);
        assert!((second..Nanos::from_millis(2_100)).contains(&noise.watched));
        assert!(noise.longest <= noise.total && noise.total < noise.watched);
        let gaps = noise.attribution.as_ref().unwrap();
        at_rate(gaps.gaps.min(counts.irq), hz * 0.95, noise.watched);
        // The sums and the gaps are measured separately, so they can differ: the events that
        // describe the gaps may cover up to one period more than the sums.
        assert!(gaps.time.0 >= noise.total.0 - 100_000, "{noise:?}");
        assert!(gaps.time.0 < 2 * noise.total.0, "{noise:?}");
        let entry_exit = gaps.entry_exit.unwrap_or_default();
        let parts = gaps.named + entry_exit + gaps.outside + gaps.unexplained;
        assert_eq!(parts, gaps.time);
        assert!((0.4..=1.0).contains(&gaps.named_share()), "{noise:?}");
        assert!(gaps.own <= gaps.named);
    }
    let coverage = |peer| noise(&statement, peer).attribution.unwrap().coverage();
    assert!((0.99..=1.0).contains(&coverage(Peer::Audit)));
    // osnoise does not account for entering and leaving the kernel, so that time stays unexplained.
    assert!((0.4..1.0).contains(&coverage(Peer::Osnoise)));
    for peer in [Peer::Timerlat, Peer::Cyclictest] {
        let latency = latency(&statement, peer);
        // The threads of both tools sleep for 1 ms at a time, so each has about 2,000 cycles in 2
        // s.
        assert!((1_950..=2_050).contains(&latency.cycles), "{latency:?}");
        assert!(latency.thread.min > Nanos::ZERO && latency.thread.max < Nanos::from_millis(1));
        if let Some(irq) = latency.irq {
            assert!(irq.mean < latency.thread.mean, "{latency:?}");
        }
    }
    let explained = page.lines().find(|line| line.contains("Explained"));
    assert_eq!(
        explained.map(|line| line.matches('%').count()),
        Some(2),
        "{page}"
    );
}

fn a_kernel_without_tracers_has_the_others() {
    let (statement, page) = peers(CLOUD, 1);
    for peer in [Peer::Osnoise, Peer::Timerlat] {
        let absent = format!("this kernel has no {} tracer", peer.name());
        assert_eq!(
            outcome(&statement, peer),
            &PeerOutcome::Absent(absent.clone())
        );
        assert!(page.contains(&absent), "{page}");
    }
    assert!(noise(&statement, Peer::Audit).counts.unwrap().irq > 0);
    assert!(latency(&statement, Peer::Cyclictest).cycles > 900);
}
