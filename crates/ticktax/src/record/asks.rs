//! Requests to save the last few seconds: SIGUSR1, and marks that arrive on a socket.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use nix::sys::socket::SockType;
use signal_hook::consts::SIGUSR1;
use signal_hook::iterator::Signals;
use ticktax_model::incident::TriggerKind;
use ticktax_observe::Waker;
use ticktax_store::disk::{Folder, error_words};

use crate::failure::Failure;
use crate::incidents::{SOCKET, WORDS_MAX};
use crate::interrupt::Interrupt;
use crate::socket::{self, SocketFile};

/// Maximum number of pending requests. Further requests are dropped and counted.
const WAITING: usize = 16;

#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) kind: TriggerKind,
    /// The note that came with a mark, or empty for SIGUSR1.
    pub(crate) words: String,
}

/// Listens for requests on two threads. Wakes the recorder when a request arrives, or a signal that
/// ends the recorder.
pub(crate) struct Asks {
    heard: Receiver<Ask>,
    refused: Arc<AtomicU64>,
    /// The socket file is removed when this is dropped. The thread that reads the socket runs until
    /// the process ends.
    _socket: SocketFile,
    signals: signal_hook::iterator::Handle,
}

impl Asks {
    /// Listens for SIGUSR1, and for marks on a socket in `folder`. The recorder already holds the
    /// lock on that directory.
    pub(crate) fn listen(folder: &Path, waker: Waker) -> Result<Self, Failure> {
        let (sender, heard) = sync_channel(WAITING);
        let refused = Arc::new(AtomicU64::new(0));
        let post = Post {
            sender,
            refused: Arc::clone(&refused),
            waker,
        };
        let (socket, file) =
            bind(folder).map_err(|error| no_socket(&folder.join(SOCKET), &error))?;
        let mut numbers = Interrupt::heard();
        numbers.push(SIGUSR1);
        let signals =
            Signals::new(numbers).map_err(|error| Failure::Signals(error.kind().to_string()))?;
        let handle = signals.handle();
        let for_marks = post.clone();
        let no_thread = |error: io::Error| {
            Failure::Incidents(format!(
                "cannot start a thread: {}; raise the process limit (`ulimit -u`)",
                error.kind()
            ))
        };
        let hear_signals = move || hear_signals(signals, &post);
        thread::Builder::new()
            .spawn(hear_signals)
            .map_err(no_thread)?;
        let hear_marks = move || hear_marks(&socket, &for_marks);
        thread::Builder::new()
            .spawn(hear_marks)
            .map_err(no_thread)?;
        Ok(Self {
            heard,
            refused,
            _socket: file,
            signals: handle,
        })
    }

    pub(crate) fn take(&self) -> Vec<Ask> {
        self.heard.try_iter().collect()
    }

    /// Returns the number of requests that were dropped since the last call.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        self.signals.close();
    }
}

#[derive(Clone)]
struct Post {
    sender: SyncSender<Ask>,
    refused: Arc<AtomicU64>,
    waker: Waker,
}

impl Post {
    fn send(&self, kind: TriggerKind, words: String) {
        if let Err(TrySendError::Full(_)) = self.sender.try_send(Ask { kind, words }) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.waker.wake();
    }
}

fn hear_signals(mut signals: Signals, post: &Post) {
    for signal in signals.forever() {
        if signal == SIGUSR1 {
            post.send(TriggerKind::Signal, String::new());
        } else {
            // `Interrupt` handles this signal, so this only wakes the recorder.
            post.waker.wake();
        }
    }
}

fn hear_marks(socket: &UnixDatagram, post: &Post) {
    let mut words = [0; WORDS_MAX];
    while let Ok(length) = socket.recv(&mut words) {
        let words = String::from_utf8_lossy(&words[..length]);
        post.send(TriggerKind::Mark, words.trim().to_owned());
    }
}

/// Binds the socket with permissions that let only its owner send to it.
fn bind(folder: &Path) -> io::Result<(UnixDatagram, SocketFile)> {
    let folder = Folder::open_own(folder)?;
    let name = OsStr::new(SOCKET);
    // A recorder that was killed may have left its socket file behind.
    socket::remove(&folder, name);
    let (socket, file) = SocketFile::bind(folder, name, SockType::Datagram, 0o600)?;
    Ok((socket.into(), file))
}

fn no_socket(path: &Path, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "a file with this name exists that is not a socket; move or remove it".to_owned()
        }
        _ => error_words(error),
    };
    Failure::Incidents(format!(
        "cannot listen for marks at {}: {why}",
        path.display()
    ))
}
