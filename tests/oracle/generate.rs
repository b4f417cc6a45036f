//! Makes a schedule of a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::step::{ANSWERS, EVENTS, GAPS, STREAMS, Step};

/// Steps of a schedule.
const STEPS: std::ops::Range<usize> = 20..90;

pub(crate) fn schedule(seed: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let steps = random.random_range(STEPS);
    let mut restarted = false;
    let mut steps: Vec<Step> = (0..steps).map(|_| step(&mut random, &mut restarted)).collect();
    // Nothing comes behind the last event of a repo by which one that was told wrongly would be noticed after all.
    let repo = random.random_range(0..64);
    let way = if random.random() { GAPS[random.random_range(0..GAPS.len())] } else { random.random_range(0..EVENTS) };
    steps.push(Step::Event { repo, way });
    steps.push(Step::Write { repo, commits: 1, seed: random.random() });
    steps
}

fn step(random: &mut StdRng, restarted: &mut bool) -> Step {
    let (repo, host) = (random.random_range(0..64), random.random_range(0..8));
    match random.random_range(0..1000) {
        0..230 => Step::Write { repo, commits: random.random_range(1..12), seed: random.random() },
        230..270 => Step::DeleteMany { repo, each: random.random_range(2..9) },
        270..330 => Step::Status { repo, status: random.random_range(0..8) },
        330..345 => Step::Handle { repo },
        345..365 => Step::RotateKey { repo },
        365..390 => Step::Migrate { repo, host },
        390..400 => Step::Remember { repo },
        400..410 => Step::AddAccount { host },
        410..510 => Step::Answer { repo, way: random.random_range(0..ANSWERS), at: random.random_range(0..100_000) },
        510..590 => Step::Event { repo, way: random.random_range(0..EVENTS) },
        590..630 => Step::Stream { way: random.random_range(0..STREAMS) },
        // Once: a second time the new sequence may pass the saved cursor unseen, as no program can tell.
        630..636 if !std::mem::replace(restarted, true) => Step::RestartSequence,
        630..640 => Step::RelayDown,
        640..660 => Step::RelayUp,
        660..670 => Step::HostDown { host },
        670..690 => Step::HostUp { host },
        690..697 => Step::DirectoryDown,
        697..710 => Step::DirectoryUp,
        710..735 => Step::HandlerFails { times: random.random_range(1..8), panics: random.random_range(0..4) == 0 },
        735..755 => Step::Purge { repo },
        755..790 => Step::Want { repo },
        790..797 => Step::Audit,
        797..815 => Step::Restart { commits: random.random_range(0..40) },
        815..870 => {
            Step::Crash { place: random.random_range(0..1000), times: random.random_range(1..6), commits: random.random_range(0..20) }
        }
        870..880 => Step::Restore { repo },
        880..890 => Step::Clock { hours: random.random_range(-12..=12) },
        890..965 => Step::Run { ms: random.random_range(1..25) },
        _ => Step::Pass { seconds: [1, 5, 30, 120, 900][random.random_range(0..5)] },
    }
}
