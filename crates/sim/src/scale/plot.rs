//! Pictures of scale runs, as SVG: throughput and efficiency by the number of ranks, and how busy each rank of the largest run was.
//!
//! Absent: anything that draws but this; files.

use super::report::efficiency;
use super::tally::Phase;
use std::fmt::Write;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 620.0;
const BOTTOM: f64 = 350.0;
const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];

/// One picture.
struct Picture {
    text: String,
}

/// A line through points, in parts of the picture's width and height.
struct Line<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    dashed: bool,
}

impl Picture {
    fn new(title: &str, across: &str, up: &str) -> Self {
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        let middle = f64::midpoint(LEFT, RIGHT);
        let _ = write!(
            text,
            "<text x=\"{middle}\" y=\"24\" text-anchor=\"middle\" font-size=\"15\">{title}</text>\n\
             <text x=\"{middle}\" y=\"390\" text-anchor=\"middle\">{across}</text>\n\
             <text x=\"16\" y=\"195\" text-anchor=\"middle\" transform=\"rotate(-90 16 195)\">{up}</text>\n\
             <path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" stroke=\"black\"/>\n"
        );
        Self { text }
    }

    fn x(part: f64) -> f64 {
        LEFT + part * (RIGHT - LEFT)
    }

    fn y(part: f64) -> f64 {
        BOTTOM - part * (BOTTOM - TOP)
    }

    fn across(&mut self, part: f64, label: &str) {
        let (x, y) = (Self::x(part), BOTTOM + 16.0);
        let _ = writeln!(self.text, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
    }

    fn up(&mut self, part: f64, label: &str) {
        let (x, y) = (LEFT - 6.0, Self::y(part));
        let _ = writeln!(
            self.text,
            "<text x=\"{x}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n\
             <path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#dddddd\"/>",
            y + 4.0
        );
    }

    fn line(&mut self, number: usize, line: &Line<'_>) {
        let colour = if line.dashed { "#888888" } else { COLOURS[number % COLOURS.len()] };
        let dash = if line.dashed { " stroke-dasharray=\"4 4\"" } else { "" };
        let path: Vec<String> =
            line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", Self::x(*x), Self::y(*y))).collect();
        let y = TOP + 16.0 * (number as f64 + 1.0);
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
             <text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            LEFT + 12.0,
            line.name
        );
    }

    fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// The names of the phases, in their order.
fn names(phases: &[Phase]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for phase in phases {
        if !names.contains(&phase.name) {
            names.push(phase.name);
        }
    }
    names
}

/// Where a number of ranks is on a logarithmic scale up to `most`.
fn along(ranks: u16, most: u16) -> f64 {
    if most <= 1 { 0.0 } else { f64::from(ranks.max(1)).ln() / f64::from(most).ln() }
}

fn rounded(value: f64) -> String {
    if value >= 1e6 { format!("{:.1} M", value / 1e6) } else { format!("{:.0} k", value / 1e3) }
}

/// File names and pictures. `title`: what was run.
#[must_use]
pub fn plots(phases: &[Phase], title: &str) -> Vec<(&'static str, String)> {
    let most = phases.iter().map(|phase| phase.ranks).max().unwrap_or(1);
    vec![
        ("throughput.svg", throughput(phases, most, title)),
        ("efficiency.svg", efficiencies(phases, most, title)),
        ("load.svg", load(phases, most, title)),
    ]
}

fn marks(picture: &mut Picture, phases: &[Phase], most: u16) {
    let mut ranks: Vec<u16> = phases.iter().map(|phase| phase.ranks).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for ranks in ranks {
        picture.across(along(ranks, most), &ranks.to_string());
    }
}

/// Both axes are logarithmic: what scales is a straight line beside the dashed one.
fn throughput(phases: &[Phase], most: u16, title: &str) -> String {
    let mut picture = Picture::new(&format!("{title}: throughput"), "ranks", "operations per second");
    marks(&mut picture, phases, most);
    let rates = || phases.iter().map(Phase::ops_per_second).filter(|rate| *rate > 0.0);
    let (low, high) = (rates().fold(f64::MAX, f64::min).min(1e9), rates().fold(1.0, f64::max));
    let (low, high) = (10_f64.powf(low.log10().floor()), 10_f64.powf(high.log10().ceil()));
    let part = |rate: f64| (rate.max(low).ln() - low.ln()) / (high.ln() - low.ln()).max(1e-9);
    let mut mark = low;
    while mark <= high * 1.001 {
        picture.up(part(mark), &rounded(mark));
        mark *= 10.0;
    }
    for (number, name) in names(phases).into_iter().enumerate() {
        let own = || phases.iter().filter(|phase| phase.name == name);
        let points = own().map(|phase| (along(phase.ranks, most), part(phase.ops_per_second()))).collect();
        picture.line(number, &Line { name, points, dashed: false });
        if let Some(first) = own().next() {
            let each = first.ops_per_second() / f64::from(first.ranks.max(1));
            let ideal = |ranks: u16| (along(ranks, most), part(each * f64::from(ranks)).min(1.0));
            let points = own().map(|phase| ideal(phase.ranks)).collect();
            picture.line(number, &Line { name: "", points, dashed: true });
        }
    }
    picture.end()
}

fn efficiencies(phases: &[Phase], most: u16, title: &str) -> String {
    let mut picture =
        Picture::new(&format!("{title}: efficiency"), "ranks", "rate of a rank against a single one");
    marks(&mut picture, phases, most);
    for tenth in [0, 2, 4, 6, 8, 10, 12] {
        picture.up(f64::from(tenth) / 12.0, &format!("{:.1}", f64::from(tenth) / 10.0));
    }
    for (number, name) in names(phases).into_iter().enumerate() {
        let points = phases
            .iter()
            .filter(|phase| phase.name == name)
            .map(|phase| (along(phase.ranks, most), (efficiency(phase, phases) / 1.2).min(1.0)))
            .collect();
        picture.line(number, &Line { name, points, dashed: false });
    }
    picture.end()
}

fn load(phases: &[Phase], most: u16, title: &str) -> String {
    let mut picture = Picture::new(&format!("{title}: {most} ranks"), "rank", "busy part of the rank's CPU");
    for quarter in 0..=4 {
        picture.up(f64::from(quarter) / 4.0, &format!("{}%", quarter * 25));
    }
    for end in [0, most - 1] {
        picture.across(f64::from(end) / f64::from((most - 1).max(1)), &end.to_string());
    }
    for (number, phase) in phases.iter().filter(|phase| phase.ranks == most).enumerate() {
        let busy = |busy_ns: u64| (busy_ns as f64 / phase.nanos.max(1) as f64).min(1.0);
        let last = (phase.did.len().max(2) - 1) as f64;
        let points =
            phase.did.iter().enumerate().map(|(rank, did)| (rank as f64 / last, busy(did.busy_ns))).collect();
        picture.line(number, &Line { name: phase.name, points, dashed: false });
    }
    picture.end()
}
