//! Seconds, days since 1970 and their dates (UTC, proleptic Gregorian calendar). Nothing here reads a clock.

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Since the year 0.
    pub year: u64,
    /// From 1.
    pub month: u64,
    /// From 1.
    pub day: u64,
}

// Years are counted from March, so that the leap day is the last of its year: 400 of them have 146,097 days, and months
// of 30.6 days on average fall into place by one division (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").

/// Days from 0000-03-01 to 1970-01-01.
const BEFORE_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

impl Date {
    /// The date of a day since 1970-01-01.
    pub fn of_day(days: u64) -> Date {
        let shifted = days + BEFORE_1970;
        let (era, of_era) = (shifted / DAYS_OF_400_YEARS, shifted % DAYS_OF_400_YEARS);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Date { year: era * 400 + year_of_era + u64::from(month <= 2), month, day }
    }

    /// Days from 1970-01-01 to this date; `None` if it is earlier. A day past the end of its month counts into the next
    /// month.
    pub fn days(self) -> Option<u64> {
        let year = if self.month <= 2 { self.year.checked_sub(1)? } else { self.year };
        let from_march = if self.month > 2 { self.month - 3 } else { self.month + 9 };
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * from_march + 2) / 5 + self.day - 1;
        (era * DAYS_OF_400_YEARS + of_era * 365 + of_era / 4 - of_era / 100 + of_year)
            .checked_sub(BEFORE_1970)
    }
}

/// A time in seconds since 1970 in RFC 3339 form: `2026-11-20T09:30:00Z`.
pub fn rfc3339(unix_s: u64) -> String {
    let (Date { year, month, day }, second) = (Date::of_day(unix_s / 86_400), unix_s % 86_400);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates_and_dates_their_days() {
        for (days, (year, month, day)) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_777, (2026, 11, 20)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            let date = Date { year, month, day };
            assert_eq!((Date::of_day(days), date.days()), (date, Some(days)));
        }
        assert_eq!(Date { year: 1969, month: 12, day: 31 }.days(), None);
        assert_eq!(Date { year: 0, month: 1, day: 1 }.days(), None);
    }

    #[test]
    fn every_day_of_eight_hundred_years_comes_back_and_follows_the_one_before() {
        let mut before = Date { year: 1969, month: 12, day: 31 };
        for days in 0..2 * DAYS_OF_400_YEARS {
            let date = Date::of_day(days);
            assert_eq!(date.days(), Some(days));
            let next_day = Date { day: before.day + 1, ..before };
            let next_month = Date { month: before.month + 1, day: 1, ..before };
            let next_year = Date { year: before.year + 1, month: 1, day: 1 };
            assert!(date == next_day || date == next_month || date == next_year, "{before:?}, {date:?}");
            before = date;
        }
    }

    #[test]
    fn times_are_written() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_132_800), "2026-11-20T00:00:00Z");
    }
}
