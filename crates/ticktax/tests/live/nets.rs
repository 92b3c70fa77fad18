//! Traffic between namespaces, traced.

use std::fs;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_model::Nanos;
use ticktax_model::net::{Doing, EndReport, Link, NetStatement, TrafficAccount};

use super::faults::{as_nobody, within_reach_of_nobody};
use super::fixture::{check, ticktax};

fn told(output: &Output) -> Result<NetStatement, Failed> {
    let complaint = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || complaint.clone().into_owned())?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn pair(arguments: &[&str]) -> Result<NetStatement, Failed> {
    let start = ["net", "pair", "--for", "500ms", "--format", "json"];
    told(&ticktax(&start).args(arguments).output()?)
}

/// A pair's link, as its devices are.
fn plain(mtu: u32) -> Link {
    Link::Veth { mtu, shaping: None }
}

/// The accounts of both ends and of the kernel sum to the time between the first byte and the last, and the threads'
/// times are those of their own clocks.
pub(crate) fn the_books_of_traffic_balance() -> Result<(), Failed> {
    for arguments in [&[][..], &["--udp"], &["--size", "64"], &["--soak"]] {
        let it = pair(arguments)?;
        let why = || format!("{arguments:?}: {it:?}");
        let (Some(books), Some(sender), Some(receiver)) = (&it.books, &it.sender, &it.receiver)
        else {
            return Err(why().into());
        };
        let window = sender.last.max(receiver.last) - sender.begin;
        let cpus = i64::try_from(books.cpus.len())?;
        let sum: Nanos = books.accounts.iter().map(|it| it.time).sum();
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
            // Interrupts on top of a thread are in its own clock, and not in its account. What it does before its
            // first call and after its last is in its clock too.
            check(traced <= end.cpu + Nanos::from_millis(5), why)?;
        }
        check(
            books.time(TrafficAccount::SoftirqReceive) > Nanos::ZERO,
            why,
        )?;
        check(it.link == plain(1_500), why)?;
    }
    Ok(())
}

/// What a soaker has left is what the accounts leave.
pub(crate) fn a_soaker_has_what_is_left() -> Result<(), Failed> {
    let it = pair(&["--soak"])?;
    let books = it.books.as_ref().ok_or("no books")?;
    let soaked = books.time(TrafficAccount::Soaker);
    let idle = books.time(TrafficAccount::Idle);
    // Where others want all of the CPUs, nothing is.
    let others = books.time(TrafficAccount::Program).share_of(books.elapsed);
    let has_some = soaked > Nanos::ZERO && soaked > idle;
    check(has_some || others > 0.8, || format!("{it:?}"))
}

/// Counters of the namespace: nothing else is in it.
pub(crate) fn every_datagram_is_placed() -> Result<(), Failed> {
    let it = pair(&["--udp", "--rate", "max", "--size", "200"])?;
    let receiver = it.receiver.as_ref().ok_or("no receiver")?;
    let datagrams = receiver.datagrams.ok_or("no datagrams")?;
    let lost = datagrams.lost().ok_or("not known")?;
    check(it.packets() == Some(datagrams.arrived + lost), || {
        format!("{it:?}")
    })?;
    let unplaced = it.losses().map_or(0, |places| places.not_placed);
    check(unplaced == 0, || format!("{it:?}"))
}

/// A link of a rate passes that rate, in whole frames and whatever is offered; what is too much is lost in its queue,
/// each datagram of it.
pub(crate) fn a_link_has_the_rate_that_was_asked_for() -> Result<(), Failed> {
    const RATE: f64 = 20e6;
    for (arguments, headers) in [
        (&["--link-rate", "20M"][..], 66.0),
        (&["--link-rate", "20M", "--udp", "--rate", "40M"], 42.0),
    ] {
        let it = pair(arguments)?;
        let why = || format!("{arguments:?}: {it:?}");
        let Link::Veth {
            shaping: Some(shaping),
            ..
        } = &it.link
        else {
            return Err(why().into());
        };
        check(shaping.effective.rate == Some(RATE), why)?;
        let reached = it.measured().and_then(EndReport::bits_hz);
        let reached = reached.ok_or("nothing arrived")?;
        // Of a frame of 1 514 bytes; and what the bucket and the queue hold passes once.
        let share = reached * 1_514.0 / (1_514.0 - headers) / RATE;
        check((0.85..=1.04).contains(&share), || {
            format!("{share} of the rate: {it:?}")
        })?;
        if let Some(places) = it.losses() {
            check(places.send_queue > 0 && places.not_placed == 0, why)?;
            let sum = places.send_queue + places.socket_buffer + places.backlog + places.device;
            check(sum == places.lost, why)?;
        }
    }
    Ok(())
}

/// A kernel with netem delays; one without says what it is called in its configuration, and sends nothing.
pub(crate) fn a_link_is_delayed_or_what_the_kernel_lacks_is_named() -> Result<(), Failed> {
    let start = ["net", "pair", "--for", "500ms", "--format", "json"];
    let output = ticktax(&start).args(["--delay", "20ms"]).output()?;
    if output.status.success() {
        let it = told(&output)?;
        let delayed = matches!(&it.link, Link::Veth { shaping: Some(it), .. }
            if it.effective.delay == Some(Nanos::from_millis(20)));
        return check(delayed, || format!("{it:?}"));
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    check(
        said.contains("CONFIG_NET_SCH_NETEM") && said.trim().lines().count() == 1,
        || said.clone(),
    )?;
    check(output.stdout.is_empty(), || said.clone())
}

/// The sampler's own interrupt waits for others, and by thread there is no softirq: by construction. What both leave
/// out somebody else has, so that all columns are whole.
pub(crate) fn a_sampler_finds_no_interrupt() -> Result<(), Failed> {
    let it = pair(&["--soak"])?;
    let why = || format!("{it:?}");
    let (Some(books), Some(sampled)) = (&it.books, &it.sampled) else {
        return Err(why().into());
    };
    let traced: f64 = Doing::ALL
        .iter()
        .map(|&doing| books.doing(doing).share_of(books.elapsed))
        .sum();
    check((traced - 1.0).abs() < 1e-9, why)?;
    let by_thread: u64 = sampled.counts.iter().map(|it| it.by_thread).sum();
    check(by_thread == sampled.samples() && by_thread > 0, why)?;
    let irq = books.doing(Doing::Irq).share_of(books.elapsed);
    check(irq > 0.0 && sampled.shares(Doing::Irq).0 < irq, why)?;
    check(
        sampled.shares(Doing::Irq).1 + sampled.shares(Doing::Softirq).1 == 0.0,
        why,
    )?;
    check(sampled.shares(Doing::Softirq).0 > 0.0, why)?;
    // On CPUs that others keep full a soaker has too little of its own to know its speed by.
    let fits = |soaked: Nanos| Nanos::ZERO < soaked && soaked < books.elapsed;
    let left = books.time(TrafficAccount::Soaker).share_of(books.elapsed);
    check(it.soaked.map_or(left < 0.2, fits), why)
}

pub(crate) fn an_mtu_is_that_of_the_devices() -> Result<(), Failed> {
    for mtu in [128, 576, 65_535] {
        let it = pair(&["--mtu", &mtu.to_string()])?;
        check(it.link == plain(mtu), || format!("{it:?}"))?;
        let sender = it.sender.as_ref().ok_or("no sender")?;
        let segment = sender.bytes / sender.counters.segments_out.max(1);
        check(segment <= u64::from(mtu), || format!("{segment} of {mtu}"))?;
        check(segment * 2 > u64::from(mtu) || mtu > 1_500, || {
            format!("{segment} of {mtu}")
        })?;
    }
    Ok(())
}

/// Namespaces that this machine's processes are in, other than this one's.
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

/// No thread is left in a namespace, and none is mounted by a name: the kernel has taken them away, and the devices.
pub(crate) fn a_killed_pair_leaves_nothing() -> Result<(), Failed> {
    leaves_nothing_when_killed(&["net", "pair", "--for", "1h", "--untraced"])
}

pub(crate) fn leaves_nothing_when_killed(arguments: &[&str]) -> Result<(), Failed> {
    let before = namespaces()?;
    let mounted = || fs::read_to_string("/proc/self/mountinfo");
    let mounts = mounted()?;
    let devices = || Ok::<_, Failed>(fs::read_dir("/sys/class/net")?.count());
    let had = devices()?;
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
    check(devices()? == had, || "a device is left".to_owned())?;
    check(mounted()? == mounts, || "a namespace is mounted".to_owned())
}

pub(crate) fn without_rights_it_goes_over_loopback() -> Result<(), Failed> {
    let place = within_reach_of_nobody()?;
    let output = as_nobody(place.path())
        .args(["net", "pair", "--for", "200ms", "--format", "json"])
        .output()?;
    let it = told(&output)?;
    check(matches!(it.link, Link::Loopback { .. }), || {
        format!("{it:?}")
    })?;
    check(it.books.is_none() && it.no_books.is_some(), || {
        format!("{it:?}")
    })?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    check(
        said.contains("loopback") && said.contains("CAP_NET_ADMIN"),
        || said.clone(),
    )?;
    check(!said.contains("os error"), || said.clone())
}
