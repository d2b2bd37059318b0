//! Conclusions from the measurements: the next bottleneck, and the answer in a sentence.

use std::collections::BTreeMap;

use loadlab_analysis::Exit;
use loadlab_plan::{Case, ComponentSpec};
use loadlab_record::documents::why::{LeverCall, LeverFacts, NextBottleneck, NotTried, WhyFacts};

use crate::why::lever::{Lever, Usage};

/// A CPU limit counts as saturated from this share of use.
const SATURATED_AT: f64 = 0.9;
/// If a limit saturates at up to this many times the goodput that was reached, it explains why goodput rose no further.
const NEAR: f64 = 1.1;

/// The next bottleneck among the components, and the goodput at which it saturates.
pub struct Headroom {
    /// Display name, for example `web CPU`.
    pub name: String,
    /// Goodput as a multiple of the current goodput.
    pub goodput: f64,
}

/// Which CPU limit the system reaches next as goodput grows, and at what goodput, judging by how much of each limit is
/// used. The first lever's own CPU limit is left out. `usage` looks up a component's CPU use.
pub fn headroom(base: &Case, usage: &dyn Fn(&str) -> Usage, first: Option<&LeverFacts>) -> Option<Headroom> {
    let own = first.filter(|first| first.kind == "cpu").and_then(|first| first.component.as_deref());
    let components = base.system.components.iter().filter(|c| Some(c.name.as_str()) != own);
    let of = |component: &ComponentSpec| {
        let limit = component.limits.cpu_cores?;
        let used = usage(&component.name).cores?;
        (used > 0.0).then(|| Headroom { name: format!("{} CPU", component.name), goodput: limit / used })
    };
    components.filter_map(of).min_by(|a, b| a.goodput.total_cmp(&b.goodput))
}

/// For each component with a CPU limit, the share of it that was used, highest first.
pub fn used(base: &Case, cores: &BTreeMap<String, f64>, lever: &Lever, factor: f64) -> Vec<(String, f64)> {
    let is_raised = |name: &str| lever.facts.kind == "cpu" && lever.facts.component.as_deref() == Some(name);
    let of = |component: &ComponentSpec| {
        let limit = component.limits.cpu_cores?;
        let limit = if is_raised(&component.name) { limit * factor } else { limit };
        Some((component.name.clone(), cores.get(&component.name)? / limit))
    };
    let mut used: Vec<(String, f64)> = base.system.components.iter().filter_map(of).collect();
    used.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    used
}

/// The next bottleneck once the first lever is raised: a CPU limit that is saturated then or, judging by its use as
/// planned, will be.
pub fn next_bottleneck(lever: &LeverFacts, expected: Option<Headroom>) -> Option<NextBottleneck> {
    let gains = lever.raised.iter().filter_map(|raised| raised.goodput.map(|goodput| goodput.value));
    let goodput = gains.max_by(f64::total_cmp)?;
    let last = lever.raised.iter().rev().find(|raised| raised.goodput.is_some())?;
    let own = lever.component.as_ref().filter(|_| lever.kind == "cpu");
    let full = |name: &String, share: f64| share >= SATURATED_AT && Some(name) != own;
    if let Some((name, share)) = last.used.iter().find(|(name, share)| full(name, *share)) {
        let text = format!(
            "with {} for {}, {name} used {:.0} % of its CPU limit",
            last.to,
            lever.name,
            share * 100.0
        );
        return Some(NextBottleneck { name: Some(format!("{name} CPU")), goodput, text });
    }
    let is_own_full = last.used.iter().any(|(name, share)| Some(name) == own && *share >= SATURATED_AT);
    let still = format!("with {} all of {} is still used", last.to, lever.name);
    match expected {
        Some(Headroom { name, goodput: at }) if is_own_full || at <= goodput * NEAR => {
            let text =
                format!("judging by its use as planned, {name} saturates at about {at:.2} × this goodput");
            let text = if is_own_full { format!("{still}; {text}") } else { text };
            Some(NextBottleneck { name: Some(name), goodput: at.max(goodput), text })
        }
        _ if is_own_full => Some(NextBottleneck { name: Some(lever.name.clone()), goodput, text: still }),
        _ => {
            let text =
                format!("with {} no CPU limit is reached: the next bottleneck is something else", last.to);
            Some(NextBottleneck { name: None, goodput, text })
        }
    }
}

/// Whether the first lever certainly costs more than the other.
pub fn is_apart(first: &LeverFacts, other: &LeverFacts) -> bool {
    first.goodput.zip(other.goodput).is_some_and(|(first, other)| first.high < other.low)
}

/// The answer if no lever could be tried, and its exit code: either nothing is saturated, or it is unknown whether
/// something is.
pub fn nothing_tried(not_tried: &[NotTried], have_room: bool) -> (String, Exit) {
    if have_room {
        return ("no limit that could be raised holds this load back".to_owned(), Exit::Ok);
    }
    let reasons: Vec<String> = not_tried.iter().map(|one| format!("{}: {}", one.name, one.why)).collect();
    let reasons = reasons.join("; ");
    let text = format!("what holds this load back is not known, since no lever could be tried ({reasons})");
    (text, Exit::Undecided)
}

/// The answer in a sentence.
pub fn found(facts: &WhyFacts) -> String {
    let lost_percent = |ratio: f64| (1.0 - ratio) * 100.0;
    let binding: Vec<&LeverFacts> = facts.levers.iter().filter(|l| l.call == LeverCall::Binds).collect();
    // Rounded to drop the digits that the multiplication adds.
    let margin = (facts.margin * 1e5).round() / 1e3;
    let Some((first, goodput)) = binding.first().and_then(|first| Some((*first, first.goodput?))) else {
        let open: Vec<&str> = facts
            .levers
            .iter()
            .filter(|l| l.call == LeverCall::CannotTell)
            .map(|l| l.name.as_str())
            .collect();
        let uncounted = facts.blocks.iter().filter(|block| block.goodput_per_s.is_none()).count();
        return match open.as_slice() {
            _ if facts.goodput_per_s.is_none_or(|goodput| goodput == 0.0)
                && uncounted < facts.blocks.len() =>
            {
                "nothing was answered, so there is no goodput that a change could cost".to_owned()
            }
            [_, ..] if 2 * uncounted > facts.blocks.len() => format!(
                "{uncounted} of {} blocks do not count: their changes took too long, or seconds are missing",
                facts.blocks.len()
            ),
            [] => format!(
                "no lever holds this load back: a step of each costs less than {margin} % of the goodput"
            ),
            open => format!(
                "too few rounds to tell whether {} holds it back: --budget gives more",
                open.join(" or ")
            ),
        };
    };
    let change = match first.factor {
        factor if factor > 1.0 => format!("{:.0} % more", (factor - 1.0) * 100.0),
        factor => format!("{:.0} % less", (1.0 - factor) * 100.0),
    };
    let half = (lost_percent(goodput.low) - lost_percent(goodput.high)) / 2.0;
    let mut text = format!(
        "{}: {change} costs {:.1} ± {half:.1} % of the goodput",
        first.name,
        lost_percent(goodput.value)
    );
    let mut others = facts.levers.iter().filter(|other| !std::ptr::eq(*other, first));
    if let Some(other) = others.find(|other| !is_apart(first, other)) {
        text.push_str(&match other.goodput {
            Some(_) => format!("; {} may cost as much: their intervals overlap", other.name),
            None => format!("; what {} costs could not be measured", other.name),
        });
    }
    if let Some((raised, gain)) = first.raised.first().and_then(|r| Some((r, r.goodput?))) {
        text.push_str(&format!("; {} brings {:+.1} %", raised.to, (gain.value - 1.0) * 100.0));
    }
    if let Some(next) = &facts.next {
        let name = next.name.as_deref().unwrap_or("something else");
        text.push_str(&format!(
            "; the next bottleneck is {name}, at about {:.2} × this goodput",
            next.goodput
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::why::{BlockFacts, Effect, RaisedFacts};

    use super::*;

    fn around(value: f64) -> Option<Effect> {
        Some(Effect { value, low: value - 0.01, high: value + 0.01 })
    }

    fn lever(name: &str, call: LeverCall, goodput: f64) -> LeverFacts {
        let component = name.split_once(' ').map(|(component, _)| component.to_owned());
        let kind = if component.is_some() { "cpu" } else { "lever" }.to_owned();
        LeverFacts {
            name: name.to_owned(),
            component,
            kind,
            factor: 0.9,
            goodput: around(goodput),
            call,
            ..LeverFacts::default()
        }
    }

    fn raised(to: &str, goodput: f64, used: &[(&str, f64)]) -> RaisedFacts {
        let used = used.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
        RaisedFacts { to: to.to_owned(), goodput: around(goodput), used, ..RaisedFacts::default() }
    }

    #[test]
    fn the_next_bottleneck_is_what_is_used_up_then_or_will_be() {
        let web = |goodput: f64| Some(Headroom { name: "web CPU".to_owned(), goodput });
        let check =
            |raises: Vec<RaisedFacts>, expected: Option<Headroom>, name: Option<&str>, goodput: f64| {
                let db = LeverFacts { raised: raises, ..lever("db CPU", LeverCall::Binds, 0.9) };
                let next = next_bottleneck(&db, expected).expect("something was raised");
                assert_eq!((next.name.as_deref(), next.goodput), (name, goodput), "{}", next.text);
            };
        // Another limit is saturated after the largest raise: the goodput reached is where it saturates.
        let both = || {
            vec![
                raised("55% CPU", 1.1, &[("db", 0.99)]),
                raised("2 cores", 1.4, &[("web", 0.97), ("db", 0.4)]),
            ]
        };
        check(both(), web(1.3), Some("web CPU"), 1.4);
        // The raised lever is still used up: what others used as planned predicts when they saturate.
        check(vec![raised("55% CPU", 1.1, &[("db", 0.99), ("web", 0.8)])], web(1.38), Some("web CPU"), 1.38);
        check(vec![raised("55% CPU", 1.1, &[("db", 0.99)])], None, Some("db CPU"), 1.1);
        // Nothing is saturated. A limit close to saturation explains it; one far away does not.
        let none = || vec![raised("2 cores", 1.2, &[("web", 0.85), ("db", 0.5)])];
        check(none(), web(1.25), Some("web CPU"), 1.25);
        check(none(), web(3.0), None, 1.2);
        assert!(next_bottleneck(&lever("db CPU", LeverCall::Binds, 0.9), web(1.3)).is_none());
    }

    #[test]
    fn without_a_lever_it_is_known_only_where_there_is_room() {
        let why = |name: &str, why: &str| NotTried { name: name.to_owned(), why: why.to_owned() };
        let all = [why("web CPU", "it used 20 % of its limit"), why("db", "loadlab only watches it")];
        let (text, exit) = nothing_tried(&all[..1], true);
        assert!(text.starts_with("no limit that could be raised") && exit == Exit::Ok, "{text}");
        let (text, exit) = nothing_tried(&all, false);
        assert_eq!(exit, Exit::Undecided);
        assert_eq!(
            text,
            "what holds this load back is not known, since no lever could be tried (web CPU: it used 20 % of its \
             limit; db: loadlab only watches it)"
        );
    }

    #[test]
    fn the_answer_in_a_sentence() {
        let facts = |levers: Vec<LeverFacts>| WhyFacts {
            margin: 0.05,
            levers,
            goodput_per_s: Some(100.0),
            ..WhyFacts::default()
        };
        let (db, web) = (lever("db CPU", LeverCall::Binds, 0.9), lever("web CPU", LeverCall::Free, 0.99));
        assert_eq!(
            found(&facts(vec![db.clone(), web.clone()])),
            "db CPU: 10 % less costs 10.0 ± 1.0 % of the goodput"
        );
        let longer = LeverFacts { factor: 1.1, ..lever("db delay", LeverCall::Binds, 0.92) };
        let more = LeverFacts { raised: vec![raised("36 ms", 1.08, &[])], ..longer };
        // The third lever's cost is not known precisely enough.
        let near = lever("mid CPU", LeverCall::CannotTell, 0.925);
        let said = found(&WhyFacts {
            next: Some(NextBottleneck { name: None, goodput: 1.5, text: String::new() }),
            ..facts(vec![more, web.clone(), near])
        });
        assert_eq!(
            said,
            "db delay: 10 % more costs 8.0 ± 1.0 % of the goodput; mid CPU may cost as much: their intervals overlap; \
             36 ms brings +8.0 %; the next bottleneck is something else, at about 1.50 × this goodput"
        );
        assert_eq!(
            found(&facts(vec![web.clone()])),
            "no lever holds this load back: a step of each costs less than 5 % of the goodput"
        );
        for (margin, expect) in
            [(0.005, "less than 0.5 % of"), (0.07, "less than 7 % of"), (0.125, "less than 12.5 % of")]
        {
            let text = found(&WhyFacts { margin, ..facts(vec![web.clone()]) });
            assert!(text.contains(expect), "{text}");
        }
        let open = lever("db CPU", LeverCall::CannotTell, 0.94);
        assert!(
            found(&facts(vec![open.clone(), web.clone()]))
                .starts_with("too few rounds to tell whether db CPU holds it back")
        );
        // If nothing was answered, or hardly any block counts, that is the reason: more time would not help.
        let levers = || vec![open.clone(), web.clone()];
        let dead = WhyFacts { goodput_per_s: Some(0.0), blocks: blocks(&[0.0; 3]), ..facts(levers()) };
        assert!(found(&dead).starts_with("nothing was answered"));
        let late = WhyFacts { blocks: blocks(&[1.0, f64::NAN, f64::NAN]), ..facts(levers()) };
        assert!(found(&late).starts_with("2 of 3 blocks do not count"));
    }

    /// Blocks with these goodputs; a NaN block does not count.
    fn blocks(goodputs: &[f64]) -> Vec<BlockFacts> {
        let of = |goodput: &f64| BlockFacts {
            goodput_per_s: Some(*goodput).filter(|goodput| !goodput.is_nan()),
            ..BlockFacts::default()
        };
        goodputs.iter().map(of).collect()
    }
}
