//! Finds the programs whose dirty data made others wait.

use ticktax_model::Nanos;
use ticktax_model::pressure::{
    ByteLevel, DevicePauses, PressedDevice, PressedProgram, PressureCause, PressureLimit,
};

/// A program waits for another one's data on the same device if it dirtied at most this share of
/// what the other one dirtied.
const LITTLE: u64 = 10;

/// Returns the programs that waited because of other programs' dirty data, starting with the
/// longest wait.
pub(super) fn causes(
    programs: &[PressedProgram],
    devices: &[PressedDevice],
    machine: Option<ByteLevel>,
) -> Vec<PressureCause> {
    let mut causes = Vec::new();
    for payer in programs {
        for pauses in &payer.devices {
            let same_device = waits_on_same_device(payer, pauses, programs);
            causes.extend(same_device);
            if pauses.behind_other_devices > Nanos::ZERO {
                causes.extend(behind_other_device(
                    payer, pauses, programs, devices, machine,
                ));
            }
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.time));
    causes
}

/// Returns the program that dirtied most data, of those that were throttled on a device.
fn main_writer<'a>(bdi: &str, programs: &'a [PressedProgram]) -> Option<&'a PressedProgram> {
    let here = programs.iter().filter(|program| {
        let mut devices = program.devices.iter();
        program.dirtied_bytes.is_some() && devices.any(|pauses| pauses.bdi == bdi)
    });
    here.max_by_key(|program| program.dirtied_bytes)
}

fn limit_of(pauses: &DevicePauses) -> PressureLimit {
    if pauses.at_machine_limit.0 * 2 >= pauses.waits.time.0 {
        PressureLimit::Machine
    } else if pauses.at_device_limit.0 * 2 >= pauses.waits.time.0 {
        PressureLimit::Device
    } else {
        PressureLimit::Smaller
    }
}

/// Waits during which most dirty data was for the program's own device, but not its own.
fn waits_on_same_device(
    payer: &PressedProgram,
    pauses: &DevicePauses,
    programs: &[PressedProgram],
) -> Option<PressureCause> {
    let writer = main_writer(&pauses.bdi, programs)?;
    let time = pauses.waits.time - pauses.behind_other_devices;
    let (own, most) = (payer.dirtied_bytes?, writer.dirtied_bytes?);
    if writer.pid == payer.pid || own.saturating_mul(LITTLE) > most || time <= Nanos::ZERO {
        return None;
    }
    Some(PressureCause {
        payer_pid: payer.pid,
        payer: payer.name.clone(),
        time,
        payer_bdi: pauses.bdi.clone(),
        bdi: Some(pauses.bdi.clone()),
        writer_pid: Some(writer.pid),
        writer: Some(writer.name.clone()),
        limit: limit_of(pauses),
    })
}

/// Waits during which most dirty data was for other devices. Returns `None` if the program wrote
/// that data itself.
fn behind_other_device(
    payer: &PressedProgram,
    pauses: &DevicePauses,
    programs: &[PressedProgram],
    devices: &[PressedDevice],
    machine: Option<ByteLevel>,
) -> Option<PressureCause> {
    let level = |device: &PressedDevice| {
        let max = |level: Option<ByteLevel>| level.map_or(0, |level| level.max_bytes);
        max(device.dirty) + max(device.writeback)
    };
    let others = devices.iter().filter(|device| device.bdi != pauses.bdi);
    let fullest = others.max_by_key(|device| level(device));
    let fullest = fullest.filter(|device| {
        machine.is_some_and(|machine| level(device).saturating_mul(2) >= machine.max_bytes)
    });
    let writer = fullest.and_then(|device| main_writer(&device.bdi, programs));
    if writer.is_some_and(|writer| writer.pid == payer.pid) {
        return None;
    }
    Some(PressureCause {
        payer_pid: payer.pid,
        payer: payer.name.clone(),
        time: pauses.behind_other_devices,
        payer_bdi: pauses.bdi.clone(),
        bdi: fullest.map(|device| device.bdi.clone()),
        writer_pid: writer.map(|writer| writer.pid),
        writer: writer.map(|writer| writer.name.clone()),
        limit: limit_of(pauses),
    })
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pressure::{
        ByteLevel, DevicePauses, PressedDevice, PressedProgram, PressureLimit, PressureWaits,
    };

    use super::causes;

    const MIB: u64 = 1 << 20;

    fn program(pid: i32, bdi: &str, dirtied: u64, time: i64, behind: i64) -> PressedProgram {
        PressedProgram {
            pid,
            name: format!("p{pid}"),
            dirtied_bytes: Some(dirtied),
            devices: vec![DevicePauses {
                bdi: bdi.to_owned(),
                waits: PressureWaits {
                    time: Nanos(time),
                    count: 1,
                    max: Nanos(time),
                },
                behind_other_devices: Nanos(behind),
                at_machine_limit: Nanos(time),
                at_device_limit: Nanos::ZERO,
            }],
            ..PressedProgram::default()
        }
    }

    fn level(bytes: u64) -> ByteLevel {
        ByteLevel {
            mean_bytes: bytes,
            max_bytes: bytes,
            samples: 1,
        }
    }

    fn device(bdi: &str, dirty: u64) -> PressedDevice {
        PressedDevice {
            bdi: bdi.to_owned(),
            dirty: Some(level(dirty)),
            ..PressedDevice::default()
        }
    }

    #[test]
    fn a_writer_to_a_slow_device_delays_a_writer_to_another() {
        let programs = [
            program(1, "7:0", 100 * MIB, 900, 0),
            program(2, "8:0", MIB, 50, 40),
        ];
        let devices = [device("7:0", 90 * MIB), device("8:0", MIB)];
        let found = causes(&programs, &devices, Some(level(91 * MIB)));
        let [cause] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((cause.payer_pid, cause.writer_pid), (2, Some(1)));
        assert_eq!(cause.bdi.as_deref(), Some("7:0"));
        assert_eq!(
            (cause.time, cause.limit),
            (Nanos(40), PressureLimit::Machine)
        );
        // Without a device that holds at least half of the dirty data, no writer is named.
        let found = causes(&programs, &devices, Some(level(200 * MIB)));
        assert_eq!((found[0].writer_pid, found[0].bdi.as_ref()), (None, None));
    }

    #[test]
    fn a_program_that_wrote_little_waits_for_the_main_writer_of_its_device() {
        let mut programs = [
            program(1, "7:0", 100 * MIB, 900, 0),
            program(2, "7:0", MIB, 50, 0),
        ];
        let found = causes(&programs, &[], None);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].payer_pid, found[0].writer_pid), (2, Some(1)));
        programs[1].dirtied_bytes = Some(11 * MIB);
        assert_eq!(causes(&programs, &[], None), []);
        // Without its bytes, the program cannot be judged.
        programs[1].dirtied_bytes = None;
        assert_eq!(causes(&programs, &[], None), []);
    }

    #[test]
    fn a_program_does_not_wait_for_itself() {
        let mut both = program(1, "8:0", 100 * MIB, 50, 40);
        both.devices.extend(program(1, "7:0", 0, 900, 0).devices);
        let devices = [device("7:0", 90 * MIB)];
        assert_eq!(causes(&[both], &devices, Some(level(91 * MIB))), []);
    }
}
