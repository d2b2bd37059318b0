// Flame graphs: every function above its caller, as wide as its share of the samples. Frames are elements, so that focus,
// colours, clipped labels and paper are the page's own. Without this script the table below is unfolded.
(() => {
  "use strict";
  const { count, make, say, units, unpack } = loadlab;

  // Narrower frames are not drawn; narrower than the second one they have no labels.
  const LEAST_PX = 0.5;
  const LABELLED_PX = 18;

  // Nodes in preorder, each from where it begins among the samples.
  const grown = ({ names, nodes, compared }) => {
    const path = [];
    const all = [];
    const width = compared ? 4 : 3;
    for (let i = 0; i < nodes.length; i += width) {
      const [depth, name, samples, before = -1] = nodes.slice(i, i + width);
      const parent = path[depth - 1];
      const from = parent ? parent.next : 0;
      const node = { name: names[name], depth, samples, before, parent, from, next: from, at: all.length };
      if (parent) parent.next += samples;
      path[depth] = node;
      all.push(node);
    }
    return all;
  };

  const kindOf = ({ name, depth }) => {
    if (!depth) return "whole";
    if (name === "[incomplete]" || name === "[unknown]") return "other";
    return name.endsWith(" [kernel]") ? "kernel" : "user";
  };
  // Shares are compared, since both totals differ. Growth is infinite if there was nothing before.
  const growth = ({ samples, before }, whole) => {
    if (before < 0) return 0;
    return before ? samples / whole.samples / (before / whole.before) - 1 : Infinity;
  };
  const changeOf = (node, whole) => {
    const grows = growth(node, whole);
    const size = Math.abs(grows);
    if (size < 0.05) return "same";
    return `${grows > 0 ? "more" : "less"} l${size < 0.2 ? 1 : size < 0.5 ? 2 : 3}`;
  };
  const amount = (samples, isTime) => {
    if (isTime) return units.ms(samples / 1000);
    return `${count(samples)} ${samples === 1 ? "sample" : "samples"}`;
  };
  const changeWords = (node, whole, isTime) => {
    if (node.before < 0) return [];
    const grows = growth(node, whole);
    if (grows === Infinity) return ["new: not there before"];
    const sign = grows > 0 ? "+" : grows < 0 ? "−" : "±";
    const share = units.share(node.before / whole.before);
    return [`${sign}${units.share(Math.abs(grows))} against ${share} before (${amount(node.before, isTime)})`];
  };

  const wire = async (figure) => {
    const stage = figure.querySelector(".stage");
    if (!stage) return;
    const [search, reset, found, box, on] = ["input", "button", ".found", ".frames", ".on"].map((s) => stage.querySelector(s));
    stage.hidden = false;
    figure.querySelector("details").open = false;
    const data = await unpack(JSON.parse(figure.querySelector("script").textContent));
    const all = grown(data);
    const [whole] = all;
    let zoom = whole;
    let active = whole;
    let drawnPx = 0;
    let wanted = "";
    // Elements by node, only of those drawn, and back.
    let frames = new Map();
    const nodes = new WeakMap();

    const words = (node) => {
      const share = (of) => units.share(node.samples / of.samples);
      const zoomed = zoom === whole ? [] : [`${share(zoom)} of the zoomed frame`];
      const samples = amount(node.samples, data.time);
      return [samples, `${share(whole)} of all`, ...zoomed, ...changeWords(node, whole, data.time)].join(", ");
    };
    const show = (node) => on.replaceChildren(make("b", { textContent: node.name }), ` ${words(node)}`);
    const matches = (node) => wanted !== "" && node.name.toLowerCase().includes(wanted);

    const frameOf = (node, px, left, share) => {
      const tint = data.compared ? changeOf(node, whole) : kindOf(node);
      const parts = ["frame", tint, px < 3 && "thin", zoom.depth > node.depth && "under", matches(node) && "hit"];
      const label = px < LABELLED_PX ? "" : node.name;
      const frame = make("div", { className: parts.filter(Boolean).join(" "), tabIndex: -1, textContent: label });
      frame.style.cssText = `--depth:${node.depth};left:${100 * left}%;width:${100 * share}%`;
      frame.setAttribute("role", "treeitem");
      frame.setAttribute("aria-level", node.depth + 1);
      frame.setAttribute("aria-label", node.name);
      nodes.set(frame, node);
      return frame;
    };
    const draw = (widthPx) => {
      const held = box.contains(document.activeElement);
      drawnPx = widthPx;
      frames = new Map();
      const callers = [];
      for (let node = zoom.parent; node; node = node.parent) callers.unshift(node);
      callers.forEach((node) => frames.set(node, frameOf(node, widthPx, 0, 1)));
      let rows = zoom.depth;
      for (let at = zoom.at; at === zoom.at || all[at]?.depth > zoom.depth; at += 1) {
        const node = all[at];
        const share = node.samples / zoom.samples;
        if (share * widthPx < LEAST_PX) continue;
        frames.set(node, frameOf(node, share * widthPx, (node.from - zoom.from) / zoom.samples, share));
        rows = Math.max(rows, node.depth);
      }
      // The box keeps the height of the whole: what is below it on the page does not move.
      if (zoom === whole) box.style.setProperty("--rows", rows + 1);
      const field = make("div", { className: "field" }, ...frames.values());
      field.setAttribute("role", "none");
      field.style.setProperty("--rows", rows + 1);
      box.replaceChildren(field);
      stage.classList.toggle("searched", wanted !== "");
      reset.disabled = zoom === whole;
      if (!frames.has(active)) active = zoom;
      frames.get(active).tabIndex = 0;
      if (held) frames.get(active).focus();
    };
    const go = (node) => {
      if (!frames.has(node)) return;
      frames.get(active).tabIndex = -1;
      active = node;
      const frame = frames.get(node);
      frame.tabIndex = 0;
      frame.setAttribute("aria-label", `${node.name}: ${words(node)}`);
      frame.focus();
    };
    const zoomTo = (node) => {
      if (node === zoom) return;
      active = node === whole ? zoom : node;
      zoom = node;
      draw(box.clientWidth);
      show(active);
      say(node === whole ? "The whole graph" : `Zoomed to ${node.name}`);
    };
    // Each stack once: what a match calls is already counted with it.
    const seek = () => {
      wanted = search.value.trim().toLowerCase();
      let [samples, hits, within] = [0, 0, Infinity];
      for (const node of all) {
        if (node.depth <= within) within = Infinity;
        if (!matches(node)) continue;
        hits += 1;
        if (within < Infinity) continue;
        within = node.depth;
        samples += node.samples;
      }
      const share = units.share(samples / whole.samples);
      const what = hits === 1 ? "frame matches" : "frames match";
      found.textContent = !wanted ? "" : hits ? `${count(hits)} ${what}: ${share} of ${data.time ? "the time" : "samples"}` : "nothing matches";
      draw(box.clientWidth);
    };

    const beside = (step) => {
      const row = [...frames.keys()].filter((node) => node.depth === active.depth);
      return row[row.indexOf(active) + step];
    };
    const widest = () =>
      [...frames.keys()].filter((n) => n.parent === active).reduce((a, b) => (b.samples > (a?.samples ?? 0) ? b : a), undefined);
    const keys = {
      ArrowUp: () => go(widest()),
      ArrowDown: () => go(active.parent),
      ArrowLeft: () => go(beside(-1)),
      ArrowRight: () => go(beside(1)),
      Home: () => go(zoom),
      Enter: () => zoomTo(active),
      " ": () => zoomTo(active),
    };
    const nodeOf = (event) => nodes.get(event.target.closest(".frame"));
    const heed = (name, act) => box.addEventListener(name, (event) => nodeOf(event) && act(nodeOf(event)));
    heed("pointerover", show);
    heed("focusin", show);
    heed("click", (node) => { go(node); zoomTo(node); });
    box.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    figure.addEventListener("keydown", (event) => {
      // In the field Escape first empties it.
      if (event.key === "Escape" && !(event.target === search && search.value)) zoomTo(whole);
    });
    search.addEventListener("input", seek);
    reset.addEventListener("click", () => { zoomTo(whole); frames.get(active).focus(); });

    // Drawn when it comes near, again when its width changes, and whole on paper.
    const resized = new ResizeObserver(() => box.clientWidth && box.clientWidth !== drawnPx && draw(box.clientWidth));
    const near = new IntersectionObserver(([entry]) => entry.isIntersecting && resized.observe(box), { rootMargin: "600px" });
    near.observe(box);
    let before;
    addEventListener("beforeprint", () => { [before, zoom] = [zoom, whole]; draw(1000); });
    addEventListener("afterprint", () => { zoom = before; draw(box.clientWidth); });
  };
  loadlab.wireFlames = () => document.querySelectorAll(".flame").forEach(wire);
})();
