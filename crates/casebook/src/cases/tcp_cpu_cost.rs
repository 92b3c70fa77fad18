//! `tcp-cpu-cost`: the CPU cost of TCP options, and a profiler that cannot see interrupts.

use ticktax_model::Nanos;
use ticktax_model::net::{EndReport, Link, NetStatement, Protocol, TrafficAccount as Account};
use ticktax_probes::ProbeError;
use ticktax_probes::clock::{Clock, CounterSource};
use ticktax_probes::tcp::{self, Transfer};
use ticktax_sim::{
    Call, Law, Machine, Mode, Policy, Report, Setup, Source, Step, TaskSpec, Then, run,
};

use super::{Case, WrongTraffic, millis, remark};
use crate::file::{CaseFile, Values};
use crate::judge::Modelled;
use ticktax_model::case::{MeasuredRow, Remark};

pub(super) const CASE: Tcp = Tcp;

pub(super) struct Tcp;

/// Name of the series that a measurement on this machine adds to.
const CYCLES: &str = "cycles per byte";

/// Overhead per frame in bytes. The terms are the preamble and inter-frame gap, the Ethernet header
/// and checksum, the IP header, and the TCP header.
const AROUND: f64 = 20.0 + 18.0 + 20.0 + 20.0;
/// Number of payload bytes in a full frame. TCP timestamps, if on, take `STAMPS` of them.
const FULL: f64 = 1460.0;
const STAMPS: f64 = 12.0;
/// Number of interrupt lines. With this many, a new interrupt rarely arrives while its line is
/// already pending.
const LINES: usize = 60;
/// Number of simulated seconds. They contain 4000 samples, so the results are accurate to ±2 %.
const LENGTH: i64 = 40;
/// Duration of an interrupt in the series `idle`, in ms.
const EACH: f64 = 0.1;
/// Interrupt level of the sampling clock in runs in which other interrupts can mask it. The other
/// interrupts have level 2. In all other runs, the clock has a higher level, so they cannot delay
/// it.
const MASKED: u8 = 1;
const UNMASKED: u8 = 3;
/// Duration of the transfer that is measured on this machine.
const HERE: Nanos = Nanos::from_secs(1);

impl Case for Tcp {
    fn text(&self) -> &'static str {
        include_str!("../../../../cases/tcp-cpu-cost.toml")
    }

    fn name(&self) -> &'static str {
        "tcp-cpu-cost"
    }

    fn model(&self, file: &CaseFile, values: &Values) -> Modelled {
        let mut modelled = Modelled::new();
        for (series, row) in file.rows() {
            if let Some(value) = figure(&series.name, &row.at, values) {
                modelled.insert((series.name.clone(), row.at.clone()), value);
            }
        }
        modelled
    }

    fn remarks(&self, _: &CaseFile, values: &Values, modelled: &Modelled) -> Vec<Remark> {
        let idle = |at: &str| {
            let found = modelled.get(&("idle".to_owned(), at.to_owned()));
            found.copied().unwrap_or_default()
        };
        vec![remark(
            "sampling delayed by interrupts",
            format!(
                "by construction, a sampler delayed by interrupts never samples one. With {:.0} % \
                 of the CPU in interrupts and {:.0} % in a process, it samples only the remaining \
                 {:.0} %, and says {:.0} % idle. A program that uses up all unused CPU time gets \
                 {:.0} %, the true idle share. While it runs, the sampler says {:.0} % idle",
                values.get("irq") * 100.0,
                values.get("process") * 100.0,
                (1.0 - values.get("irq")) * 100.0,
                idle("as sampled, masked, without a soaker"),
                idle("as a soaker finds it"),
                idle("as sampled, masked, with a soaker"),
            ),
        )]
    }

    fn measure_here(&self) -> Option<Result<Vec<Remark>, ProbeError>> {
        Some(tcp::loopback(HERE).map(|transfer| vec![here(&transfer, &Clock::calibrate())]))
    }

    fn measured(
        &self,
        statement: &NetStatement,
    ) -> Option<Result<(Vec<MeasuredRow>, Remark), WrongTraffic>> {
        Some(cycles_per_byte(statement).map(|rows| (rows, source(statement))))
    }
}

/// Returns the CPU cycles per byte of measured traffic, according to the CPU's cycle counter. If
/// the accounts separate sending from receiving, so do the rows.
fn cycles_per_byte(statement: &NetStatement) -> Result<Vec<MeasuredRow>, WrongTraffic> {
    if statement.spec.protocol != Protocol::Tcp {
        return Err(WrongTraffic::Udp);
    }
    let Some(books) = &statement.traced else {
        return Err(WrongTraffic::NoAccounts {
            why: statement.untraced_reason.clone(),
        });
    };
    let (Some(hz), bytes @ 1..) = (statement.counter_hz, statement.bytes()) else {
        return Err(WrongTraffic::NoCycles);
    };
    let cycles = |accounts: &[Account]| {
        let time: Nanos = accounts.iter().map(|&account| books.time(account)).sum();
        time.as_secs_f64() * hz as f64 / bytes as f64
    };
    let softirqs = [
        Account::SoftirqReceive,
        Account::SoftirqSend,
        Account::SoftirqPaced,
    ];
    let rows = [
        (
            "this machine, transmit (sender)",
            cycles(&[Account::SenderUser, Account::SenderCall]),
        ),
        (
            "this machine, receive (receiver)",
            cycles(&[Account::ReceiverUser, Account::ReceiverCall]),
        ),
        ("this machine, softirqs of both", cycles(&softirqs)),
        (
            "this machine, all of the traffic",
            books.of_traffic().as_secs_f64() * hz as f64 / bytes as f64,
        ),
    ];
    let rows = rows.into_iter().filter(|(_, value)| *value > 0.0);
    let row = |(at, value): (&str, f64)| MeasuredRow {
        series: CYCLES.to_owned(),
        label: at.to_owned(),
        value,
    };
    Ok(rows.map(row).collect())
}

fn source(statement: &NetStatement) -> Remark {
    let over = match &statement.link {
        Link::Veth { mtu, .. } => format!("a veth pair with an MTU of {mtu}"),
        Link::Loopback { .. } => "loopback".to_owned(),
        Link::Network { peer } => format!("the network to {peer}"),
    };
    let rate = statement
        .measured()
        .and_then(EndReport::bits_hz)
        .unwrap_or_default();
    let why = format!(
        "TCP over {over} on {}, {:.3} Gbit/s in calls of up to {} bytes, measured by ticktax net \
         {}; cycles of the counter at {:.2} GHz. Comparable with the published values only over \
         a physical network card",
        statement.host,
        rate / 1e9,
        statement.spec.call_bytes,
        statement.tool_version,
        statement.counter_hz.unwrap_or_default() as f64 / 1e9,
    );
    remark("cycles per byte, measured", why)
}

/// Reports the CPU cost per byte over this machine's loopback device, in ns. If the CPU's counter
/// is reliable, reports it in cycles too.
fn here(transfer: &Transfer, clock: &Clock) -> Remark {
    let Some(ns) = transfer.ns_per_byte() else {
        return remark("TCP over loopback", "nothing arrived".to_owned());
    };
    let hz = clock.frequency_hz() as f64;
    let cost = match clock.source() {
        CounterSource::Monotonic => format!("{ns:.3} ns of CPU time per byte"),
        _ => format!(
            "{:.2} cycles per byte ({ns:.3} ns of CPU time at the counter's {:.2} GHz)",
            ns * hz / 1e9,
            hz / 1e9
        ),
    };
    let share = |time: Nanos| 100.0 * time.share_of(transfer.sending + transfer.receiving);
    let why = format!(
        "{cost} for both ends together, {:.0} % of it in the sender; {:.2} GB/s for {}, in writes \
         of {} KB. Not comparable with the published values: loopback has no card, driver or \
         interrupts, and uses the largest possible packets",
        share(transfer.sending),
        transfer.bytes as f64 / transfer.elapsed.0 as f64,
        transfer.elapsed,
        tcp::CHUNK / 1024,
    );
    remark("TCP over loopback", why)
}

fn figure(series: &str, at: &str, values: &Values) -> Option<f64> {
    match (series, at) {
        ("timestamps", _) => {
            let rate = |data: f64| values.get("wire") * data / (FULL + AROUND);
            Some((rate(FULL - STAMPS) / rate(FULL) - 1.0) * 100.0)
        }
        ("throughput by window and latency", at) => {
            let (kilobytes, ms) = pair(at)?;
            let window = kilobytes * 1024.0 * 8.0 / (ms * 1e-3) / 1e6;
            Some(window.min(values.get("wire") * FULL / (FULL + AROUND)))
        }
        ("idle", at) => idle(at, values),
        ("interrupts as sampled, masked", at) => Some(share(&profile(at, MASKED)?) * 100.0),
        ("interrupts as sampled, never masked", at) => Some(share(&profile(at, UNMASKED)?) * 100.0),
        ("ticks lost, masked", at) => Some(lost(&profile(at, MASKED)?) * 100.0),
        _ => None,
    }
}

/// Parses a label with two numbers, such as `0.30, 2`. Returns `None` for any other label.
fn pair(at: &str) -> Option<(f64, f64)> {
    let (one, other) = at.split_once(',')?;
    Some((one.trim().parse().ok()?, other.trim().parse().ok()?))
}

/// Returns the idle share, in %, of a machine that handles interrupts and runs a process, as the
/// row with this label determines it. Returns `None` for any other label.
fn idle(at: &str, values: &Values) -> Option<f64> {
    let sampled = |report: &Report| {
        let cpu = &report.cpus[0];
        cpu.samples[Mode::Idle as usize] as f64 / cpu.sampled() as f64
    };
    let share = match at {
        "as sampled, masked, with a soaker" => sampled(&soaked(values)),
        "as sampled, masked, without a soaker" => sampled(&simulate(&busy(MASKED, values))),
        "as sampled, never masked, without a soaker" => sampled(&simulate(&busy(UNMASKED, values))),
        "really, without a soaker" => {
            let report = simulate(&busy(MASKED, values));
            report.cpus[0].time(Mode::Idle).share_of(report.elapsed)
        }
        "as a soaker finds it" => {
            let report = soaked(values);
            // The soaker delays the process, but the process's CPU time is still not charged to the
            // soaker.
            report.tasks[1].ran.share_of(report.elapsed)
        }
        _ => return None,
    };
    Some(share * 100.0)
}

/// Simulates the same machine with a soaker: a program at the lowest priority that uses every spare
/// cycle.
fn soaked(values: &Values) -> Report {
    let mut setup = busy(MASKED, values);
    let mut soaker = TaskSpec::new(
        "soaker",
        vec![Step::Work(Law::Fixed(Nanos::from_secs(LENGTH)))],
    );
    soaker.attributes.nice = 19;
    setup.tasks.push(soaker);
    simulate(&setup)
}

/// Returns a machine on which interrupts and a process take the shares of CPU time given in
/// `values`.
fn busy(tick_level: u8, values: &Values) -> Setup {
    let mut setup = machine(values.get("irq"), EACH, tick_level);
    let (share, burst) = (values.get("process"), 2.0);
    // Interrupts prolong a burst of work: it takes more elapsed time than CPU time.
    let left = 1.0 - values.get("irq");
    let sleep = (burst / share - burst / left).max(0.1);
    setup.tasks.push(TaskSpec::new(
        "process",
        vec![
            Step::Sleep(Call::Select, Law::Exponential(millis(sleep))),
            Step::Work(Law::Exponential(millis(burst))),
        ],
    ));
    setup.machine.timers = ticktax_sim::TimerRule::HighResolution;
    setup
}

/// Simulates the machine for a row with a label of the form `share, ms`. Interrupts take `share` of
/// the CPU time, at an average of `ms` each. The sampling clock interrupts at `tick_level`. Returns
/// `None` for any other label.
///
/// An interrupt that arrives while its line is already pending is lost. The interrupt rate is
/// therefore raised until interrupts take the intended share.
fn profile(at: &str, tick_level: u8) -> Option<Report> {
    let (share, ms) = pair(at)?;
    let mut offered = share;
    for _ in 0..3 {
        let report = simulate(&machine(offered, ms, tick_level));
        offered *= share / taken(&report);
    }
    Some(simulate(&machine(offered, ms, tick_level)))
}

fn simulate(setup: &Setup) -> Report {
    run(setup).unwrap_or_else(|error| panic!("the case's own machine: {error}"))
}

fn machine(offered: f64, ms: f64, tick_level: u8) -> Setup {
    let mut machine = Machine::new(1, 100, Policy::Goodness);
    machine.tick_level = tick_level;
    let mut setup = Setup::new(machine, Nanos::from_secs(LENGTH));
    for line in 0..LINES {
        setup.sources.push(Source {
            name: format!("line {line}"),
            cpu: 0,
            level: 2,
            start: Nanos::ZERO,
            interval: Law::Exponential(millis(ms / offered * LINES as f64)),
            cost: Law::Exponential(millis(ms)),
            then: Then::Nothing,
        });
    }
    setup
}

/// Returns the share of CPU time taken by interrupts.
fn taken(report: &Report) -> f64 {
    report.cpus[0].time(Mode::Irq).share_of(report.elapsed)
}

/// Returns the share of samples taken in an interrupt.
fn share(report: &Report) -> f64 {
    let cpu = &report.cpus[0];
    cpu.samples[Mode::Irq as usize] as f64 / cpu.sampled() as f64
}

fn lost(report: &Report) -> f64 {
    report.cpus[0].lost as f64 / report.ticks as f64
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::net::{
        End, EndReport, Link, NetStatement, Protocol, ProtocolCounters, TracedTraffic,
        TrafficAccount, TrafficSpec, TrafficTime,
    };

    use super::{WrongTraffic, cycles_per_byte};

    /// Returns one second of TCP traffic that transfers 1 GB. On a 2 GHz CPU, 1 s of CPU time then
    /// corresponds to 2 cycles per byte.
    fn traffic() -> NetStatement {
        let account = |account, ms| TrafficTime {
            account,
            time: Nanos::from_millis(ms),
        };
        NetStatement {
            tool_version: "0".to_owned(),
            host: "vm".to_owned(),
            spec: TrafficSpec {
                protocol: Protocol::Tcp,
                call_bytes: 131_072,
                rate: None,
                length: Nanos::from_secs(2),
            },
            link: Link::Veth {
                mtu: 1_500,
                shaping: None,
            },
            sender: None,
            receiver: Some(EndReport {
                end: End::Receiver,
                bytes: 1_000_000_000,
                calls: 10_000,
                begin: Nanos::from_secs(1),
                last: Nanos::from_secs(3),
                cpu: Nanos::from_secs(1),
                user: Nanos::ZERO,
                counters: ProtocolCounters::default(),
                datagrams: None,
                ended_early: None,
            }),
            local_ends: vec![End::Sender, End::Receiver],
            traced: Some(TracedTraffic {
                elapsed: Nanos::from_secs(4),
                accounts: vec![
                    account(TrafficAccount::SenderUser, 100),
                    account(TrafficAccount::SenderCall, 900),
                    account(TrafficAccount::ReceiverCall, 500),
                    account(TrafficAccount::SoftirqReceive, 250),
                    account(TrafficAccount::Idle, 2_250),
                ],
                cpus: Vec::new(),
                events_lost: 0,
            }),
            untraced_reason: None,
            sampled: None,
            soaked: None,
            shown: None,
            counter_hz: Some(2_000_000_000),
        }
    }

    #[test]
    fn a_byte_costs_both_ends_and_the_softirqs() {
        let rows = cycles_per_byte(&traffic()).unwrap();
        let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [2.0, 1.0, 0.5, 3.5]);
    }

    #[test]
    fn traffic_without_tcp_cycles_is_refused_with_the_reason() {
        let mut datagrams = traffic();
        datagrams.spec.protocol = Protocol::Udp;
        let mut untraced = traffic();
        (untraced.traced, untraced.untraced_reason) =
            (None, Some("as asked for (--untraced)".to_owned()));
        let mut unclocked = traffic();
        unclocked.counter_hz = None;
        let mut nothing = traffic();
        nothing.receiver = None;
        let no_accounts = WrongTraffic::NoAccounts {
            why: untraced.untraced_reason.clone(),
        };
        for (statement, error) in [
            (datagrams, WrongTraffic::Udp),
            (untraced, no_accounts),
            (unclocked, WrongTraffic::NoCycles),
            (nothing, WrongTraffic::NoCycles),
        ] {
            assert_eq!(cycles_per_byte(&statement).unwrap_err(), error);
        }
    }
}
