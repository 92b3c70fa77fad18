//! The end that receives the traffic.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::net::{End, EndReport, EndedBy, Protocol, ProtocolCounters, TrafficSpec};

use super::clocks::CallClock;
use super::datagrams::Arrivals;
use super::error::{NetError, reason};
use super::send::Sending;
use super::traffic::{Outcome, Shared};
use super::tuning::Options;
use super::wire::{Control, Message, PROTOCOL, VERSION, is_nothing_yet};
use super::{LOOK, SILENCE, TCP_CALL, UDP_CALLS, counters};
use ticktax_probes::clock::now;

mod logged;

use logged::Logged;

/// Time limit for the first message on a connection, and for the sender to open its data
/// connection.
const FIRST_WORDS: Nanos = Nanos::from_secs(5);

/// A receiver that is listening for a sender.
#[derive(Debug)]
pub(super) struct Listening {
    listener: TcpListener,
    /// A UDP socket on the listener's port, so that users need only one port number.
    datagrams: UdpSocket,
    address: SocketAddr,
    logged: Option<Logged>,
}

impl Listening {
    /// Listens on `address`, as typed by the user.
    pub(super) fn at(address: &str, options: Option<Options<'_>>) -> Result<Self, NetError> {
        let mut found = address
            .to_socket_addrs()
            .map_err(|error| NetError::Address {
                address: address.to_owned(),
                why: reason(&error),
            })?;
        let at = found.next().ok_or_else(|| NetError::Address {
            address: address.to_owned(),
            why: "the host name has no address".to_owned(),
        })?;
        let failed = |error: io::Error| NetError::Listen {
            address: address.to_owned(),
            why: reason(&error),
        };
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let datagrams = UdpSocket::bind(address).map_err(failed)?;
        if let Some(options) = options {
            options.apply_to_receiver(&listener, &datagrams)?;
        }
        Ok(Self {
            listener,
            datagrams,
            address,
            logged: None,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a sender and prepares to receive its traffic. Closes connections from clients that
    /// aren't ticktax senders.
    pub(super) fn welcome(self, stop: &AtomicBool) -> Result<Receiving, NetError> {
        loop {
            let stream = self.accept(None, stop)?;
            let mut control = Control::over(stream)?;
            match control.hear(FIRST_WORDS, stop) {
                Ok(Message::Hello { spec, .. }) => match self.greet(control, spec, stop) {
                    Err(NetError::Gone { .. } | NetError::Silent { .. }) => {}
                    done => return done,
                },
                Err(error @ NetError::Version { .. }) => {
                    // Send our version as well. The other end may ignore it.
                    let _ = control.say(&Message::Refused {
                        ticktax_net: PROTOCOL,
                        version: VERSION.to_owned(),
                        why: error.to_string(),
                    });
                    return Err(error);
                }
                Err(NetError::Interrupted) => return Err(NetError::Interrupted),
                _ => {}
            }
        }
    }

    /// Agrees on the traffic with a sender, then waits for the sender to open its data connection.
    fn greet(
        &self,
        mut control: Control,
        spec: TrafficSpec,
        stop: &AtomicBool,
    ) -> Result<Receiving, NetError> {
        Sending::check(&spec)?;
        // Use the current time as the token. Data from any other source is unlikely to start with
        // this number.
        let token = now().0.unsigned_abs();
        control.say(&Message::Welcome {
            ticktax_net: PROTOCOL,
            version: VERSION.to_owned(),
            token,
        })?;
        let failed = NetError::system("receive");
        let data = match spec.protocol {
            Protocol::Udp => {
                let socket = self.datagrams.try_clone().map_err(&failed)?;
                let wait = Some(Duration::from_millis(20));
                socket.set_read_timeout(wait).map_err(&failed)?;
                Data::Datagrams(socket, Arrivals::new(token))
            }
            Protocol::Tcp => Data::Stream(self.stream(token, stop)?),
        };
        Ok(Receiving {
            control,
            data,
            token,
            spec,
            logged: self.logged,
        })
    }

    /// Waits for the data connection that starts with this token.
    fn stream(&self, token: u64, stop: &AtomicBool) -> Result<TcpStream, NetError> {
        let until = now() + FIRST_WORDS;
        loop {
            let mut first = Control::over(self.accept(Some(until), stop)?)?;
            if let Ok(Message::Data { token: received }) = first.hear(FIRST_WORDS, stop)
                && received == token
            {
                return Ok(first.into_stream());
            }
        }
    }

    /// Waits for the next connection, no longer than until `until`.
    fn accept(&self, until: Option<Nanos>, stop: &AtomicBool) -> Result<TcpStream, NetError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let set = stream.set_nonblocking(false);
                    set.map_err(NetError::system("set up a connection"))?;
                    return Ok(stream);
                }
                Err(error) if is_nothing_yet(&error) => {}
                // The client closed its connection before we accepted it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(NetError::system("accept a connection")(error)),
            }
            if stop.load(Ordering::Relaxed) {
                return Err(NetError::Interrupted);
            }
            if until.is_some_and(|until| now() >= until) {
                return Err(NetError::Silent {
                    address: self.address.to_string(),
                    seconds: 5,
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A receiver that is connected to a sender.
#[derive(Debug)]
pub(super) struct Receiving {
    control: Control,
    data: Data,
    token: u64,
    spec: TrafficSpec,
    logged: Option<Logged>,
}

/// The socket for the data.
#[derive(Debug)]
enum Data {
    Stream(TcpStream),
    Datagrams(UdpSocket, Arrivals),
}

impl Receiving {
    /// Returns the sender's address.
    pub(super) fn peer(&self) -> SocketAddr {
        self.control.peer()
    }

    /// Returns the token with which the sender's data starts.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Returns the traffic that the two ends agreed on.
    pub(super) fn spec(&self) -> TrafficSpec {
        self.spec
    }

    /// Tells the sender to start, and receives data until the traffic ends.
    pub(super) fn run(
        self,
        options: Option<Options<'_>>,
        shared: &Shared,
    ) -> Result<Outcome, NetError> {
        if let Some(logged) = self.logged {
            return self.run_logged(logged, shared);
        }
        let Self {
            mut control,
            data,
            token: _,
            spec,
            logged: _,
        } = self;
        let before = counters::read();
        control.say(&Message::Ready { departures: false })?;
        let mut state = ReceiveState::new(control, spec);
        let mut facts = Vec::new();
        let datagrams = match data {
            Data::Stream(mut stream) => {
                let mut chunk = vec![0; spec.call_bytes.max(TCP_CALL) as usize];
                state.stream(shared, || stream.read(&mut chunk));
                facts.extend(options.map(|options| options.receiver_facts(stream.as_fd())));
                None
            }
            Data::Datagrams(socket, mut arrivals) => {
                let mut datagram = vec![0; *UDP_CALLS.end() as usize];
                state.datagrams(shared, &socket, &mut datagram, &mut arrivals);
                facts.extend(options.map(|options| options.receiver_facts(socket.as_fd())));
                let sent = state.sent.as_ref().map(|(sent, _)| sent.calls);
                let since = state
                    .sent
                    .as_ref()
                    .map(|(_, at)| (now() - *at).max(Nanos::ZERO));
                Some(arrivals.finish(sent, since.unwrap_or_default()))
            }
        };
        let mut report = state.report();
        report.datagrams = datagrams;
        report.counters = counters::read().since(&before);
        let mut outcome = state.finish(report);
        outcome.facts = facts.into_iter().flatten().collect();
        Ok(outcome)
    }
}

/// The state of receiving data.
#[derive(Debug)]
struct ReceiveState {
    control: Control,
    /// If no data arrives for this long, the receiver assumes that the sender is gone.
    silence: Nanos,
    heard: Nanos,
    looked: Nanos,
    bytes: u64,
    begin: Option<Nanos>,
    last: Nanos,
    clock: CallClock,
    /// The sender's report on what it sent, and when that report arrived.
    sent: Option<(Box<EndReport>, Nanos)>,
    ended_early: Option<EndedBy>,
    trouble: Option<NetError>,
}

impl ReceiveState {
    fn new(control: Control, spec: TrafficSpec) -> Self {
        let begin = now();
        let bits = f64::from(spec.call_bytes) * 8.0;
        let between = spec.rate.map_or(0.0, |rate| bits / rate);
        Self {
            control,
            silence: SILENCE + Nanos::from_secs(2).times(between),
            heard: begin,
            looked: begin,
            bytes: 0,
            begin: None,
            last: begin,
            clock: CallClock::start(),
            sent: None,
            ended_early: None,
            trouble: None,
        }
    }

    /// Reads a stream to its end.
    fn stream(&mut self, shared: &Shared, mut read: impl FnMut() -> io::Result<usize>) {
        while !self.is_over(shared) {
            match read() {
                Ok(0) => return self.at_end_of_stream(),
                Ok(bytes) => self.took(bytes, now(), shared),
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Handles the end of the stream. The stream counts as complete only if the sender's report
    /// confirms it.
    fn at_end_of_stream(&mut self) {
        if self.sent.is_some() {
            return;
        }
        match self.control.hear(FIRST_WORDS, &AtomicBool::new(false)) {
            Ok(Message::Sent(sent)) => self.sent = Some((sent, now())),
            Ok(_) => self.gone("it ended the stream without a report"),
            Err(error) => {
                self.ended_early = Some(EndedBy::PeerGone);
                self.trouble = Some(error);
            }
        }
    }

    /// Reads datagrams until all of them have arrived or no more are expected.
    fn datagrams(
        &mut self,
        shared: &Shared,
        socket: &UdpSocket,
        datagram: &mut [u8],
        arrivals: &mut Arrivals,
    ) {
        while !self.is_over(shared) && !self.is_drained(arrivals) {
            match socket.recv(datagram) {
                Ok(bytes) => {
                    let at = now();
                    if arrivals.take(&datagram[..bytes], at) {
                        self.took(bytes, at, shared);
                    }
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    /// Returns whether to stop waiting for more datagrams. Never returns `true` before the sender
    /// has finished.
    fn is_drained(&self, arrivals: &Arrivals) -> bool {
        let Some((sent, at)) = &self.sent else {
            return false;
        };
        let quiet = now() - self.heard.max(*at);
        arrivals.has_all(sent.calls) || quiet >= arrivals.grace() || now() - *at >= SILENCE
    }

    /// Records that `bytes` arrived at `at`.
    fn took(&mut self, bytes: usize, at: Nanos, shared: &Shared) {
        self.clock.returned();
        self.bytes += bytes as u64;
        if self.begin.is_none() {
            self.begin = Some(at);
            shared.begin(at);
        }
        (self.last, self.heard) = (at, at);
        shared.reach(at);
    }

    /// Returns whether to stop even though more data might follow. Call this before each read.
    fn is_over(&mut self, shared: &Shared) -> bool {
        let at = now();
        self.clock.enter(at);
        if at - self.looked >= LOOK {
            self.looked = at;
            self.look(shared, at);
        }
        self.ended_early.is_some() || self.trouble.is_some()
    }

    fn look(&mut self, shared: &Shared, at: Nanos) {
        if shared.stop.load(Ordering::Relaxed) {
            self.ended_early = Some(EndedBy::Interrupted);
        } else if self.sent.is_some() {
            // The sender has finished, so its silence isn't an error.
        } else if at - self.heard >= self.silence {
            self.gone("it sent nothing for 10 s");
        } else {
            match self.control.glance() {
                Ok(None) => {}
                Ok(Some(Message::Sent(sent))) => self.sent = Some((sent, at)),
                Ok(Some(_)) => self.gone("it sent an unexpected message"),
                Err(error) => {
                    self.ended_early = Some(EndedBy::PeerGone);
                    self.trouble = Some(error);
                }
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        self.clock.waits();
        if !is_nothing_yet(error) {
            self.gone(&reason(error));
        }
    }

    fn gone(&mut self, why: &str) {
        self.ended_early = Some(EndedBy::PeerGone);
        self.trouble = Some(NetError::Gone {
            address: self.control.peer().to_string(),
            why: why.to_owned(),
        });
    }

    /// Reports to the sender what has arrived, and returns the outcome.
    fn finish(mut self, report: EndReport) -> Outcome {
        // Sending the report fails if the sender is gone.
        let sent = self
            .control
            .say(&Message::Received(Box::new(report.clone())));
        let trouble = self.trouble.or(sent.err().filter(|_| self.sent.is_none()));
        Outcome {
            report,
            other: self.sent.map(|(sent, _)| *sent),
            log: None,
            trouble,
            facts: Vec::new(),
            connection: None,
        }
    }

    fn report(&self) -> EndReport {
        let (cpu, user) = self.clock.stop();
        // If the sender ended early, so did this end.
        let sender = self.sent.as_ref().and_then(|(sent, _)| sent.ended_early);
        EndReport {
            end: End::Receiver,
            bytes: self.bytes,
            calls: self.clock.calls(),
            begin: self.begin.unwrap_or(self.last),
            last: self.last,
            cpu,
            user,
            counters: ProtocolCounters::default(),
            datagrams: None,
            ended_early: self.ended_early.or(sender),
        }
    }
}
