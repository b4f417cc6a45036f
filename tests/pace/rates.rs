//! How often, how many at once, and who waits for whom.
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use atproto_backfill::fetch::{Pace, PaceOptions, Rate, WaitReason};
use futures::future::join_all;
use tokio::time::{Duration, Instant};

use super::{headers, known, moments, options, secs, until_admitted};

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
    let pace = Pace::new(options(0.5, 2, 1.0));
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

#[test]
fn a_rate_is_above_zero_and_may_be_a_fraction() {
    for refused in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 1e9] {
        assert_eq!(Rate::per_second(refused), None, "{refused}");
    }
    assert_eq!("0.5".parse::<Rate>().expect("a fraction").requests(), 0.5);
    assert!("0".parse::<Rate>().is_err() && "fast".parse::<Rate>().is_err());
}
