//! `ticktax net`: traffic of our own, and the CPU time that it costs.

mod beside;
mod vary;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ticktax_analysis::net::TrafficLedger;
use ticktax_host::Proc;
use ticktax_model::Nanos;
use ticktax_model::clock::CounterSource;
use ticktax_model::net::{End, EndReport, Link, NetStatement, ShownTimes, TrafficBooks};
use ticktax_model::recording::{Header, Level, RowSink};
use ticktax_observe::{Event, Observation, Plan, ProbeChoice, Session};
use ticktax_probes::clock::{Clock, now};
use ticktax_probes::net::{NetError, Outcome, PORT, Place, Prepared, Traffic, Tuning};
use ticktax_probes::sampler::{SampleReport, Sampler};

use crate::arguments::{NetTask, NetWatchArguments, PairArguments, net_cpu};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Extent, Progress as Bar};
use crate::terminal::{Terminal, require_writable};

/// How often it is looked whether the traffic is over, where no session has a rhythm of its own.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Runs the verb.
pub(crate) fn run(task: &NetTask, terminal: &Terminal) -> Result<ExitCode, Failure> {
    if let NetTask::Pair(typed) = task
        && !typed.experiment.vary.is_empty()
    {
        return vary::run(typed, terminal);
    }
    let watch = task.watch();
    let (format, output) = watch.output();
    if let Some(output) = output {
        require_writable(output)?;
    }
    let html = output::begin_page(watch.html.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let (mut traffic, link) = begin(task, terminal)?;
    if let Some(address) = traffic.listens() {
        terminal.remark(&format!(
            "Waiting for a sender at {address}: `ticktax net send {address}` on the other host"
        ));
    }
    let ends = prepared(&mut traffic, &interrupt)?;
    let watched = Watched::of(&mut traffic, &ends, watch, &interrupt, Some(terminal))?;
    let outcome = traffic.finish()?;
    let trouble = outcome.trouble.clone();
    let statement = watched.statement(outcome, &ends, link);
    output::put(&statement.into(), html, (format, output), terminal)?;
    match trouble {
        None => Ok(ExitCode::SUCCESS),
        Some(trouble) => Err(trouble.into()),
    }
}

/// Traffic that is being prepared, and what it goes over; which peer is known later.
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

/// Both ends here: in namespaces, or over loopback where these may not be made.
fn pair(typed: &PairArguments, terminal: &Terminal) -> Result<(Traffic, Link), Failure> {
    let (mtu, link) = (typed.link.mtu(), typed.link.spec());
    let spec = typed.traffic.spec(Some(mtu));
    let cpus = (net_cpu(typed.send_cpu), net_cpu(typed.recv_cpu));
    let plain = Tuning::default();
    match Traffic::both(spec, Place::Namespaces { mtu, link }, cpus, &plain) {
        Ok(traffic) => {
            let shaping = traffic.shaping();
            Ok((traffic, Link::Veth { mtu, shaping }))
        }
        // Over a link as it is not narrowed, this would be another experiment.
        Err(error @ (NetError::NoNamespaces { .. } | NetError::NoVeth { .. }))
            if link.is_plain() =>
        {
            let why = error.to_string();
            terminal.complain(&format_args!(
                "over the loopback device only, without --mtu: {why}"
            ));
            let traffic = Traffic::both(spec, Place::Loopback, cpus, &plain)?;
            Ok((traffic, Link::Loopback { why }))
        }
        Err(error) => Err(error.into()),
    }
}

/// The address with the usual port, where none was typed.
pub(crate) fn with_port(typed: &str) -> String {
    let port = typed
        .rsplit_once(':')
        .map(|(host, port)| (host, port.parse::<u16>()));
    match port {
        Some((host, Ok(_))) if !host.contains(':') || host.ends_with(']') => typed.to_owned(),
        // An IPv6 address by itself.
        Some((host, _)) if host.contains(':') && !typed.starts_with('[') => {
            format!("[{typed}]:{PORT}")
        }
        Some((_, Err(_))) if !typed.ends_with(']') => typed.to_owned(),
        _ => format!("{typed}:{PORT}"),
    }
}

/// Waits until the ends have reached each other.
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

/// What was seen of this machine while there was traffic.
struct Watched {
    session: Option<(Session, TrafficLedger, Box<Header>)>,
    sampled: Option<SampleReport>,
    no_books: Option<String>,
    shown: ShownTimes,
    counter_hz: Option<u64>,
}

impl Watched {
    /// Starts what watches, lets the traffic go, and waits for its end; tells a terminal, where one is to be told.
    fn of(
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
            .and_then(|it| it.started().no_tracer.clone());
        if let (Some(why), Some(terminal)) = (&why, terminal) {
            terminal.complain(&format_args!(
                "no accounts, only the threads' own clocks: {why}"
            ));
        }
        let tid = |end| ends.iter().find(|it| it.end == end).map(|it| it.tid);
        let mut ledger = TrafficLedger::new(tid(End::Sender), tid(End::Receiver));
        let length = ends.first().map_or(Nanos::ZERO, |it| it.spec.length);
        let mut sampler = terminal.filter(|_| typed.soak).and_then(beside::sampler);
        let bar = terminal.map(|it| it.progress(Extent::Time(length), "Sending"));
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
            .then(|| "nothing was traced, as asked for (--untraced)".to_owned());
        Ok(Self {
            session: session
                .zip(header)
                .map(|(session, header)| (session, ledger, header)),
            sampled: sampler.map(Sampler::stop),
            no_books: no_books.or(why),
            shown: since(after, before),
            counter_hz: is_hardware.then(|| clock.frequency_hz()),
        })
    }

    /// All of it as one statement.
    fn statement(self, outcome: Outcome, ends: &[Prepared], link: Option<Link>) -> NetStatement {
        let here: Vec<End> = ends.iter().map(|it| it.end).collect();
        let spec = ends.first().map(|it| it.spec);
        let peer = ends
            .first()
            .map_or_else(String::new, |it| it.peer.to_string());
        let mut reports: Vec<EndReport> = Vec::from([outcome.report]);
        reports.extend(outcome.other);
        let of = |end| reports.iter().find(|it| it.end == end).cloned();
        let (sender, receiver) = (of(End::Sender), of(End::Receiver));
        let own: Vec<&EndReport> = reports.iter().filter(|it| here.contains(&it.end)).collect();
        let begin = own.iter().map(|it| it.begin).min().unwrap_or_default();
        let end = own.iter().map(|it| it.last).max().unwrap_or_default();
        let user = |end| {
            own.iter()
                .find(|it| it.end == end)
                .map_or(Nanos::ZERO, |it| it.user)
        };
        let users = (user(End::Sender), user(End::Receiver));
        let header = self.session.as_ref().map(|(_, _, header)| &**header);
        let soaked = header.and_then(|it| beside::soaked(it, (begin, end)));
        let sampled = self
            .sampled
            .zip(header)
            .and_then(|(report, header)| beside::sampled(&report, ends, header, (begin, end)));
        let books = self.session.map(|it| books(it, (begin, end), users));
        let (books, why) = match books {
            Some(Ok(books)) => (Some(books), None),
            Some(Err(why)) => (None, self.no_books.or(Some(why.to_owned()))),
            None => (None, self.no_books),
        };
        NetStatement {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            host: Proc::default().machine().host,
            spec: spec.expect("traffic that went has an end here"),
            link: link.unwrap_or(Link::Network { peer }),
            sender,
            receiver,
            here,
            books,
            no_books: why,
            sampled,
            soaked,
            shown: Some(self.shown),
            counter_hz: self.counter_hz,
        }
    }
}

fn books(
    (session, ledger, header): (Session, TrafficLedger, Box<Header>),
    window: (Nanos, Nanos),
    users: (Nanos, Nanos),
) -> Result<TrafficBooks, &'static str> {
    if header.level != Level::Kernel {
        return Err("the tracer did not load");
    }
    ledger.finish(session.sources(), &header, window, users)
}

/// How the machine is watched: every span, and nothing on the CPUs that was not asked for.
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

/// Feeds the session's rows to the books until the traffic, and then the session, is over.
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

/// Ends the traffic where Ctrl-C asks for it, and shows how far it is.
pub(crate) fn look(traffic: &Traffic, interrupt: &Interrupt, bar: &Bar) {
    if interrupt.signal().is_some() {
        traffic.stop();
    }
    if let Some(begun) = traffic.begun() {
        bar.at(now() - begun);
    }
}

/// What `/proc/stat` has counted of all CPUs together.
fn shown(proc: &Proc) -> ShownTimes {
    let times = proc.times_of_cpus();
    let sum = |of: fn(&ticktax_model::machine::CpuTimes) -> Nanos| times.values().map(of).sum();
    let mut shown = ShownTimes {
        elapsed: Nanos::ZERO,
        user: sum(|it| it.user + it.nice),
        system: sum(|it| it.system),
        irq: sum(|it| it.irq),
        softirq: sum(|it| it.softirq),
        idle: sum(|it| it.idle + it.iowait),
        steal: sum(|it| it.steal),
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
    fn the_usual_port_is_added_where_none_was_typed() {
        for (typed, meant) in [
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
            assert_eq!(with_port(typed), meant);
        }
    }
}
