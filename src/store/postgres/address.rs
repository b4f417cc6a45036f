//! Where a database is: a URL that is given to libpq, and of which nothing secret is ever shown.

use std::fmt;

/// A `postgres://` URL. Shown as its host and database only.
#[derive(Clone)]
pub(super) struct Address {
    url: String,
    shown: String,
    secrets: Vec<String>,
}

impl Address {
    /// Reads a URL as libpq does; says what is wrong without repeating it.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        let rest = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or("not a postgres:// URL")?;
        // A user is there when an @ comes before any slash.
        let (user, rest) = match rest.find(['@', '/']) {
            Some(at) if rest[at..].starts_with('@') => (&rest[..at], &rest[at + 1..]),
            _ => ("", rest),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if place.contains('@') {
            return Err("user and password in a URL have to be percent-encoded");
        }
        let parameters: Vec<(&str, &str)> = query.split('&').filter_map(|parameter| parameter.split_once('=')).collect();
        let parameter = |wanted: &str| parameters.iter().find(|(name, _)| *name == wanted).map(|&(_, value)| value);
        let (host, database) = place.split_once('/').unwrap_or((place, ""));
        let host = if host.is_empty() { parameter("host").unwrap_or_default() } else { host };
        let database = if database.is_empty() { parameter("dbname").unwrap_or_default() } else { database };
        let secrets = user.split_once(':').map(|(_, password)| password).into_iter();
        let secrets = secrets.chain(["password", "sslpassword"].into_iter().filter_map(parameter));
        Ok(Self {
            url: url.to_owned(),
            shown: format!("postgres://{host}/{database}"),
            secrets: secrets.filter(|secret| !secret.is_empty()).map(str::to_owned).collect(),
        })
    }

    /// The URL with parameters that it does not have itself.
    pub(super) fn with_defaults(&self, defaults: &[(&str, String)]) -> String {
        let mut url = self.url.clone();
        for (name, value) in defaults {
            let query = self.url.split_once('?').map_or("", |(_, query)| query);
            if !query.split('&').any(|parameter| parameter.split_once('=').is_some_and(|(there, _)| there == *name)) {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(&format!("{name}={value}"));
            }
        }
        url
    }

    /// What libpq says, without the secrets that it repeats when it cannot read them.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn only_the_place_of_a_database_is_shown() {
        for (url, shown) in [
            ("postgres://me:pass@db.test:5433/store?sslmode=require", "postgres://db.test:5433/store"),
            ("postgresql://db.test/store", "postgres://db.test/store"),
            ("postgres://me:a?b@db.test/store", "postgres://db.test/store"),
            ("postgres:///store?host=%2Frun%2Fpg&password=pass", "postgres://%2Frun%2Fpg/store"),
            ("postgres://me@/?host=/run/pg&dbname=store", "postgres:///run/pg/store"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_being_repeated() {
        for url in [
            "store.db",
            "host=/run password=pass",
            "mysql://me:pass@db.test/store",
            "postgres://me:pa/ss@db.test/store",
            "postgres://me:p@ss@db.test/s",
        ] {
            assert!(!Address::parse(url).unwrap_err().contains("ss@"), "{url}");
        }
    }

    #[test]
    fn secrets_are_taken_out_of_what_libpq_says() {
        let address = Address::parse("postgres://me:50%off@db.test/store?sslpassword=key").unwrap();
        assert_eq!(address.without_secrets("invalid token: \"50%off\", key"), "invalid token: \"***\", ***");
    }

    #[test]
    fn what_a_url_says_itself_stays() {
        let defaults = [("connect_timeout", "10".to_owned()), ("keepalives_idle", "30".to_owned())];
        let with = |url| Address::parse(url).unwrap().with_defaults(&defaults);
        assert_eq!(with("postgres://db.test/store"), "postgres://db.test/store?connect_timeout=10&keepalives_idle=30");
        assert_eq!(
            with("postgres://db.test/store?keepalives_idle=5&sslmode=require"),
            "postgres://db.test/store?keepalives_idle=5&sslmode=require&connect_timeout=10"
        );
    }
}
