// Points in a plane: their values are shown under the mouse, and from point to point by key. The picture itself is whole
// without this.
(() => {
  "use strict";
  const { make, say } = loadlab;

  const wire = (figure) => {
    const field = figure.querySelector(".field");
    const spots = [...field.querySelectorAll(".dot")];
    const at = make("output", { className: "at" });
    at.setAttribute("aria-live", "off");
    figure.querySelector("figcaption").append(" ", at);
    if (!spots.length) return;
    let on;
    const show = (spot) => {
      on?.classList.remove("on");
      on = spot;
      on?.classList.add("on");
      at.textContent = on ? on.dataset.words : "";
    };
    for (const spot of spots) {
      // The caption has these words: a tooltip with the same would be in the way.
      spot.dataset.words = spot.title;
      spot.removeAttribute("title");
      spot.addEventListener("pointerenter", () => show(spot));
    }
    field.addEventListener("pointerleave", () => show(undefined));
    field.addEventListener("blur", () => show(undefined));
    field.tabIndex = 0;
    field.setAttribute("role", "application");
    field.setAttribute("aria-label", field.dataset.label);
    const go = (spot) => {
      if (!spot) return;
      show(spot);
      say(spot.dataset.words);
    };
    const mates = (group) => spots.filter((spot) => spot.dataset.group === group);
    const along = (step) => {
      if (!on) return go(spots[0]);
      const list = mates(on.dataset.group);
      go(list[list.indexOf(on) + step]);
    };
    // To the same place of the next group, or its last one.
    const across = (step) => {
      if (!on) return go(spots[0]);
      const place = mates(on.dataset.group).indexOf(on);
      const list = mates(String(Number(on.dataset.group) + step));
      go(list[Math.min(place, list.length - 1)]);
    };
    const last = (list) => list[list.length - 1];
    field.addEventListener("keydown", (event) => {
      const keys = {
        ArrowRight: () => along(1),
        ArrowLeft: () => along(-1),
        ArrowDown: () => across(1),
        ArrowUp: () => across(-1),
        Home: () => go(on ? mates(on.dataset.group)[0] : spots[0]),
        End: () => go(on ? last(mates(on.dataset.group)) : last(spots)),
        Enter: () => on?.click(),
        Escape: () => show(undefined),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  };
  loadlab.wirePlanes = () => document.querySelectorAll(".plane").forEach(wire);
})();
