//! Reads the state of the kernel's timers from `/proc/timer_list`.

use ticktax_model::configured::TimerList;

use super::reading::Reading;

pub(super) fn read(reading: &mut Reading) -> Option<TimerList> {
    reading.text("proc/timer_list").map(|text| parse(&text))
}

fn parse(text: &str) -> TimerList {
    // These lines occur once for each CPU.
    let all = |name: &str| {
        let values = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim() != "0")
        });
        values.reduce(|all, value| all && value)
    };
    // Recent kernels print a flag. Older ones print a mode, which is 0 if the tick cannot stop.
    let mode = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == ".nohz_mode").then(|| value.trim().to_owned())
    });
    let mut devices: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("Clock Event Device:"))
        .map(|name| name.trim().to_owned())
        .filter(|name| name != "<NULL>")
        .collect();
    devices.sort();
    devices.dedup();
    TimerList {
        high_resolution: all(".hres_active"),
        nohz: all(".nohz").or_else(|| mode.map(|mode| mode != "0")),
        devices,
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn one_cpu_without_high_resolution_is_enough() {
        let text = "cpu: 0\n  .hres_active    : 1\n  .nohz           : 1\ncpu: 1\n  .hres_active : 0\n  \
                    .nohz : 1\nTick Device: mode:     1\nClock Event Device: lapic-deadline\n";
        let list = parse(text);
        assert_eq!((list.high_resolution, list.nohz), (Some(false), Some(true)));
        assert_eq!(list.devices, ["lapic-deadline"]);
        assert_eq!(parse("  .nohz_mode      : 2\n").nohz, Some(true));
        assert_eq!(parse("\u{fffd}:\n::"), super::TimerList::default());
    }
}
