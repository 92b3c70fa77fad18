//! A receiver that logs when each datagram arrives and which ones are lost.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicBool;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use ticktax_model::Nanos;
use ticktax_model::packets::SocketBuffer;

use super::super::fill::Logging;
use super::super::log::Log;
use super::{Data, Listening, ReceiveState, Receiving};
use crate::error::NetError;
use crate::sys::socket_memory;
use crate::traffic::{Outcome, Shared};
use crate::wire::Message;
use crate::{UDP_CALLS, counters};
use ticktax_probes::clock::now;

/// Maximum number of gaps in one question to the sender.
const QUESTIONS: usize = 500;

/// Time limit for the sender to answer when datagrams were sent.
const ANSWER: Nanos = Nanos::from_secs(2);

/// Settings for a receiver that logs datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    buffer: SocketBuffer,
    same_clock: bool,
}

impl Listening {
    /// Makes the receiver log datagrams, and sets the size of its buffer.
    pub(crate) fn log(&mut self, logging: Logging) -> Result<(), NetError> {
        let buffer = logging.set(&self.datagrams)?;
        let failed = NetError::errno("enable a socket's drop counter");
        setsockopt(&self.datagrams, sockopt::RxqOvfl, &1).map_err(failed)?;
        self.logged = Some(Logged {
            buffer,
            same_clock: logging.same_clock,
        });
        Ok(())
    }
}

impl Receiving {
    /// Same as [`Receiving::run`], but logs the datagrams.
    pub(super) fn run_logged(self, logged: Logged, shared: &Shared) -> Result<Outcome, NetError> {
        let (mut control, spec) = (self.control, self.spec);
        let Data::Datagrams(socket, arrivals) = self.data else {
            let address = control.peer().to_string();
            return Err(NetError::NotDatagrams { address });
        };
        let rate_hz = spec
            .rate
            .map(|bits| bits / 8.0 / f64::from(spec.call_bytes));
        let mut log = Log::new(
            arrivals,
            spec.length,
            rate_hz,
            logged.same_clock,
            logged.buffer,
        );
        let before = counters::read();
        control.say(&Message::Ready { departures: true })?;
        let mut state = ReceiveState::new(control, spec);
        let mut reader = Reader::new(&socket);
        state.logged(shared, &mut reader, &mut log);
        let sent = state.sent.as_ref().map(|(sent, _)| sent.calls);
        let since = state.sent.as_ref().map(|(_, at)| now() - *at);
        let drained = since.unwrap_or_default().max(Nanos::ZERO);
        let mut report = state.report();
        report.datagrams = Some(log.arrivals.finish(sent, drained));
        report.counters = counters::read().since(&before);
        let (socket_drops, never_read) = left(&log, &mut reader);
        log.end(sent, socket_drops);
        state.ask(&mut log);
        let log = log.finish(socket_drops, never_read);
        let mut outcome = state.finish(report);
        outcome.log = Some(Box::new(log));
        Ok(outcome)
    }
}

impl ReceiveState {
    /// Reads datagrams until all of them have arrived or no more are expected. Also records when no
    /// datagram is waiting.
    fn logged(&mut self, shared: &Shared, reader: &mut Reader<'_>, log: &mut Log) {
        let mut flags = MsgFlags::MSG_DONTWAIT;
        while !self.is_over(shared) && !self.is_drained(&log.arrivals) {
            match reader.read(flags) {
                Ok((datagram, drops)) => {
                    flags = MsgFlags::MSG_DONTWAIT;
                    let at = now();
                    if log.take(datagram, at, drops) {
                        let bytes = datagram.len();
                        self.took(bytes, at, shared);
                    }
                }
                Err(error) => {
                    log.is_empty_now();
                    flags = MsgFlags::empty();
                    self.failed(&io::Error::from(error));
                }
            }
        }
    }
}

impl ReceiveState {
    /// Asks the sender when the missing datagrams were sent, unless it is gone. Without an answer,
    /// the log assumes that they were sent at even intervals.
    fn ask(&mut self, log: &mut Log) {
        if self.sent.is_none() || self.trouble.is_some() {
            return;
        }
        let unsure = log.unsure();
        let mut left = &*unsure;
        while !left.is_empty() {
            let asked = &left[..left.len().min(QUESTIONS)];
            if self.control.say(&Message::When(asked.to_vec())).is_err() {
                return;
            }
            let never = AtomicBool::new(false);
            let Ok(Message::Then(answers)) = self.control.hear(ANSWER, &never) else {
                return;
            };
            if answers.is_empty() || answers.len() > asked.len() {
                return;
            }
            for (&(first, end), answer) in asked.iter().zip(&answers) {
                log.departed(first, end, answer);
            }
            left = &left[answers.len()..];
        }
    }
}

/// Reads datagrams without allocating memory.
#[derive(Debug)]
struct Reader<'a> {
    socket: &'a UdpSocket,
    datagram: Vec<u8>,
    space: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(socket: &'a UdpSocket) -> Self {
        Self {
            socket,
            datagram: vec![0; *UDP_CALLS.end() as usize],
            space: cmsg_space!(u32),
        }
    }

    /// Reads a datagram. Also returns how many datagrams the socket had dropped by the time this
    /// one arrived. This is `None` if the kernel left out the number because it is 0.
    fn read(&mut self, flags: MsgFlags) -> Result<(&[u8], Option<u32>), Errno> {
        let mut parts = [IoSliceMut::new(&mut self.datagram)];
        let fd = self.socket.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut parts, Some(&mut self.space), flags)?;
        let drops = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::RxqOvfl(drops) => Some(drops),
            _ => None,
        });
        let bytes = message.bytes;
        Ok((&self.datagram[..bytes], drops))
    }
}

/// Returns how many datagrams the socket has dropped, and how many were never read from its buffer.
fn left(log: &Log, reader: &mut Reader<'_>) -> (u64, u64) {
    let mut never_read = 0;
    while let Ok((datagram, _)) = reader.read(MsgFlags::MSG_DONTWAIT) {
        never_read += u64::from(log.arrivals.is_new(datagram));
    }
    let drops = socket_memory(reader.socket.as_fd()).map_or(0, |[_, _, drops]| drops);
    (u64::from(drops), never_read)
}
