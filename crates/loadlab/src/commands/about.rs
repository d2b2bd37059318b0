//! loadlab's information about itself: schema, completions, manual, licences.

use loadlab_analysis::Exit;
use loadlab_report::assets::Asset;

use crate::args;
use crate::exit::CommandEnd;
use crate::output::{Form, print_as};

/// `loadlab schema`.
pub fn schema() -> CommandEnd {
    print_as(Form::Json, &format!("{:#}\n", loadlab_plan::schema()));
    CommandEnd::with(Exit::Ok)
}

/// `loadlab completions SHELL`.
pub fn completions(shell: clap_complete::Shell) -> CommandEnd {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::whole(), "loadlab", &mut script);
    print_as(Form::Data, &String::from_utf8_lossy(&script));
    CommandEnd::with(Exit::Ok)
}

/// `loadlab licenses`.
pub fn licenses() -> CommandEnd {
    static NOTICES: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/notices.zlib")));
    print_as(Form::Data, &NOTICES);
    CommandEnd::with(Exit::Ok)
}

/// `loadlab man`.
pub fn man() -> CommandEnd {
    let command = args::whole();
    let mut page = Vec::new();
    let mut render = |command: clap::Command| clap_mangen::Man::new(command).render(&mut page);
    let mut rendered = render(command.clone());
    // One stream with a page for loadlab and one for each of its commands.
    for sub in command.get_subcommands() {
        let name = format!("loadlab-{}", sub.get_name());
        rendered = rendered.and_then(|()| render(sub.clone().display_name(name.clone()).name(name)));
    }
    match rendered {
        Ok(()) => print_as(Form::Data, &String::from_utf8_lossy(&page)),
        Err(error) => return CommandEnd::error(Exit::BadPlan, format!("cannot make the manual: {error}")),
    }
    CommandEnd::with(Exit::Ok)
}
