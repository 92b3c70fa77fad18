//! What TCP costs on this machine: bytes sent over the loopback device from one thread to another,
//! and the CPU time that both of them used.
//!
//! There is no network card, driver or interrupt in it, and packets are as large as the loopback
//! device takes them. The kernel receives a packet while it sends it, so that is in the sender's time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use ticktax_model::Nanos;

use crate::ProbeError;
use crate::clock::{now, thread_cpu_time};

/// Bytes in a write and in a read, as ttcp's by default.
pub const CHUNK: usize = 8192;

/// What a transfer took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes that arrived.
    pub bytes: u64,
    /// How long they were sent for.
    pub elapsed: Nanos,
    /// CPU time of the thread that sent them.
    pub sending: Nanos,
    /// CPU time of the thread that received them.
    pub receiving: Nanos,
}

impl Transfer {
    /// CPU time of both ends for each byte, in ns; `None` where nothing arrived.
    pub fn ns_per_byte(&self) -> Option<f64> {
        let time = self.sending + self.receiving;
        (self.bytes > 0).then(|| time.0 as f64 / self.bytes as f64)
    }
}

/// Sends over loopback for this long, with this kernel's settings of TCP.
///
/// # Errors
/// [`ProbeError::Loopback`] where there is no loopback device, or no connection over it.
pub fn loopback(length: Nanos) -> Result<Transfer, ProbeError> {
    transfer(length).map_err(|error| ProbeError::Loopback {
        why: error.to_string(),
    })
}

fn transfer(length: Nanos) -> io::Result<Transfer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    // The connection waits in the listener's queue until it is accepted.
    let mut outgoing = TcpStream::connect(to)?;
    let (mut incoming, _) = listener.accept()?;
    let read = move || -> io::Result<(u64, Nanos)> {
        let mut chunk = [0; CHUNK];
        let (mut bytes, used) = (0, thread_cpu_time());
        loop {
            match incoming.read(&mut chunk)? {
                0 => return Ok((bytes, thread_cpu_time() - used)),
                some => bytes += some as u64,
            }
        }
    };
    let reader = thread::Builder::new().spawn(read)?;
    let chunk = [0; CHUNK];
    let (begin, used) = (now(), thread_cpu_time());
    let mut elapsed = Nanos::ZERO;
    while elapsed < length {
        // The clock costs next to nothing beside sixteen writes.
        for _ in 0..16 {
            outgoing.write_all(&chunk)?;
        }
        elapsed = now() - begin;
    }
    let sending = thread_cpu_time() - used;
    drop(outgoing);
    let told = reader.join();
    let (bytes, receiving) = told.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    Ok(Transfer {
        bytes,
        elapsed,
        sending,
        receiving,
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{CHUNK, loopback};

    #[test]
    fn all_that_is_sent_arrives_and_takes_cpu_time() {
        let length = Nanos::from_millis(50);
        let told = loopback(length).unwrap();
        assert!(told.elapsed >= length, "{told:?}");
        assert!(told.bytes > 0 && told.bytes.is_multiple_of(16 * CHUNK as u64));
        assert!(told.sending > Nanos::ZERO && told.receiving > Nanos::ZERO);
        // Two threads use at most two CPUs; a byte takes no µs on any machine that runs this.
        let both = told.sending + told.receiving;
        assert!(both.0 < 3 * told.elapsed.0, "{told:?}");
        assert!((0.001..1_000.0).contains(&told.ns_per_byte().unwrap()));
    }
}
