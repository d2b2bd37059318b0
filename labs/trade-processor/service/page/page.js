// Shows what the front end pushes. Once open, the page requests nothing: each event contains the whole state.
const $ = (id) => document.getElementById(id);
const svg = (name, attributes, text) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
const shown = (number) => Number(number).toLocaleString('en');
const byCount = (counts) => Object.entries(counts).map(([name, n]) => [name, Number(n)]).sort((a, b) => b[1] - a[1]);

function drawWorld() {
  for (let lon = -150; lon <= 150; lon += 30) $('map').append(svg('path', { class: 'grid', d: `M${lon},-82V56` }));
  for (let lat = -30; lat <= 60; lat += 30) $('map').append(svg('path', { class: 'grid', d: `M-170,${-lat}H180` }));
  for (const outline of LAND) {
    $('map').append(svg('polygon', { class: 'land', points: outline.map(([lon, lat]) => `${lon},${-lat}`).join(' ') }));
  }
  $('map').append(svg('g', { id: 'countries' }));
}

/** A circle for each country, its area proportional to the messages. Countries without a place are shown in the sea. */
function showCountries(counts) {
  const sorted = byCount(counts);
  const most = sorted[0]?.[1] ?? 1;
  const elsewhere = sorted.filter(([code]) => !PLACES[code]);
  $('countries').replaceChildren(...sorted.flatMap(([code, n]) => {
    const at = elsewhere.findIndex(([other]) => other === code);
    const [lon, lat] = PLACES[code] ?? [-160 + 12 * at, -45];
    const dot = svg('circle', { class: 'dot', cx: lon, cy: -lat, r: 1 + 4.5 * Math.sqrt(n / most) });
    dot.append(svg('title', {}, `${code}: ${shown(n)}`));
    return [dot, svg('text', { class: 'code', x: lon, y: -lat + 1.1 }, code)];
  }));
}

/** What is sold on the left, what is bought on the right; a ribbon's width is proportional to the messages. */
function showFlows(flows) {
  const pairs = byCount(flows).map(([pair, n]) => [...pair.split('>'), n]);
  const all = pairs.reduce((sum, [, , n]) => sum + n, 0) || 1;
  const column = (side) => {
    const sums = {};
    for (const pair of pairs) sums[pair[side]] = (sums[pair[side]] ?? 0) + pair[2];
    const names = byCount(sums);
    const gap = 9;
    const scale = (420 - gap * names.length) / all;
    let y = gap / 2;
    return Object.fromEntries(names.map(([name, n]) => {
      const node = { y, height: n * scale, used: 0, n };
      y += node.height + gap;
      return [name, node];
    }));
  };
  const [sold, bought] = [column(0), column(1)];
  const hue = Object.fromEntries(Object.keys(sold).sort().map((name, i, names) => [name, (360 * i) / names.length]));
  const ribbons = pairs.map(([from, to, n]) => {
    const [a, b] = [sold[from], bought[to]];
    const [ha, hb] = [(a.height * n) / a.n, (b.height * n) / b.n];
    const [ya, yb] = [a.y + a.used, b.y + b.used];
    a.used += ha;
    b.used += hb;
    const d = `M60,${ya}C300,${ya} 300,${yb} 540,${yb}V${yb + hb}C300,${yb + hb} 300,${ya + ha} 60,${ya + ha}Z`;
    const ribbon = svg('path', { class: 'ribbon', d, fill: `hsl(${hue[from]} 55% 50%)` });
    ribbon.append(svg('title', {}, `${from} for ${to}: ${shown(n)}`));
    return ribbon;
  });
  const names = (nodes, x, anchor) => Object.entries(nodes).map(([name, { y, height }]) =>
    svg('text', { class: 'node', x, y: y + height / 2 + 4, 'text-anchor': anchor }, name));
  $('flows').replaceChildren(...ribbons, ...names(sold, 52, 'end'), ...names(bought, 548, 'start'));
}

function showRates(rates) {
  $('rates').replaceChildren(...Object.entries(rates).sort().map(([pair, rate]) => {
    const item = document.createElement('li');
    item.textContent = pair.replace('>', ' → ');
    const value = document.createElement('span');
    value.textContent = Number(rate).toPrecision(5);
    item.append(value);
    return item;
  }));
}

function show({ messages, wrong, countries, flows, rates }) {
  const reasons = byCount(wrong);
  $('messages').value = shown(messages);
  $('dropped').value = shown(reasons.reduce((sum, [, n]) => sum + n, 0));
  $('why').textContent = reasons.map(([why, n]) => `${why} ${shown(n)}`).join(', ');
  showCountries(countries);
  showFlows(flows);
  showRates(rates);
}

drawWorld();
const events = new EventSource('events');
const say = (state) => {
  $('state').textContent = state;
  $('state').className = state;
};
events.onopen = () => say('live');
events.onerror = () => say('connecting');
events.onmessage = (event) => show(JSON.parse(event.data));
