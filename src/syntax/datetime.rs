use super::SyntaxError;

/// A moment as the protocol writes it: what RFC 3339 and ISO 8601 both allow, with seconds and a time zone, from year 0 on.
/// Rule: atproto.com/specs/lexicon, "datetime".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Datetime(i64);

impl Datetime {
    /// The longest text, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Parses a moment. Digits beyond milliseconds are cut off, a leap second counts as the second after it.
    ///
    /// # Errors
    /// When the text breaks the syntax, or names a day or a time that there is not.
    pub fn new(text: &str) -> Result<Self, SyntaxError> {
        parse(text.as_bytes()).map(Self).ok_or_else(|| SyntaxError::new("datetime", "must be as 1985-04-12T23:20:50.123Z", text))
    }

    /// Milliseconds since the Unix epoch.
    pub fn millis(self) -> i64 {
        self.0
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    if text.len() > Datetime::MAX_LEN {
        return None;
    }
    let (&[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', ref clock @ .., b':', s1, s2], rest) = text.split_first_chunk::<19>()? else {
        return None;
    };
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    let (minutes, second) = (hours_and_minutes(clock, 23)?, number(&[s1, s2])?);
    let (millis, zone) = fraction(rest)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=days).contains(&day) || second > 60 {
        return None;
    }
    let seconds = (days_since_epoch(year, month, day) * 1440 + minutes - offset(zone)?) * 60 + second;
    // Before year 0 after all, by its time zone.
    (seconds >= days_since_epoch(0, 1, 1) * 86_400).then_some(seconds * 1000 + millis)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

/// `hh:mm` in minutes.
fn hours_and_minutes(text: &[u8], last_hour: i64) -> Option<i64> {
    let &[h1, h2, b':', m1, m2] = text else { return None };
    let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
    (hours <= last_hour && minutes <= 59).then_some(hours * 60 + minutes)
}

/// Milliseconds of the fraction of a second, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let len = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at(len);
    let thousands = number(digits.get(..len.min(3))?)?;
    (len > 0).then_some((thousands * [1, 100, 10, 1][len.min(3)], rest))
}

/// Minutes ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" => Some(0),
        // "Unknown" by RFC 3339, nothing by ISO 8601.
        b"-00:00" => None,
        [b'+', ahead @ ..] => hours_and_minutes(ahead, 23),
        [b'-', behind @ ..] => hours_and_minutes(behind, 23).map(|minutes| -minutes),
        _ => None,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar. Years begin in March here, so that the leap day is a year's last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
