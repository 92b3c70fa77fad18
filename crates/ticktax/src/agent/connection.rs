//! One connection: a request is read and answered within a time, whatever the other side does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_probes::clock::now;

use super::http::{MOST_BYTES, PageFormat, Request};

/// For so long a request may take to come. A scraper sends it at once.
const TO_READ: Nanos = Nanos::from_secs(2);

/// For so long an answer may take to be read.
const TO_WRITE: Nanos = Nanos::from_secs(5);

/// A stream of either sort.
pub(super) enum Connection {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Connection {
    /// Reads a request, and answers it; `page` makes the metrics.
    ///
    /// # Errors
    /// The other side went away, or took too long.
    pub(super) fn serve(mut self, page: impl FnOnce(PageFormat) -> Vec<u8>) -> io::Result<()> {
        let request = self.request()?;
        self.answer(&request.answer(page))
    }

    /// Writes an answer, and closes the connection.
    ///
    /// # Errors
    /// The other side went away, or took too long.
    pub(super) fn answer(mut self, answer: &[u8]) -> io::Result<()> {
        let until = now() + TO_WRITE;
        let mut rest = answer;
        while !rest.is_empty() {
            let left = time_left(until)?;
            match &self {
                Self::Tcp(stream) => stream.set_write_timeout(Some(left))?,
                Self::Unix(stream) => stream.set_write_timeout(Some(left))?,
            }
            match self.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match &self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn request(&mut self) -> io::Result<Request> {
        let until = now() + TO_READ;
        let mut bytes = Vec::new();
        let mut more = [0; 1024];
        loop {
            let left = time_left(until)?;
            match self {
                Self::Tcp(stream) => stream.set_read_timeout(Some(left))?,
                Self::Unix(stream) => stream.set_read_timeout(Some(left))?,
            }
            match self.read(&mut more) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => bytes.extend_from_slice(&more[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            bytes.truncate(MOST_BYTES);
            if let Some(request) = Request::parse(&bytes) {
                return Ok(request);
            }
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
}

/// The time until then, never none at all.
fn time_left(until: Nanos) -> io::Result<Duration> {
    let left = u64::try_from((until - now()).0)
        .ok()
        .filter(|&left| left > 0);
    left.map(Duration::from_nanos)
        .ok_or_else(|| ErrorKind::TimedOut.into())
}
