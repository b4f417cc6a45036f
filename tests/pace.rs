//! The pace of hosts, under a clock that only moves when everybody waits.
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use atproto_backfill::fetch::{HostPace, Pace, PaceOptions, Permit, Rate, WaitReason};
use futures::future::join_all;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Duration, Instant};

fn rate(requests: f64) -> Rate {
    Rate::per_second(requests).expect("a rate of the test")
}

fn options(host: f64, in_flight: u32, global: f64) -> PaceOptions {
    let host_in_flight = NonZeroU32::new(in_flight).expect("above zero");
    PaceOptions { host_rate: rate(host), host_in_flight, global_rate: rate(global), ..PaceOptions::default() }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))).collect()
}

fn known(pace: &Pace, host: &str) -> HostPace {
    pace.hosts().into_iter().find(|known| &*known.host == host).unwrap_or_else(|| panic!("{host} is not remembered"))
}

fn secs(n: f64) -> Duration {
    Duration::from_secs_f64(n)
}

/// How long until the pace lets the next request through.
async fn until_admitted(pace: &Pace, host: &str) -> (Duration, Permit) {
    let asked = Instant::now();
    let permit = pace.admit(host).await;
    (asked.elapsed(), permit)
}

/// The moments at which `n` requests are let through that want to go all at once, each ending at once.
async fn moments(pace: &Pace, host: &str, n: usize) -> Vec<Instant> {
    let mut moments = join_all((0..n).map(|_| async {
        drop(pace.admit(host).await);
        Instant::now()
    }))
    .await;
    moments.sort_unstable();
    moments
}

#[tokio::test(start_paused = true)]
async fn a_host_is_never_asked_more_than_its_rate_in_any_window() {
    for requests in [0.5, 1.0, 3.0, 8.0, 33.3, 90.0] {
        let pace = Pace::new(options(requests, 1000, 1e6));
        let moments = moments(&pace, "pds.test", 60).await;
        // In a half-open window of k periods there are at most k requests: the (i + k)th comes no sooner than k periods after the ith.
        for i in 0..moments.len() {
            for k in 1..moments.len() - i {
                let least = secs(k as f64 / requests).saturating_sub(Duration::from_nanos(k as u64));
                assert!(
                    moments[i + k] - moments[i] >= least,
                    "{requests}/s: requests {i} to {} in {:?}",
                    i + k,
                    moments[i + k] - moments[i]
                );
            }
        }
        let took = (moments[59] - moments[0]).as_secs_f64();
        assert!(took < 59.0 / requests * 1.1, "{requests}/s is reached: took {took} s");
    }
}

#[tokio::test(start_paused = true)]
async fn fast_rates_are_reached_and_kept_over_a_second() {
    let pace = Pace::new(options(2000.0, 100, 1e6));
    let workers = (0..20).map(|_| async {
        let mut moments = Vec::new();
        for _ in 0..300 {
            drop(pace.admit("pds.test").await);
            moments.push(Instant::now());
        }
        moments
    });
    let mut moments = join_all(workers).await.concat();
    moments.sort_unstable();
    for (i, first) in moments.iter().enumerate() {
        let in_window = moments[i..].partition_point(|moment| *moment < *first + secs(1.0));
        assert!(in_window <= 2000 + 40, "{in_window} in a second");
    }
    assert!(moments[5999] - moments[0] < secs(3.3), "took {:?}", moments[5999] - moments[0]);
}

#[tokio::test(start_paused = true)]
async fn all_hosts_together_never_exceed_the_global_rate() {
    let pace = Pace::new(options(8.0, 1000, 50.0));
    let hosts: Vec<String> = (0..20).map(|n| format!("pds{n}.test")).collect();
    let mut all: Vec<Instant> = join_all(hosts.iter().map(|host| moments(&pace, host, 10))).await.concat();
    all.sort_unstable();
    for (i, first) in all.iter().enumerate() {
        let in_window = all[i..].partition_point(|moment| *moment < *first + secs(1.0));
        assert!(in_window <= 50, "{in_window} in a second");
    }
    assert!(all[199] - all[0] < secs(200.0 / 50.0 * 1.1), "the global rate is reached: {:?}", all[199] - all[0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_keeps_its_turn_when_the_global_rate_is_what_stops_it() {
    let pace = Pace::new(options(1.0, 2, 1.0));
    drop(pace.try_admit("a.test").expect("the first"));
    let wait = pace.try_admit("b.test").expect_err("the global rate is spent");
    assert_eq!((wait.reason, wait.until), (WaitReason::Global, Some(Instant::now() + secs(1.0))));
    tokio::time::advance(secs(1.0)).await;
    drop(pace.try_admit("b.test").expect("its own rate was not spent by the refused try"));
}

#[tokio::test(start_paused = true)]
async fn no_more_are_in_flight_than_allowed_and_a_dropped_permit_lets_the_next_through() {
    let pace = Pace::new(options(1000.0, 2, 1e6));
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    join_all((0..50).map(|n| {
        let (pace, now, most) = (&pace, now.clone(), most.clone());
        async move {
            let permit = pace.admit("pds.test").await;
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_millis(n * 7 % 40)).await;
            now.fetch_sub(1, SeqCst);
            drop(permit);
        }
    }))
    .await;
    assert_eq!(most.load(SeqCst), 2);
    assert_eq!(known(&pace, "pds.test").in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_takes_nothing() {
    let pace = Pace::new(options(1000.0, 1, 1e6));
    let held = pace.admit("pds.test").await;
    tokio::time::timeout(secs(1.0), pace.admit("pds.test")).await.expect_err("the place is taken");
    drop(held);
    let (waited, _permit) = until_admitted(&pace, "pds.test").await;
    assert_eq!(waited, Duration::ZERO);
}

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
async fn one_paused_host_starves_nobody() {
    let pace = Pace::new(options(8.0, 2, 20.0));
    pace.admit("paused.test").await.answered(429, &headers(&[("retry-after", "60")]));
    let began = Instant::now();
    let mut admitted = [0u32; 3];
    // A dispatcher that goes round: whoever may go goes.
    while began.elapsed() < secs(60.0) {
        for (n, host) in ["paused.test", "b.test", "c.test"].iter().enumerate() {
            match pace.try_admit(host) {
                Ok(_) => admitted[n] += 1,
                Err(wait) if n == 0 => assert_eq!(wait.until, Some(began + secs(60.0))),
                Err(wait) => assert!(matches!(wait.reason, WaitReason::Rate | WaitReason::Global), "{wait:?}"),
            }
        }
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    assert_eq!(admitted[0], 0, "it is left alone");
    assert!(admitted[1] >= 470 && admitted[2] >= 470, "the others go at their full rate: {admitted:?}");
    let (waited, _permit) = until_admitted(&pace, "paused.test").await;
    assert!(waited < secs(0.1), "the pause is over: {waited:?}");
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
async fn a_wait_beyond_the_deadline_is_given_up_at_once() {
    let pace = Pace::new(options(8.0, 1, 1e6));
    let held = pace.admit("busy.test").await;
    pace.admit("pds.test").await.answered(429, &headers(&[("retry-after", "60")]));
    let asked = Instant::now();
    let wait = pace.admit_before("pds.test", asked + secs(59.0)).await.expect_err("too late");
    assert_eq!((wait.reason, asked.elapsed()), (WaitReason::Refused, Duration::ZERO));
    let wait = pace.admit_before("busy.test", asked + secs(59.0)).await.expect_err("never freed");
    assert_eq!((wait.reason, asked.elapsed()), (WaitReason::InFlight, secs(59.0)));
    drop(held);
    pace.admit_before("pds.test", Instant::now() + secs(2.0)).await.expect("the pause ends in time");
}

#[tokio::test(start_paused = true)]
async fn the_number_of_remembered_hosts_is_bounded_and_what_was_learnt_stays() {
    let bound = NonZeroUsize::new(50).expect("above zero");
    let pace = Pace::new(PaceOptions { remembered_hosts: bound, ..options(8.0, 2, 1e6) });
    let held = pace.admit("held.test").await;
    pace.admit("refused.test").await.answered(429, &headers(&[("retry-after", "3000")]));
    for n in 0..1000 {
        let permit = pace.admit(&format!("pds{n}.test")).await;
        if n % 3 == 0 {
            permit.unreachable();
        }
        drop(permit);
        assert!(pace.hosts().len() <= 50);
    }
    assert_eq!(known(&pace, "held.test").in_flight, 1);
    assert!(pace.try_admit("refused.test").is_err(), "its pause is not forgotten");
    drop(held);
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

#[test]
fn a_rate_is_above_zero_and_may_be_a_fraction() {
    for refused in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e9] {
        assert_eq!(Rate::per_second(refused), None, "{refused}");
    }
    assert_eq!("0.5".parse::<Rate>().expect("a fraction").requests(), 0.5);
    assert!("0".parse::<Rate>().is_err() && "fast".parse::<Rate>().is_err());
}
