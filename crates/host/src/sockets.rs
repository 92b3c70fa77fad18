//! Finds a program's UDP sockets, and how many datagrams they have dropped.

mod diag;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ticktax_model::machine::UdpSocket;

use super::Proc;

/// Maximum number of open files to check per process.
const MAX_FILES: usize = 10_000;

impl Proc {
    /// Returns the UDP sockets that the processes `pids` have open, as far as that can be found
    /// out.
    pub fn udp_sockets(&self, pids: &[i32]) -> Vec<UdpSocket> {
        let mut found: BTreeMap<u64, UdpSocket> = BTreeMap::new();
        for &pid in pids {
            let open = self.open_sockets(pid);
            if open.is_empty() {
                continue;
            }
            // These files list all sockets in the network namespace of the process.
            for file in ["udp", "udp6"] {
                let text = self.text(&format!("proc/{pid}/net/{file}"));
                let all = text.iter().flat_map(|text| text.lines().skip(1));
                let own = all.filter_map(|line| socket(line, pid));
                let own = own.filter(|socket| open.contains(&socket.inode));
                found.extend(own.map(|socket| (socket.inode, socket)));
            }
        }
        // Netlink describes only the running kernel, not a directory with the files of a different
        // machine.
        if !found.is_empty() && self.root == Path::new("/") {
            let memory = diag::memory();
            for (inode, socket) in &mut found {
                let own = memory.get(inode);
                socket.buffer_bytes = own.map(|memory| memory.buffer);
                socket.charged_bytes = own.map(|memory| memory.charged);
            }
        }
        found.into_values().collect()
    }

    /// Returns the inode numbers of the sockets that process `pid` has open.
    fn open_sockets(&self, pid: i32) -> Vec<u64> {
        let folder = fs::read_dir(self.root.join(format!("proc/{pid}/fd")));
        let files = folder.into_iter().flatten().flatten().take(MAX_FILES);
        let number = |entry: fs::DirEntry| {
            let target = fs::read_link(entry.path()).ok()?;
            let number = target.to_str()?.strip_prefix("socket:[")?;
            number.strip_suffix(']')?.parse().ok()
        };
        files.filter_map(number).collect()
    }
}

/// Parses a line of `/proc/net/udp`. Addresses, queue lengths and ports are hexadecimal.
fn socket(line: &str, pid: i32) -> Option<UdpSocket> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (_, port) = words.get(1)?.rsplit_once(':')?;
    let (_, queued) = words.get(4)?.split_once(':')?;
    Some(UdpSocket {
        inode: words.get(9)?.parse().ok()?,
        port: u16::from_str_radix(port, 16).ok()?,
        pid,
        queued_bytes: u64::from_str_radix(queued, 16).ok()?,
        drops: words.get(12)?.parse().ok()?,
        buffer_bytes: None,
        charged_bytes: None,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{Proc, socket};

    const LINE: &str = " 2059: 0100007F:1F90 00000000:0000 07 00000000:00000500 00:00000000 00000000     0        0 77 2 0000000000000000 41";

    #[test]
    fn a_socket_is_read_with_its_port_and_its_drops() {
        let parsed = socket(LINE, 5).unwrap();
        assert_eq!((parsed.port, parsed.inode, parsed.pid), (8080, 77, 5));
        assert_eq!((parsed.queued_bytes, parsed.drops), (1280, 41));
        for cut in [0, 10, 40, 90] {
            assert_eq!(socket(&LINE[..cut], 5), None);
        }
    }

    #[test]
    fn only_open_sockets_belong_to_a_program() {
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/5");
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::create_dir_all(process.join("net")).unwrap();
        let other = LINE.replace(" 77 ", " 78 ");
        let text = format!("  sl local_address\n{LINE}\n{other}\n");
        fs::write(process.join("net/udp"), text).unwrap();
        symlink("socket:[77]", process.join("fd/3")).unwrap();
        symlink("/dev/null", process.join("fd/0")).unwrap();
        let found = Proc::at(root.path()).udp_sockets(&[5, 6]);
        let inodes: Vec<u64> = found.iter().map(|socket| socket.inode).collect();
        assert_eq!(inodes, [77]);
    }
}
