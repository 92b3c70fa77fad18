//! Pages about writeback pressure.

use ticktax_model::Nanos;
use ticktax_model::pressure::{
    ByteLevel, DevicePauses, DirtyMemory, PressedDevice, PressedProgram, PressureCause,
    PressureLimit, PressureLimitation, PressureVerdict, PressureWaits, SoftMount, WritePressure,
};

use super::page;

const MIB: u64 = 1 << 20;

#[expect(clippy::unnecessary_wraps, reason = "fields take options")]
fn level(mean: u64, max: u64) -> Option<ByteLevel> {
    Some(ByteLevel {
        mean_bytes: mean,
        max_bytes: max,
        samples: 200,
    })
}

fn device(bdi: &str, disk: &str, mount: &str) -> PressedDevice {
    PressedDevice {
        bdi: bdi.to_owned(),
        disk: Some(disk.to_owned()),
        mounts: vec![mount.to_owned()],
        dirty: level(11 * MIB, 14 * MIB),
        writeback: level(MIB, 2 * MIB),
        written_bytes: Some(80 * MIB),
        bandwidth_bytes_hz: Some(4 * MIB),
        max_ratio_percent: Some(100),
    }
}

fn program(pid: i32, name: &str, bdi: &str, seconds: i64) -> PressedProgram {
    let waits = PressureWaits {
        time: Nanos::from_millis(seconds * 1_000),
        count: 41,
        max: Nanos::from_millis(204),
    };
    PressedProgram {
        pid,
        name: name.to_owned(),
        throttled: waits,
        devices: vec![DevicePauses {
            bdi: bdi.to_owned(),
            waits,
            ..DevicePauses::default()
        }],
        dirtied_bytes: Some(96 * MIB),
        major_faults: Some(3),
        cgroup: Some("/system.slice/backup.service".to_owned()),
        ..PressedProgram::default()
    }
}

fn pressure() -> WritePressure {
    let mut payer = program(120, "gamesrv", "1:0", 4);
    payer.dirtied_bytes = None;
    payer.reclaim.add(Nanos::from_millis(7));
    WritePressure {
        length: Nanos::from_millis(20_000),
        memory: DirtyMemory {
            dirty: level(12 * MIB, 15 * MIB),
            writeback: level(MIB, 2 * MIB),
            both: level(13 * MIB, 16 * MIB),
            limit_bytes: Some(16 * MIB),
            background_bytes: Some(8 * MIB),
            throttling_percent: Some(93),
            dirtied_bytes: Some(97 * MIB),
            written_bytes: Some(81 * MIB),
            swapped_in_bytes: Some(MIB),
        },
        devices: vec![
            device("259:0", "nvme0n1", "/mnt/slow"),
            PressedDevice {
                dirty: None,
                writeback: None,
                bandwidth_bytes_hz: None,
                ..device("1:0", "ram0", "/srv")
            },
        ],
        programs: Some(vec![program(119, "flood", "259:0", 18), payer]),
        verdict: Some(PressureVerdict::Others),
        causes: vec![PressureCause {
            payer_pid: 120,
            payer: "gamesrv".to_owned(),
            time: Nanos::from_millis(4_000),
            payer_bdi: "1:0".to_owned(),
            bdi: Some("259:0".to_owned()),
            writer_pid: Some(119),
            writer: Some("flood".to_owned()),
            limit: PressureLimit::Machine,
        }],
        soft_mounts: vec![SoftMount {
            path: "/home".to_owned(),
            file_system: "nfs4".to_owned(),
            option: "soft".to_owned(),
            timeout: Some(Nanos::from_millis(60_000)),
            repetitions: Some(2),
            ..SoftMount::default()
        }],
        limitations: vec![PressureLimitation::DevicesAtPauses],
    }
}

#[test]
fn page_of_a_program_that_waits_for_others_data() {
    insta::assert_snapshot!(page(pressure()));
}

#[test]
fn page_without_root() {
    let blind = WritePressure {
        programs: None,
        verdict: None,
        causes: Vec::new(),
        soft_mounts: Vec::new(),
        limitations: vec![
            PressureLimitation::NotTraced {
                why: "not permitted".to_owned(),
            },
            PressureLimitation::NoDevices,
            PressureLimitation::Interrupted,
        ],
        ..pressure()
    };
    insta::assert_snapshot!(page(blind));
}

#[test]
fn a_cause_claims_no_more_than_was_observed() {
    let with = |bdi: Option<&str>, writer: Option<&str>| {
        let mut found = pressure();
        found.causes[0].bdi = bdi.map(str::to_owned);
        found.causes[0].writer = writer.map(str::to_owned);
        found.causes[0].writer_pid = writer.map(|_| 119);
        page(found).replace('\n', " ")
    };
    let same = with(Some("1:0"), Some("flood"));
    assert!(!same.contains("Most dirty data"), "{same}");
    let unknown = with(None, None);
    assert!(unknown.contains("for other devices"), "{unknown}");
    assert!(unknown.contains("wrote it is unknown"), "{unknown}");
    assert!(!unknown.contains("max_ratio"), "{unknown}");
}
