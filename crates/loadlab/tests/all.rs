//! The integration tests of this crate in one program: it links once, and its tests run in parallel.
//!
//! Tests begin in the order of their names. Those of the last modules are short: a long one would run alone at the end.

#![allow(clippy::too_many_lines, reason = "a table or a story is easier to read in one piece")]

mod common;
mod run_support;

mod ab;
mod bench_accounts;
mod bench_ends;
mod bench_http2;
mod bench_options;
mod bench_otlp;
mod bench_output;
mod bench_routes;
mod bench_saved;
mod check_preflight;
mod compare;
mod find;
mod first_steps;
mod foreign_text;
mod levers;
mod names;
mod run_compose;
mod run_containers;
mod run_conversations;
mod run_exports;
mod run_external;
mod run_faults;
mod run_isolated;
mod run_journey_requests;
mod run_journey_shop;
mod run_killed;
mod run_killed_in_phases;
mod run_launch;
mod run_links;
mod run_loss;
mod run_models;
mod run_needs;
mod run_options;
mod run_out;
mod run_profile;
mod run_program;
mod run_recipes;
mod run_record;
mod run_resume;
mod run_routes;
mod run_scalability;
mod run_secrets;
mod run_steps;
mod run_story;
mod run_swarm;
mod run_swarm_outages;
mod run_swarm_safety;
mod run_ui;
mod run_until_certain;
mod run_user;
mod run_warm_up;
mod run_watch;
mod secrets_given;
mod timed;
mod url_forms;
