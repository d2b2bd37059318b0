// Living charts over the still ones: lines and heat maps, cursors and zoom in step for all charts of a trial, by mouse,
// touch and keyboard; the components of a trial one at a time.
(() => {
  "use strict";
  const { count, load, make, place, say, style, units } = loadlab;

  // Small where charts stand side by side, so that a case fits a screen or two.
  const heightOf = (figure) => (figure.closest(".multiples") ? 150 : 220);
  // Between two labels of an axis in seconds.
  const STEPS_S = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const DASHES = [undefined, [10, 4], [2, 3], [10, 3, 2, 3]];
  // Figures that are drawn, and what is zoomed to and picked in each group.
  const living = new Map();
  const zooms = new Map();
  const picked = new Map();
  loadlab.living = living;

  const clipped = (u, draw) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    draw(ctx, bbox);
    ctx.restore();
  };

  // Bands behind the lines (warm-up, pause, drain), marks in front of them (what happened).
  const drawBands = (chart) => (u) =>
    clipped(u, (ctx, bbox) => {
      ctx.textBaseline = "top";
      ctx.textAlign = "left";
      for (const [from, to, text] of chart.bands) {
        const left = u.valToPos(from, "x", true);
        const right = u.valToPos(to, "x", true);
        ctx.fillStyle = style("--band");
        ctx.fillRect(left, bbox.top, right - left, bbox.height);
        ctx.fillStyle = style("--faint");
        ctx.fillText(text, left + 4 * devicePixelRatio, bbox.top + 3 * devicePixelRatio);
      }
    });
  const drawMarks = (chart) => (u) =>
    clipped(u, (ctx, bbox) => {
      // In a small chart more than one name would hide what it points at.
      const [rows, letters] = u.height < 200 ? [1, 24] : [3, 40];
      ctx.strokeStyle = style("--bad");
      ctx.fillStyle = style("--bad");
      ctx.textBaseline = "top";
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      const ends = Array(rows).fill(-Infinity);
      for (const [at, text] of chart.marks) {
        const x = u.valToPos(at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        // On the side with more room, below the names of bands; the whole text is above the charts.
        const right = x > bbox.left + bbox.width / 2;
        ctx.textAlign = right ? "right" : "left";
        const label = text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
        const wide = ctx.measureText(label).width + 8 * devicePixelRatio;
        const [from, to] = right ? [x - wide, x] : [x, x + wide];
        const row = ends.findIndex((end) => end < from);
        if (row < 0) continue;
        ends[row] = to;
        ctx.fillText(label, x + (right ? -4 : 4) * devicePixelRatio, bbox.top + (16 + 13 * row) * devicePixelRatio);
      }
    });

  // Where the plan changes the load: quiet, and named at the foot, in as many rows as keep names apart.
  const drawTurns = (chart) => (u) =>
    clipped(u, (ctx, bbox) => {
      ctx.strokeStyle = style("--faint");
      ctx.fillStyle = style("--faint");
      ctx.textBaseline = "bottom";
      ctx.textAlign = "left";
      ctx.lineWidth = devicePixelRatio;
      ctx.setLineDash([devicePixelRatio, 3 * devicePixelRatio]);
      const ends = [0, 0, 0];
      for (const [at, text] of chart.turns) {
        const x = u.valToPos(at, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        const label = text.split(":")[0];
        const from = x + 4 * devicePixelRatio;
        const to = from + ctx.measureText(label).width;
        const row = ends.findIndex((end) => end < from);
        if (row < 0 || to > bbox.left + bbox.width) continue;
        ends[row] = to;
        ctx.fillText(label, from, bbox.top + bbox.height - (3 + 13 * row) * devicePixelRatio);
      }
    });

  const cells = (chart, i) => {
    const [first, ...counts] = chart.heat.columns[i] || [];
    return counts.map((n, k) => [first + k, n]).filter(([, n]) => n > 0);
  };
  const halfColumn = ({ at }) => (at.length > 1 ? (at[at.length - 1] - at[0]) / (at.length - 1) / 2 : 0.5);
  const drawHeat = (chart) => {
    const most = Math.log1p(chart.heat.columns.reduce((most, [, ...counts]) => Math.max(most, ...counts), 0));
    const half = halfColumn(chart);
    return (u) =>
      clipped(u, (ctx, bbox) => {
        ctx.fillStyle = style("--c0");
        const edges = chart.heat.edges.map((edge) => Math.round(u.valToPos(edge, "y", true)));
        chart.at.forEach((at, i) => {
          const left = Math.round(u.valToPos(at - half, "x", true));
          const right = Math.round(u.valToPos(at + half, "x", true));
          if (right < bbox.left || left > bbox.left + bbox.width) return;
          for (const [row, n] of cells(chart, i)) {
            ctx.globalAlpha = 0.12 + (0.88 * Math.log1p(n)) / most;
            ctx.fillRect(left, edges[row + 1], right - left, edges[row] - edges[row + 1]);
          }
        });
      });
  };

  const powersOfTwo = Array.from({ length: 50 }, (_, i) => 2 ** i);

  // 1, 2 and 5 of every decade; where they are many, beginnings of decades alone.
  const roundSteps = (from, to) => {
    if (!(from > 0)) return [];
    const decades = Array.from(
      { length: Math.ceil(Math.log10(to)) - Math.floor(Math.log10(from)) + 1 },
      (_, i) => 10 ** (Math.floor(Math.log10(from)) + i),
    );
    const within = (steps) => steps.filter((v) => v >= from && v <= to);
    const fine = within(decades.flatMap((d) => [d, 2 * d, 5 * d]));
    return fine.length > 6 ? within(decades) : fine;
  };

  const scales = (chart) => {
    const last = chart.at[chart.at.length - 1];
    const edges = chart.heat && chart.heat.edges;
    return {
      // All of a trial's charts begin and end together, also those that hold a part of the time.
      x: {
        time: false,
        range: (_, from, to) => (from === chart.at[0] && to === last ? [chart.from, chart.to] : [from, to]),
      },
      y: edges
        ? { distr: 3, range: () => [edges[0], edges[edges.length - 1]] }
        : chart.log
          ? { distr: 3 }
          : { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.05 : least < 0 ? 0 : 1] },
    };
  };

  const axes = (chart) => {
    const format = units[chart.unit] || count;
    const axis = { stroke: style("--faint"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
    const nines = [0, Math.log10(2), ...Array.from({ length: 9 }, (_, i) => i + 1)];
    const along = chart.nines
      ? { splits: (_, __, from, to) => nines.filter((n) => n >= from && n <= to) }
      : { incrs: STEPS_S };
    const tick = (chart, at) => (chart.nines || Math.abs(at) < 60 ? place(chart, at) : units.s(at));
    return [
      { ...axis, size: 26, space: 64, ...along, values: (_, values) => values.map((v) => tick(chart, v)) },
      {
        ...axis,
        size: 72,
        space: 26,
        ...(chart.unit.startsWith("bytes") && { incrs: powersOfTwo }),
        // A heat map begins where its values do; its labels are round all the same, and few in small charts.
        ...((chart.heat || chart.log) && { splits: (_, __, from, to) => roundSteps(from, to), filter: (_, splits) => splits }),
        values: (_, values) => values.map((v) => (v === null ? "" : format(v))),
      },
    ];
  };

  const series = (chart) => [
    {},
    ...chart.lines.map((line) => ({
      label: line.name,
      stroke: style(`--${line.colour}`),
      width: line.limit ? 1.25 : 1.75,
      dash: line.limit ? [6, 4] : DASHES[line.dash],
      points: { show: chart.at.length < 40 && !line.limit, size: 4 },
    })),
    ...(chart.heat ? [{ label: "responses", show: true, points: { show: false } }] : []),
  ];

  const options = (chart, group, [width, height], readout) => ({
    width,
    height,
    padding: [8, null, null, null],
    legend: { show: false },
    cursor: { sync: { key: group, scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 6 } },
    scales: scales(chart),
    axes: axes(chart),
    series: series(chart),
    hooks: {
      drawAxes: [drawBands(chart), ...(chart.heat ? [drawHeat(chart)] : [])],
      draw: [drawTurns(chart), drawMarks(chart)],
      setCursor: [readout],
      setScale: [(u, key) => key === "x" && zoomed(group, u)],
    },
  });

  // One zoom for all charts of a group, drawn or not yet.
  let inStep = false;
  const ofGroup = (group) => [...living].filter(([figure]) => figure.dataset.group === group);
  const zoomed = (group, u) => {
    const { min, max } = u.scales.x;
    if (inStep || min == null) return;
    zoom(group, min, max);
  };
  const zoom = (group, min, max) => {
    inStep = true;
    const whole = wholes.get(group);
    if (!whole || (min <= whole[0] && max >= whole[1])) zooms.delete(group);
    else zooms.set(group, [min, max]);
    for (const [, u] of ofGroup(group)) {
      if (u.scales.x.min !== min || u.scales.x.max !== max) u.setScale("x", { min, max });
    }
    // Scales are set after this turn, and call back then.
    setTimeout(() => (inStep = false));
  };
  const wholes = new Map();
  const zoomBy = (group, factor, around) => {
    const whole = wholes.get(group);
    if (!whole) return;
    const [from, to] = zooms.get(group) || whole;
    const middle = around ?? (from + to) / 2;
    const least = (whole[1] - whole[0]) / 500;
    if ((to - from) * factor < least) return;
    const min = Math.max(whole[0], middle - (middle - from) * factor);
    const max = Math.min(whole[1], middle + (to - middle) * factor);
    zoom(group, min, max);
  };
  const zoomOut = (group) => wholes.has(group) && zoom(group, ...wholes.get(group));

  // The legend turns lines on and off; under the cursor it shows values.
  const lit = (figure) => {
    const u = living.get(figure);
    const items = [...figure.querySelectorAll(".legend li")];
    if (u) {
      items.forEach((item, i) => {
        const button = item.querySelector("button");
        if (button) u.setSeries(i + 1, { show: !item.hidden && button.getAttribute("aria-pressed") === "true" });
      });
    }
  };
  const wireLegend = (figure, chart) => {
    const items = [...figure.querySelectorAll(".legend li")];
    items.forEach((item) => {
      const button = make("button", { type: "button" }, ...item.childNodes);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        lit(figure);
      });
      item.append(button);
    });
    const at = make("output", { className: "at" });
    figure.querySelector("figcaption").append(" ", at);
    const outputs = items.map((item) => item.querySelector("output"));
    // Values follow the cursor; read aloud they are only where a key asked for it.
    [at, ...outputs].forEach((output) => output?.setAttribute("aria-live", "off"));
    const ranges = outputs.map((output) => output && output.textContent);
    const format = units[chart.unit] || count;
    return (u) => {
      const idx = u.cursor.idx;
      // Values are shorter than ranges: what is below must not move.
      const legend = figure.querySelector(".legend");
      if (idx == null) legend.style.minHeight = "";
      else if (!legend.style.minHeight) legend.style.minHeight = `${legend.getBoundingClientRect().height}px`;
      at.textContent = idx == null ? "" : chart.heat ? heatWords(chart, u, idx) : `at ${place(chart, chart.at[idx])}`;
      outputs.forEach((output, i) => {
        if (!output) return;
        const value = idx == null ? undefined : u.data[i + 1][idx];
        output.textContent = idx == null ? ranges[i] : value == null ? "–" : format(value);
      });
    };
  };
  const heatWords = (chart, u, idx) => {
    const { edges } = chart.heat;
    const value = u.posToVal(u.cursor.top, "y");
    const row = edges.findIndex((edge, i) => i + 1 < edges.length && value >= edge && value < edges[i + 1]);
    const when = `at ${place(chart, chart.at[idx])}`;
    if (row < 0) return when;
    const n = (cells(chart, idx).find(([at]) => at === row) || [0, 0])[1];
    return `${when}: ${count(n)} took ${units.ms(edges[row])} to ${units.ms(edges[row + 1])}`;
  };

  // Cursor and zoom by keyboard, with the values said.
  const wireKeys = (figure, chart) => {
    const live = figure.querySelector(".live");
    const { group } = figure.dataset;
    live.tabIndex = 0;
    live.setAttribute("role", "application");
    live.setAttribute(
      "aria-label",
      `${chart.title}. Arrow keys move the cursor, plus and minus zoom, zero shows all; the table below holds all values.`,
    );
    let at = -1;
    const move = (to) => {
      at = Math.max(0, Math.min(chart.at.length - 1, to));
      for (const [, u] of ofGroup(group)) {
        u.setCursor({ left: u.valToPos(chart.at[at], "x"), top: u.over.clientHeight / 2 });
      }
      const format = units[chart.unit] || count;
      const told = chart.lines.map((l) => `${l.name} ${l.values[at] == null ? "nothing" : format(l.values[at])}`);
      say(`${place(chart, chart.at[at])}: ${told.slice(0, 8).join(", ")}`);
    };
    live.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 10 : 1;
      const keys = {
        ArrowLeft: () => move(at < 0 ? chart.at.length - 1 : at - step),
        ArrowRight: () => move(at + step),
        Home: () => move(0),
        End: () => move(chart.at.length - 1),
        "+": () => zoomBy(group, 0.5, chart.at[at]),
        "=": () => zoomBy(group, 0.5, chart.at[at]),
        "-": () => zoomBy(group, 2, chart.at[at]),
        0: () => zoomOut(group),
        Escape: () => zoomOut(group),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  };

  // The controls above the charts of a trial: which component, and the zoom.
  const pick = (group, charts) => {
    const component = picked.get(group) || "";
    for (const figure of document.querySelectorAll(`.chart[data-group="${group}"]`)) {
      const { lines } = charts[figure.dataset.chart];
      const ofComponents = lines.some((line) => line.of.length);
      figure.querySelectorAll(".legend li").forEach((item, i) => {
        item.hidden = ofComponents && component !== "" && !lines[i].of.includes(component);
      });
      figure.classList.toggle("without", ofComponents && component !== "" && !lines.some((l) => l.of.includes(component)));
      lit(figure);
    }
  };
  const tools = (group, charts) => {
    const chart = document.querySelector(`.chart[data-group="${group}"]`);
    // Above the heading of the first part: they are for all of them.
    const first = chart.closest(".multiples")?.previousElementSibling ?? chart;
    const bar = make("div", { className: "tools" });
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Charts");
    const names = new Set(Object.values(charts).flatMap((c) => c.lines.flatMap((l) => l.of)));
    if (names.size > 1) {
      const options = ["", ...names].map((name) => make("option", { value: name, textContent: name || "all" }));
      const select = make("select", {}, ...options);
      select.addEventListener("change", () => {
        picked.set(group, select.value);
        pick(group, charts);
      });
      bar.append(make("label", { textContent: "Component " }, select));
    }
    const button = (text, title, click) => {
      const button = make("button", { type: "button", textContent: text, title });
      button.setAttribute("aria-label", title);
      button.addEventListener("click", click);
      bar.append(button);
    };
    button("+", "Zoom in", () => zoomBy(group, 0.5));
    button("−", "Zoom out", () => zoomBy(group, 2));
    button("Whole", "Show all of it", () => zoomOut(group));
    bar.append(make("span", { className: "note", textContent: "Drag across a chart to zoom; double click shows all." }));
    first.before(bar);
  };

  const prepared = new Set();
  const readouts = new WeakMap();
  const draw = async (figure) => {
    const { group } = figure.dataset;
    const charts = await load(group);
    const chart = charts[figure.dataset.chart];
    const live = figure.querySelector(".live");
    if (!prepared.has(group)) {
      prepared.add(group);
      wholes.set(group, [chart.from, chart.to]);
      tools(group, charts);
    }
    if (!readouts.has(figure)) {
      readouts.set(figure, wireLegend(figure, chart));
      wireKeys(figure, chart);
      loadlab.withTable(figure, chart);
    }
    living.get(figure)?.destroy();
    figure.classList.add("drawn");
    const lines = chart.lines.map((line) => line.values);
    if (chart.heat) lines.push(chart.at.map(() => null));
    const u = new uPlot(options(chart, group, [live.clientWidth, heightOf(figure)], readouts.get(figure)), [chart.at, ...lines], live);
    // A double click shows all again, and all means the same for every chart of a trial.
    u.over.addEventListener("dblclick", () => zoomOut(group));
    living.set(figure, u);
    const kept = zooms.get(group);
    if (kept) u.setScale("x", { min: kept[0], max: kept[1] });
    if (picked.get(group)) pick(group, charts);
    else lit(figure);
  };
  const drawn = (figure) =>
    draw(figure).catch((error) => {
      // The still picture stays, and says why.
      figure.append(make("p", { className: "note", textContent: `This chart cannot be drawn here: ${error.message}` }));
      throw error;
    });

  // Charts are drawn when they come into sight: a report may hold a hundred.
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        drawn(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const u = living.get(entry.target);
      const width = entry.target.clientWidth;
      if (u && width > 0 && width !== u.width) u.setSize({ width, height: heightOf(entry.target) });
    }
  });
  loadlab.watchCharts = () => {
    for (const figure of document.querySelectorAll(".chart")) {
      seen.observe(figure);
      resized.observe(figure);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...living.keys()].forEach(drawn));
  };
})();
