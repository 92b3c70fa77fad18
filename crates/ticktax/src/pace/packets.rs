//! `ticktax pace --udp`: sends paced datagrams, and reports how many were lost, where they were
//! lost, and which stalls caused the losses.

use std::process::ExitCode;
use std::thread;

use crate::files::RowFiles;
use nix::time::{ClockId, clock_gettime};
use ticktax_analysis::packets::{ReceiverWatch, packet_statement};
use ticktax_host::Proc;
use ticktax_model::net::{End, EndReport, EndedBy, Link, LinkSpec};
use ticktax_model::packets::{DropReason, PacketRun, PacketStatement};
use ticktax_model::recording::{EndedEarly, Header, Level, Paced, RowSink};
use ticktax_model::{Cpu, SourceTable};
use ticktax_observe::{DropWatch, Event, Observation, Plan, Program, Session};
use ticktax_report::RowsEnded;
use ticktax_traffic::{LocalLink, NetError, Outcome, Prepared, Traffic};

use crate::arguments::{ETHERNET, PaceArguments};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::net::{LOOK, look, prepared, with_port};
use crate::output;
use crate::progress::{Extent, Progress as Bar};
use crate::terminal::Terminal;

pub(super) fn run(typed: &PaceArguments, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut files = output::begin(&typed.files, typed.output.as_deref())?;
    let interrupt = Interrupt::listen()?;
    let (mut traffic, link) = begin(typed, terminal)?;
    if let Some(address) = traffic.listens() {
        terminal.remark(&format!(
            "Waiting for a sender at {address}: run `ticktax pace --udp --to {address}` on the \
             other host"
        ));
    }
    let ends = prepared(&mut traffic, &interrupt)?;
    let observed =
        ReceiverObservation::run(&mut traffic, &ends, typed, &interrupt, &mut files, terminal)?;
    let outcome = traffic.finish()?;
    let trouble = outcome.trouble.clone();
    let (header, sources, statement) = observed.concluded(outcome, &ends, link, typed);
    let ended = RowsEnded {
        header: &header,
        sources: &sources,
        document: &statement.into(),
    };
    output::finish(&ended, files, typed.output(), terminal)?;
    match trouble {
        None => Ok(ExitCode::SUCCESS),
        Some(trouble) => Err(trouble.into()),
    }
}

/// Creates the ends of the traffic that run on this machine, and returns them with the link. The
/// link is `None` if the other end is on another host, because that host has not connected yet.
fn begin(typed: &PaceArguments, terminal: &Terminal) -> Result<(Traffic, Option<Link>), Failure> {
    let packets = &typed.packets;
    let (cpus, buffer) = (packets.cpus(), packets.buffer());
    if let Some(to) = &packets.to {
        let spec = typed.packet_spec();
        return Ok((Traffic::send(with_port(to), spec, cpus.sender)?, None));
    }
    if let Some(listen) = &packets.listen {
        let traffic = Traffic::receive_logged(listen.clone(), cpus.receiver, buffer)?;
        return Ok((traffic, None));
    }
    let (spec, mtu) = (typed.packet_spec(), ETHERNET);
    let link = LinkSpec::default();
    match Traffic::both_logged(spec, LocalLink::Namespaces { mtu, link }, cpus, buffer) {
        Ok(traffic) => {
            let shaping = traffic.shaping();
            Ok((traffic, Some(Link::Veth { mtu, shaping })))
        }
        Err(error @ (NetError::NoNamespaces { .. } | NetError::NoVeth { .. })) => {
            let why = error.to_string();
            terminal.complain(&format_args!("using the loopback device: {why}"));
            let traffic = Traffic::both_logged(spec, LocalLink::Loopback, cpus, buffer)?;
            Ok((traffic, Some(Link::Loopback { reason: why })))
        }
        Err(error) => Err(error.into()),
    }
}

/// Everything observed on this machine while the traffic ran.
struct ReceiverObservation {
    session: Option<(Session, Option<ReceiverWatch>, Box<Header>)>,
    thread: Option<(i32, i32)>,
    no_trace: Option<String>,
    drop_reasons: Option<Vec<DropReason>>,
    /// Header of the recording, for use without a tracing session, which would provide one.
    header: Header,
}

impl ReceiverObservation {
    /// Starts tracing the receiver if it is on this machine, lets the traffic run, and waits until
    /// it ends.
    fn run(
        traffic: &mut Traffic,
        ends: &[Prepared],
        typed: &PaceArguments,
        interrupt: &Interrupt,
        files: &mut RowFiles,
        terminal: &Terminal,
    ) -> Result<Self, Failure> {
        let receiver = ends.iter().find(|end| end.end == End::Receiver);
        let followed = receiver.filter(|_| !typed.packets.untraced);
        let mut session = followed
            .map(|end| Session::start(plan(end.tid)))
            .transpose()?;
        let no_tracer = session
            .as_ref()
            .and_then(|session| session.started().no_tracer.clone());
        if let Some(why) = &no_tracer {
            terminal.complain(&format_args!("the causes of losses are unknown: {why}"));
        }
        let untraced = typed.packets.untraced && receiver.is_some();
        let no_trace = untraced.then(|| "tracing was disabled (--untraced)".to_owned());
        let thread = session.as_ref().zip(followed);
        let thread = thread
            .filter(|_| no_tracer.is_none())
            .and_then(|(session, end)| Some((session.started().process?, end.tid)));
        let mut watch = thread.map(|thread| {
            let since = session
                .as_ref()
                .and_then(|session| session.started().victim_begin);
            ReceiverWatch::new(thread, since.unwrap_or_default())
        });
        let length = ends.first().map(|end| end.spec.length).unwrap_or_default();
        let bar = terminal.progress(Extent::Time(length), "Sending");
        let header = untraced_header();
        // Trace dropped packets only if the receiver is also traced.
        let token = ends
            .first()
            .filter(|_| session.is_some() && no_tracer.is_none());
        let drops = token.and_then(|end| DropWatch::begin(end.token).ok());
        traffic.go();
        let session = match session.take() {
            None => {
                while !traffic.is_over() {
                    look(traffic, interrupt, &bar);
                    thread::sleep(LOOK);
                }
                None
            }
            Some(mut session) => {
                let header = drive(&mut session, traffic, &mut watch, files, interrupt, &bar)?;
                Some((session, watch, header))
            }
        };
        bar.done();
        let drop_reasons = drops.map(|drops| {
            let counts = drops.counts().into_iter();
            let reasons = counts.map(|(reason, datagrams)| DropReason { reason, datagrams });
            reasons.collect()
        });
        Ok(Self {
            drop_reasons,
            session,
            thread,
            no_trace: no_trace.or(no_tracer),
            header,
        })
    }

    /// Builds the statement, and the header and source table of the recording.
    fn concluded(
        self,
        outcome: Outcome,
        ends: &[Prepared],
        link: Option<Link>,
        typed: &PaceArguments,
    ) -> (Header, SourceTable, PacketStatement) {
        let spec = ends.first().map(|end| end.spec);
        let peer = ends.first().map(|end| end.peer.to_string());
        let reports: Vec<EndReport> = std::iter::once(outcome.report)
            .chain(outcome.other)
            .collect();
        let report_of = |end| reports.iter().find(|report| report.end == end).cloned();
        let here: Vec<End> = ends.iter().map(|end| end.end).collect();
        let is_received = here.contains(&End::Receiver);
        let mut run = PacketRun {
            spec: spec.expect("one end of the traffic is on this machine"),
            link: link.unwrap_or(Link::Network {
                peer: peer.unwrap_or_default(),
            }),
            local_ends: here,
            sender: report_of(End::Sender),
            receiver: report_of(End::Receiver),
            log: outcome.log.map(|log| *log),
            drop_reasons: self.drop_reasons,
            thread: self.thread,
            receiver_cpu: typed
                .packets
                .cpus()
                .receiver
                .filter(|_| is_received)
                .map(|cpu| cpu.0),
            untraced_reason: self.no_trace,
        };
        let (mut header, sources, watch) = match self.session {
            Some((session, watch, header)) => (*header, session.sources().clone(), watch),
            None => (self.header, SourceTable::default(), None),
        };
        let cpu = run.receiver_cpu.map(Cpu);
        let hold_ups = watch.and_then(|watch| watch.finish(&sources, cpu));
        if hold_ups.is_none() && run.untraced_reason.is_none() && is_received {
            run.untraced_reason = Some(
                "the trace uses a different thread ID for the receiver: run ticktax outside the \
                 container's PID namespace"
                    .to_owned(),
            );
        }
        let statement = packet_statement(&header, &run, hold_ups.as_ref());
        // ticktax stops the session itself when the traffic ends. Only the two ends of the traffic
        // know whether the user interrupted the run.
        let interrupted = |end: &EndReport| end.ended_early == Some(EndedBy::Interrupted);
        let ends = [&run.sender, &run.receiver].into_iter().flatten();
        let is_early = ends.into_iter().any(interrupted);
        header.ended_early = is_early.then_some(EndedEarly::Interrupted);
        header.paced = Some(Paced::Packets(Box::new(run)));
        (header, sources, statement)
    }
}

fn plan(tid: i32) -> Plan {
    Plan {
        program: Some(Program::Thread(tid)),
        ..Plan::default()
    }
}

fn untraced_header() -> Header {
    let machine = Proc::default().machine();
    let (world, _) = ticktax_host::world(&machine);
    Header {
        began_unix: clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec()),
        machine,
        ..Header::new(world, Level::Proc, env!("CARGO_PKG_VERSION"))
    }
}

/// Passes the session's rows to the receiver's analysis and to the files. Stops the session once
/// the traffic has ended, and returns when the session has ended, too.
fn drive(
    session: &mut Session,
    traffic: &Traffic,
    watch: &mut Option<ReceiverWatch>,
    files: &mut RowFiles,
    interrupt: &Interrupt,
    bar: &Bar,
) -> Result<Box<Header>, Failure> {
    loop {
        match Observation::next_event(session)? {
            Event::Started(_) => {}
            Event::Rows { sources, rows } => {
                for row in rows {
                    if let Some(watch) = watch {
                        watch.row(sources, row);
                    }
                    files.row(sources, row);
                }
            }
            Event::Progress(_) => {
                look(traffic, interrupt, bar);
                if traffic.is_over() {
                    session.stop(None);
                }
            }
            Event::Ended(header) => {
                // The session's thread can end slightly earlier than the traffic, so wait for the
                // traffic.
                while !traffic.is_over() {
                    look(traffic, interrupt, bar);
                    thread::sleep(LOOK);
                }
                return Ok(header);
            }
        }
    }
}
