// The living part of a report: charts with cursors in step, and one case at a time where there are many.
// Without it the page holds the same figures as tables and still pictures.
(() => {
  "use strict";

  const HEIGHT = 220;
  const data = JSON.parse(document.getElementById("data").textContent);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Figures as the rest of the page writes them: three significant digits and the unit that fits.
  const significant = (value) => {
    const text = value.toPrecision(3);
    return text.includes("e") ? String(Math.round(value)) : text;
  };
  const count = (value) =>
    Math.abs(value) < 100 && !Number.isInteger(value)
      ? significant(value)
      : Math.round(value).toLocaleString("en-US");
  const scaled = (value, base, units) => {
    let i = 0;
    while (i + 1 < units.length && Math.abs(value) >= base * 0.9995) {
      value /= base;
      i += 1;
    }
    return `${value === 0 ? "0" : significant(value)} ${units[i]}`;
  };
  const duration = (ns) => {
    if (Math.abs(ns) < 60e9) return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
    const s = Math.round(ns / 1e9);
    return s % 60 ? `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s` : `${s / 60}m`;
  };
  const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
  const units = {
    count,
    number: count,
    per_s: (v) => `${count(v)}/s`,
    ms: (v) => duration(v * 1e6),
    s: (v) => duration(v * 1e9),
    share: (v) => `${count(v * 100)} %`,
    bytes,
    bytes_per_s: (v) => `${bytes(v)}/s`,
    percent_of_core: (v) => `${count(v)} %`,
  };

  // Bands behind the lines (warm-up, pause, drain), marks in front of them (what happened).
  const drawBands = (chart) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
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
    ctx.restore();
  };
  const drawMarks = (chart) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = style("--bad");
    ctx.fillStyle = style("--bad");
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const [at, text] of chart.marks) {
      const x = u.valToPos(at, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      // On the side with more room, below the names of bands; the whole text stands above the charts.
      const right = x > bbox.left + bbox.width / 2;
      ctx.textAlign = right ? "right" : "left";
      const label = text.length > 40 ? `${text.slice(0, 39)}…` : text;
      ctx.fillText(label, x + (right ? -4 : 4) * devicePixelRatio, bbox.top + 16 * devicePixelRatio);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // Where the plan changes the load: quiet, and named at the foot, in as many rows as keep names apart.
  const drawTurns = (chart) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = style("--faint");
    ctx.fillStyle = style("--faint");
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
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
    ctx.restore();
  };

  const powersOfTwo = Array.from({ length: 50 }, (_, i) => 2 ** i);

  const options = (chart, width, readout) => {
    const format = units[chart.unit] || count;
    const axis = { stroke: style("--faint"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: chart.group, scales: ["x", null] }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: {
        // All of a trial's charts begin and end together, also those that hold a part of the time.
        x: {
          time: false,
          range: (_, from, to) =>
            from === chart.at[0] && to === chart.at[chart.at.length - 1] ? [chart.from, chart.to] : [from, to],
        },
        y: chart.log
          ? { distr: 3 }
          : { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.05 : 1] },
      },
      axes: [
        { ...axis, size: 30, values: (_, values) => values.map((v) => `${v} s`) },
        {
          ...axis,
          size: 76,
          ...(chart.unit.startsWith("bytes") && { incrs: powersOfTwo }), values: (_, values) => values.map((v) => (v === null ? "" : format(v))),
        },
      ],
      series: [
        {},
        ...chart.lines.map((line) => ({
          label: line.name,
          stroke: style(`--c${line.colour}`),
          width: line.limit ? 1.25 : 1.75,
          dash: line.limit ? [6, 4] : undefined,
          points: { show: chart.at.length < 40 && !line.limit, size: 4 },
        })),
      ],
      hooks: {
        drawAxes: [drawBands(chart)],
        draw: [drawTurns(chart), drawMarks(chart)],
        setCursor: [(u) => readout(u, format)],
      },
    };
  };

  const living = new Map();

  // The legend turns lines on and off, by mouse and by keyboard, and shows the values under the cursor.
  const wireLegend = (figure) => {
    const items = [...figure.querySelectorAll(".legend li")];
    items.forEach((item, i) => {
      item.setAttribute("role", "button");
      item.setAttribute("aria-pressed", "true");
      item.tabIndex = 0;
      const toggle = () => {
        const show = item.getAttribute("aria-pressed") !== "true";
        item.setAttribute("aria-pressed", String(show));
        living.get(figure)?.setSeries(i + 1, { show });
      };
      item.addEventListener("click", toggle);
      item.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
    });
    const outputs = items.map((item) => item.querySelector("output"));
    const ranges = outputs.map((output) => output && output.textContent);
    return (u, format) => {
      outputs.forEach((output, i) => {
        if (!output) return;
        const value = u.cursor.idx == null ? undefined : u.data[i + 1][u.cursor.idx];
        output.textContent = u.cursor.idx == null ? ranges[i] : value == null ? "–" : format(value);
      });
    };
  };

  const readouts = new WeakMap();
  const draw = (figure) => {
    const chart = data[figure.dataset.chart];
    const place = figure.querySelector(".live");
    if (!chart || typeof uPlot === "undefined") return;
    if (!readouts.has(figure)) readouts.set(figure, wireLegend(figure));
    living.get(figure)?.destroy();
    figure.classList.add("drawn");
    const lines = chart.lines.map((line) => line.values);
    const u = new uPlot(options(chart, place.clientWidth, readouts.get(figure)), [chart.at, ...lines], place);
    // A double click shows all again, and all means the same for every chart of a trial.
    u.over.addEventListener("dblclick", () => u.setScale("x", { min: chart.from, max: chart.to }));
    figure.querySelectorAll(".legend li").forEach((item, i) => {
      if (item.getAttribute("aria-pressed") === "false") u.setSeries(i + 1, { show: false });
    });
    living.set(figure, u);
  };

  // Charts are drawn when they come into sight: a report may hold a hundred.
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "300px" },
  );
  document.querySelectorAll(".chart").forEach((figure) => seen.observe(figure));

  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const u = living.get(entry.target);
      const width = entry.target.clientWidth;
      if (u && width > 0 && width !== u.width) u.setSize({ width, height: HEIGHT });
    }
  });
  document.querySelectorAll(".chart").forEach((figure) => resized.observe(figure));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...living.keys()].forEach(draw));

  // One case at a time; the address says which, so that it can be sent to somebody.
  const picker = document.getElementById("picker");
  if (picker) {
    const select = picker.querySelector("select");
    const cases = [...document.querySelectorAll("section.case")];
    const show = (id) => {
      document.body.classList.toggle("picked", id !== "");
      cases.forEach((section) => section.classList.toggle("shown", section.id === id));
      select.value = id;
    };
    const go = (id) => {
      show(id);
      if (id) history.replaceState(null, "", `#${id}`);
    };
    select.addEventListener("change", () => go(select.value));
    picker.querySelectorAll("button").forEach((button) => {
      button.addEventListener("click", () => {
        const at = cases.findIndex((section) => section.id === select.value);
        const next = (at + Number(button.dataset.step) + cases.length) % cases.length;
        go(cases[at < 0 ? 0 : next].id);
      });
    });
    const fromAddress = () => {
      const id = location.hash.slice(1);
      if (!cases.some((section) => section.id === id)) return false;
      show(id);
      document.getElementById(id).scrollIntoView();
      return true;
    };
    addEventListener("hashchange", fromAddress);
    picker.hidden = false;
    if (!fromAddress()) show(cases[0].id);
  }
})();
