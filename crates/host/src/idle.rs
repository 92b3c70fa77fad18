//! Counts how often a CPU left a power-saving idle state.

use std::fs;

use ticktax_model::Cpu;

use super::Proc;

impl Proc {
    /// Returns how often `cpu` has left a power-saving idle state since boot. The state `POLL`, in
    /// which a CPU waits without sleeping, does not count. Returns `None` if the kernel does not
    /// count exits from idle states (`cpuidle`).
    pub fn idle_exits(&self, cpu: Cpu) -> Option<u64> {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle");
        let states = fs::read_dir(self.root.join(&folder)).ok()?;
        let names = states
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut exits = None;
        for state in names.filter(|name| name.starts_with("state")) {
            let word = |file: &str| self.text(&format!("{folder}/{state}/{file}"));
            if word("name").is_none_or(|name| name == "POLL") {
                continue;
            }
            let count: u64 = word("usage").and_then(|text| text.parse().ok())?;
            exits = Some(count.saturating_add(exits.unwrap_or(0)));
        }
        exits
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ticktax_model::Cpu;

    use super::super::Proc;

    #[test]
    fn polling_does_not_count_as_idle_state() {
        let root = tempfile::tempdir().unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.idle_exits(Cpu(0)), None);
        for (state, name, usage) in [(0, "POLL", 900), (1, "C1", 40), (2, "C6", 2)] {
            let folder = format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}");
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("name"), format!("{name}\n")).unwrap();
            fs::write(folder.join("usage"), format!("{usage}\n")).unwrap();
        }
        assert_eq!(proc.idle_exits(Cpu(0)), Some(42));
    }
}
