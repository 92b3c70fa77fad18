//! The connection beside the data: a line of JSON a message.

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
use crate::clock::now;

/// The version of what both ends say to each other: it changes where a message does.
pub(super) const PROTOCOL: u32 = 2;

/// The version of the program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// No message is longer.
const LONGEST: usize = 1 << 16;

/// What one end says to the other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Message {
    /// The sender's first words.
    Hello {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// The version of the program.
        version: String,
        /// What is to be sent.
        spec: TrafficSpec,
    },
    /// The receiver's answer.
    Welcome {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// The version of the program.
        version: String,
        /// What each datagram is to begin with, and the first words of the connection for the data.
        token: u64,
    },
    /// The receiver's other answer.
    Refused {
        /// [`PROTOCOL`].
        ticktax_net: u32,
        /// The version of the program.
        version: String,
        /// Why, for people.
        why: String,
    },
    /// The first words of a connection for the data.
    Data {
        /// As it was told.
        token: u64,
    },
    /// The receiver is ready: let it come.
    Ready {
        /// Whether the sender is to note when it sends each, as it will be asked [`Message::When`].
        departures: bool,
    },
    /// All was sent.
    Sent(Box<EndReport>),
    /// When were these sent, of a first number and one behind the last each? The receiver asks about what is missing.
    When(Vec<(u64, u64)>),
    /// The answer, of as many of them as there is room for, in the same order.
    Then(Vec<Vec<Departure>>),
    /// All has arrived, or never will.
    Received(Box<EndReport>),
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    peer: SocketAddr,
    /// What has come of a line.
    line: Vec<u8>,
}

impl Control {
    /// Over this connection.
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

    /// The other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection itself, and what has come behind the last message, once nothing but data is to come.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Says something.
    pub(super) fn say(&mut self, message: &Message) -> Result<(), NetError> {
        let mut line = serde_json::to_vec(message).map_err(|error| NetError::System {
            what: "word a message",
            why: error.to_string(),
        })?;
        line.push(b'\n');
        let said = self.stream.write_all(&line);
        said.map_err(|error| self.gone(&reason(&error)))
    }

    /// Waits for what the other end says, until `limit` has passed.
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

    /// What the other end has said without waiting for more.
    pub(super) fn glance(&mut self) -> Result<Option<Message>, NetError> {
        let set = |to| self.stream.set_nonblocking(to);
        set(true).map_err(NetError::system("set up a connection"))?;
        let seen = self.look();
        let back = self.stream.set_nonblocking(false);
        back.map_err(NetError::system("set up a connection"))?;
        seen
    }

    /// What the other end says within the stream's time.
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
                // One at a time, so that nothing of the data is read that comes behind a message.
                Ok(_) => self.line.push(byte[0]),
                Err(error) if is_nothing_yet(&error) => return Ok(None),
                Err(error) => return Err(self.gone(&reason(&error))),
            }
        }
    }

    /// A line as a message of our version.
    fn read(&self, line: &[u8]) -> Result<Message, NetError> {
        let value: Value = serde_json::from_slice(line).map_err(|_| self.strange())?;
        // Before all else, so that a version that words its messages in another way is still told.
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

/// The version of the program that said this, where it speaks another version of the protocol.
fn other_version(message: &Value) -> Option<String> {
    let said = message.as_object()?.values().next()?;
    let protocol = said.get("ticktax_net")?.as_u64()?;
    let version = said.get("version").and_then(Value::as_str);
    (protocol != u64::from(PROTOCOL)).then(|| version.unwrap_or("of another version").to_owned())
}

/// Whether a call only ended because nothing came for a while, or a signal did.
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

    fn both() -> (Control, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Control::over(listener.accept().unwrap().0).unwrap(), there)
    }

    #[test]
    fn a_message_arrives_whole_and_what_follows_is_left() {
        let (mut here, mut there) = both();
        let stop = AtomicBool::new(false);
        there.write_all(b"{\"Data\":{\"tok").unwrap();
        assert!(here.glance().unwrap().is_none());
        there.write_all(b"en\":7}}\nxyz").unwrap();
        let told = here.hear(Nanos::from_secs(5), &stop).unwrap();
        assert!(matches!(told, Message::Data { token: 7 }));
        let mut rest = [0; 3];
        std::io::Read::read_exact(&mut here.into_stream(), &mut rest).unwrap();
        assert_eq!(&rest, b"xyz");
    }

    #[test]
    fn what_is_no_message_is_a_strangers() {
        for line in [
            "GET / HTTP/1.1\r\n".to_owned(),
            "x".repeat(LONGEST + 2),
            "\n".to_owned(),
        ] {
            let (mut here, mut there) = both();
            there.write_all(line.as_bytes()).unwrap();
            let told = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
            assert!(matches!(told, Err(NetError::NotOurs { .. })), "{told:?}");
        }
    }

    #[test]
    fn another_version_is_told_whatever_else_it_says() {
        let (mut here, mut there) = both();
        let line = "{\"Hello\":{\"ticktax_net\":3,\"version\":\"9.1\",\"plan\":[]}}\n";
        there.write_all(line.as_bytes()).unwrap();
        let told = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
        let Err(NetError::Version { theirs, .. }) = told else {
            panic!("{told:?}");
        };
        assert_eq!(theirs, "9.1");
    }

    #[test]
    fn who_hangs_up_is_gone_and_who_is_to_stop_stops() {
        let (mut here, there) = both();
        let told = here.hear(Nanos::from_secs(60), &AtomicBool::new(true));
        assert!(matches!(told, Err(NetError::Interrupted)), "{told:?}");
        drop(there);
        let told = here.hear(Nanos::from_secs(5), &AtomicBool::new(false));
        assert!(matches!(told, Err(NetError::Gone { .. })), "{told:?}");
    }
}
