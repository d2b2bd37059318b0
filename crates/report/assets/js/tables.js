// Every table and chart to take away: copied as Markdown or CSV, and a table of values behind each chart.
(() => {
  "use strict";
  const { count, make, place, say, units } = loadlab;

  const clipboard = async (text) => {
    loadlab.copied = text;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers that do not trust a page from disk, or that nobody has clicked on yet.
      const area = make("textarea", { value: text, className: "unseen" });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };

  const markdown = (rows) => {
    const cell = (text) => String(text).replace(/[\\|`*_[\]<>#~]/g, "\\$&").replace(/\s+/g, " ");
    const line = (row) => `| ${row.map(cell).join(" | ")} |`;
    const [head, ...body] = rows;
    return [line(head), `|${head.map((_, i) => (i ? "---:" : "---")).join("|")}|`, ...body.map(line)].join("\n") + "\n";
  };
  // RFC 4180; what a spreadsheet would take for a formula is marked as text.
  const csv = (rows) => {
    const field = (value) => {
      let text = String(value ?? "").replace(/\s+/g, " ");
      const formula = /^[=+\-@]/.test(text) && !Number.isFinite(Number(text));
      if (formula) text = `'${text}`;
      return formula || /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  };

  const button = (text, what, take) => {
    const button = make("button", { type: "button", textContent: text });
    button.setAttribute("aria-label", `Copy ${what} as ${text}`);
    button.addEventListener("click", async () => {
      await clipboard(take());
      button.textContent = "Copied";
      say(`${what} copied as ${text}`);
      setTimeout(() => (button.textContent = text), 1500);
    });
    return button;
  };
  const copies = (what, forMarkdown, forCsv) =>
    make("div", { className: "copy" }, "Copy as ", button("Markdown", what, () => markdown(forMarkdown())), button("CSV", what, () => csv(forCsv())));

  const main = (cell) =>
    [...cell.childNodes].filter((n) => n.nodeName !== "SMALL").map((n) => n.textContent).join("").trim();
  const told = (cell, i) => {
    const range = i > 0 && cell.querySelector("small");
    return range ? `${main(cell)} (${range.textContent})` : main(cell);
  };
  const titleOf = (element) => element.closest("section")?.querySelector("h2")?.firstChild.textContent.trim() ?? "table";
  const rowsOf = (table, read) => [...table.rows].map((row) => [...row.cells].map(read));

  loadlab.wireTables = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      const table = box.querySelector("table");
      box.after(copies(table.caption?.textContent ?? titleOf(box), () => rowsOf(table, told), () => rowsOf(table, main)));
    }
    for (const table of document.querySelectorAll("table.figures")) {
      table.after(copies(titleOf(table), () => rowsOf(table, told), () => rowsOf(table, main)));
    }
    for (const figure of document.querySelectorAll(".compare")) {
      const title = figure.querySelector("figcaption").firstChild.textContent;
      const names = [...figure.querySelectorAll("figcaption .legend li")].map((li) => li.textContent);
      const rows = () => [
        figure.classList.contains("ratios") ? ["figure", "verdict", "ratio"] : ["case", ...(names.length ? names : [title])],
        ...[...figure.querySelectorAll(".row")].map((row) => [
          row.querySelector(".name").textContent,
          ...row.querySelector(".readout").textContent.split(" · "),
        ]),
      ];
      figure.append(copies(title, rows, rows));
    }
  };

  // The values of a chart: as people read them in the page, as numbers in what is copied.
  const valuesOf = (chart, raw) => {
    const format = raw ? (v) => v : units[chart.unit] || count;
    const cell = (v) => (v == null ? (raw ? "" : "–") : format(v));
    const unit = raw ? ` (${chart.unit})` : "";
    if (!chart.heat) {
      const head = [chart.nines ? "percentile" : "at", ...chart.lines.map((l) => l.name + unit)];
      const at = (v) => (raw && !chart.nines ? v : place(chart, v));
      return [head, ...chart.at.map((v, i) => [at(v), ...chart.lines.map((l) => cell(l.values[i]))])];
    }
    const { edges, columns } = chart.heat;
    const spans = edges.slice(1).map((to, i) => `${raw ? edges[i] : units.ms(edges[i])} – ${raw ? to : units.ms(to)}`);
    const counts = ([first, ...counts]) => spans.map((_, row) => counts[row - first] ?? 0);
    return [["at", ...spans], ...chart.at.map((v, i) => [raw ? v : place(chart, v), ...counts(columns[i])])];
  };

  const tableOf = (chart) => {
    const [head, ...body] = valuesOf(chart, false);
    const cell = (name, text, i) => make(name, { className: i ? "n" : "", scope: i ? "" : "row", textContent: text });
    const table = make("table");
    table.append(make("caption", { textContent: `${chart.title}: values` }));
    const heads = head.map((text, i) => make("th", { className: i ? "n" : "", scope: "col", textContent: text }));
    table.append(make("thead", {}, make("tr", {}, ...heads)));
    const rows = body.map((row) => make("tr", {}, ...row.map((text, i) => cell(i ? "td" : "th", text, i))));
    table.append(make("tbody", {}, ...rows));
    const box = make("div", { className: "scroll values", tabIndex: 0 }, table);
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `${chart.title}: values`);
    return box;
  };

  loadlab.withTable = (figure, chart) => {
    const show = make("button", { type: "button", textContent: "Table" });
    show.setAttribute("aria-expanded", "false");
    show.setAttribute("aria-label", `Table of ${chart.title}`);
    const line = copies(chart.title, () => valuesOf(chart, false), () => valuesOf(chart, true));
    line.prepend(show);
    figure.append(line);
    let box;
    show.addEventListener("click", () => {
      const open = show.getAttribute("aria-expanded") !== "true";
      show.setAttribute("aria-expanded", String(open));
      if (open) figure.append((box = tableOf(chart)));
      else box.remove();
    });
  };

  // The answer and the cases, for a message or a merge request.
  loadlab.wireAnswer = () => {
    const header = document.querySelector("header");
    const text = (element) => element.textContent.trim().replace(/\s+/g, " ");
    const take = () => {
      const facts = [...header.querySelectorAll(".answer div")].map(
        (div) => `**${text(div.querySelector("dt"))}.** ${text(div.querySelector("dd"))}\n`,
      );
      const cases = document.querySelector("table.figures");
      const title = header.querySelector("h1").firstChild.textContent.trim();
      const table = cases ? `\n${markdown(rowsOf(cases, told))}` : "";
      return `# ${title}\n\n${text(header.querySelector(".sub"))}\n\n${facts.join("\n")}${table}`;
    };
    header.append(make("div", { className: "copy" }, "Copy the answer as ", button("Markdown", "the answer", take)));
  };
})();
