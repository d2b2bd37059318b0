// One drawing of the system at a time; without this script all of them stand below one another.
for (const box of document.querySelectorAll(".drawings")) {
  const tabs = box.querySelector(".tabs");
  const all = [...box.querySelectorAll(".drawing")];
  if (!tabs) continue;
  const show = (at) => {
    all.forEach((drawing, i) => { drawing.hidden = i !== at; });
    const list = tabs.querySelector("select");
    if (list) list.value = String(at);
    else [...tabs.children].forEach((tab, i) => tab.setAttribute("aria-pressed", String(i === at)));
  };
  tabs.hidden = false;
  tabs.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-drawing]");
    if (tab) show(Number(tab.dataset.drawing));
  });
  tabs.addEventListener("change", (event) => show(Number(event.target.value)));
  const blamed = all.findIndex((drawing) => drawing.querySelector(".node.blamed:not(.generator)"));
  show(Math.max(0, blamed));
}
