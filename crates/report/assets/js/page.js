// One case at a time, and everything set going.
(() => {
  "use strict";

  // The address says which case is shown, so that a link leads to this case.
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

  loadlab.wireAnswer();
  loadlab.wireTables();
  loadlab.wirePlanes();
  loadlab.wireFlames();
  loadlab.watchCharts();
  loadlab.readyMs = performance.now();
})();
