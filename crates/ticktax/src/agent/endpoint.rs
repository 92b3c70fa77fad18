//! The metrics endpoint: a listening socket and the thread that serves its connections.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use nix::sys::socket::{Backlog, SockType, listen};
use ticktax_store::disk::{Folder, error_words};

use super::connection::Stream;
use super::http::{Hosts, PageFormat};
use super::rights::User;
use super::server::Server;
use crate::arguments::Listen;
use crate::failure::Failure;
use crate::socket::{self, SocketFile};

/// Stack size of the serving thread. It can be small because answers are built on the heap.
const STACK: usize = 128 << 10;

/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Ok(Stream::Tcp(listener.accept()?.0)),
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

pub(super) struct Endpoint {
    listener: Listener,
    /// The address, as shown in messages.
    shown: String,
    file: Option<SocketFile>,
}

impl Endpoint {
    /// Binds the socket that `--listen` names. Returns `None` for `--listen none`.
    ///
    /// If the agent still runs as root and will switch to another user, a Unix socket must be in a
    /// directory that only root can change. Root then gives the socket file to that user.
    pub(super) fn bind(place: &Listen, user: &User) -> Result<Option<Self>, Failure> {
        let bound = match place {
            Listen::None => return Ok(None),
            Listen::Tcp(address) => TcpListener::bind(address).map(|listener| {
                let address = listener.local_addr().unwrap_or(*address);
                Self {
                    listener: Listener::Tcp(listener),
                    shown: format!("http://{address}/metrics"),
                    file: None,
                }
            }),
            Listen::Unix(path) => bind_file(path, user),
        };
        bound.map(Some).map_err(|error| {
            Failure::Agent(format!(
                "cannot listen on {place}: {}",
                bind_error_words(&error)
            ))
        })
    }

    /// Returns whether a Unix socket must be bound after root has switched to `user`. This is the
    /// case if `user` owns the directory, because `user` could otherwise replace the file just
    /// before root changes its owner.
    pub(super) fn is_for_user(place: &Listen, user: &User) -> bool {
        let Listen::Unix(path) = place else {
            return false;
        };
        let Some(user) = user.user_to_become() else {
            return false;
        };
        let folder = socket::split(path).and_then(|(folder, _)| Folder::open(folder));
        let owner = folder.and_then(|folder| folder.owner());
        owner.is_ok_and(|owner| owner == user.uid.as_raw())
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Starts a thread that serves the metrics rendered by `page` until the process exits. For a
    /// Unix socket, returns the socket file, which is removed when the returned value is dropped.
    /// `Host` headers are not checked on a Unix socket, because its clients can choose them freely.
    pub(super) fn serve(
        self,
        hosts: Hosts,
        page: impl Fn(PageFormat) -> Vec<u8> + Send + 'static,
    ) -> Result<Option<SocketFile>, Failure> {
        let hosts = match self.listener {
            Listener::Tcp(_) => hosts,
            Listener::Unix(_) => Hosts::Any,
        };
        let server = Server::new(self.listener, hosts, page);
        let server = server.map_err(|error| {
            Failure::Agent(format!("cannot serve metrics: {}", error_words(&error)))
        })?;
        let thread = thread::Builder::new().name("metrics".to_owned());
        let started = thread.stack_size(STACK).spawn(move || server.run());
        started.map(|_| self.file).map_err(|_| {
            Failure::Agent("cannot start a thread: raise the process limit (`ulimit -u`)".into())
        })
    }
}

/// Listens on a Unix socket that `user` and the user's group can connect to.
fn bind_file(path: &Path, user: &User) -> io::Result<Endpoint> {
    let (folder, name) = socket::split(path)?;
    let folder = match user.user_to_become() {
        Some(_) => Folder::open_guarded(folder)?,
        None => Folder::open(folder)?,
    };
    socket::remove_stale(&folder, name);
    let (socket, file) = SocketFile::bind(folder, name, SockType::Stream, 0o660)?;
    if let Some(user) = user.user_to_become() {
        file.give(user)?;
    }
    listen(&socket, Backlog::new(BACKLOG)?)?;
    Ok(Endpoint {
        listener: Listener::Unix(socket.into()),
        shown: format!("unix:{}", path.display()),
        file: Some(file),
    })
}

fn bind_error_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "address already in use by a program or file; stop the program, move the file, or \
             choose another address with --listen"
                .to_owned()
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have this address; choose one listed by `ip address`".to_owned()
        }
        ErrorKind::PermissionDenied if error.get_ref().is_none() => {
            "permission denied; choose a port of 1024 or higher, or a socket in a directory that \
             you own"
                .to_owned()
        }
        _ => error_words(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::super::server::{MOST_ANSWERING, MOST_ASKING};
    use super::*;

    const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

    fn bind(listen: &Listen) -> Result<Endpoint, Failure> {
        let user = User::chosen(None).unwrap();
        Endpoint::bind(listen, &user).map(Option::unwrap)
    }

    /// Starts an endpoint that answers with 1 MiB, and returns its address.
    fn endpoint() -> SocketAddr {
        let endpoint = bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Listener::Tcp(listener) = &endpoint.listener else {
            panic!("{}", endpoint.shown());
        };
        let address = listener.local_addr().unwrap();
        let page = |_| vec![b'x'; 1 << 20];
        assert!(endpoint.serve(Hosts::Loopback, page).unwrap().is_none());
        address
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_mins(1));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// Sends `request` and returns the answer, which is empty if the server closes the connection
    /// without sending one.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        // Ignore errors: the server may close the connection before the entire request is sent.
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Opens `count` connections. Each one sends `sent` and then does nothing.
    fn hanging(address: SocketAddr, count: usize, sent: &[u8]) -> Vec<TcpStream> {
        let hang = |_| {
            let mut stream = connect(address);
            drop(stream.write_all(sent));
            stream
        };
        (0..count).map(hang).collect()
    }

    #[test]
    fn hanging_connections_do_not_delay_a_scrape() {
        let address = endpoint();
        // These connections send nothing, send half a request, or do not read the answer.
        let hanging: Vec<Vec<TcpStream>> = [b"".as_slice(), b"GET /met", REQUEST]
            .into_iter()
            .map(|sent| hanging(address, 2 * MOST_ASKING, sent))
            .collect();
        let answer = ask(address, REQUEST);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:.200}");
        assert!(answer.len() > 1 << 20, "{}", answer.len());
        drop(hanging);
    }

    #[test]
    fn a_connection_that_sends_nothing_is_closed() {
        let address = endpoint();
        let mut silent = connect(address);
        let mut answer = Vec::new();
        // The server must close the connection before the client's one-minute read timeout.
        assert_eq!(silent.read_to_end(&mut answer).unwrap(), 0);
    }

    #[test]
    fn the_oldest_connection_is_dropped_first() {
        let address = endpoint();
        let mut silent = hanging(address, MOST_ASKING + MOST_ANSWERING, b"");
        let mut oldest = silent.remove(0);
        assert_eq!(oldest.read(&mut [0]).unwrap(), 0);
        let answer = ask(address, REQUEST);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:.200}");
    }

    #[test]
    fn dns_rebinding_does_not_expose_the_metrics() {
        let address = endpoint();
        let rebound = b"GET /metrics HTTP/1.1\r\nHost: rebound.example:9559\r\n\r\n";
        let answer = ask(address, rebound);
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer:.200}");
        assert!(answer.contains("--listen-anywhere"), "{answer:.400}");
    }

    #[test]
    fn garbage_is_answered_or_the_connection_closed() {
        let address = endpoint();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..200 {
            let length = usize::try_from(next() % 300).unwrap();
            let mut bytes: Vec<u8> = (0..length).map(|_| next().to_le_bytes()[0]).collect();
            match round % 3 {
                0 => {}
                1 => bytes
                    .splice(0..0, *b"GET /metrics HTTP/1.1\r\n")
                    .for_each(drop),
                _ => bytes.retain(u8::is_ascii_graphic),
            }
            bytes.extend_from_slice(b"\r\n\r\n");
            let answer = ask(address, &bytes);
            let is_http = answer.is_empty() || answer.starts_with("HTTP/1.1 ");
            assert!(is_http, "{answer:.200}");
        }
        assert!(ask(address, REQUEST).starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_unix_socket_is_private_and_a_stale_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // Leave a socket file behind, as an agent does when it is killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listen = Listen::Unix(path.clone());
        let endpoint = bind(&listen).unwrap();
        let second = bind(&listen).err().unwrap().to_string();
        assert!(second.contains("already in use"), "{second}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let file = endpoint.serve(Hosts::Loopback, |_| b"page".to_vec());
        let file = file.unwrap().expect("a file");
        // A Unix socket accepts any `Host` header.
        let mut stream = UnixStream::connect(&path).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: any\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("page"), "{answer}");
        drop(file);
        assert!(!path.exists());
    }
}
