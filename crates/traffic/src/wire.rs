//! The control connection between the two ends. Each line is a JSON message.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ticktax_model::Nanos;
use ticktax_model::net::{EndReport, TrafficSpec};

use super::departures::Departure;
use super::error::{NetError, reason};
use super::{LOOK, SILENCE};
use ticktax_probes::clock::now;

/// Version of the protocol. It changes whenever a message changes.
pub(super) const PROTOCOL: u32 = 3;

/// Version of ticktax.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Maximum length of a message, in bytes. A longer message is an error.
const LONGEST: usize = 1 << 16;

/// A message between the two ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The sender's first message.
    Hello {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// Version of ticktax.
        version: String,
        /// The traffic that the sender is going to send.
        spec: TrafficSpec,
    },
    /// The receiver accepts the traffic.
    Welcome {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// Version of ticktax.
        version: String,
        /// Token at the start of each datagram, and in the first message on the data connection.
        token: u64,
    },
    /// The receiver rejects the traffic.
    Refused {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// Version of ticktax.
        version: String,
        /// Reason, in words for the user.
        why: String,
    },
    /// First message on the data connection.
    Data {
        /// Token from [`Message::Welcome`].
        token: u64,
    },
    /// The receiver is ready, so the sender may start.
    Ready {
        /// Whether the sender must record when it sends each datagram, so that it can answer
        /// [`Message::When`].
        departures: bool,
    },
    /// The sender has finished.
    Sent(Box<EndReport>),
    /// The receiver asks when missing datagrams were sent. Each range is given by its first number
    /// and its end (exclusive).
    When(Vec<(u64, u64)>),
    /// The sender's answer to [`Message::When`], with one entry per range, in the order of the
    /// question. Leaves out ranges at the end that don't fit into a message.
    Then(Vec<Vec<Departure>>),
    /// The receiver, whose report this is, does not expect any more data.
    Received(Box<EndReport>),
}

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    peer: SocketAddr,
    /// The part of an incomplete message read so far.
    line: Vec<u8>,
}

impl Control {
    /// Turns `stream` into a control connection.
    pub(super) fn over(stream: TcpStream) -> Result<Self, NetError> {
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_nanos(LOOK.0.unsigned_abs())))?;
            stream.set_write_timeout(Some(Duration::from_nanos(SILENCE.0.unsigned_abs())))?;
            stream.peer_addr()
        };
        let peer = set().map_err(NetError::system("set up a connection"))?;
        Ok(Self {
            stream,
            peer,
            line: Vec::new(),
        })
    }

    /// Returns the address of the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the stream so that it can serve as the data connection. Only the first message has
    /// been read from it, and none of the data that follows.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Sends a message.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), NetError> {
        let mut line = serde_json::to_vec(message).map_err(|error| NetError::System {
            what: "encode a message",
            why: error.to_string(),
        })?;
        line.push(b'\n');
        let said = self.stream.write_all(&line);
        said.map_err(|error| self.gone(&reason(&error)))
    }

    /// Waits at most `limit` for a message.
    pub(super) fn hear(&mut self, limit: Nanos, stop: &AtomicBool) -> Result<Message, NetError> {
        let until = now() + limit;
        loop {
            if let Some(message) = self.look()? {
                return Ok(message);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(NetError::Interrupted);
            }
            if now() >= until {
                return Err(NetError::Silent {
                    address: self.peer.to_string(),
                    seconds: u32::try_from(limit.0 / 1_000_000_000).unwrap_or(u32::MAX),
                });
            }
        }
    }

    /// Returns a message if one has already arrived, otherwise `None`.
    pub(super) fn glance(&mut self) -> Result<Option<Message>, NetError> {
        let set = |to| self.stream.set_nonblocking(to);
        set(true).map_err(NetError::system("set up a connection"))?;
        let seen = self.look();
        let back = self.stream.set_nonblocking(false);
        back.map_err(NetError::system("set up a connection"))?;
        seen
    }

    /// Reads a message. Returns `None` if the stream's read timeout expires first.
    fn look(&mut self) -> Result<Option<Message>, NetError> {
        let mut byte = [0];
        loop {
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(self.gone("it closed the connection")),
                Ok(_) if byte[0] == b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    return self.read(&line).map(Some);
                }
                Ok(_) if self.line.len() >= LONGEST => return Err(self.strange()),
                // Read byte by byte, so that any data after the message stays in the stream.
                Ok(_) => self.line.push(byte[0]),
                Err(error) if is_nothing_yet(&error) => return Ok(None),
                Err(error) => return Err(self.gone(&reason(&error))),
            }
        }
    }

    /// Parses a line that contains a message.
    fn read(&self, line: &[u8]) -> Result<Message, NetError> {
        let value: Value = serde_json::from_slice(line).map_err(|_| self.strange())?;
        // Check the version first, because messages can differ between versions.
        if let Some(theirs) = other_version(&value) {
            return Err(NetError::Version {
                address: self.peer.to_string(),
                theirs,
                ours: VERSION.to_owned(),
            });
        }
        serde_json::from_value(value).map_err(|_| self.strange())
    }

    fn gone(&self, why: &str) -> NetError {
        NetError::Gone {
            address: self.peer.to_string(),
            why: why.to_owned(),
        }
    }

    fn strange(&self) -> NetError {
        NetError::NotOurs {
            address: self.peer.to_string(),
        }
    }
}

/// Returns the other end's ticktax version if that end uses a different version of the protocol.
/// Returns `None` if the protocol versions are equal.
fn other_version(message: &Value) -> Option<String> {
    let said = message.as_object()?.values().next()?;
    let protocol = said.get("ticktax_net")?.as_u64()?;
    let version = said.get("version").and_then(Value::as_str);
    (protocol != u64::from(PROTOCOL)).then(|| version.unwrap_or("(unknown version)").to_owned())
}

/// Returns whether a call returned only because of a timeout or a signal.
pub(super) fn is_nothing_yet(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::sync::atomic::AtomicBool;

    use ticktax_model::Nanos;

    use super::{Control, LONGEST, Message, NetError};

    fn connect_pair() -> (Control, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::over(listener.accept().unwrap().0).unwrap(), there)
    }

    #[test]
    fn a_message_is_read_without_the_data_after_it() {
        let (mut here, mut there) = connect_pair();
        let stop = AtomicBool::new(false);
        there.write_all(b"{\"Data\":{\"tok").unwrap();
        assert!(here.glance().unwrap().is_none());
        there.write_all(b"en\":7}}\nxyz").unwrap();
        let heard = here.hear(Nanos::from_secs(5), &stop).unwrap();
        assert!(matches!(heard, Message::Data { token: 7 }));
        let mut rest = [0; 3];
        std::io::Read::read_exact(&mut here.into_stream(), &mut rest).unwrap();
        assert_eq!(&rest, b"xyz");
    }

    #[test]
    fn invalid_messages_are_from_strangers() {
        for line in [
            "GET / HTTP/1.1\r\n".to_owned(),
            "x".repeat(LONGEST + 2),
            "\n".to_owned(),
        ] {
            let (mut here, mut there) = connect_pair();
            there.write_all(line.as_bytes()).unwrap();
            let heard = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
            assert!(matches!(heard, Err(NetError::NotOurs { .. })), "{heard:?}");
        }
    }

    #[test]
    fn another_version_is_reported_whatever_its_messages() {
        let (mut here, mut there) = connect_pair();
        let line = "{\"Hello\":{\"ticktax_net\":99,\"version\":\"9.1\",\"plan\":[]}}\n";
        there.write_all(line.as_bytes()).unwrap();
        let heard = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
        let Err(NetError::Version { theirs, .. }) = heard else {
            panic!("{heard:?}");
        };
        assert_eq!(theirs, "9.1");
    }

    #[test]
    fn a_closed_connection_and_a_stop_are_reported() {
        let (mut here, there) = connect_pair();
        let heard = here.hear(Nanos::from_secs(60), &AtomicBool::new(true));
        assert!(matches!(heard, Err(NetError::Interrupted)), "{heard:?}");
        drop(there);
        let heard = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
        assert!(matches!(heard, Err(NetError::Gone { .. })), "{heard:?}");
    }
}
