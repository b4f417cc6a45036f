//! What answers teach about a host.
#![allow(clippy::print_stdout, reason = "seeds are printed")]
use atproto_backfill::fetch::{Pace, Permit, WaitReason};
use tokio::time::{Duration, Instant};

use super::{headers, known, moments, options, rate, secs, until_admitted};

#[tokio::test(start_paused = true)]
async fn every_form_of_retry_after_is_honoured() {
    // A date of its own makes the moments that the headers name independent of this machine's clock.
    let date = ("date", "Sun, 01 Mar 2026 12:00:00 GMT");
    let (noon, silent) = (1_772_366_400_u64, headers(&[]));
    let reset = (noon + 90).to_string();
    let cases = [
        (429, headers(&[("retry-after", "17")]), 17.0),
        (503, headers(&[("retry-after", "17")]), 17.0),
        (429, headers(&[date, ("retry-after", "Sun, 01 Mar 2026 12:01:40 GMT")]), 100.0),
        (429, headers(&[date, ("ratelimit-reset", &reset), ("ratelimit-remaining", "0")]), 90.0),
        (429, headers(&[("ratelimit-reset", "33"), ("ratelimit-remaining", "0")]), 33.0),
        (429, headers(&[("retry-after", "17"), ("ratelimit-reset", "33")]), 17.0),
        // An outer limiter, which says nothing: its whole window.
        (429, silent.clone(), 300.0),
        (429, headers(&[("ratelimit-policy", "100;w=60")]), 60.0),
        // Whatever it demands: an hour. And never at once.
        (429, headers(&[("retry-after", "99999999")]), 3600.0),
        (429, headers(&[("retry-after", "0")]), 1.0),
    ];
    for (status, said, expected) in cases {
        let pace = Pace::new(options(8.0, 2, 1e6));
        let permit = pace.admit("pds.test").await;
        let pause = permit.answered(status, &said).expect("a refusal");
        drop(permit);
        assert_eq!(pause, secs(expected), "{status} {said:?}");
        let wait = pace.try_admit("pds.test").expect_err("it is left alone");
        assert_eq!((wait.reason, wait.until), (WaitReason::Refused, Some(Instant::now() + pause)));
        let (waited, _permit) = until_admitted(&pace, "pds.test").await;
        assert!(waited >= pause && waited < pause + secs(0.1), "{status} {said:?}: waited {waited:?}");
    }
    let pace = Pace::new(options(8.0, 2, 1e6));
    let pause = pace.admit("pds.test").await.answered(503, &silent).expect("a refusal");
    assert!((10.0..=12.5).contains(&pause.as_secs_f64()), "a 503 that says nothing: {pause:?}");
}

#[tokio::test(start_paused = true)]
async fn refusals_that_go_on_lengthen_the_pause_up_to_a_cap() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    let mut longest = Duration::ZERO;
    for n in 0..40 {
        let permit = pace.admit("pds.test").await;
        let pause = permit.answered(503, &headers(&[])).expect("a refusal");
        assert!(pause <= secs(375.0), "{pause:?} at refusal {n}");
        if n < 5 {
            assert!(pause > longest, "{pause:?} after {longest:?}");
        }
        longest = pause;
        tokio::time::advance(pause).await;
    }
    assert!(longest >= secs(300.0), "{longest:?}");
    assert_eq!((known(&pace, "pds.test").refused, pace.refused()), (40, 40));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_halves_the_rate_once_and_it_recovers_slowly() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    let refused = headers(&[("retry-after", "5")]);
    let one = pace.admit("pds.test").await;
    let two = pace.admit("pds.test").await;
    one.answered(429, &refused);
    two.answered(429, &refused);
    drop((one, two));
    assert_eq!(known(&pace, "pds.test").rate, rate(4.0), "both were in flight: one refusal");
    let began = Instant::now();
    let mut last = 4.0;
    while last < 8.0 {
        pace.admit("pds.test").await.answered(200, &headers(&[]));
        let now = known(&pace, "pds.test").rate.requests();
        assert!(now >= last && now <= last * 1.25 + 1e-9, "from {last} to {now}");
        last = now;
        assert!(began.elapsed() < secs(600.0), "it recovers");
    }
    assert!(began.elapsed() > secs(180.0), "it recovers slowly: {:?}", began.elapsed());
    assert_eq!(last, 8.0, "and no further than the configured rate");
    for _ in 0..20 {
        let permit = pace.admit("pds.test").await;
        permit.answered(429, &refused);
    }
    assert_eq!(known(&pace, "pds.test").rate, rate(0.5), "it is never slowed to nothing");
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_window_is_kept_to() {
    let pace = Pace::new(options(8.0, 1, 1e6));
    pace.admit("pds.test").await.answered(200, &headers(&[("ratelimit-remaining", "30"), ("ratelimit-reset", "30")]));
    assert_eq!(known(&pace, "pds.test").rate, rate(1.0));
    pace.admit("pds.test").await.answered(200, &headers(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "25")]));
    let wait = pace.try_admit("pds.test").expect_err("nothing is left");
    assert_eq!((wait.reason, wait.until), (WaitReason::Exhausted, Some(Instant::now() + secs(25.0))));
    let (waited, _permit) = until_admitted(&pace, "pds.test").await;
    assert!(waited >= secs(25.0));
    tokio::time::advance(secs(10.0)).await;
    assert_eq!(known(&pace, "pds.test").rate, rate(8.0), "the next window is a new one");
    assert_eq!(pace.refused(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hosts_policy_slows_it_down_but_never_speeds_it_up() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    pace.admit("slow.test").await.answered(200, &headers(&[("ratelimit-policy", "300;w=300")]));
    pace.admit("fast.test").await.answered(200, &headers(&[("ratelimit-policy", "6000;w=300")]));
    assert_eq!(known(&pace, "slow.test").rate, rate(1.0));
    assert_eq!(known(&pace, "fast.test").rate, rate(8.0));
    let moments = moments(&pace, "slow.test", 5).await;
    assert!(moments[4] - moments[0] >= secs(4.0));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_host_is_probed_by_one_request_at_a_time_ever_more_rarely() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    pace.admit("pds.test").await.unreachable();
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let (waited, probe) = until_admitted(&pace, "pds.test").await;
        pauses.push(waited.as_secs_f64());
        tokio::time::advance(secs(1.0)).await;
        let wait = pace.try_admit("pds.test").expect_err("the probe is under way");
        assert_eq!((wait.reason, wait.until), (WaitReason::Unreachable, None));
        probe.unreachable();
    }
    for (n, pause) in pauses.iter().enumerate() {
        let least = (10.0 * f64::from(1u32 << n)).min(600.0);
        assert!((least..=least * 1.25 + 0.01).contains(pause), "pause {n} is {pause} s");
    }
    let (_, probe) = until_admitted(&pace, "pds.test").await;
    probe.answered(200, &headers(&[]));
    assert!(!known(&pace, "pds.test").unreachable);
    tokio::time::advance(secs(1.0)).await;
    let _second = pace.try_admit("pds.test").expect("two in flight again");
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_in_flight_when_a_host_went_count_once() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    let (one, two) = (pace.admit("pds.test").await, pace.admit("pds.test").await);
    one.unreachable();
    two.unreachable();
    drop((one, two));
    let (waited, _probe) = until_admitted(&pace, "pds.test").await;
    assert!(waited < secs(13.0), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_only_fails_is_left_alone_but_one_that_fails_now_and_then_is_not() {
    let pace = Pace::new(options(8.0, 2, 1e6));
    let nothing = headers(&[]);
    for _ in 0..20 {
        for status in [500, 502, 200, 500, 404, 400] {
            assert_eq!(pace.admit("sometimes.test").await.answered(status, &nothing), None);
        }
    }
    assert!(!known(&pace, "sometimes.test").unreachable);
    for _ in 0..5 {
        pace.admit("always.test").await.answered(500, &nothing);
    }
    assert!(known(&pace, "always.test").unreachable);
    assert_eq!(pace.try_admit("always.test").expect_err("it is left alone").reason, WaitReason::Unreachable);
    let began = Instant::now();
    for _ in 0..20 {
        pace.admit("always.test").await.troubled();
    }
    assert!(began.elapsed() > secs(2.0 * 60.0 * 60.0), "twenty more requests took {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_sequence_of_answers_breaks_the_budgets() {
    let seed = 0x5eed_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut draw = move |n: u64| {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    };
    let pace = Pace::new(options(8.0, 2, 50.0));
    let numbers = ["0", "1", "0.001", "60", "99999999999", "1772366400000", "x"];
    let mut held: Vec<Permit> = Vec::new();
    for _ in 0..20_000 {
        if let Ok(permit) = pace.try_admit(&format!("pds{}.test", draw(5))) {
            held.push(permit);
        }
        if !held.is_empty() && draw(2) == 0 {
            let permit = held.swap_remove(draw(held.len() as u64) as usize);
            let mut said = headers(&[("ratelimit-policy", ["1;w=1", "5;w=0.001", "1;w=99999999999", "x"][draw(4) as usize])]);
            for name in ["retry-after", "ratelimit-reset", "ratelimit-remaining"] {
                if draw(2) == 0 {
                    said.extend(headers(&[(name, numbers[draw(7) as usize])]));
                }
            }
            match draw(6) {
                0 => permit.unreachable(),
                1 => permit.troubled(),
                2 => drop(permit.answered(429, &said)),
                _ => drop(permit.answered([200, 200, 200, 404, 500, 503][draw(6) as usize], &said)),
            }
        }
        tokio::time::advance(secs(draw(4000) as f64 / 10.0)).await;
        for host in pace.hosts() {
            assert!(host.in_flight <= 2 && host.rate <= rate(8.0), "{host:?}");
            assert!(host.pause.is_none_or(|(_, length)| length <= secs(3600.0)), "{host:?}");
        }
    }
    drop(held);
    assert!(pace.refused() > 100, "refusals happened: {}", pace.refused());
    assert!(pace.hosts().iter().all(|host| host.in_flight == 0));
}
