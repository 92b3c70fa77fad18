//! Names of the virtual machines that run during a session.

use std::collections::BTreeMap;

use ticktax_host::Proc;
use ticktax_model::guests::GuestName;
use ticktax_model::hook::Hook;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::{Header, Level};
use ticktax_trace::Tracer;

/// Names by process id. `None` for a process that exited before its name could be read.
#[derive(Debug, Default)]
pub(crate) struct Guests(BTreeMap<i32, Option<GuestName>>);

impl Guests {
    /// Reads the names of the virtual machines that the tracer has seen since the last call. A
    /// machine may exit before the session ends.
    pub(crate) fn look(&mut self, proc: &Proc, tracer: &Tracer) {
        for pid in tracer.guest_processes() {
            self.0.entry(pid).or_insert_with(|| proc.guest_name(pid));
        }
    }

    /// Adds the names and the limitations to the header.
    pub(crate) fn finish(self, proc: &Proc, header: &mut Header) {
        if let Some(guests) = &mut header.guests {
            guests.machines = self.0.into_values().flatten().collect();
        }
        let coverage = &mut header.coverage;
        if header.guests.is_some() || !proc.has_kvm() {
            return;
        }
        if header.level == Level::Proc {
            let machines = proc.count_likely_guests();
            if machines > 0 {
                let limitation = Limitation::GuestsNeedRights { machines };
                coverage.limitations.push(limitation);
            }
            return;
        }
        // Without virtual machines, it does not matter whether KVM's tracepoints were attached.
        let machines = proc.count_guests();
        let is_kvm = |limitation: &Limitation| {
            let Limitation::HookMissing { hook, .. } = limitation else {
                return false;
            };
            hook.is_kvm()
        };
        if machines == 0 {
            coverage
                .limitations
                .retain(|limitation| !is_kvm(limitation));
        }
        let is_known =
            coverage.attached.contains(&Hook::KvmExit) || coverage.limitations.iter().any(is_kvm);
        if machines > 0 && !is_known && header.level == Level::Kernel {
            let limitation = Limitation::GuestsNotTraced { machines };
            coverage.limitations.push(limitation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use ticktax_host::Proc;
    use ticktax_model::hook::Hook;
    use ticktax_model::limitation::{HookMissing, Limitation};
    use ticktax_model::recording::{Header, Level, World};

    use super::Guests;

    fn missing(hook: Hook) -> Limitation {
        Limitation::HookMissing {
            hook,
            reason: HookMissing::NoTracepoint,
        }
    }

    /// Returns the limitations of a recording on the machine at `root`, which had these before.
    fn limitations(root: &Path, before: &[Limitation]) -> Vec<Limitation> {
        limitations_at(Level::Kernel, root, before)
    }

    fn limitations_at(level: Level, root: &Path, before: &[Limitation]) -> Vec<Limitation> {
        let mut header = Header::new(World::Live, level, "1");
        header.coverage.limitations = before.to_vec();
        Guests::default().finish(&Proc::at(root), &mut header);
        header.coverage.limitations
    }

    #[test]
    fn missing_tracepoints_matter_only_to_a_host() {
        let root = tempfile::tempdir().unwrap();
        let before = [missing(Hook::KvmExit), missing(Hook::Softirq)];
        // Without KVM, nothing is known about its hooks.
        assert_eq!(limitations(root.path(), &[]), []);
        std::fs::create_dir_all(root.path().join("sys/module/kvm")).unwrap();
        assert_eq!(limitations(root.path(), &before), before[1..]);
        let files = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&files).unwrap();
        symlink("anon_inode:kvm-vcpu:0", files.join("12")).unwrap();
        assert_eq!(limitations(root.path(), &before), before);
        let denied = Limitation::GuestsNeedRights { machines: 1 };
        assert_eq!(limitations_at(Level::Proc, root.path(), &[]), [denied]);
        let not_traced = Limitation::GuestsNotTraced { machines: 1 };
        assert_eq!(limitations(root.path(), &[]), [not_traced]);
    }
}
