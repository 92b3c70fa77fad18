//! Names of virtual machines, from the command lines of the processes that run them.

use std::fs;

use ticktax_model::guests::{GuestName, GuestNamedBy};

use super::Proc;

/// Target of the link in `/proc/PID/fd` that a vCPU's file descriptor has. Since Linux 4.10, the
/// number of the vCPU follows.
const VCPU: &str = "anon_inode:kvm-vcpu";

impl Proc {
    /// Returns whether the kernel has KVM, either built in or as a module that is loaded.
    pub fn has_kvm(&self) -> bool {
        self.root.join("sys/module/kvm").is_dir()
    }

    /// Returns the name of the virtual machine that process `pid` runs, or `None` if the process
    /// has exited.
    pub fn guest_name(&self, pid: i32) -> Option<GuestName> {
        let comm = self.program(pid)?;
        let arguments = fs::read(self.root.join(format!("proc/{pid}/cmdline"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&arguments);
        let arguments: Vec<&str> = text.split_terminator('\0').collect();
        let cgroup = self.text(&format!("proc/{pid}/cgroup")).unwrap_or_default();
        let (name, named_by) = name(&arguments, &cgroup).unwrap_or((comm, GuestNamedBy::Process));
        Some(GuestName {
            pid,
            name,
            named_by,
        })
    }

    /// Returns the number of processes that have a vCPU. Only root sees those of other users.
    pub fn count_guests(&self) -> u64 {
        let has_vcpu = |pid: &i32| {
            let files = fs::read_dir(self.root.join(format!("proc/{pid}/fd")));
            let mut links = files.into_iter().flatten().flatten();
            links.any(|link| {
                let target = fs::read_link(link.path());
                target.is_ok_and(|target| target.to_string_lossy().starts_with(VCPU))
            })
        };
        self.pids().iter().filter(|pid| has_vcpu(pid)).count() as u64
    }

    /// Returns the number of processes that seem to run a virtual machine: those that have a vCPU,
    /// and those whose program is known to run virtual machines. Any user sees the latter.
    pub fn count_likely_guests(&self) -> u64 {
        let is_likely = |pid: &&i32| self.program(**pid).is_some_and(|name| is_vmm(&name));
        let likely = self.pids().iter().filter(is_likely).count() as u64;
        likely.max(self.count_guests())
    }
}

/// Programs that run virtual machines, as far as the kernel keeps their names.
const PROGRAMS: [&str; 5] = [
    "kvm",
    "qemu-kvm",
    "qemu-system-",
    "firecracker",
    "cloud-hyperviso",
];

/// Returns whether a program with this name runs virtual machines.
fn is_vmm(name: &str) -> bool {
    PROGRAMS
        .into_iter()
        .any(|program| name == program || program.ends_with('-') && name.starts_with(program))
}

/// Returns the name of a virtual machine and its source, given the command line and the contents of
/// `/proc/PID/cgroup`.
fn name(arguments: &[&str], cgroup: &str) -> Option<(String, GuestNamedBy)> {
    let program = arguments.first()?.rsplit('/').next().unwrap_or_default();
    if program.starts_with("firecracker") {
        let id = option(arguments, "--id")?;
        return Some((id.to_owned(), GuestNamedBy::Firecracker));
    }
    if !program.starts_with("qemu") && program != "kvm" {
        return None;
    }
    let given = option(arguments, "-name").or_else(|| option(arguments, "--name"));
    let given = given.and_then(qemu_name);
    let number =
        option(arguments, "-id").filter(|id| id.bytes().all(|digit| digit.is_ascii_digit()));
    match (number, given) {
        (Some(id), Some(name)) => Some((format!("{id} {name}"), GuestNamedBy::Proxmox)),
        (Some(id), None) => Some((id.to_owned(), GuestNamedBy::Proxmox)),
        (None, Some(name)) if cgroup.contains("kubepods") && name.contains('_') => {
            // libvirt's name of the machine is NAMESPACE_NAME. A namespace contains no underscore.
            Some((name.replacen('_', "/", 1), GuestNamedBy::KubeVirt))
        }
        (None, Some(name)) => Some((name, GuestNamedBy::Qemu)),
        (None, None) => None,
    }
}

/// Returns the value of an option that is given as `OPTION VALUE` or `OPTION=VALUE`.
fn option<'a>(arguments: &[&'a str], option: &str) -> Option<&'a str> {
    let mut rest = arguments.iter().skip(1);
    while let Some(&argument) = rest.next() {
        if argument == option {
            return rest.next().copied().filter(|value| !value.is_empty());
        }
        let value = argument
            .strip_prefix(option)
            .and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Some(value);
        }
    }
    None
}

/// Returns the name in the value of QEMU's option `-name`: `NAME,KEY=VALUE,…` or `guest=NAME,…`. A
/// comma in the name is doubled.
fn qemu_name(value: &str) -> Option<String> {
    const DOUBLED: char = '\u{0}';
    let value = value.replace(",,", &DOUBLED.to_string());
    let mut parts = value.split(',');
    let first = parts.next().filter(|first| !first.contains('='));
    let guest = || {
        value
            .split(',')
            .find_map(|part| part.strip_prefix("guest="))
    };
    let name = first.or_else(guest)?.replace(DOUBLED, ",");
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use ticktax_model::guests::GuestNamedBy;

    use super::{name, qemu_name};
    use crate::Proc;

    fn named(line: &str, cgroup: &str) -> Option<(String, GuestNamedBy)> {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        name(&arguments, cgroup)
    }

    #[test]
    fn names_of_managers_are_found() {
        let text = |name: &str| name.to_owned();
        let libvirt = "/usr/bin/qemu-system-x86_64 -name guest=web01,debug-threads=on -S -smp 2";
        assert_eq!(
            named(libvirt, ""),
            Some((text("web01"), GuestNamedBy::Qemu))
        );
        let plain = "qemu-kvm -m 1G -name build";
        assert_eq!(named(plain, ""), Some((text("build"), GuestNamedBy::Qemu)));
        let proxmox = "/usr/bin/kvm -id 104 -name db,debug-threads=on -no-shutdown";
        let expected = (text("104 db"), GuestNamedBy::Proxmox);
        assert_eq!(named(proxmox, ""), Some(expected));
        let virt = "/usr/libexec/qemu-kvm -name guest=shop_front_end,debug-threads=on";
        let pods = "0::/kubepods.slice/kubepods-burstable.slice/cri-1.scope";
        let expected = (text("shop/front_end"), GuestNamedBy::KubeVirt);
        assert_eq!(named(virt, pods), Some(expected));
        for line in [
            "/usr/bin/firecracker --id=fn-7 --no-api",
            "firecracker --id fn-7",
        ] {
            assert_eq!(
                named(line, ""),
                Some((text("fn-7"), GuestNamedBy::Firecracker))
            );
        }
    }

    #[test]
    fn other_command_lines_have_no_name() {
        for line in [
            "",
            "cloud-hypervisor --kernel x",
            "qemu-system-x86_64 -m 1G",
            "qemu-system-x86_64 -name",
            "firecracker --id",
            "sleep -name x",
        ] {
            assert_eq!(named(line, ""), None, "{line}");
        }
    }

    #[test]
    fn programs_that_run_machines_are_counted_by_name() {
        let root = tempfile::tempdir().unwrap();
        for (pid, name) in [
            (7, "qemu-system-x86"),
            (8, "kvm"),
            (9, "qemu-nbd"),
            (10, "kvm-pit/7"),
            (11, "sh"),
        ] {
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        }
        let proc = Proc::at(root.path());
        assert_eq!(proc.count_likely_guests(), 2);
        // A program with another name has a vCPU.
        for pid in [9, 10, 11] {
            let files = root.path().join(format!("proc/{pid}/fd"));
            std::fs::create_dir_all(&files).unwrap();
            symlink("anon_inode:kvm-vcpu:0", files.join("12")).unwrap();
        }
        assert_eq!(proc.count_likely_guests(), 3);
    }

    #[test]
    fn commas_in_names_are_doubled() {
        assert_eq!(qemu_name("a,,b,process=x"), Some("a,b".to_owned()));
        assert_eq!(
            qemu_name("debug-threads=on,guest=a,,b"),
            Some("a,b".to_owned())
        );
        assert_eq!(qemu_name("debug-threads=on"), None);
        assert_eq!(qemu_name(""), None);
    }

    #[test]
    fn processes_with_a_vcpu_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let folder = |pid: i32| root.path().join(format!("proc/{pid}/fd"));
        for pid in [7, 8, 9] {
            std::fs::create_dir_all(folder(pid)).unwrap();
        }
        symlink("anon_inode:kvm-vcpu:0", folder(7).join("12")).unwrap();
        symlink("anon_inode:kvm-vcpu:1", folder(7).join("13")).unwrap();
        symlink("anon_inode:kvm-vm", folder(8).join("12")).unwrap();
        symlink("anon_inode:kvm-vcpu", folder(9).join("3")).unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.count_guests(), 2);
        assert!(!proc.has_kvm());
        assert_eq!(proc.guest_name(7), None);
        let write = |file: &str, text: &str| {
            std::fs::write(root.path().join(format!("proc/7/{file}")), text).unwrap();
        };
        write("comm", "vmm\n");
        assert_eq!(proc.guest_name(7).unwrap().name, "vmm");
        let arguments = ["/usr/bin/kvm", "-id", "104", "-name", "two words", ""];
        write("cmdline", &arguments.join("\0"));
        assert_eq!(proc.guest_name(7).unwrap().name, "104 two words");
    }
}
