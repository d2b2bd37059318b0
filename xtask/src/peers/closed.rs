//! The closed rows: nginx, and every tool in turn. After each round the order moves on by one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::cases::Case;
use super::measure::measure;
use super::order::Order;
use super::server::Server;
use super::table::Run;
use super::tools::Tool;
use super::{Bench, Figures, network};

/// Runs some rows.
///
/// # Errors
/// nginx does not come up. A tool's failure is in its run.
pub fn compare(bench: &Bench, cases: &[&Case], tools: &[&'static Tool]) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for case in cases {
        let asked: Vec<_> = tools.iter().copied().filter(|t| case.asks(t.name)).collect();
        let mut server = Server::start(&bench.cores, &bench.scratch)?;
        for round in 0..bench.rounds {
            for turn in 0..asked.len() {
                let tool = asked[(turn + round as usize) % asked.len()];
                if case.ask.closes() && bench.own_network {
                    drop(server);
                    network::fresh()?.map_err(anyhow::Error::msg)?;
                    server = Server::start(&bench.cores, &bench.scratch)?;
                }
                let before = network::resets();
                let figures = one(tool, case, bench, (bench.seconds, &server));
                let words = match &figures {
                    Ok(figures) => figures.line(tool.name),
                    Err(error) => format!("{}: {error:#}", tool.name),
                };
                let reset = reset_share(case, before, figures.as_ref().ok());
                println!("{}, round {}: {words}{reset}", case.title, round + 1);
                runs.push(Run { tool: tool.name, case: case.name, round, figures });
            }
        }
    }
    Ok(runs)
}

/// Where connections are closed each time, how many were reset instead; this program's own are in it as well, so
/// it is told from one in a thousand on.
fn reset_share(case: &Case, before: Option<u64>, figures: Option<&Figures>) -> String {
    let (true, Some(before), Some(after), Some(figures)) =
        (case.ask.closes(), before, network::resets(), figures)
    else {
        return String::new();
    };
    let share = (after - before) as f64 / figures.reported.requests;
    if share < 0.001 { String::new() } else { format!(", {:.1} % of connections were reset", share * 100.0) }
}

/// One run of one tool.
///
/// # Errors
/// It fails, cannot be understood, or its count is not nginx's.
pub fn one(tool: &Tool, case: &Case, bench: &Bench, (seconds, server): (u64, &Server)) -> Result<Figures> {
    let body = server.body();
    let order = Order {
        case,
        seconds,
        url: server.url(case),
        server: server.address().to_string(),
        body: &body,
        core: bench.cores.generator,
        scratch: &bench.scratch,
    };
    let before = server.requests()?;
    let longest = Duration::from_secs(seconds + 60);
    let ran = measure((tool.command)(&order)?, &bench.cores, &bench.scratch, longest)?;
    let after = server.requests()?;
    ensure!(ran.status.success(), "{}: {}\n{}{}", tool.name, ran.status, ran.stdout, ran.stderr);
    let reported = (tool.parse)(&order, &ran.stdout)
        .with_context(|| format!("{}'s output cannot be read:\n{}", tool.name, ran.stdout))?;
    ensure!(reported.requests > 0.0, "{}: not one request was answered", tool.name);
    // The server's own count says whether a tool counts what it did.
    let served = (after - before) as f64;
    let slack = served * 0.02 + 2.0 * case.connections as f64;
    let differ = (served - reported.requests).abs();
    ensure!(
        differ <= slack,
        "{} tells of {} requests, nginx answered {served}",
        tool.name,
        reported.requests
    );
    Ok(Figures { reported, used: ran.used })
}
