//! Lists of cores, as the kernel and users write them: `0-1,3`.

/// The number of cores that a set of the C library holds, and with it a process's list.
pub const MAX_IN_SET: usize = 1024;
/// The largest number of cores that Linux supports.
pub const MAX_OF_KERNEL: usize = 8192;

/// The cores of a list, in its order; `None` if it is not one, or if a number is not below `max`.
pub fn parse_cores(list: &str, max: usize) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (from <= to && to < max).then_some(from..=to)
    };
    let ranges: Vec<_> = list.split(',').map(range).collect::<Option<_>>()?;
    Some(ranges.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        for (list, expect) in [
            ("0", Some(vec![0])),
            ("0-3,5, 7-8\n", Some(vec![0, 1, 2, 3, 5, 7, 8])),
            ("3,1", Some(vec![3, 1])),
            ("1023", Some(vec![1023])),
            ("", None),
            ("1024", None),
            ("3-1", None),
            ("1,x", None),
            ("1-", None),
        ] {
            assert_eq!(parse_cores(list, MAX_IN_SET), expect, "{list}");
        }
    }
}
