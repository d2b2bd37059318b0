//! `loadlab report`: a record → a document, at any later time.

use loadlab_analysis::{DiagnosedRun, Exit};
use loadlab_record::store::files;
use loadlab_report::Layout;

use crate::args::{Format, ReportArgs};
use crate::exit::CommandEnd;
use crate::output::{self, Form};
use crate::runs::{self, found};

/// Runs the command.
pub fn command(args: &ReportArgs) -> CommandEnd {
    let run = match found(&args.run, &args.dir).and_then(|dir| runs::read(&dir).map_err(|e| e.to_string())) {
        Ok(run) => run,
        Err(error) => return CommandEnd::error(Exit::BadPlan, error),
    };
    let to_file = args.out.is_some();
    let text = render(&run, args.format, to_file);
    match super::deliver(args.out.as_deref(), form_of(args.format), &text) {
        Ok(()) => CommandEnd::with(Exit::Ok),
        Err(ended) => ended,
    }
}

fn form_of(format: Format) -> Form {
    match format {
        Format::Text | Format::Md | Format::Siege | Format::Wrk => Form::Text,
        Format::Json => Form::Json,
        Format::Html | Format::Csv => Form::Data,
    }
}

/// The run in one of the formats.
pub fn render(run: &DiagnosedRun, format: Format, to_file: bool) -> String {
    match format {
        Format::Text => {
            let (width, colour) = shape(to_file);
            loadlab_report::text(&loadlab_report::compose(run), width, colour)
        }
        Format::Md => loadlab_report::markdown(&loadlab_report::compose(run)),
        Format::Html => loadlab_report::html(&loadlab_report::compose(run)),
        Format::Json => loadlab_report::json(run),
        Format::Csv => loadlab_report::csv(run),
        Format::Siege => in_layout(run, Layout::Siege, to_file),
        Format::Wrk => in_layout(run, Layout::Wrk, to_file),
    }
}

/// Width and colour of a text.
fn shape(to_file: bool) -> (usize, bool) {
    match to_file {
        true => (100, false),
        false => (output::out_width(), output::out_has_colour()),
    }
}

fn in_layout(run: &DiagnosedRun, layout: Layout, to_file: bool) -> String {
    let (width, colour) = shape(to_file);
    loadlab_report::render::text::table(&loadlab_report::layout(run, layout), width, colour)
}

/// Writes `report.md` and `report.html` into a run's folder.
///
/// # Errors
/// In words, what could not be written.
pub fn write_reports(run: &DiagnosedRun) -> Result<(), String> {
    let document = loadlab_report::compose(run);
    for (name, text) in
        [("report.md", loadlab_report::markdown(&document)), ("report.html", loadlab_report::html(&document))]
    {
        let path = run.dir.join(name);
        files::replace(&path, text.as_bytes()).map_err(|e| {
            let again = run.dir.display();
            format!("cannot write {}: {e}\nhint: `loadlab report {again} -o FILE` writes it elsewhere at any time", path.display())
        })?;
    }
    Ok(())
}

/// A run's HTML report: the written one, or made now if it could not be written; `None` without a record.
pub fn page_of(dir: &std::path::Path) -> Option<String> {
    let made = || runs::read(dir).ok().map(|run| loadlab_report::html(&loadlab_report::compose(&run)));
    std::fs::read_to_string(dir.join("report.html")).ok().or_else(made)
}

/// The summary at the end of a run, for standard output.
pub fn brief(run: &DiagnosedRun) -> String {
    let (width, colour) = (output::out_width(), output::out_has_colour());
    loadlab_report::text(&loadlab_report::brief(run), width, colour)
}
