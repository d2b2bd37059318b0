// What the other parts stand on: figures as the page writes them, colours of the theme, the data of charts, and
// one voice for screen readers. Without scripts the page holds the same figures as tables and still pictures.
const loadlab = {};
(() => {
  "use strict";

  loadlab.style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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
  loadlab.count = count;
  loadlab.units = {
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

  // A place along a chart: seconds of the trial, or a percentile by its nines.
  const percentile = (nines) => {
    if (nines <= 0) return "fastest";
    const digits = Math.max(0, Math.floor(nines) - 1) + (Number.isInteger(nines) ? 0 : 1);
    return `p${Number((100 * (1 - 10 ** -nines)).toFixed(digits))}`;
  };
  loadlab.place = (chart, at) => (chart.nines ? percentile(at) : `${Number(at.toFixed(2))} s`);

  // Charts by group; a large group is packed until it is looked at.
  const groups = JSON.parse(document.getElementById("data").textContent);
  const unpacked = new Map();
  // As `pack.rs` writes it: JSON, then exponents, low and high bytes of the values of all lines.
  const unpack = async (value) => {
    if (typeof value !== "string") return value;
    const packed = Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const charts = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    const planes = bytes.subarray(4 + length);
    const n = planes.length / 3;
    let next = 0;
    const read = () => {
      const i = next++;
      const exponent = (planes[i] << 24) >> 24;
      const mantissa = ((planes[n + i] | (planes[2 * n + i] << 8)) << 16) >> 16;
      return exponent === -128 ? null : exponent === 0 ? mantissa : Number(`${mantissa}e${exponent}`);
    };
    for (const chart of Object.values(charts)) {
      for (const line of chart.lines ?? []) line.values = Array.from({ length: line.values }, read);
    }
    return charts;
  };
  loadlab.unpack = unpack;
  const placed = (charts) => {
    for (const chart of Object.values(charts)) {
      const { first, step, count } = chart.at;
      if (count) chart.at = Array.from({ length: count }, (_, i) => Number((first + i * step).toPrecision(12)));
    }
    return charts;
  };
  loadlab.load = (group) => {
    if (!unpacked.has(group)) unpacked.set(group, unpack(groups[group]).then(placed));
    return unpacked.get(group);
  };

  // An element in a line.
  loadlab.make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const voice = loadlab.make("p", { className: "unseen" });
  voice.setAttribute("role", "status");
  document.body.append(voice);
  loadlab.say = (text) => {
    voice.textContent = text;
  };
})();
