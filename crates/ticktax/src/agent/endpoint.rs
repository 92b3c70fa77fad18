//! Where metrics are served: a listening socket, and a few threads at most.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ticktax_model::disk::words;

use super::connection::Connection;
use super::http::{PageFormat, busy};
use crate::arguments::Listen;
use crate::failure::Failure;

/// Connections that are served at a time, each by a thread for seven seconds at most.
const MOST_CONNECTIONS: usize = 8;

/// A thread's stack: the page that it makes is on the heap.
const STACK: usize = 128 << 10;

/// A socket that listens.
pub(super) enum Endpoint {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Endpoint {
    /// Listens where it was asked for; `None` where that is nowhere.
    pub(super) fn bind(listen: &Listen) -> Result<Option<Self>, Failure> {
        let failed = |error: &io::Error| {
            Failure::Agent(format!("cannot listen on {listen}: {}", in_words(error)))
        };
        match listen {
            Listen::None => Ok(None),
            Listen::Tcp(address) => {
                let bound = TcpListener::bind(address);
                bound
                    .map(|bound| Some(Self::Tcp(bound)))
                    .map_err(|error| failed(&error))
            }
            Listen::Unix(path) => {
                remove_stale(path);
                let bound = UnixListener::bind(path).and_then(|bound| {
                    fs::set_permissions(path, Permissions::from_mode(0o660))?;
                    Ok(Some(Self::Unix(bound, path.clone())))
                });
                bound.map_err(|error| failed(&error))
            }
        }
    }

    /// Where it is, for a person.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("http://{address}/metrics"),
                Err(_) => "http".to_owned(),
            },
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// The socket's file, where it has one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, path) => Some(path),
        }
    }

    /// Serves what `page` makes, on threads of its own, as long as the process lives. The socket's file goes
    /// with what is returned.
    pub(super) fn serve(
        self,
        page: impl Fn(PageFormat) -> Vec<u8> + Send + Sync + 'static,
    ) -> Result<SocketFile, Failure> {
        let page = Arc::new(page);
        let file = SocketFile(self.file().map(Path::to_owned));
        let thread = thread::Builder::new().name("metrics".to_owned());
        let started = thread.stack_size(STACK).spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            loop {
                match self.accept() {
                    Ok(connection) => hand_over(connection, &open, &page),
                    // No descriptors are left, or the other side has gone: no reason to spin.
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        });
        started.map(|_| file).map_err(|_| {
            Failure::Agent("cannot start a thread: raise the limit of processes (ulimit -u)".into())
        })
    }

    fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Connection::Tcp(stream)),
            Self::Unix(listener, _) => {
                let accepted = listener.accept();
                accepted.map(|(stream, _)| Connection::Unix(stream))
            }
        }
    }
}

/// Serves a connection on a thread of its own, or turns it away where there are too many.
fn hand_over(
    connection: Connection,
    open: &Arc<AtomicUsize>,
    page: &Arc<impl Fn(PageFormat) -> Vec<u8> + Send + Sync + 'static>,
) {
    if open.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
        // It fits into the socket's buffer, so that nobody is waited for.
        drop(connection.answer(&busy()));
        open.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let (counted, page) = (Arc::clone(open), Arc::clone(page));
    let thread = thread::Builder::new().name("metrics".to_owned());
    let started = thread.stack_size(STACK).spawn(move || {
        // Whoever went away, or was too slow, has nobody to be told.
        drop(connection.serve(|format| page(format)));
        counted.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path).is_err_and(|it| it.kind() == ErrorKind::ConnectionRefused)
    {
        // What cannot be removed is told by listening.
        drop(fs::remove_file(path));
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "something listens there already, perhaps another agent; stop it, or choose \
             another place with --listen"
                .to_owned()
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; choose one of `ip address`".to_owned()
        }
        ErrorKind::PermissionDenied => {
            "it is not allowed; choose a port from 1024 on, or a folder of your own".to_owned()
        }
        kind => words(kind),
    }
}

/// The file of a Unix socket, which is removed with this. Where that is not allowed, the next agent that
/// listens there does.
pub(super) struct SocketFile(Option<PathBuf>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::{Endpoint, MOST_CONNECTIONS};
    use crate::arguments::Listen;

    /// An endpoint that serves a page of a megabyte.
    fn endpoint() -> SocketAddr {
        let listen: Listen = "127.0.0.1:0".parse().unwrap();
        let endpoint = Endpoint::bind(&listen).unwrap().unwrap();
        let Endpoint::Tcp(listener) = &endpoint else {
            panic!("{}", endpoint.shown());
        };
        let address = listener.local_addr().unwrap();
        drop(endpoint.serve(|_| vec![b'x'; 1 << 20]).unwrap());
        address
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        let patience = Some(Duration::from_mins(1));
        stream.set_read_timeout(patience).unwrap();
        stream
    }

    /// What is answered to these bytes; nothing where the connection is closed without an answer.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = connect(address);
        // The other side may have had enough before all of it was sent.
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks until there is room.
    fn scrape(address: SocketAddr) -> String {
        loop {
            let answer = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
            if !answer.starts_with("HTTP/1.1 503") {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn who_hangs_keeps_nobody_else_from_being_served() {
        let address = endpoint();
        // Some say nothing, some half of it, some do not read the answer.
        let hanging: Vec<TcpStream> = (0..3 * MOST_CONNECTIONS)
            .map(|number| {
                let mut stream = connect(address);
                let said: &[u8] = match number % 3 {
                    0 => b"",
                    1 => b"GET /met",
                    _ => b"GET /metrics HTTP/1.1\r\n\r\n",
                };
                drop(stream.write_all(said));
                stream
            })
            .collect();
        let answer = scrape(address);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:.200}");
        assert!(answer.len() > 1 << 20, "{}", answer.len());
        drop(hanging);
    }

    #[test]
    fn garbage_is_answered_or_closed_and_does_no_harm() {
        let address = endpoint();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for turn in 0..200 {
            let length = usize::try_from(next() % 300).unwrap();
            let mut bytes: Vec<u8> = (0..length).map(|_| next().to_le_bytes()[0]).collect();
            match turn % 3 {
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
        assert!(scrape(address).starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn a_unix_socket_is_private_and_a_stale_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What a killed agent leaves.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listen = Listen::Unix(path.clone());
        let endpoint = Endpoint::bind(&listen).unwrap().unwrap();
        let second = Endpoint::bind(&listen).err().unwrap().to_string();
        assert!(second.contains("listens there already"), "{second}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let file = endpoint.serve(|_| b"page".to_vec()).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("page"), "{answer}");
        drop(file);
        assert!(!path.exists());
    }
}
