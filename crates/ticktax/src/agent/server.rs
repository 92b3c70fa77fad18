//! Serves all connections on one thread with non-blocking I/O, so that a slow client cannot delay
//! another.
//!
//! An idle connection occupies a file descriptor until it times out. When the maximum number of
//! connections is reached, a new connection displaces the oldest one. This does not affect
//! scrapers, because they send their request as soon as they connect. The server reads it before
//! enough newer connections can arrive to displace the scraper's.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::connection::{Connection, Progress};
use super::endpoint::Listener;
use super::http::{Hosts, PageFormat};

/// Maximum number of connections whose request has not completely arrived.
pub(super) const MOST_ASKING: usize = 64;

/// Maximum number of connections that have not read their entire answer. Each one keeps a full
/// answer in memory.
pub(super) const MOST_ANSWERING: usize = 8;

/// Maximum number of connections accepted per round of the poll loop.
const MOST_AT_ONCE: usize = MOST_ASKING / 4;

/// Pause after an error that would otherwise recur immediately.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener and its connections, oldest first.
pub(super) struct Server<P> {
    listener: Listener,
    hosts: Hosts,
    page: P,
    asking: VecDeque<Connection>,
    answering: VecDeque<Connection>,
}

impl<P: Fn(PageFormat) -> Vec<u8>> Server<P> {
    pub(super) fn new(listener: Listener, hosts: Hosts, page: P) -> io::Result<Self> {
        listener.set_nonblocking()?;
        Ok(Self {
            listener,
            hosts,
            page,
            asking: VecDeque::new(),
            answering: VecDeque::new(),
        })
    }

    pub(super) fn run(mut self) {
        loop {
            let (has_new, ready) = self.wait();
            self.advance(&ready);
            if has_new {
                self.accept();
            }
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.answering.iter().chain(&self.asking)
    }

    /// Waits until a connection arrives, can advance or times out. Returns whether a new connection
    /// can be accepted and, for each existing connection, whether it can advance.
    fn wait(&self) -> (bool, Vec<bool>) {
        let mut descriptors = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        let connections = self.connections();
        descriptors.extend(
            connections.map(|connection| PollFd::new(connection.as_fd(), connection.events())),
        );
        match poll(&mut descriptors, self.timeout()) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return (false, Vec::new()),
            Err(_) => {
                thread::sleep(PAUSE);
                return (false, Vec::new());
            }
        }
        let mut ready = descriptors
            .iter()
            .map(|descriptor| descriptor.any().unwrap_or(true));
        let has_new = ready.next().unwrap_or(false);
        (has_new, ready.collect())
    }

    /// Returns the time until the next connection times out. Without connections, `poll` needs no
    /// timeout.
    fn timeout(&self) -> PollTimeout {
        let Some(next) = self.connections().map(Connection::until).min() else {
            return PollTimeout::NONE;
        };
        // Round up, so that the connection has timed out by the time `poll` returns.
        let left = (next - now()).max(Nanos(0)).0 / 1_000_000 + 1;
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    /// Advances the connections that are ready, and removes those that are done or have timed out.
    /// `ready` is in the order of [`Server::connections`].
    fn advance(&mut self, ready: &[bool]) {
        let mut ready = ready.iter().copied();
        let (hosts, page) = (self.hosts, &self.page);
        let mut stays = |connection: &mut Connection| {
            let is_ready = ready.next().unwrap_or(false);
            let progress = is_ready.then(|| connection.advance(hosts, page));
            progress != Some(Progress::Done) && connection.until() > now()
        };
        self.answering.retain_mut(&mut stays);
        for mut connection in mem::take(&mut self.asking) {
            match (stays(&mut connection), connection.is_answering()) {
                (false, _) => {}
                (true, false) => self.asking.push_back(connection),
                (true, true) => {
                    if self.answering.len() == MOST_ANSWERING {
                        self.answering.pop_front();
                    }
                    self.answering.push_back(connection);
                }
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            match self.listener.accept().and_then(Connection::new) {
                Ok(connection) => {
                    if self.asking.len() == MOST_ASKING {
                        self.asking.pop_front();
                    }
                    self.asking.push_back(connection);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // No file descriptors are left, so drop the oldest connection that has not sent its
                // request.
                Err(_) if self.asking.pop_front().is_some() => {}
                Err(_) => {
                    thread::sleep(PAUSE);
                    break;
                }
            }
        }
    }
}
