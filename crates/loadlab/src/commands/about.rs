//! loadlab's information about itself: schema, completions, manual, licences.

use std::io::Read;

use flate2::read::ZlibDecoder;
use loadlab_analysis::Exit;

use crate::args;
use crate::exit::Ended;
use crate::output::{Form, print_as};

/// `loadlab schema`.
pub fn schema() -> Ended {
    print_as(Form::Json, &format!("{:#}\n", loadlab_plan::schema()));
    Ended::with(Exit::Ok)
}

/// `loadlab completions SHELL`.
pub fn completions(shell: clap_complete::Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::whole(), "loadlab", &mut script);
    print_as(Form::Data, &String::from_utf8_lossy(&script));
    Ended::with(Exit::Ok)
}

/// `loadlab licenses`.
pub fn licenses() -> Ended {
    const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/notices.zlib"));
    let mut text = String::new();
    ZlibDecoder::new(PACKED).read_to_string(&mut text).expect("the build packed it");
    print_as(Form::Data, &text);
    Ended::with(Exit::Ok)
}

/// `loadlab man`.
pub fn man() -> Ended {
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
        Err(error) => return Ended::error(Exit::BadPlan, format!("cannot make the manual: {error}")),
    }
    Ended::with(Exit::Ok)
}
