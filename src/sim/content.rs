//! What the records say. Kinds, sizes and shares follow the real network: likes most, then posts, follows, reposts; 100 to 500 bytes each.
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::names;
use crate::repo::Link;
use crate::repo::emit::{self, FALSE, Major, NULL, TRUE};
use crate::syntax::Rev;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Like,
    Post,
    Follow,
    Repost,
    /// Of no app: unusual record keys, every type of the data model, and texts that repeat, so that two paths hold one CID.
    Note,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Like, Kind::Post, Kind::Follow, Kind::Repost, Kind::Note];

    /// The collection whose records are of this kind.
    const fn collection(self) -> &'static str {
        match self {
            Kind::Like => "app.bsky.feed.like",
            Kind::Post => "app.bsky.feed.post",
            Kind::Follow => "app.bsky.graph.follow",
            Kind::Repost => "app.bsky.feed.repost",
            Kind::Note => "com.example.sim.note",
        }
    }

    /// The kind of a collection; any other collection holds notes.
    pub(super) fn of(collection: &str) -> Kind {
        Kind::ALL.into_iter().find(|kind| kind.collection() == collection).unwrap_or(Kind::Note)
    }

    fn draw(rng: &mut ChaCha8Rng) -> Kind {
        match rng.random_range(0..1000) {
            0..460 => Kind::Like,
            460..700 => Kind::Post,
            700..880 => Kind::Follow,
            880..985 => Kind::Repost,
            _ => Kind::Note,
        }
    }
}

/// The kind and the collection of the next record, of these collections or else of those of a microblog.
pub(super) fn draw<'c>(collections: &'c [String], rng: &mut ChaCha8Rng) -> (Kind, &'c str) {
    if collections.is_empty() {
        let kind = Kind::draw(rng);
        return (kind, kind.collection());
    }
    let collection = &collections[rng.random_range(0..collections.len())];
    (Kind::of(collection), collection)
}

const WORDS: [&str; 24] = [
    "the", "quiet", "river", "turns", "below", "an", "old", "bridge", "where", "grüne", "Blätter", "fall", "and", "nobody", "counts",
    "them", "雨が", "降る", "tonight", "we", "measure", "every", "byte", "🌧️",
];

/// Appends the DAG-CBOR of one record of `kind`, made at `micros` since the Unix epoch.
pub(super) fn write(out: &mut Vec<u8>, kind: Kind, collection: &str, micros: u64, rng: &mut ChaCha8Rng) {
    match kind {
        Kind::Like | Kind::Repost => {
            emit::head(out, Major::Map, 3);
            member(out, "$type", collection);
            emit::text(out, "subject");
            emit::head(out, Major::Map, 2);
            member(out, "cid", &Link::from_digest(rng.random()).to_string());
            let post = Rev::from_parts(micros - rng.random_range(0..1_000_000_000), rng.random_range(0..1024));
            member(out, "uri", &format!("at://{}/app.bsky.feed.post/{post}", names::any_plc(rng)));
            member(out, "createdAt", &time(micros));
        }
        Kind::Follow => {
            emit::head(out, Major::Map, 3);
            member(out, "$type", collection);
            member(out, "subject", &names::any_plc(rng));
            member(out, "createdAt", &time(micros));
        }
        Kind::Post => post(out, collection, micros, rng),
        Kind::Note => note(out, collection, rng),
    }
}

fn post(out: &mut Vec<u8>, collection: &str, micros: u64, rng: &mut ChaCha8Rng) {
    let mut text = String::new();
    for _ in 0..rng.random_range(2..50) {
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
        text.push(' ');
    }
    emit::head(out, Major::Map, 4);
    member(out, "text", text.trim_end());
    member(out, "$type", collection);
    emit::text(out, "langs");
    emit::head(out, Major::Array, 1);
    emit::text(out, "en");
    member(out, "createdAt", &time(micros));
}

fn note(out: &mut Vec<u8>, collection: &str, rng: &mut ChaCha8Rng) {
    if rng.random_range(0..4) == 0 {
        emit::head(out, Major::Map, 2);
        member(out, "text", WORDS[rng.random_range(0..WORDS.len())]);
        member(out, "$type", collection);
        return;
    }
    emit::head(out, Major::Map, 7);
    emit::text(out, "n");
    int(out, rng.random::<i64>() >> rng.random_range(0..64));
    emit::text(out, "raw");
    let raw: [u8; 24] = rng.random();
    emit::bytes(out, &raw[..rng.random_range(0..=raw.len())]);
    emit::text(out, "link");
    emit::link(out, &Link::from_digest(rng.random()));
    emit::text(out, "nest");
    emit::head(out, Major::Array, 3);
    out.push(NULL);
    out.push(if rng.random() { TRUE } else { FALSE });
    emit::head(out, Major::Map, 1);
    member(out, "deep", WORDS[rng.random_range(0..WORDS.len())]);
    emit::text(out, "none");
    emit::head(out, Major::Array, 0);
    member(out, "text", WORDS[rng.random_range(0..WORDS.len())]);
    member(out, "$type", collection);
}

/// A text member of a map.
fn member(out: &mut Vec<u8>, key: &str, value: &str) {
    emit::text(out, key);
    emit::text(out, value);
}

fn int(out: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => emit::head(out, Major::Unsigned, value),
        Err(_) => emit::head(out, Major::Negative, value.unsigned_abs() - 1),
    }
}

/// A moment as records write it: `2025-01-02T03:04:05.678Z`.
pub(super) fn time(micros: u64) -> String {
    let (days, rest) = (micros / 86_400_000_000, micros % 86_400_000_000 / 1000);
    // Days since 0000-03-01, in eras of 400 years: the leap day is the last of its year there.
    let since_march = days + 719_468;
    let (era, day_of_era) = (since_march / 146_097, since_march % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_those_of_the_calendar() {
        for (micros, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999_000, "2024-02-29T23:59:59.999Z"),
            (1_735_786_245_678_901, "2025-01-02T02:50:45.678Z"),
        ] {
            assert_eq!(super::time(micros), expected);
        }
    }
}
