// The live page. Everything it shows comes in events of one stream: `all` begins anew, `now` goes on from there, `end`
// turns the page into the report. Figures come as text, as the screen has them; only lines over time are drawn here.
(() => {
  "use strict";
  const by = (id) => document.getElementById(id);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  // What did not change is left alone: a selection stays, and nothing is drawn twice.
  const tell = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const say = (text) => tell(by("voice"), text);

  // Lines over time, by what they are of: seconds seen so far and the newest of them.
  const KEPT = 900;
  const lines = new Map();
  // False where something was missed in between.
  const grow = (key, over) => {
    const had = lines.get(key);
    const fresh = had ? over.count - had.count : over.count;
    const newest = over.lines[0].length;
    if (had && (fresh < 0 || fresh > newest)) return false;
    const kept = had ? had.values : over.lines.map(() => []);
    over.lines.forEach((line, i) => {
      if (fresh) kept[i].push(...line.slice(-Math.min(fresh, newest)));
      kept[i].splice(0, Math.max(0, kept[i].length - KEPT));
    });
    lines.set(key, { count: over.count, values: kept, grew: !had || fresh > 0 });
    return true;
  };

  // A small line without axes, from its least to its most.
  const SVG = "http://www.w3.org/2000/svg";
  const spark = () => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "spark");
    svg.setAttribute("viewBox", "0 0 100 20");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    svg.append(document.createElementNS(SVG, "path"));
    return svg;
  };
  const drawSpark = (svg, values) => {
    const shown = values.slice(-120);
    const known = shown.filter((v) => v !== null);
    const most = Math.max(...known, 0) || 1;
    const least = Math.min(...known, 0);
    let path = "";
    shown.forEach((v, i) => {
      if (v === null) return;
      const x = shown.length > 1 ? (100 * i) / (shown.length - 1) : 100;
      const y = 19 - (18 * (v - least)) / (most - least);
      path += `${path && shown[i - 1] !== null ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    });
    svg.firstChild.setAttribute("d", path);
  };

  // A bar that also says in words how full it is.
  const meter = (label) => {
    const bar = make("span", { className: "meter" }, make("i"));
    bar.setAttribute("role", "meter");
    bar.setAttribute("aria-label", label);
    bar.setAttribute("aria-valuemin", "0");
    bar.setAttribute("aria-valuemax", "100");
    return bar;
  };
  const fill = (bar, share, weight, words) => {
    bar.hidden = share === null;
    if (share === null) return;
    bar.className = `meter ${weight}`;
    bar.firstChild.style.width = `${(share * 100).toFixed(1)}%`;
    bar.setAttribute("aria-valuenow", Math.round(share * 100));
    bar.setAttribute("aria-valuetext", words);
  };

  // Charts: uPlot, with cursors in step, values at the cursor in the legend, and arrow keys.
  const count = (v) =>
    Math.abs(v) < 100 && !Number.isInteger(v) ? String(Number(v.toPrecision(3))) : Math.round(v).toLocaleString("en-US");
  const ms = (v) =>
    v === 0 ? "0" : v < 1 ? `${Number((v * 1000).toPrecision(3))} µs` : v < 1000 ? `${Number(v.toPrecision(3))} ms` : `${Number((v / 1000).toPrecision(3))} s`;
  const clock = (s) => `${s < 0 ? "-" : ""}${Math.floor(Math.abs(s) / 60)}:${String(Math.floor(Math.abs(s)) % 60).padStart(2, "0")}`;
  const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
  const charts = new Set();
  class Chart {
    constructor(caption, names, format, isLog) {
      this.isLog = isLog;
      this.names = names;
      this.format = format;
      this.caption = caption;
      this.legend = make("ul", { className: "legend" });
      this.told = names.map((name, i) => {
        const output = make("output");
        this.legend.append(make("li", { className: names.colours[i] }, make("span", { className: "swatch" }), `${name} `, output));
        return output;
      });
      this.plot = make("div", { className: "plot", tabIndex: 0 });
      this.plot.setAttribute("role", "img");
      this.figure = make("figure", {}, make("figcaption", {}, caption, this.legend), this.plot);
      this.plot.addEventListener("keydown", (event) => this.key(event));
      charts.add(this);
    }

    options() {
      const axis = { stroke: style("--faint"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
      return {
        width: Math.max(160, this.plot.clientWidth),
        height: 220,
        legend: { show: false },
        cursor: { sync: { key: "live", scales: ["x", null] }, drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: { time: false },
          y: this.isLog ? { distr: 3 } : { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.05 : least < 0 ? 0 : 1] },
        },
        axes: [
          { ...axis, size: 30, incrs: STEPS_S, values: (_, values) => values.map(clock) },
          { ...axis, size: 72, values: (_, values) => values.map((v) => (v === null ? "" : this.format(v))) },
        ],
        series: [
          {},
          ...this.names.map((label, i) => ({
            label,
            stroke: style(`--${this.names.colours[i]}`),
            width: 1.75,
            // One second makes no line.
            points: { show: (u) => u.data[0].length < 20, size: 5 },
          })),
        ],
        hooks: { setCursor: [() => this.tell()] },
      };
    }

    draw(values) {
      this.values = values;
      if (!this.figure.isConnected || !values[0].length) return;
      const width = Math.max(160, this.plot.clientWidth);
      if (!this.drawn) this.drawn = new uPlot(this.options(), values, this.plot);
      else {
        if (this.drawn.width !== width) this.drawn.setSize({ width, height: 220 });
        this.drawn.setData(values);
      }
      this.tell();
    }

    // Under the cursor, or else the newest.
    at() {
      const last = this.values[0].length - 1;
      return Math.min(this.drawn?.cursor.idx ?? last, last);
    }

    tell() {
      if (!this.values?.[0].length) return;
      const at = this.at();
      const texts = this.names.map((name, i) => {
        const value = this.values[i + 1][at];
        const text = value === null || value === undefined ? "–" : this.format(value);
        tell(this.told[i], text);
        return `${name} ${text}`;
      });
      this.words = `at ${clock(this.values[0][at])}: ${texts.join(", ")}`;
      this.plot.setAttribute("aria-label", `${this.caption}, ${this.words}; arrow keys move along`);
    }

    key(event) {
      if (!this.drawn) return;
      const last = this.values[0].length - 1;
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity, Escape: NaN }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const to = Number.isNaN(step) ? null : Math.max(0, Math.min(last, this.at() + step));
      const left = to === null ? -10 : this.drawn.valToPos(this.values[0][to], "x");
      this.drawn.setCursor({ left, top: to === null ? -10 : 10 });
      say(this.words);
    }

    again() {
      this.drawn?.destroy();
      this.drawn = undefined;
      if (this.values) this.draw(this.values);
    }

    gone() {
      this.drawn?.destroy();
      charts.delete(this);
    }
  }
  const named = (names, colours) => Object.assign([...names], { colours });

  // Children of a parent, one for each thing, made where they are missing and removed where it is gone.
  const each = (parent, things, keyOf, create, update) => {
    const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
    things.forEach((thing, i) => {
      const key = keyOf(thing, i);
      let child = old.get(key);
      old.delete(key);
      if (!child) {
        child = create(thing);
        child.dataset.key = key;
      }
      if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null);
      update(child, thing);
    });
    for (const child of old.values()) {
      child.onGone?.();
      child.remove();
    }
  };

  const tile = (name, note) => {
    const value = make("dd");
    const small = make("small", {}, note);
    return { row: make("div", {}, make("dt", {}, name), value, small), value, small };
  };
  const createLoad = (load) => {
    const title = make("h2", {}, load.name);
    const bar = make("i", { className: "bar" });
    const far = make("output");
    const track = make("span", { className: "track" }, bar);
    track.setAttribute("role", "progressbar");
    track.setAttribute("aria-label", `progress of ${load.name}`);
    const tiles = {
      rate: tile("ok", "over the last second"),
      p50: tile("p50", ""),
      p99: tile("p99", ""),
      failed: tile("failed", "and dropped, so far"),
      flight: tile("in flight", ""),
    };
    for (const [name, { value }] of Object.entries(tiles)) value.dataset.figure = name;
    const outcomes = make("ul", { className: "outcomes" });
    outcomes.setAttribute("aria-label", "how requests ended");
    const rate = new Chart("Requests per second", named(["ok", "failed"], ["c0", "f0"]), (v) => `${count(v)}/s`);
    const times = new Chart("Response times of each second, log scale", named(["p50", "p99"], ["p0", "p2"]), ms, true);
    const section = make(
      "section",
      { className: "load" },
      title,
      make("div", { className: "far" }, track, far),
      make("dl", { className: "tiles" }, ...Object.values(tiles).map((t) => t.row)),
      outcomes,
      make("div", { className: "charts" }, rate.figure, times.figure),
    );
    section.setAttribute("aria-label", `load ${load.name}`);
    section.onGone = () => [rate, times].forEach((chart) => chart.gone());
    section.parts = { title, bar, far, track, tiles, outcomes, rate, times };
    return section;
  };
  const updateLoad = (section, load) => {
    const { title, bar, far, track, tiles, outcomes, rate, times } = section.parts;
    tell(title, [load.name, load.batch].filter(Boolean).join(", "));
    track.hidden = load.share === null;
    bar.style.width = `${((load.share ?? 0) * 100).toFixed(1)}%`;
    track.setAttribute("aria-valuenow", Math.round((load.share ?? 0) * 100));
    tell(far, load.far);
    const of = (name) => load.outcomes.find((o) => o.name === name);
    const bad = load.outcomes.filter((o) => o.weight === "bad");
    const failed = bad.reduce((sum, o) => sum + o.count, 0);
    tell(tiles.rate.value, load.rate);
    tell(tiles.p50.value, load.p50);
    tell(tiles.p50.small, `so far ${load.p50_so_far}`);
    tell(tiles.p99.value, load.p99);
    tell(tiles.p99.small, `so far ${load.p99_so_far}`);
    tell(tiles.failed.value, failed.toLocaleString("en-US"));
    tiles.failed.value.className = failed ? "bad" : "";
    tell(tiles.flight.value, of("in flight").text);
    tell(tiles.flight.small, `${load.connections} connections`);
    const all = load.outcomes.reduce((sum, o) => sum + o.count, 0) || 1;
    each(
      outcomes,
      load.outcomes,
      (o) => o.name,
      (o) => make("li", {}, make("span", {}, o.name), make("span", { className: "track" }, make("i", { className: `bar ${o.weight}` })), make("span", { className: "readout" })),
      (row, o) => {
        row.children[1].firstChild.style.width = `${((100 * o.count) / all).toFixed(2)}%`;
        row.dataset.count = o.count;
        tell(row.children[2], o.text);
      },
    );
    const { values, grew } = lines.get(`load ${load.name}`);
    if (grew) {
      rate.draw([values[0], values[1], values[2]]);
      times.draw([values[0], values[3], values[4]]);
    }
  };

  const createComponent = (c) => {
    const cell = (...children) => make("td", {}, ...children);
    const cpu = [meter(`CPU of ${c.name}`), make("span", { className: "readout" })];
    const memory = [meter(`memory of ${c.name}`), make("span", { className: "readout" })];
    const [stopped, net, line] = [make("td", { className: "stopped" }), make("td"), spark()];
    const name = make("th", { scope: "row" }, c.name);
    const row = make("tr", {}, name, cell(...cpu), cell(...memory), stopped, net, cell(line));
    row.parts = { cpu, memory, stopped, net, line };
    return row;
  };
  const updateUse = ([bar, told], use) => {
    const words = use.limit ? `${use.text} of ${use.limit}` : use.text;
    fill(bar, use.share, use.weight, words);
    tell(told, words);
    told.classList.toggle("bad", use.weight === "bad");
  };
  const updateComponent = (row, c) => {
    const { cpu, memory, stopped, net, line } = row.parts;
    updateUse(cpu, c.cpu);
    updateUse(memory, c.memory);
    tell(stopped, c.stopped ?? "–");
    stopped.classList.toggle("doubtful", !!c.stopped);
    tell(net, c.net ?? "–");
    const { values, grew } = lines.get(`component ${c.name}`);
    if (grew) drawSpark(line, values[1]);
  };
  const createProbe = (p) => {
    const line = spark();
    const row = make("tr", {}, make("th", { scope: "row" }, p.name), make("td", { className: "n" }), make("td", {}, line));
    row.line = line;
    return row;
  };
  const updateProbe = (row, p) => {
    tell(row.children[1], p.text);
    const { values, grew } = lines.get(`probe ${p.name}`);
    if (grew) drawSpark(row.line, values[0]);
  };

  const createAgent = (a) => {
    const line = spark();
    const cells = [0, 1, 2, 3].map(() => make("td", { className: "n" }));
    const row = make("tr", {}, make("th", { scope: "row" }, a.name), ...cells, make("td", {}, line));
    row.parts = { cells, line };
    return row;
  };
  const updateAgent = (row, a) => {
    const { cells, line } = row.parts;
    tell(row.firstChild, a.name);
    [a.rate, a.ok, a.failed, a.in_flight].forEach((text, i) => tell(cells[i], text));
    row.classList.toggle("bad", a.missing);
    const { values, grew } = lines.get(`agent ${a.key}`);
    if (grew) drawSpark(line, values[0]);
  };

  const createFigure = (f) => {
    const line = spark();
    const [name, value] = [make("dt"), make("dd")];
    const row = make("div", { title: f.about ?? "" }, name, value, line);
    row.parts = { name, value, line };
    return row;
  };
  const updateFigure = (row, f) => {
    const { name, value, line } = row.parts;
    tell(name, f.name);
    value.dataset.figure = f.name;
    tell(value, f.text);
    const { values, grew } = lines.get(`figure ${f.key}`);
    if (grew) drawSpark(line, values[0]);
  };

  const list = (id, items, create) => {
    const section = by(id);
    section.hidden = !items.length;
    const key = JSON.stringify(items);
    if (section.dataset.shown === key) return;
    section.dataset.shown = key;
    section.querySelector("ul").replaceChildren(...items.map(create));
  };
  const remark = ([weight, text]) => make("li", { className: weight }, text);

  let trials;
  let spoken;
  // What is on the page is of an earlier trial.
  let isStale = false;
  const show = (frame) => {
    if (isStale) {
      isStale = false;
      each(by("loads"), [], String);
      each(by("figures").querySelector("dl"), [], String);
      for (const id of ["components", "probes", "agents"]) each(by(id).querySelector("tbody"), [], String);
    }
    tell(by("title"), frame.title);
    const place = frame.place ? `[${frame.place}] ` : "";
    tell(by("trial"), frame.trial ? `${place}${frame.trial} · ` : "");
    tell(by("phase"), frame.phase);
    tell(by("phase-for"), frame.phase_for);
    tell(by("clock"), frame.clock);
    document.title = `${frame.loads.map((l) => l.rate).join(" ") || frame.phase} – ${frame.title} – loadlab, live`;
    by("figures").hidden = !frame.figures.length;
    each(by("figures").querySelector("dl"), frame.figures, (f) => f.key, createFigure, updateFigure);
    each(by("loads"), frame.loads, (l) => l.name, createLoad, updateLoad);
    by("components").hidden = !frame.components.length;
    each(by("components").querySelector("tbody"), frame.components, (c) => c.name, createComponent, updateComponent);
    by("probes").hidden = !frame.probes.length;
    each(by("probes").querySelector("tbody"), frame.probes, (p) => p.name, createProbe, updateProbe);
    by("agents").hidden = !frame.agents.length;
    each(by("agents").querySelector("tbody"), frame.agents, (a) => a.key, createAgent, updateAgent);
    list("settling", frame.settling, remark);
    list("done", frame.done, remark);
    list("doubts", frame.doubts, remark);
    list("events", frame.events, ([at, weight, text]) => make("li", { className: weight }, make("time", {}, at), make("span", {}, text)));
    // Phases and doubts are said aloud; figures that change all the time are not.
    const words = [frame.trial, frame.phase, frame.doubts[0]?.[1]].filter(Boolean).join(", ");
    if (words !== spoken) say((spoken = words));
  };

  const link = (text, weight) => {
    tell(by("link"), text);
    by("link").className = `badge ${weight}`;
  };
  let source;
  let paused = false;
  let newest;
  const take = (frame, isAll) => {
    if (isAll || frame.trials !== trials) {
      trials = frame.trials;
      lines.clear();
      isStale = true;
    }
    const kinds = [["figure", frame.figures], ["load", frame.loads], ["component", frame.components], ["probe", frame.probes], ["agent", frame.agents]];
    const whole = kinds.every(([kind, things]) => things.every((t) => grow(`${kind} ${t.key ?? t.name}`, t.over)));
    if (!whole) return follow();
    newest = frame;
    if (!paused) show(frame);
  };
  const follow = () => {
    source?.close();
    source = new EventSource(`${location.pathname.replace(/\/$/, "")}/live`);
    source.onopen = () => link(paused ? "paused" : "live", paused ? "doubtful" : "good");
    source.onerror = () => link("no answer: loadlab has ended, or is busy", "bad");
    source.addEventListener("all", (event) => take(JSON.parse(event.data), true));
    source.addEventListener("now", (event) => take(JSON.parse(event.data), false));
    source.addEventListener("end", (event) => {
      source.close();
      if (newest) show(newest);
      if (!JSON.parse(event.data).report) return link("ended without a report", "bad");
      link("ended: here comes the report", "none");
      say("ended, the report follows");
      location.reload();
    });
  };

  const pause = () => {
    paused = !paused;
    by("pause").setAttribute("aria-pressed", paused);
    tell(by("pause"), paused ? "Go on" : "Pause");
    link(paused ? "paused" : "live", paused ? "doubtful" : "good");
    for (const line of lines.values()) line.grew = true;
    if (!paused && newest) show(newest);
  };
  by("pause").addEventListener("click", pause);
  document.addEventListener("keydown", (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (event.key === "p" && plain) pause();
  });
  const redraw = () => charts.forEach((chart) => chart.again());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resized;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(redraw, 100);
  });
  follow();
})();
