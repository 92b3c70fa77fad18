//! Tests for traced traffic between network namespaces.

use std::fs;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_model::Nanos;
use ticktax_model::net::{EndReport, Link, NetStatement, SampledActivity, TrafficAccount};

use super::faults::{as_nobody, folder_for_nobody};
use super::fixture::{check, ticktax};

fn parse(output: &Output) -> Result<NetStatement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn pair(arguments: &[&str]) -> Result<NetStatement, Failed> {
    let start = ["net", "pair", "--for", "500ms", "--format", "json"];
    parse(&ticktax(&start).args(arguments).output()?)
}

/// Returns a link with this MTU and no limits.
fn plain(mtu: u32) -> Link {
    Link::Veth { mtu, shaping: None }
}

/// Checks that the accounts of both ends and of the kernel add up to the time from the first byte
/// to the last, and that the threads' times are consistent with their CPU clocks.
pub(crate) fn the_accounts_of_traffic_balance() -> Result<(), Failed> {
    for arguments in [&[][..], &["--udp"], &["--size", "64"], &["--soak"]] {
        let statement = pair(arguments)?;
        let why = || format!("{arguments:?}: {statement:?}");
        let (Some(books), Some(sender), Some(receiver)) =
            (&statement.traced, &statement.sender, &statement.receiver)
        else {
            return Err(why().into());
        };
        let window = sender.last.max(receiver.last) - sender.begin;
        let cpus = i64::try_from(books.cpus.len())?;
        let sum: Nanos = books.accounts.iter().map(|account| account.time).sum();
        check(sum == books.elapsed, why)?;
        check(books.elapsed == Nanos(window.0 * cpus), why)?;
        let unexplained = books.time(TrafficAccount::Unexplained);
        check(unexplained.0.abs() * 100 < books.elapsed.0, why)?;
        for (end, calls, user) in [
            (
                sender,
                TrafficAccount::SenderCall,
                TrafficAccount::SenderUser,
            ),
            (
                receiver,
                TrafficAccount::ReceiverCall,
                TrafficAccount::ReceiverUser,
            ),
        ] {
            let traced = books.time(calls) + books.time(user);
            check(traced > Nanos::ZERO, why)?;
            // A thread's CPU clock includes interrupts, which its account does not. The clock also
            // includes work before the first call and after the last one.
            check(traced <= end.cpu + Nanos::from_millis(5), why)?;
        }
        check(
            books.time(TrafficAccount::SoftirqReceive) > Nanos::ZERO,
            why,
        )?;
        check(statement.link == plain(1_500), why)?;
    }
    Ok(())
}

pub(crate) fn a_soak_probe_gets_the_remaining_time() -> Result<(), Failed> {
    let statement = pair(&["--soak"])?;
    let books = statement.traced.as_ref().ok_or("no books")?;
    let soaked = books.time(TrafficAccount::Soaker);
    let idle = books.time(TrafficAccount::Idle);
    // If other programs use all of the CPUs' time, nothing is left for the soak probe.
    let others = books.time(TrafficAccount::Program).share_of(books.elapsed);
    let has_some = soaked > Nanos::ZERO && soaked > idle;
    check(has_some || others > 0.8, || format!("{statement:?}"))
}

/// Checks that ticktax knows where each lost datagram was dropped. It learns this from the counters
/// in the network namespace, which carries no other traffic.
pub(crate) fn every_datagram_is_placed() -> Result<(), Failed> {
    let statement = pair(&["--udp", "--rate", "max", "--size", "200"])?;
    let receiver = statement.receiver.as_ref().ok_or("no receiver")?;
    let datagrams = receiver.datagrams.ok_or("no datagrams")?;
    let lost = datagrams.lost().ok_or("not known")?;
    check(
        statement.packets() == Some(datagrams.arrived + lost),
        || format!("{statement:?}"),
    )?;
    let unplaced = statement.losses().map_or(0, |places| places.unknown);
    check(unplaced == 0, || format!("{statement:?}"))
}

/// Checks that a link with a rate limit carries whole frames at this rate under any load, and that
/// its queue drops and counts every datagram in excess of the rate.
pub(crate) fn a_link_has_the_requested_rate() -> Result<(), Failed> {
    const RATE: f64 = 20e6;
    for (arguments, headers) in [
        (&["--link-rate", "20M"][..], 66.0),
        (&["--link-rate", "20M", "--udp", "--rate", "40M"], 42.0),
    ] {
        let statement = pair(arguments)?;
        let why = || format!("{arguments:?}: {statement:?}");
        let Link::Veth {
            shaping: Some(shaping),
            ..
        } = &statement.link
        else {
            return Err(why().into());
        };
        check(shaping.effective.rate == Some(RATE), why)?;
        let reached = statement.measured().and_then(EndReport::bits_hz);
        let reached = reached.ok_or("nothing arrived")?;
        // The limit applies to frames of 1,514 bytes. In addition, the initial contents of the
        // token bucket and of the queue pass once.
        let share = reached * 1_514.0 / (1_514.0 - headers) / RATE;
        check((0.85..=1.04).contains(&share), || {
            format!("{share} of the rate: {statement:?}")
        })?;
        if let Some(places) = statement.losses() {
            check(places.send_queue > 0 && places.unknown == 0, why)?;
            let sum = places.send_queue + places.socket_buffer + places.backlog + places.device;
            check(sum == places.total, why)?;
        }
    }
    Ok(())
}

/// Checks that packets are delayed if the kernel supports netem. If it does not, the error must
/// name the configuration option, and nothing may be sent.
pub(crate) fn a_link_is_delayed_or_the_missing_kernel_option_is_named() -> Result<(), Failed> {
    let start = ["net", "pair", "--for", "500ms", "--format", "json"];
    let output = ticktax(&start).args(["--delay", "20ms"]).output()?;
    if output.status.success() {
        let statement = parse(&output)?;
        let delayed = matches!(&statement.link, Link::Veth { shaping: Some(shaping), .. }
            if shaping.effective.delay == Some(Nanos::from_millis(20)));
        return check(delayed, || format!("{statement:?}"));
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(
        errors.contains("CONFIG_NET_SCH_NETEM") && errors.trim().lines().count() == 1,
        || errors.clone(),
    )?;
    check(output.stdout.is_empty(), || errors.clone())
}

/// Checks that a sampler finds too little interrupt time. Its own interrupt has to wait for other
/// interrupts, and sampling by thread cannot see softirqs. The sampler charges the missing time to
/// other accounts, so each of its columns still adds up.
pub(crate) fn a_sampler_finds_no_interrupt() -> Result<(), Failed> {
    let statement = pair(&["--soak"])?;
    let why = || format!("{statement:?}");
    let (Some(books), Some(sampled)) = (&statement.traced, &statement.sampled) else {
        return Err(why().into());
    };
    let traced: f64 = SampledActivity::ALL
        .iter()
        .map(|&doing| books.doing(doing).share_of(books.elapsed))
        .sum();
    check((traced - 1.0).abs() < 1e-9, why)?;
    let by_thread: u64 = sampled.counts.iter().map(|count| count.by_thread).sum();
    check(by_thread == sampled.samples() && by_thread > 0, why)?;
    let irq = books.doing(SampledActivity::Irq).share_of(books.elapsed);
    check(
        irq > 0.0 && sampled.shares(SampledActivity::Irq).0 < irq,
        why,
    )?;
    check(
        sampled.shares(SampledActivity::Irq).1 + sampled.shares(SampledActivity::Softirq).1 == 0.0,
        why,
    )?;
    check(sampled.shares(SampledActivity::Softirq).0 > 0.0, why)?;
    // If other programs keep the CPUs busy, the soak probe gets too little time to measure its own
    // speed.
    let fits = |soaked: Nanos| Nanos::ZERO < soaked && soaked < books.elapsed;
    let left = books.time(TrafficAccount::Soaker).share_of(books.elapsed);
    check(statement.soaked.map_or(left < 0.2, fits), why)
}

pub(crate) fn the_mtu_applies_to_the_devices() -> Result<(), Failed> {
    for mtu in [128, 576, 65_535] {
        let statement = pair(&["--mtu", &mtu.to_string()])?;
        check(statement.link == plain(mtu), || format!("{statement:?}"))?;
        let sender = statement.sender.as_ref().ok_or("no sender")?;
        let segment = sender.bytes / sender.counters.segments_out.max(1);
        check(segment <= u64::from(mtu), || format!("{segment} of {mtu}"))?;
        check(segment * 2 > u64::from(mtu) || mtu > 1_500, || {
            format!("{segment} of {mtu}")
        })?;
    }
    Ok(())
}

/// Returns how many network namespaces the processes on this machine use, apart from this process's
/// own.
fn namespaces() -> Result<usize, Failed> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let mut found = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(tasks) = fs::read_dir(process.path().join("task")) else {
            continue;
        };
        for task in tasks.flatten() {
            if let Ok(namespace) = fs::read_link(task.path().join("ns/net"))
                && namespace != own
                && !found.contains(&namespace)
            {
                found.push(namespace);
            }
        }
    }
    Ok(found.len())
}

/// Checks that no thread is left in a namespace, and that no namespace is mounted under a name. The
/// kernel has then removed the namespaces along with their devices.
pub(crate) fn a_killed_pair_leaves_nothing() -> Result<(), Failed> {
    leaves_nothing_when_killed(&["net", "pair", "--for", "1h", "--untraced"])
}

pub(crate) fn leaves_nothing_when_killed(arguments: &[&str]) -> Result<(), Failed> {
    let before = namespaces()?;
    let mounted = || fs::read_to_string("/proc/self/mountinfo");
    let mounts = mounted()?;
    let devices = || Ok::<_, Failed>(fs::read_dir("/sys/class/net")?.count());
    let devices_before = devices()?;
    let mut child = ticktax(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    while namespaces()? < before + 2 {
        if let Some(ended) = child.try_wait()? {
            return Err(format!("it ended: {ended}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    check(namespaces()? == before, || "a namespace is left".to_owned())?;
    check(devices()? == devices_before, || {
        "a device is left".to_owned()
    })?;
    check(mounted()? == mounts, || "a namespace is mounted".to_owned())
}

pub(crate) fn without_rights_it_goes_over_loopback() -> Result<(), Failed> {
    let place = folder_for_nobody()?;
    let output = as_nobody(place.path())
        .args(["net", "pair", "--for", "200ms", "--format", "json"])
        .output()?;
    let statement = parse(&output)?;
    check(matches!(statement.link, Link::Loopback { .. }), || {
        format!("{statement:?}")
    })?;
    check(
        statement.traced.is_none() && statement.untraced_reason.is_some(),
        || format!("{statement:?}"),
    )?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    check(
        errors.contains("loopback") && errors.contains("CAP_NET_ADMIN"),
        || errors.clone(),
    )?;
    check(!errors.contains("os error"), || errors.clone())
}
