//! Pages about file systems and fsyncs.

use ticktax_model::Nanos;
use ticktax_model::storage::{
    BlockDevice, CounterCheck, FsyncArm, FsyncEffect, FsyncStudy, FsyncVerdict, FsyncWaits,
    FsyncWrites, Journal, Mount, Storage, StorageLimitation,
};

use super::page;

fn disk() -> BlockDevice {
    BlockDevice {
        name: "vda1".to_owned(),
        disk: "vda".to_owned(),
        write_cache: Some("write back".to_owned()),
        fua: Some(true),
        rotational: Some(true),
        ..BlockDevice::default()
    }
}

fn ext4() -> Mount {
    Mount {
        path: "/srv".to_owned(),
        file_system: "ext4".to_owned(),
        fstab_type: Some("xfs".to_owned()),
        is_read_only: true,
        journal: Some(Journal::Ordered),
        barriers: Some(false),
        delayed_allocation: Some(false),
        device: Some(BlockDevice {
            name: "dm-0".to_owned(),
            disk: "dm-0".to_owned(),
            write_cache: Some("write through".to_owned()),
            below: vec![disk()],
            ..BlockDevice::default()
        }),
        ..Mount::default()
    }
}

#[test]
fn page_of_mounts() {
    let mount = |path: &str, file_system: &str, source: &str| Mount {
        path: path.to_owned(),
        file_system: file_system.to_owned(),
        source: source.to_owned(),
        ..Mount::default()
    };
    let mounts = vec![
        ext4(),
        Mount {
            upper: Some("/var/lib/box/upper".to_owned()),
            ..mount("/box", "overlay", "overlay")
        },
        mount("/tmp", "tmpfs", "tmpfs"),
        mount("/home", "nfs4", "server:/home"),
        Mount {
            device: Some(BlockDevice {
                name: "loop0".to_owned(),
                disk: "loop0".to_owned(),
                backing_file: Some("/images/a".to_owned()),
                ..BlockDevice::default()
            }),
            ..mount("/image", "xfs", "/dev/loop0")
        },
    ];
    insta::assert_snapshot!(page(Storage { mounts }));
}

#[test]
fn page_without_mounts() {
    insta::assert_snapshot!(page(Storage { mounts: Vec::new() }));
}

fn study() -> FsyncStudy {
    let own = FsyncWrites {
        file_bytes: 200 * 4_096,
        metadata_bytes: 200 * 5_120,
        flushes: 200,
        fua_writes: 200,
        ..FsyncWrites::default()
    };
    FsyncStudy {
        mount: Mount {
            device: Some(disk()),
            ..ext4()
        },
        write_bytes: 4_096,
        foreign_bytes: 256 << 20,
        without: FsyncArm {
            count: 200,
            median: Nanos::from_micros(2_100),
            p99: Nanos::from_micros(3_900),
            max: Nanos::from_millis(7),
            own: Some(own),
            meanwhile: Some(FsyncWrites::default()),
            waits: Some(FsyncWaits {
                file: Nanos::from_millis(200),
                metadata: Nanos::from_millis(180),
                others: Nanos::ZERO,
                nothing: Nanos::from_millis(40),
            }),
        },
        with: FsyncArm {
            count: 10,
            median: Nanos::from_millis(1_400),
            p99: Nanos::from_millis(1_900),
            max: Nanos::from_millis(1_900),
            own: Some(FsyncWrites {
                file_bytes: 10 * 4_096,
                metadata_bytes: 10 * 7_168,
                foreign_bytes: 2_560 << 20,
                elsewhere_bytes: 4_096,
                flushes: 11,
                ..FsyncWrites::default()
            }),
            meanwhile: Some(FsyncWrites {
                other_file_bytes: 123_456,
                ..FsyncWrites::default()
            }),
            waits: Some(FsyncWaits {
                file: Nanos::from_millis(10),
                metadata: Nanos::from_millis(300),
                others: Nanos::from_millis(13_900),
                nothing: Nanos::from_millis(20),
            }),
        },
        effect: Some(FsyncEffect {
            pairs: 10,
            mean: Nanos::from_millis(1_398),
            low: Nanos::from_millis(1_200),
            high: Nanos::from_millis(1_600),
        }),
        verdict: Some(FsyncVerdict::Partition),
        check: Some(CounterCheck {
            observed_bytes: 2_700_000_000,
            counted_bytes: 2_701_000_000,
        }),
        ..FsyncStudy::default()
    }
}

#[test]
fn page_of_an_fsync_that_writes_the_partition() {
    insta::assert_snapshot!(page(study()));
}

#[test]
fn page_of_an_fsync_without_owners() {
    let study = study();
    let blind = |arm| FsyncArm {
        own: None,
        meanwhile: None,
        waits: None,
        ..arm
    };
    let blind = FsyncStudy {
        without: blind(study.without),
        with: blind(study.with),
        effect: None,
        verdict: None,
        check: None,
        limitations: vec![
            StorageLimitation::NotTraced {
                why: "only root can trace the kernel".to_owned(),
            },
            StorageLimitation::Lost {
                writes: 12,
                bytes: 49_152,
            },
            StorageLimitation::NoCounters,
            StorageLimitation::WrittenEarly { dirty_percent: 25 },
            StorageLimitation::Interrupted,
        ],
        ..study
    };
    insta::assert_snapshot!(page(blind));
}

#[test]
fn every_verdict_and_direction_has_its_words() {
    for (verdict, words) in [
        (FsyncVerdict::File, "FILE: "),
        (FsyncVerdict::Metadata, "METADATA: "),
        (FsyncVerdict::World, "WORLD: "),
    ] {
        let text = page(FsyncStudy {
            verdict: Some(verdict),
            ..study()
        });
        assert!(text.contains(words), "{text}");
    }
    for (low, high, words) in [(-5, -3, "4.00 ms shorter"), (-5, 3, "No effect")] {
        let text = page(FsyncStudy {
            effect: Some(FsyncEffect {
                pairs: 3,
                mean: Nanos::from_millis(-4),
                low: Nanos::from_millis(low),
                high: Nanos::from_millis(high),
            }),
            ..study()
        });
        assert!(text.contains(words), "{text}");
    }
}
