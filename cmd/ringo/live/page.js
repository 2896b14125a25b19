// The state of the job comes in events. Each event draws the whole page again. Text of the job is set only as text, never as HTML.
'use strict';

const $ = (id) => document.getElementById(id);

// make returns an element with a class and children, strings or elements.
function make(tag, cls, ...children) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  e.append(...children);
  return e;
}

function svg(tag, attrs, text) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}

const bytes = (n) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return `${u === 0 ? n : n.toFixed(n < 10 ? 2 : 1)} ${units[u]}`;
};
const time = (us) => us < 1e3 ? `${Math.round(us)} µs` : us < 1e6 ? `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s`;
const number = (x) => typeof x === 'string' ? x // NaN, +Inf
  : x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(4));
const count = (n) => n.toLocaleString('en');
const clock = (s) => {
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return `${h ? h + ' h ' : ''}${h || m ? m + ' min ' : ''}${Math.floor(s) % 60} s`;
};

// ticks returns round numbers from lo to hi.
function ticks(lo, hi) {
  const raw = (hi - lo) / 4, mag = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((k) => k * mag >= raw) * mag;
  const all = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) all.push(v);
  return all;
}

// Chart is a panel with one curve: a rate, on an axis that begins at zero, or values.
class Chart {
  constructor(name, rate) {
    this.rate = rate;
    this.now = make('span', 'now');
    this.box = make('div');
    this.log = make('input');
    this.log.type = 'checkbox';
    this.log.addEventListener('change', () => this.draw());
    this.choice = make('label', 'choice', this.log, 'log');
    this.panel = make('section', '', make('h2', '', name, this.choice, this.now), this.box);
    this.box.addEventListener('pointermove', (e) => { this.x = e.offsetX; this.draw(); });
    this.box.addEventListener('pointerleave', () => { this.x = undefined; this.draw(); });
  }

  set(series, restarts) { this.series = series; this.restarts = restarts; this.draw(); }

  draw() {
    const s = this.series, steps = s.steps || [], values = s.values || [];
    const w = this.box.clientWidth || 360, h = 150, left = 52, right = w - 8, top = 8, bottom = h - 20;
    const shown = values.filter((v) => typeof v === 'number');
    this.now.replaceChildren(make('b', '', number(s.last)));
    if (!shown.length) { this.box.replaceChildren(); return; }
    let lo = Math.min(...shown), hi = Math.max(...shown);
    this.choice.hidden = this.rate || lo <= 0;
    const log = this.log.checked && lo > 0, scale = log ? Math.log10 : (v) => v;
    if (this.rate) lo = 0;
    [lo, hi] = [scale(lo), scale(hi)];
    if (lo === hi) { const d = Math.abs(lo) / 10 || 1; lo -= d; hi += d; }
    const first = steps[0], span = Math.max(1, steps[steps.length - 1] - first);
    const X = (step) => left + (step - first) / span * (right - left), Y = (v) => bottom - (scale(v) - lo) / (hi - lo) * (bottom - top);
    const pic = svg('svg', { viewBox: `0 0 ${w} ${h}`, height: h });
    for (const v of ticks(lo, hi).map((t) => log ? 10 ** t : t)) {
      pic.append(svg('line', { class: 'grid', x1: left, x2: right, y1: Y(v), y2: Y(v) }), svg('text', { x: left - 6, y: Y(v) + 4, 'text-anchor': 'end' }, number(v)));
    }
    pic.append(svg('text', { x: left, y: h - 4 }, `step ${count(first)}`), svg('text', { x: right, y: h - 4, 'text-anchor': 'end' }, count(steps[steps.length - 1])));
    for (const f of this.restarts) { // where a generation failed, and the next one went on from its checkpoint
      if (f.step < first || f.step > first + span) continue;
      const mark = svg('line', { class: 'restart', x1: X(f.step), x2: X(f.step), y1: top, y2: bottom });
      mark.append(svg('title', {}, `generation ${f.generation} failed behind step ${count(f.step)}: ${f.text}`));
      pic.append(mark);
    }
    let path = '', pen = 'M';
    steps.forEach((step, i) => { // a value that is not a number is a gap
      if (typeof values[i] !== 'number') { pen = 'M'; return; }
      path += `${pen}${X(step).toFixed(1)} ${Y(values[i]).toFixed(1)}`;
      pen = 'L';
    });
    pic.append(svg('path', { class: 'curve', d: path }));
    if (steps.length === 1) pic.append(svg('circle', { class: 'dot', cx: X(first), cy: Y(values[0]), r: 3 }));
    if (this.x !== undefined) {
      let i = 0;
      steps.forEach((step, k) => { if (Math.abs(X(step) - this.x) < Math.abs(X(steps[i]) - this.x)) i = k; });
      pic.append(svg('line', { class: 'cursor', x1: X(steps[i]), x2: X(steps[i]), y1: top, y2: bottom }));
      const what = s.every > 1 ? `mean of ${s.every}, to step` : 'step';
      this.now.replaceChildren(`${what} ${count(steps[i])}: `, make('b', '', number(values[i])));
    }
    this.box.replaceChildren(pic);
  }
}

const charts = new Map();

// restarts are the failures behind which there was another generation.
const restarts = (job) => job.failures.filter((f) => f.generation < job.generation);

function drawCharts(state) {
  for (const s of [...state.values || [], ...state.rates]) {
    if (!s.steps || !s.steps.length) continue;
    const rate = state.rates.includes(s), key = `${rate} ${s.name}`;
    if (!charts.has(key)) charts.set(key, new Chart(s.name, rate));
    const chart = charts.get(key);
    $('charts').append(chart.panel); // in this order
    chart.set(s, restarts(state.job));
  }
}

function drawHeader(state) {
  const j = state.job;
  document.title = `${j.program} ${j.state} – ringo`;
  $('program').textContent = j.program;
  $('state').textContent = j.state;
  $('state').className = `state ${j.state}`;
  const facts = [];
  if (j.ranks) facts.push(`${j.ranks} rank${j.ranks > 1 ? 's' : ''}`);
  if (j.total) facts.push(`step ${count(j.step)} of ${count(j.total)}`);
  else if (j.step) facts.push(`step ${count(j.step)}`);
  facts.push(clock(j.seconds));
  if (j.generation > 1) facts.push(`generation ${j.generation} (restarted)`);
  $('facts').textContent = facts.join(' · ');
  $('progress').hidden = !j.total;
  if (j.total) $('progress').value = j.step / j.total;
  $('failure').hidden = !j.text;
  $('failure').textContent = j.text;
  const again = restarts(j);
  $('restarts').hidden = !again.length;
  $('restarts').textContent = again.map((f) => `generation ${f.generation} failed behind step ${count(f.step)}: ${f.text}`).join('\n');
}

function drawMemory(state) {
  $('legend').replaceChildren(...state.kinds.map((kind, k) =>
    make('span', '', make('i', `k${k}`), kind, make('small', '', state.peaks[k] ? ` ${bytes(state.peaks[k])}` : ''))));
  const sum = (row) => row.slice(0, -1).reduce((a, b) => a + b, 0);
  const most = Math.max(1, ...state.memory.map((row) => Math.max(sum(row), row[row.length - 1])));
  $('memory').replaceChildren(...state.memory.map((row, rank) => {
    const room = make('div', 'room');
    state.kinds.forEach((kind, k) => {
      if (!row[k]) return;
      const part = make('i', `k${k}`);
      part.style.width = `${row[k] / most * 100}%`;
      part.title = `${kind}: ${bytes(row[k])}`;
      room.append(part);
    });
    const text = make('span', 'most', `${bytes(sum(row))}, at most ${bytes(row[row.length - 1])}`);
    return make('div', 'bar', make('span', '', `rank ${rank}`), room, text);
  }));
}

function table(id, head, rows) {
  const tr = (cell, row) => make('tr', '', ...row.map((x) => x instanceof Node ? x : make(cell, '', x)));
  $(id).replaceChildren(make('thead', '', tr('th', head)), make('tbody', '', ...rows.map((row) => tr('td', row))));
}

function drawComm(state) {
  const n = Math.max(1, state.job.ranks);
  const ops = [...state.comm].sort((a, b) => b.payload - a.payload);
  table('comm', ['operation', 'calls', 'payload', 'moved', 'in flight', 'waited'],
    ops.map((o) => [o.name, count(o.calls), bytes(o.payload), bytes(o.wire), time(o.flight / n), time(o.waited / n)]));
}

function drawSlow(state) {
  const v = state.slow, n = v.steps.length, ranks = v.times.length;
  $('slownote').textContent = n ? `Of the last ${count(n)} steps that all ranks reported. Own time is that in which a rank did not wait for others.`
    : 'Known for programs that train with train.Loop.';
  const w = $('slow').clientWidth || 360, h = 30 + Math.min(120, 14 * ranks), left = 52, right = w - 8;
  const pic = svg('svg', { viewBox: `0 0 ${w} ${h}`, height: h });
  if (n) {
    const Y = (rank) => 8 + (rank + 0.5) / ranks * (h - 30), X = (i) => left + (i + 0.5) / n * (right - left);
    const every = Math.ceil(ranks / 8);
    for (let r = 0; r < ranks; r += every) {
      pic.append(svg('line', { class: 'grid', x1: left, x2: right, y1: Y(r), y2: Y(r) }), svg('text', { x: left - 6, y: Y(r) + 4, 'text-anchor': 'end' }, `rank ${r}`));
    }
    v.steps.forEach((step, i) => {
      const dot = svg('circle', { class: 'dot', cx: X(i), cy: Y(v.ranks[i]), r: Math.max(1.5, Math.min(4, (right - left) / n / 2)) });
      dot.append(svg('title', {}, `step ${step}: rank ${v.ranks[i]}, ${time(v.lead[i])} above the mean`));
      pic.append(dot);
    });
    pic.append(svg('text', { x: left, y: h - 6 }, `step ${count(v.steps[0])}`), svg('text', { x: right, y: h - 6, 'text-anchor': 'end' }, count(v.steps[n - 1])));
  }
  $('slow').replaceChildren(pic);
  table('ranks', ['rank', 'slowest in', 'own time of a step', 'whole step', 'is'], state.status.map((is, r) => [String(r),
    n ? `${Math.round(v.times[r] / n * 100)} %` : '', n ? time(v.own[r]) : '', n ? time(v.took[r]) : '', make('td', is.startsWith('failed') ? 'bad' : '', is)]));
}

function drawRanks(state) {
  const select = $('rank');
  while (select.options.length < state.status.length) select.add(new Option('', String(select.options.length)));
  while (select.options.length > Math.max(1, state.status.length)) select.remove(select.options.length - 1);
  state.status.forEach((is, r) => {
    const text = `rank ${r}${is.startsWith('failed') ? `, ${is}` : ''}`;
    if (select.options[r].text !== text) select.options[r].text = text;
  });
  $('lognote').hidden = Number(select.value) < state.job.local || !state.job.ranks;
}

let latest, source;

function draw() {
  if (!latest) return;
  drawHeader(latest);
  drawCharts(latest);
  drawMemory(latest);
  drawComm(latest);
  drawSlow(latest);
  drawRanks(latest);
}

function drawLines(lines) {
  const box = $('lines'), follow = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
  box.textContent = lines.join('\n');
  if (follow) box.scrollTop = box.scrollHeight;
}

function notice(text) {
  $('notice').hidden = !text;
  $('notice').textContent = text;
}

// connect receives events about the job, and the output of the chosen rank.
function connect() {
  if (source) source.close();
  source = new EventSource(`events?rank=${Number($('rank').value) || 0}`);
  source.addEventListener('lines', (e) => drawLines(JSON.parse(e.data)));
  source.addEventListener('state', (e) => {
    latest = JSON.parse(e.data);
    draw();
    notice('');
    if (latest.job.state === 'ended' || latest.job.state === 'failed') {
      source.close();
      notice('The job is over. This is its last state.');
    }
  });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) notice('ringo refused the connection: perhaps too many look already. Load the page again.');
    else notice(`No connection to ringo since ${new Date().toLocaleTimeString()}. What you see is what was known then.`);
  };
}

$('rank').addEventListener('change', () => { drawLines([]); connect(); });
addEventListener('resize', draw);
connect();
