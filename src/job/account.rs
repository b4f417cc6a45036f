use std::fmt;
use std::str::FromStr;

use super::{UnavailableStatus, UnknownName};

/// What is known of an account: what the consumer is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Account {
    /// Its records may be shown.
    Active,
    /// It is not to be had. Its records are to be hidden and kept, but once it is [`UnavailableStatus::Deleted`] they are to be dropped:
    /// should it come back, every record that it then has is brought anew.
    Unavailable(UnavailableStatus),
}

impl Account {
    /// The account as an `#account` event tells it (atproto.com/specs/account): only `active` decides whether records may be shown. `desynchronized` and
    /// `throttled` tell of the upstream and not of the account; an inactive account without a known status is deactivated.
    pub fn from_event(active: bool, status: Option<&str>) -> Self {
        match status {
            _ if active => Self::Active,
            Some("deleted") => Self::Unavailable(UnavailableStatus::Deleted),
            Some("takendown") => Self::Unavailable(UnavailableStatus::Takendown),
            Some("suspended") => Self::Unavailable(UnavailableStatus::Suspended),
            Some(_) | None => Self::Unavailable(UnavailableStatus::Deactivated),
        }
    }

    /// `active`, or the name of the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Unavailable(status) => status.as_str(),
        }
    }

    /// Whether its records may be shown.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Account {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "active" => Ok(Self::Active),
            status => status.parse().map(Self::Unavailable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_active_decides_whether_an_account_is_to_be_had() {
        use UnavailableStatus::{Deactivated, Deleted, Suspended, Takendown};
        for status in [None, Some("desynchronized"), Some("throttled"), Some("deleted"), Some("whatever")] {
            assert_eq!(Account::from_event(true, status), Account::Active, "{status:?}");
        }
        for (word, status) in [
            (None, Deactivated),
            (Some("whatever"), Deactivated),
            (Some("deactivated"), Deactivated),
            (Some("deleted"), Deleted),
            (Some("takendown"), Takendown),
            (Some("suspended"), Suspended),
        ] {
            assert_eq!(Account::from_event(false, word), Account::Unavailable(status), "{word:?}");
        }
    }

    #[test]
    fn an_account_reads_back_as_it_was_written() {
        let all = UnavailableStatus::ALL.iter().map(|&status| Account::Unavailable(status)).chain([Account::Active]);
        for account in all {
            assert_eq!(account.as_str().parse(), Ok(account));
            assert_eq!(account.to_string(), account.as_str());
            assert_eq!(account.is_active(), account == Account::Active);
        }
        assert!("Active".parse::<Account>().is_err());
    }
}
