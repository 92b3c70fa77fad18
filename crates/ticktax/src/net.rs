//! `ticktax net`: sends traffic and measures its cost in CPU time.

mod beside;
mod vary;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ticktax_analysis::net::{TrafficLedger, UserTimes};
use ticktax_host::Proc;
use ticktax_model::clock::CounterSource;
use ticktax_model::net::{End, EndReport, Link, NetStatement, ShownTimes, TracedTraffic};
use ticktax_model::recording::{Header, Level, RowSink};
use ticktax_model::{Interval, Nanos};
use ticktax_observe::{Event, Observation, Plan, ProbeChoice, Session};
use ticktax_probes::clock::{Clock, now};
use ticktax_probes::sampler::{SampleReport, Sampler};
use ticktax_traffic::{LocalLink, NetError, Outcome, PORT, Prepared, Traffic, Tuning};

use crate::arguments::{NetTask, NetWatchArguments, PairArguments, net_cpu};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Extent, Progress as Bar};
use crate::terminal::Terminal;

/// Interval at which the traffic's state is checked without a tracing session. With one, its events
/// trigger the check.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn run(task: &NetTask, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if let NetTask::Pair(typed) = task
        && !typed.experiment.vary.is_empty()
    {
        return vary::run(typed, terminal);
    }
    let watch = task.watch();
    let output = watch.output();
    output.require_writable()?;
    let html = output::begin_page(watch.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let (mut traffic, link) = begin(task, terminal)?;
    if let Some(address) = traffic.listens() {
        terminal.remark(&format!(
            "Waiting for a sender at {address}: run `ticktax net send {address}` on the other host"
        ));
    }
    let ends = prepared(&mut traffic, &interrupt)?;
    let observed = TrafficObservation::run(&mut traffic, &ends, watch, &interrupt, Some(terminal))?;
    let outcome = traffic.finish()?;
    let trouble = outcome.trouble.clone();
    let statement = observed.statement(outcome, &ends, link);
    output::put(&statement.into(), html, output, terminal)?;
    match trouble {
        None => Ok(ExitCode::SUCCESS),
        Some(trouble) => Err(trouble.into()),
    }
}

/// Creates the traffic, and returns it with its link. The link is `None` if the other end is on
/// another host, because that host has not connected yet.
fn begin(task: &NetTask, terminal: &Terminal) -> Result<(Traffic, Option<Link>), Failure> {
    Ok(match task {
        NetTask::Pair(typed) => {
            let (traffic, link) = pair(typed, terminal)?;
            (traffic, Some(link))
        }
        NetTask::Send(typed) => {
            let to = with_port(&typed.to);
            let spec = typed.traffic.spec(None);
            (Traffic::send(to, spec, net_cpu(typed.cpu))?, None)
        }
        NetTask::Recv(typed) => {
            let listen = typed.listen.clone();
            (Traffic::receive(listen, net_cpu(typed.cpu))?, None)
        }
    })
}

/// Creates traffic with both ends on this machine, either in two network namespaces or, if these
/// cannot be created, on the loopback device.
fn pair(typed: &PairArguments, terminal: &Terminal) -> Result<(Traffic, Link), Failure> {
    let (mtu, link) = (typed.link.mtu(), typed.link.spec());
    let spec = typed.traffic.spec(Some(mtu));
    let cpus = typed.cpus();
    let plain = Tuning::default();
    match Traffic::both(spec, LocalLink::Namespaces { mtu, link }, cpus, &plain) {
        Ok(traffic) => {
            let shaping = traffic.shaping();
            Ok((traffic, Link::Veth { mtu, shaping }))
        }
        // Fall back to loopback only if no limits were requested for the link. Loopback cannot
        // apply such limits, so it would not measure what the user asked for.
        Err(error @ (NetError::NoNamespaces { .. } | NetError::NoVeth { .. }))
            if link.is_plain() =>
        {
            let why = error.to_string();
            terminal.complain(&format_args!(
                "using the loopback device, without --mtu: {why}"
            ));
            let traffic = Traffic::both(spec, LocalLink::Loopback, cpus, &plain)?;
            Ok((traffic, Link::Loopback { reason: why }))
        }
        Err(error) => Err(error.into()),
    }
}

/// Adds the default port to an address without a port.
pub(crate) fn with_port(typed: &str) -> String {
    let port = typed
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(_))) if !host.contains(':') || host.ends_with(']') => typed.to_owned(),
        // Add brackets to an IPv6 address.
        Some((host, _)) if host.contains(':') && !typed.starts_with('[') => {
            format!("[{typed}]:{PORT}")
        }
        Some((_, Err(_))) if !typed.ends_with(']') => typed.to_owned(),
        _ => format!("{typed}:{PORT}"),
    }
}

/// Waits until both ends are connected. Returns an error after Ctrl-C.
pub(crate) fn prepared(
    traffic: &mut Traffic,
    interrupt: &Interrupt,
) -> Result<Vec<Prepared>, Failure> {
    loop {
        if let Some(ends) = traffic.prepared(LOOK)? {
            return Ok(ends);
        }
        if interrupt.signal().is_some() {
            return Err(NetError::Interrupted.into());
        }
    }
}

/// A tracing session that has ended, and the accounts of its rows.
struct TracedSession {
    session: Session,
    ledger: TrafficLedger,
    header: Box<Header>,
}

/// Everything observed on this machine while the traffic ran.
struct TrafficObservation {
    traced: Option<TracedSession>,
    sampled: Option<SampleReport>,
    no_books: Option<String>,
    shown: ShownTimes,
    counter_hz: Option<u64>,
}

impl TrafficObservation {
    /// Starts observing, lets the traffic run, and waits until it ends. If `terminal` is given,
    /// prints messages and progress there.
    fn run(
        traffic: &mut Traffic,
        ends: &[Prepared],
        typed: &NetWatchArguments,
        interrupt: &Interrupt,
        terminal: Option<&Terminal>,
    ) -> Result<Self, Failure> {
        let clock = Clock::calibrate();
        let is_hardware = clock.source() != CounterSource::Monotonic;
        let mut session = if typed.untraced {
            None
        } else {
            Some(Session::start(plan(typed))?)
        };
        let why = session
            .as_ref()
            .and_then(|session| session.started().no_tracer.clone());
        if let (Some(why), Some(terminal)) = (&why, terminal) {
            terminal.complain(&format_args!(
                "CPU time comes only from the CPU clocks of the two threads: {why}"
            ));
        }
        let tid = |end| {
            ends.iter()
                .find(|prepared| prepared.end == end)
                .map(|prepared| prepared.tid)
        };
        let mut ledger = TrafficLedger::new(tid(End::Sender), tid(End::Receiver));
        let length = ends.first().map_or(Nanos::ZERO, |end| end.spec.length);
        let mut sampler = terminal.filter(|_| typed.soak).and_then(beside::sampler);
        let bar = terminal.map(|terminal| terminal.progress(Extent::Time(length), "Sending"));
        let bar = bar.unwrap_or_else(Bar::hidden);
        let before = shown(&Proc::default());
        traffic.go();
        let header = match &mut session {
            None => {
                while !traffic.is_over() {
                    look(traffic, interrupt, &bar);
                    thread::sleep(LOOK);
                }
                None
            }
            Some(session) => {
                let mut follow = |traffic: &Traffic| {
                    look(traffic, interrupt, &bar);
                    if let Some(sampler) = &mut sampler {
                        sampler.drain();
                    }
                };
                Some(drive(session, traffic, &mut ledger, &mut follow)?)
            }
        };
        bar.done();
        let after = shown(&Proc::default());
        let no_books = typed
            .untraced
            .then(|| "tracing was disabled (--untraced)".to_owned());
        Ok(Self {
            traced: session.zip(header).map(|(session, header)| TracedSession {
                session,
                ledger,
                header,
            }),
            sampled: sampler.map(Sampler::stop),
            no_books: no_books.or(why),
            shown: since(after, before),
            counter_hz: is_hardware.then(|| clock.frequency_hz()),
        })
    }

    fn statement(self, outcome: Outcome, ends: &[Prepared], link: Option<Link>) -> NetStatement {
        let here: Vec<End> = ends.iter().map(|end| end.end).collect();
        let spec = ends.first().map(|end| end.spec);
        let peer = ends
            .first()
            .map_or_else(String::new, |end| end.peer.to_string());
        let mut reports: Vec<EndReport> = Vec::from([outcome.report]);
        reports.extend(outcome.other);
        let report_of = |end| reports.iter().find(|report| report.end == end).cloned();
        let (sender, receiver) = (report_of(End::Sender), report_of(End::Receiver));
        let own: Vec<&EndReport> = reports
            .iter()
            .filter(|report| here.contains(&report.end))
            .collect();
        let begin = own
            .iter()
            .map(|report| report.begin)
            .min()
            .unwrap_or_default();
        let end = own
            .iter()
            .map(|report| report.last)
            .max()
            .unwrap_or_default();
        let user = |end| {
            own.iter()
                .find(|report| report.end == end)
                .map_or(Nanos::ZERO, |report| report.user)
        };
        let user = UserTimes {
            sender: user(End::Sender),
            receiver: user(End::Receiver),
        };
        let interval = Interval::new(begin, end);
        let header = self.traced.as_ref().map(|traced| &*traced.header);
        let soaked = header.and_then(|header| beside::soaked(header, interval));
        let sampled = self
            .sampled
            .zip(header)
            .and_then(|(report, header)| beside::sampled(&report, ends, header, interval));
        let books = self.traced.map(|traced| traced.close(interval, user));
        let (books, why) = match books {
            Some(Ok(books)) => (Some(books), None),
            Some(Err(why)) => (None, self.no_books.or(Some(why))),
            None => (None, self.no_books),
        };
        NetStatement {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            host: Proc::default().machine().host,
            spec: spec.expect("one end of the traffic is on this machine"),
            link: link.unwrap_or(Link::Network { peer }),
            sender,
            receiver,
            local_ends: here,
            traced: books,
            untraced_reason: why,
            sampled,
            soaked,
            shown: Some(self.shown),
            counter_hz: self.counter_hz,
        }
    }
}

impl TracedSession {
    /// Closes the accounts for traffic that lasted for `interval`. Returns an error if the accounts
    /// are unknown.
    fn close(self, interval: Interval, user: UserTimes) -> Result<TracedTraffic, String> {
        if self.header.level != Level::Kernel {
            return Err("the tracer did not load".to_owned());
        }
        self.ledger
            .finish(self.session.sources(), &self.header, interval, user)
            .map_err(|why| why.to_string())
    }
}

/// Returns a plan that traces every span, with a probe only if the user asked for one.
fn plan(typed: &NetWatchArguments) -> Plan {
    Plan {
        probe: if typed.soak {
            ProbeChoice::Soak
        } else {
            ProbeChoice::None
        },
        ..Plan::default()
    }
}

/// Passes the session's rows to the ledger. Stops the session once the traffic has ended, and
/// returns when the session has ended, too.
fn drive(
    session: &mut Session,
    traffic: &Traffic,
    ledger: &mut TrafficLedger,
    follow: &mut dyn FnMut(&Traffic),
) -> Result<Box<Header>, Failure> {
    loop {
        match Observation::next_event(session)? {
            Event::Started(_) => {}
            Event::Rows { sources, rows } => {
                for row in rows {
                    ledger.row(sources, row);
                }
            }
            Event::Progress(_) => {
                follow(traffic);
                if let Some(begun) = traffic.begun() {
                    ledger.reach(session.sources(), begun, traffic.reached());
                }
                if traffic.is_over() {
                    session.stop(None);
                }
            }
            Event::Ended(header) => return Ok(header),
        }
    }
}

/// Updates the progress bar, and stops the traffic after Ctrl-C.
pub(crate) fn look(traffic: &Traffic, interrupt: &Interrupt, bar: &Bar) {
    if interrupt.signal().is_some() {
        traffic.stop();
    }
    if let Some(begun) = traffic.begun() {
        bar.at(now() - begun);
    }
}

/// Reads the CPU times in `/proc/stat` and adds them up over all CPUs.
fn shown(proc: &Proc) -> ShownTimes {
    let times = proc.times_of_cpus();
    let sum =
        |field: fn(&ticktax_model::machine::CpuTimes) -> Nanos| times.values().map(field).sum();
    let mut shown = ShownTimes {
        elapsed: Nanos::ZERO,
        user: sum(|times| times.user + times.nice),
        system: sum(|times| times.system),
        irq: sum(|times| times.irq),
        softirq: sum(|times| times.softirq),
        idle: sum(|times| times.idle + times.iowait),
        steal: sum(|times| times.steal),
    };
    let parts = [
        shown.user,
        shown.system,
        shown.irq,
        shown.softirq,
        shown.idle,
        shown.steal,
    ];
    shown.elapsed = parts.iter().sum();
    shown
}

fn since(after: ShownTimes, before: ShownTimes) -> ShownTimes {
    ShownTimes {
        elapsed: after.elapsed - before.elapsed,
        user: after.user - before.user,
        system: after.system - before.system,
        irq: after.irq - before.irq,
        softirq: after.softirq - before.softirq,
        idle: after.idle - before.idle,
        steal: after.steal - before.steal,
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn the_default_port_is_added_to_addresses_without_one() {
        for (typed, expected) in [
            ("server", "server:7117"),
            ("server:80", "server:80"),
            ("192.0.2.7", "192.0.2.7:7117"),
            ("192.0.2.7:99", "192.0.2.7:99"),
            ("2001:db8::7", "[2001:db8::7]:7117"),
            ("[2001:db8::7]", "[2001:db8::7]:7117"),
            ("[2001:db8::7]:80", "[2001:db8::7]:80"),
            ("server:http", "server:http"),
            ("server:99999", "server:99999"),
        ] {
            assert_eq!(with_port(typed), expected);
        }
    }
}
