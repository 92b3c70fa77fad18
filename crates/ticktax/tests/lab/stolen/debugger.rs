//! A debugger that lets a guest's program disable interrupts. It is a client for QEMU's server,
//! which speaks GDB's remote protocol.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ticktax_inject::stolen::LOOP;

/// File next to the socket that exists once the guest has ended.
pub(super) const OVER: &str = "over";

/// Position of the second byte of the flags in the registers, after 17 registers of 8 bytes.
const FLAGS: usize = 17 * 8 + 1;
/// I/O privilege level 3, within that byte.
const PRIVILEGED: u8 = 0x30;

pub(super) struct Debugger {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Debugger {
    /// Waits for the guest at `socket`, and for its program to reach [`LOOP`]. Then lets that
    /// program disable interrupts. Returns `false` if the program never got there.
    pub(super) fn serve(socket: &Path) -> io::Result<bool> {
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if socket.with_file_name(OVER).exists() => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let mut debugger = Self {
            stream,
            unread: Vec::new(),
        };
        // Do not stop the guest again later: while it is stopped, QEMU skips the guest's time ahead
        // to its next timer.
        debugger.ask(&format!("Z1,{LOOP:x},1"))?;
        debugger.send("c")?;
        if !debugger.stops()? {
            return Ok(false);
        }
        let mut registers = bytes(&debugger.ask("g")?)?;
        let flags = registers.get_mut(FLAGS);
        *flags.ok_or_else(|| io::Error::other("too few registers"))? |= PRIVILEGED;
        let mut text = String::new();
        for byte in &registers {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        debugger.ask(&format!("G{text}"))?;
        debugger.ask(&format!("z1,{LOOP:x},1"))?;
        debugger.ask("D")?;
        Ok(true)
    }

    fn send(&mut self, command: &str) -> io::Result<()> {
        let sum = command.bytes().fold(0u8, u8::wrapping_add);
        write!(self.stream, "${command}#{sum:02x}")
    }

    /// Sends a command and returns the answer.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.send(command)?;
        loop {
            let answer = self.packet()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            // QEMU also reports that it stopped the guest because a debugger connected.
            if !answer.starts_with('T') {
                return Ok(answer);
            }
        }
    }

    /// Waits until the guest stops at a breakpoint. Returns `false` if QEMU exits.
    fn stops(&mut self) -> io::Result<bool> {
        loop {
            match self.packet()? {
                Some(packet) if packet.starts_with("T05") => return Ok(true),
                Some(packet) if packet.starts_with('W') => return Ok(false),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }

    /// Returns the next packet, or `None` if the connection is closed.
    fn packet(&mut self) -> io::Result<Option<String>> {
        loop {
            let begin = self.unread.iter().position(|&byte| byte == b'$');
            let end = self.unread.iter().position(|&byte| byte == b'#');
            if let (Some(begin), Some(end)) = (begin, end)
                && self.unread.len() >= end + 3
            {
                let packet = String::from_utf8_lossy(&self.unread[begin + 1..end]).into_owned();
                self.unread.drain(..end + 3);
                self.stream.write_all(b"+")?;
                return Ok(Some(packet));
            }
            let mut buffer = [0; 4_096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => self.unread.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Decodes hexadecimal digits.
fn bytes(text: &str) -> io::Result<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).map_err(io::Error::other)?;
        u8::from_str_radix(pair, 16).map_err(io::Error::other)
    };
    pairs.map(byte).collect()
}
