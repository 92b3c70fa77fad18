//! Connections to the metrics server. Each one reads a request and writes an answer without
//! blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::http::{Hosts, MOST_BYTES, PageFormat, Request};

/// Time limit for receiving the complete request. Scrapers send all of it as soon as they connect.
const TO_READ: Nanos = Nanos::from_secs(2);

/// Time limit for the client to read the entire answer.
const TO_WRITE: Nanos = Nanos::from_secs(5);

pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(true),
            Self::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Stage of a connection, with the data that belongs to it.
enum Stage {
    /// Waiting for the rest of a request. Holds the bytes received so far.
    Asking(Vec<u8>),
    /// Waiting for the client to take the rest of the answer.
    Answering { answer: Vec<u8>, written: usize },
}

/// Result of advancing a connection as far as possible without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The client has to send or read more before the connection can continue.
    Waits,
    /// The answer was sent, or the connection failed or was closed by the client.
    Done,
}

pub(super) struct Connection {
    stream: Stream,
    stage: Stage,
    /// When the connection times out.
    until: Nanos,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        stream.set_nonblocking()?;
        Ok(Self {
            stream,
            stage: Stage::Asking(Vec::new()),
            until: now() + TO_READ,
        })
    }

    pub(super) fn until(&self) -> Nanos {
        self.until
    }

    /// Returns whether the complete request has arrived, which means that the connection is now
    /// sending the answer.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.stage, Stage::Answering { .. })
    }

    pub(super) fn events(&self) -> PollFlags {
        match self.stage {
            Stage::Asking(_) => PollFlags::POLLIN,
            Stage::Answering { .. } => PollFlags::POLLOUT,
        }
    }

    /// Reads and writes as much as possible without blocking. `page` renders the metrics.
    pub(super) fn advance(
        &mut self,
        hosts: Hosts,
        page: impl FnOnce(PageFormat) -> Vec<u8>,
    ) -> Progress {
        match self.try_advance(hosts, page) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::Waits,
            _ => Progress::Done,
        }
    }

    fn try_advance(
        &mut self,
        hosts: Hosts,
        page: impl FnOnce(PageFormat) -> Vec<u8>,
    ) -> io::Result<()> {
        if let Stage::Asking(bytes) = &mut self.stage {
            let answer = read_request(&mut self.stream, bytes, hosts)?.answer(page);
            self.until = now() + TO_WRITE;
            self.stage = Stage::Answering { answer, written: 0 };
        }
        let Stage::Answering { answer, written } = &mut self.stage else {
            return Ok(());
        };
        while *written < answer.len() {
            match self.stream.write(&answer[*written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(more) => *written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.shutdown()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Reads from `stream` into `bytes` until the request is complete or known to be invalid.
fn read_request(stream: &mut Stream, bytes: &mut Vec<u8>, hosts: Hosts) -> io::Result<Request> {
    let mut more = [0; 1024];
    loop {
        match stream.read(&mut more) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes.extend_from_slice(&more[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        bytes.truncate(MOST_BYTES);
        if let Some(request) = Request::parse(bytes, hosts) {
            return Ok(request);
        }
    }
}
