// Flame graphs: each function above its caller, as wide as its share of the samples. Frames are elements, so that focus,
// colours, clipped labels and printing are the browser's work. Without this script the table below is unfolded.
(() => {
  "use strict";
  const { count, make, units, unpack } = loadlab;

  // Narrower frames are not drawn; those narrower than the others have no edges, or no labels.
  const [LEAST_PX, EDGED_PX, LABELLED_PX] = [0.5, 3, 18];

  // Nodes in preorder, each with the sample at which it begins.
  const treeOf = ({ names, nodes, compared }) => {
    const path = [];
    const all = [];
    for (let i = 0; i < nodes.length; i += compared ? 4 : 3) {
      const [depth, name, samples] = nodes.slice(i, i + 3);
      const before = compared ? nodes[i + 3] : -1;
      const parent = path[depth - 1];
      const from = parent ? parent.next : 0;
      if (parent) parent.next += samples;
      path[depth] = { name: names[name], depth, samples, before, parent, from, next: from, at: all.length };
      all.push(path[depth]);
    }
    return all;
  };

  const kindOf = ({ name, depth }) => {
    if (!depth) return "whole";
    if (name === "[incomplete]" || name === "[unknown]") return "other";
    return name.endsWith(" [kernel]") ? "kernel" : "user";
  };
  // As a share of what there was before: infinite if there was nothing.
  const growth = ({ samples, before }) => (before < 0 ? 0 : samples / before - 1);
  const changeOf = (node) => {
    const size = Math.abs(growth(node));
    if (size < 0.05) return "same";
    return `${growth(node) > 0 ? "more" : "less"} l${size < 0.2 ? 1 : size < 0.5 ? 2 : 3}`;
  };
  const changeWords = (node) => {
    if (node.before < 0) return "";
    if (!node.before) return ", new: no samples before";
    const sign = growth(node) > 0 ? "+" : growth(node) < 0 ? "−" : "±";
    return `, ${sign}${units.share(Math.abs(growth(node)))} against ${count(node.before)} before`;
  };

  const wire = async (figure) => {
    const stage = figure.querySelector(".stage");
    if (!stage) return;
    const find = (selector) => stage.querySelector(selector);
    const [search, reset, box] = [find("input"), find("button"), find(".frames")];
    stage.hidden = false;
    figure.querySelector("details").open = false;
    const data = await unpack(JSON.parse(figure.querySelector("script").textContent));
    const all = treeOf(data);
    const [whole] = all;
    let zoom = whole;
    let active = whole;
    let drawnPx = 0;
    let wanted = "";
    // Elements of the nodes that are drawn.
    let frames = new Map();

    const words = (node) => {
      const share = (of) => units.share(node.samples / of.samples);
      const zoomed = zoom === whole ? "" : `, ${share(zoom)} of the zoomed frame`;
      return `${count(node.samples)} samples, ${share(whole)} of all${zoomed}${changeWords(node)}`;
    };
    const show = (node) => find(".on").replaceChildren(make("b", { textContent: node.name }), ` ${words(node)}`);
    const matches = ({ name }) => wanted && name.toLowerCase().includes(wanted);

    const add = (node, left, share) => {
      const px = share * drawnPx;
      if (px < LEAST_PX) return;
      const marks = [px < EDGED_PX && "thin", node.depth < zoom.depth && "under", matches(node) && "hit"];
      const className = ["frame", data.compared ? changeOf(node) : kindOf(node), ...marks.filter(Boolean)].join(" ");
      const textContent = px < LABELLED_PX ? "" : node.name;
      const spoken = { role: "treeitem", ariaLevel: node.depth + 1, ariaLabel: node.name };
      const frame = make("div", { node, className, tabIndex: -1, textContent, ...spoken });
      frame.style.cssText = `--depth:${node.depth};left:${100 * left}%;width:${100 * share}%`;
      frames.set(node, frame);
    };
    const focus = (node) => {
      if (!frames.has(node)) return;
      frames.get(active).tabIndex = -1;
      active = node;
      Object.assign(frames.get(node), { tabIndex: 0, ariaLabel: `${node.name}: ${words(node)}` }).focus();
    };
    const draw = (widthPx = box.clientWidth) => {
      const isFocused = box.contains(document.activeElement);
      drawnPx = widthPx;
      frames = new Map();
      for (let node = zoom.parent; node; node = node.parent) add(node, 0, 1);
      for (let { at } = zoom; at === zoom.at || all[at]?.depth > zoom.depth; at += 1) {
        add(all[at], (all[at].from - zoom.from) / zoom.samples, all[at].samples / zoom.samples);
      }
      const rows = 1 + [...frames.keys()].reduce((most, { depth }) => Math.max(most, depth), 0);
      const sheet = make("div", { className: "sheet" }, ...frames.values());
      sheet.style.setProperty("--rows", rows);
      // The box keeps the height of the whole: what is below it on the page does not move.
      if (zoom === whole) box.style.setProperty("--rows", rows);
      box.replaceChildren(sheet);
      stage.classList.toggle("searched", wanted !== "");
      reset.disabled = zoom === whole;
      if (!frames.has(active)) active = zoom;
      frames.get(active).tabIndex = 0;
      if (isFocused) focus(active);
    };
    const zoomTo = (node) => {
      zoom = node;
      if (node !== whole) active = node;
      draw();
      show(active);
    };
    // Each stack counts once: what a match calls is in its samples.
    const seek = () => {
      wanted = search.value.trim().toLowerCase();
      const inMatch = (node) => node && (matches(node) || inMatch(node.parent));
      const samples = all.reduce((sum, n) => sum + (matches(n) && !inMatch(n.parent) ? n.samples : 0), 0);
      find(".found").textContent = wanted && `${units.share(samples / whole.samples)} of samples match`;
      draw();
    };

    const drawn = (test) => [...frames.keys()].filter(test);
    const row = () => drawn(({ depth }) => depth === active.depth);
    const beside = (step) => row()[row().indexOf(active) + step];
    const keys = {
      ArrowUp: () => focus(drawn((n) => n.parent === active).sort((a, b) => b.samples - a.samples)[0]),
      ArrowDown: () => focus(active.parent),
      ArrowLeft: () => focus(beside(-1)),
      ArrowRight: () => focus(beside(1)),
      Enter: () => zoomTo(active),
    };
    const heed = (name, act) => {
      box.addEventListener(name, ({ target }) => target.closest(".frame") && act(target.closest(".frame").node));
    };
    ["pointerover", "focusin"].forEach((name) => heed(name, show));
    heed("click", zoomTo);
    figure.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      // In the field Escape first empties it.
      if (event.key === "Escape" && !(event.target === search && search.value)) zoomTo(whole);
      if (!keys[event.key] || !box.contains(event.target)) return;
      event.preventDefault();
      keys[event.key]();
    });
    search.addEventListener("input", seek);
    reset.addEventListener("click", () => {
      zoomTo(whole);
      focus(active);
    });

    // Drawn when it comes near, again when its width changes, and whole on paper.
    const resized = new ResizeObserver(() => box.clientWidth && box.clientWidth !== drawnPx && draw());
    const near = ([entry]) => entry.isIntersecting && resized.observe(box);
    new IntersectionObserver(near, { rootMargin: "600px" }).observe(box);
    addEventListener("beforeprint", () => {
      zoom = whole;
      draw(1000);
    });
  };
  loadlab.wireFlames = () => document.querySelectorAll(".flame").forEach(wire);
})();
