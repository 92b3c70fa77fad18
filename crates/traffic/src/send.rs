//! The end that sends the traffic.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use ticktax_model::Nanos;
use ticktax_model::net::{End, EndReport, EndedBy, Protocol, TrafficSpec};
use ticktax_model::net_experiment::{ConnectionFacts, Fact};

use super::clocks::CallClock;
use super::datagrams::write_head;
use super::departures::{Departure, Departures};
use super::error::{NetError, reason};
use super::pacer::Pacer;
use super::traffic::{Outcome, Shared};
use super::tuning::Options;
use super::wire::{Control, Message, PROTOCOL, VERSION, is_nothing_yet};
use super::{LOOK, SILENCE, TCP_CALLS, UDP_CALLS, counters};
use ticktax_probes::clock::now;

/// Time limits for connecting to the receiver: in total, and per attempt. Ctrl-C takes effect
/// between attempts.
const CONNECT: Nanos = Nanos::from_secs(5);
const ATTEMPT: Duration = Duration::from_millis(800);

/// Time limit for the receiver to get ready, which can involve loading a tracer.
const READY: Nanos = Nanos::from_secs(60);

/// Time limit for the receiver's report. The receiver sends it only after it has waited for missing
/// datagrams.
const REPORT: Nanos = Nanos::from_secs(20);

/// Time limit for the receiver's report after Ctrl-C. It is short, because this process must end
/// within a second of Ctrl-C.
const REPORT_AFTER_STOP: Nanos = Nanos::from_millis(800);

/// Maximum number of send times per message. Each takes about 30 bytes.
const TIMES: usize = 1_500;

/// A sender that is connected to a receiver but has not sent data yet.
#[derive(Debug)]
pub(super) struct Sending {
    control: Control,
    data: Data,
    token: u64,
    spec: TrafficSpec,
}

impl Sending {
    /// Returns an error if traffic with this `spec` is impossible. Call this before contacting the
    /// receiver.
    pub(super) fn check(spec: &TrafficSpec) -> Result<(), NetError> {
        let sizes = match spec.protocol {
            Protocol::Tcp => TCP_CALLS,
            Protocol::Udp => UDP_CALLS,
        };
        if sizes.contains(&spec.call_bytes) {
            return Ok(());
        }
        Err(NetError::Size {
            bytes: spec.call_bytes,
            protocol: spec.protocol.name(),
            min: *sizes.start(),
            max: *sizes.end(),
        })
    }

    /// Connects to the receiver at `address`, and agrees on the traffic with it.
    pub(super) fn connect(
        address: &str,
        spec: TrafficSpec,
        options: Options<'_>,
        stop: &AtomicBool,
    ) -> Result<Self, NetError> {
        Self::check(&spec)?;
        let mut control = Control::over(reach(address, stop)?)?;
        let to = control.peer();
        control.say(&Message::Hello {
            ticktax_net: PROTOCOL,
            version: VERSION.to_owned(),
            spec,
        })?;
        // A program that doesn't answer the first message isn't a ticktax receiver.
        let not_ours = |error| match error {
            NetError::Silent { address, .. } | NetError::Gone { address, .. } => {
                NetError::NotOurs { address }
            }
            other => other,
        };
        let reply = control.hear(CONNECT, stop).map_err(not_ours)?;
        let address = to.to_string();
        match reply {
            Message::Welcome { token, .. } => Ok(Self {
                control,
                data: Data::open(to, token, options, spec.protocol)?,
                token,
                spec,
            }),
            Message::Refused { why, .. } => Err(NetError::Refused { address, why }),
            _ => Err(NetError::NotOurs { address }),
        }
    }

    /// Returns the receiver's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.control.peer()
    }

    /// Returns the token that the data starts with.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Waits until the receiver is ready, and sends the data.
    pub(super) fn run(
        mut self,
        options: Options<'_>,
        shared: &Shared,
    ) -> Result<Outcome, NetError> {
        let ready = self.control.hear(READY, &shared.stop)?;
        let Message::Ready { departures } = ready else {
            let address = self.peer().to_string();
            return Err(NetError::NotOurs { address });
        };
        let before = counters::read();
        let mut state = SendState::new(&self.spec);
        match &mut self.data {
            Data::Stream(stream) => {
                let size = self.spec.call_bytes as usize;
                let chunk = vec![0; Pacer::call(self.spec.rate, size)];
                state.drive(&mut self.control, shared, |_, _| stream.write(&chunk));
                (state.facts, state.connection) = options.sender_facts(stream.as_fd());
                // This fails if the receiver is gone, which doesn't matter here.
                let _ = stream.shutdown(Shutdown::Write);
            }
            Data::Datagrams(socket) => {
                let mut datagram = vec![0; self.spec.call_bytes as usize];
                let token = self.token;
                // Recording when each datagram is sent makes sending more expensive, so do it only
                // if the receiver asks for it.
                let mut departures_log = departures.then(Departures::default);
                state.drive(&mut self.control, shared, |number, at| {
                    write_head(&mut datagram, token, number, at);
                    let sent = socket.send(&datagram)?;
                    if let Some(departures_log) = &mut departures_log {
                        departures_log.note(number, at);
                    }
                    Ok(sent)
                });
                state.departures = departures_log.unwrap_or_default();
                (state.facts, state.connection) = options.sender_facts(socket.as_fd());
            }
        }
        let mut report = state.report();
        report.counters = counters::read().since(&before);
        Ok(self.finish(state, report))
    }

    /// Answers the receiver's questions about when datagrams were sent. Returns the first message
    /// that is not a question.
    fn answer(
        &mut self,
        departures: &Departures,
        limit: Nanos,
        stop: &AtomicBool,
    ) -> Result<Message, NetError> {
        loop {
            match self.control.hear(limit, stop)? {
                Message::When(asked) => {
                    self.control
                        .say(&Message::Then(times(departures, &asked)))?;
                }
                other => return Ok(other),
            }
        }
    }

    /// Reports how much was sent, and waits for the receiver's report.
    fn finish(mut self, state: SendState, report: EndReport) -> Outcome {
        let (mut other, mut trouble) = (state.other, state.trouble);
        if other.is_none() {
            let limit = match report.ended_early {
                Some(_) => REPORT_AFTER_STOP,
                None => REPORT,
            };
            let never = AtomicBool::new(false);
            let sent = self.control.say(&Message::Sent(Box::new(report.clone())));
            match sent.and_then(|()| self.answer(&state.departures, limit, &never)) {
                Ok(Message::Received(report)) => other = Some(*report),
                Ok(_) => {}
                // After Ctrl-C, it isn't an error if the receiver's report is missing.
                Err(_) if report.ended_early == Some(EndedBy::Interrupted) => {}
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        Outcome {
            report,
            other,
            log: None,
            trouble,
            facts: state.facts,
            connection: state.connection,
        }
    }
}

/// Returns when the datagrams in the ranges `asked` were sent. If the answers don't all fit into
/// one message, those for the last ranges are left out.
fn times(departures: &Departures, asked: &[(u64, u64)]) -> Vec<Vec<Departure>> {
    let (mut answers, mut room) = (Vec::new(), TIMES);
    for &(first, end) in asked {
        let mut times = departures.within(first, end);
        if times.len() > room && !answers.is_empty() {
            break;
        }
        // If the answer for a single range doesn't fit into a message, leave it empty.
        if times.len() > TIMES {
            times.clear();
        }
        room -= times.len();
        answers.push(times);
    }
    answers
}

/// The socket for the data.
#[derive(Debug)]
enum Data {
    Stream(TcpStream),
    Datagrams(UdpSocket),
}

impl Data {
    /// Opens the data connection. The receiver recognizes it by the token.
    fn open(
        to: SocketAddr,
        token: u64,
        options: Options<'_>,
        protocol: Protocol,
    ) -> Result<Self, NetError> {
        let system = NetError::system("open the data connection");
        let wait = Some(Duration::from_nanos(LOOK.0.unsigned_abs()));
        match protocol {
            Protocol::Tcp => {
                let stream = stream_to(to, options)?;
                let mut first = Control::over(stream)?;
                first.say(&Message::Data { token })?;
                let stream = first.into_stream();
                stream.set_nodelay(options.nodelay()).map_err(&system)?;
                stream.set_write_timeout(wait).map_err(&system)?;
                Ok(Self::Stream(stream))
            }
            Protocol::Udp => {
                let here: SocketAddr = match to {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
                };
                let socket = UdpSocket::bind(here).map_err(&system)?;
                options.apply_to_sender(&socket)?;
                socket.connect(to).map_err(&system)?;
                socket.set_write_timeout(wait).map_err(&system)?;
                Ok(Self::Datagrams(socket))
            }
        }
    }
}

/// Opens a TCP connection. Sets socket options before the first packet is sent, because the two
/// ends negotiate some of these options in their first packets.
fn stream_to(to: SocketAddr, options: Options<'_>) -> Result<TcpStream, NetError> {
    let failed = NetError::errno("open the data connection");
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let limit = TimeVal::milliseconds(i64::try_from(ATTEMPT.as_millis()).unwrap_or(i64::MAX));
    // Try several times, because on a link with losses, the first packet can be lost too.
    let until = now() + CONNECT;
    loop {
        let made =
            socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).map_err(&failed)?;
        options.apply_to_sender(&made)?;
        setsockopt(&made, sockopt::SendTimeout, &limit).map_err(&failed)?;
        match connect(made.as_raw_fd(), &SockaddrStorage::from(to)) {
            // The kernel returns this error when the socket's send timeout expires.
            Err(Errno::EINPROGRESS) if now() < until => {}
            done => return done.map(|()| TcpStream::from(made)).map_err(&failed),
        }
    }
}

/// Progress of sending.
#[derive(Debug)]
struct SendState {
    length: Nanos,
    protocol: Protocol,
    rate: Option<f64>,
    bytes: u64,
    begin: Nanos,
    last: Nanos,
    clock: CallClock,
    departures: Departures,
    ended_early: Option<EndedBy>,
    other: Option<EndReport>,
    trouble: Option<NetError>,
    facts: Vec<Fact>,
    connection: Option<ConnectionFacts>,
}

impl SendState {
    fn new(spec: &TrafficSpec) -> Self {
        let begin = now();
        Self {
            length: spec.length,
            protocol: spec.protocol,
            rate: spec.rate,
            bytes: 0,
            begin,
            last: begin,
            clock: CallClock::start(),
            departures: Departures::default(),
            ended_early: None,
            other: None,
            trouble: None,
            facts: Vec::new(),
            connection: None,
        }
    }

    /// Calls `call` whenever data is due, until the traffic's time is up. `call` gets its own
    /// number, counting up, and the current time.
    fn drive(
        &mut self,
        control: &mut Control,
        shared: &Shared,
        mut call: impl FnMut(u64, Nanos) -> io::Result<usize>,
    ) {
        let end = self.begin + self.length;
        let pacer = |rate| Pacer::new(self.protocol, rate, self.begin);
        let mut pacer = self.rate.map(pacer);
        let mut looked = self.begin;
        let mut moved = false;
        shared.begin(self.begin);
        loop {
            let at = now();
            if std::mem::take(&mut moved) {
                self.last = at;
                shared.reach(at);
            }
            if at >= end || self.ended_early.is_some() || self.trouble.is_some() {
                return;
            }
            if at - looked >= LOOK {
                looked = at;
                self.look(control, shared);
            }
            if let Some(wait) = pacer.as_mut().and_then(|pacer| pacer.wait(at)) {
                self.clock.waits();
                let left = Duration::from_nanos((end - at).0.unsigned_abs());
                thread::sleep(wait.min(left));
                continue;
            }
            self.clock.enter(at);
            match call(self.clock.calls(), at) {
                Ok(bytes) => {
                    self.clock.returned();
                    self.bytes += bytes as u64;
                    moved = true;
                    if let Some(pacer) = &mut pacer {
                        pacer.sent(bytes);
                    }
                }
                Err(error) => self.failed(&error, at, control),
            }
        }
    }

    /// Checks whether the traffic has to end early.
    fn look(&mut self, control: &mut Control, shared: &Shared) {
        if shared.stop.load(Ordering::Relaxed) {
            self.ended_early = Some(EndedBy::Interrupted);
            return;
        }
        match control.glance() {
            Ok(None) => {}
            Ok(Some(Message::Received(report))) => {
                self.other = Some(*report);
                self.gone(control, "it was interrupted");
            }
            Ok(Some(_)) => self.gone(control, "it sent an unexpected message"),
            Err(error) => {
                self.ended_early = Some(EndedBy::PeerGone);
                self.trouble = Some(error);
            }
        }
    }

    /// Handles an error of a send call.
    fn failed(&mut self, error: &io::Error, at: Nanos, control: &Control) {
        self.clock.waits();
        if !is_nothing_yet(error) {
            self.gone(control, &reason(error));
        } else if at - self.last >= SILENCE {
            self.gone(control, "it read nothing for 10 s");
        }
    }

    fn gone(&mut self, control: &Control, why: &str) {
        self.ended_early = Some(EndedBy::PeerGone);
        self.trouble = Some(NetError::Gone {
            address: control.peer().to_string(),
            why: why.to_owned(),
        });
    }

    fn report(&self) -> EndReport {
        let (cpu, user) = self.clock.stop();
        EndReport {
            end: End::Sender,
            bytes: self.bytes,
            calls: self.clock.calls(),
            begin: self.begin,
            last: self.last,
            cpu,
            user,
            counters: ticktax_model::net::ProtocolCounters::default(),
            datagrams: None,
            ended_early: self.ended_early,
        }
    }
}

/// Opens a connection to `address`, as typed by the user.
fn reach(address: &str, stop: &AtomicBool) -> Result<TcpStream, NetError> {
    let found = address
        .to_socket_addrs()
        .map_err(|error| NetError::Address {
            address: address.to_owned(),
            why: reason(&error),
        })?;
    let found: Vec<SocketAddr> = found.collect();
    let until = now() + CONNECT;
    let mut why = "the host name has no address".to_owned();
    loop {
        for to in &found {
            if stop.load(Ordering::Relaxed) {
                return Err(NetError::Interrupted);
            }
            match TcpStream::connect_timeout(to, ATTEMPT) {
                Ok(stream) => return Ok(stream),
                Err(error) => why = reason(&error),
            }
        }
        let is_slow = why.contains("timed out");
        if !is_slow || now() >= until {
            let address = address.to_owned();
            return Err(NetError::Connect { address, why });
        }
    }
}
