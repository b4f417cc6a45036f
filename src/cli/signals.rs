//! The requests to end that the program heeds: an interrupt, a request to terminate, a terminal that hangs up.

/// The signals that are heeded, from when this is made.
#[cfg(unix)]
pub(super) struct Signals(Vec<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Signals {
    /// Those that the program was started to ignore (by `nohup`, or in a script's background) stay ignored. One that cannot be heeded ends the
    /// process as it always does.
    pub(super) fn heed() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored(&status));
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].into_iter();
        let heeded = kinds.filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0);
        Self(heeded.filter_map(|kind| signal(kind).ok()).collect())
    }

    /// Waits for one of them.
    pub(super) async fn received(&mut self) {
        std::future::poll_fn(|context| {
            let received = self.0.iter_mut().any(|signal| matches!(signal.poll_recv(context), std::task::Poll::Ready(Some(()))));
            if received { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// The signals that Linux says a process ignores, as bits from signal 1 on.
#[cfg(unix)]
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The interrupt of the terminal.
#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn heed() -> Self {
        Self
    }

    pub(super) async fn received(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tbackfill\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert_eq!(super::ignored(status), 0x1001);
        assert_eq!(super::ignored("nothing of the kind"), 0);
    }
}
