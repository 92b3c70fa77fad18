//! Measures the CPU cost of TCP on this machine: one thread sends data to another over the loopback
//! device, and the CPU time of both is measured.
//!
//! No network card, driver or hardware interrupt is involved, and packets are as large as the
//! loopback device allows. The kernel does a packet's receive-side processing while sending it, so
//! most of that counts as the sender's time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use ticktax_model::Nanos;

use crate::ProbeError;
use crate::clock::{now, thread_cpu_time};

/// Number of bytes per read and write, as in ttcp by default.
pub const CHUNK: usize = 8192;

/// Result of a data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes received.
    pub bytes: u64,
    /// Time from the first to the last write.
    pub elapsed: Nanos,
    /// CPU time of the sending thread.
    pub sending: Nanos,
    /// CPU time of the receiving thread.
    pub receiving: Nanos,
}

impl Transfer {
    /// Returns the CPU time of both threads per byte, in ns. Returns `None` if no data was
    /// received.
    pub fn ns_per_byte(&self) -> Option<f64> {
        let time = self.sending + self.receiving;
        (self.bytes > 0).then(|| time.0 as f64 / self.bytes as f64)
    }
}

/// Sends data over the loopback device for `length`, with the kernel's current TCP settings.
///
/// # Errors
/// Returns [`ProbeError::Loopback`] if the loopback device is missing or the connection is refused.
pub fn loopback(length: Nanos) -> Result<Transfer, ProbeError> {
    transfer(length).map_err(|error| ProbeError::Loopback {
        why: error.to_string(),
    })
}

fn transfer(length: Nanos) -> io::Result<Transfer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    // The connection waits in the listener's queue until the listener accepts it.
    let mut outgoing = TcpStream::connect(to)?;
    let (mut incoming, _) = listener.accept()?;
    let read = move || -> io::Result<(u64, Nanos)> {
        let mut chunk = [0; CHUNK];
        let (mut bytes, used) = (0, thread_cpu_time());
        loop {
            match incoming.read(&mut chunk)? {
                0 => return Ok((bytes, thread_cpu_time() - used)),
                count => bytes += count as u64,
            }
        }
    };
    let reader = thread::Builder::new().spawn(read)?;
    let chunk = [0; CHUNK];
    let (begin, used) = (now(), thread_cpu_time());
    let mut elapsed = Nanos::ZERO;
    while elapsed < length {
        // Check the clock only after every sixteen writes, so that checking costs almost nothing.
        for _ in 0..16 {
            outgoing.write_all(&chunk)?;
        }
        elapsed = now() - begin;
    }
    let sending = thread_cpu_time() - used;
    drop(outgoing);
    let joined = reader.join();
    let (bytes, receiving) = joined.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
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
    fn all_sent_bytes_arrive_and_take_cpu_time() {
        let length = Nanos::from_millis(50);
        let transfer = loopback(length).unwrap();
        assert!(transfer.elapsed >= length, "{transfer:?}");
        assert!(transfer.bytes > 0 && transfer.bytes.is_multiple_of(16 * CHUNK as u64));
        assert!(transfer.sending > Nanos::ZERO && transfer.receiving > Nanos::ZERO);
        // The two threads use at most two CPUs, and every real machine takes less than 1 µs per
        // byte.
        let cpu_time = transfer.sending + transfer.receiving;
        assert!(cpu_time.0 < 3 * transfer.elapsed.0, "{transfer:?}");
        assert!((0.001..1_000.0).contains(&transfer.ns_per_byte().unwrap()));
    }
}
