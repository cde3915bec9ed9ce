// What the pages do beyond reading: keys, the viewer's time zone, the live bus, and copies. Without it, everything can
// still be read. It is loaded from the console itself, and calls nothing else.
'use strict';

document.documentElement.classList.add('scripted');

// Times: relative in the text, the viewer's zone and UTC on hover.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

function ago(milliseconds) {
  const seconds = Math.floor(Math.abs(milliseconds) / 1000);
  if (seconds < 1) return 'just now';
  let span = `${Math.floor(seconds / 86400)} days`;
  if (seconds < 60) span = `${seconds} s`;
  else if (seconds < 3600) span = `${Math.floor(seconds / 60)} min`;
  else if (seconds < 172800) span = `${Math.floor(seconds / 3600)} h`;
  return milliseconds < 0 ? `in ${span}` : `${span} ago`;
}

// The clock of the stack may be ahead of the browser's.
const ahead = Number(document.documentElement.dataset.aheadSeconds || 0) * 1000;

function showTimes() {
  for (const time of document.querySelectorAll('time')) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    time.title = `${local.format(at)} (${zone}), ${time.dateTime} (UTC)`;
    time.textContent = time.classList.contains('exact') ? local.format(at) : ago(Date.now() + ahead - at);
  }
}

showTimes();
setInterval(showTimes, 10000);
document.querySelector('.zone').textContent = zone === 'UTC' ? 'Times: UTC' : `Times: ${zone}, UTC on hover`;

// Keys: / searches, j and k go through the rows, Enter opens one, the arrows go through the versions.
function rows() {
  return [...document.querySelectorAll('[data-row]')].filter((row) => row.offsetParent);
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const chosen = all.findIndex((row) => row.classList.contains('chosen') || row.hasAttribute('aria-current'));
  const next = all[Math.min(Math.max(chosen + by, 0), all.length - 1)];
  const before = document.querySelector('[data-row].chosen');
  if (before) before.classList.remove('chosen');
  next.classList.add('chosen');
  const link = next.querySelector('a.name, a');
  if (link) link.focus({ preventScroll: true });
  next.scrollIntoView({ block: 'nearest' });
}

function follow(relation) {
  const link = document.querySelector(`.versions a[rel=${relation}]`);
  if (link) location.replace(link.href);
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = event.target;
  if (event.key === 'Escape' && target.id === 'search') return target.blur();
  const isTyping = target.matches('input:not([type=checkbox], [type=range]), textarea, select');
  if (isTyping) return;
  const isOnSlider = target.matches('input[type=range]');
  if (event.key === '/') document.getElementById('search').focus();
  else if (event.key === 'j') step(1);
  else if (event.key === 'k') step(-1);
  else if (event.key === 'ArrowLeft' && !isOnSlider && !target.closest('pre')) follow('prev');
  else if (event.key === 'ArrowRight' && !isOnSlider && !target.closest('pre')) follow('next');
  else return;
  event.preventDefault();
});

// The slider shows the number while it moves, and the version when it rests.
const slider = document.querySelector('[data-slider] input[type=range]');
if (slider) {
  const output = slider.form.querySelector('output');
  slider.addEventListener('input', () => { output.textContent = `${slider.value} of ${slider.max}`; });
  slider.addEventListener('change', () => slider.form.requestSubmit());
}

// Messages that were just published: the page is read again, with growing pauses, until the bus has them or 16 seconds are over.
async function followMessages(pause) {
  const timeline = document.querySelector('[data-refresh]');
  if (!timeline || pause > 8000) return;
  await new Promise((resolve) => setTimeout(resolve, pause));
  if (!document.hidden) {
    const response = await fetch(location.href).catch(() => null);
    if (!response || !response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html').querySelector('.timeline');
    if (!fresh) return;
    for (const event of timeline.querySelectorAll('.events > li')) {
      const before = event.querySelector('.messages');
      const after = fresh.querySelector(`.events > li[value="${event.value}"] .messages`);
      if (before && after) before.replaceWith(after);
    }
    timeline.toggleAttribute('data-refresh', fresh.hasAttribute('data-refresh'));
  }
  followMessages(2 * pause);
}
followMessages(250);

// The bus: new messages come first. The server sends only some of them at a high rate.
const live = document.querySelector('[data-live]');
if (live && window.EventSource) {
  const body = document.querySelector('[data-rows]');
  const status = live.querySelector('[data-status]');
  const spoken = live.querySelector('[role=status]');
  const pause = live.querySelector('[data-pause]');
  const KEPT = 300;
  const number = new Intl.NumberFormat();
  let arrived = 0, shown = 0, missed = 0, isPaused = false, timer = null;
  function report(text) {
    status.textContent = text;
    // A screen reader is not interrupted by each message.
    timer = timer || setTimeout(() => { spoken.textContent = status.textContent; timer = null; }, 5000);
  }
  live.hidden = false;
  const source = new EventSource(live.dataset.live);
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    arrived += message.arrived;
    if (isPaused) {
      missed += message.arrived;
    } else {
      shown += message.shown;
      const empty = document.querySelector('main > .empty');
      if (empty) empty.remove();
      body.insertAdjacentHTML('afterbegin', message.rows);
      [...body.rows].slice(0, message.shown).forEach((row) => row.classList.add('new'));
      [...body.rows].slice(KEPT).forEach((row) => row.remove());
      showTimes();
      labelCells();
    }
    const reasons = [];
    if (missed > 0) reasons.push(isPaused ? 'the list is paused' : `${number.format(missed)} arrived while the list was paused`);
    if (shown + missed < arrived) reasons.push('a sample, because many arrive at once');
    report(`${number.format(arrived)} new` +
      (reasons.length ? `, ${number.format(shown)} of them shown: ${reasons.join('; ')}` : ''));
  };
  source.addEventListener('failure', (event) => report(event.data));
  source.onerror = () => report('The stack does not respond. Trying again.');
  pause.addEventListener('click', () => {
    isPaused = !isPaused;
    pause.setAttribute('aria-pressed', String(isPaused));
    pause.textContent = isPaused ? 'Continue' : 'Pause';
  });
}

// On a narrow screen, each cell of a table shows the name of its column.
function labelCells() {
  for (const table of document.querySelectorAll('.scroll > table')) {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of table.querySelectorAll('tbody tr')) [...row.cells].forEach((cell, index) => { cell.dataset.label = names[index]; });
  }
}
labelCells();

// Dead-letter messages with the same reason are selected together.
for (const group of document.querySelectorAll('tr.group th')) {
  const label = document.createElement('label');
  const all = document.createElement('input');
  all.type = 'checkbox';
  all.addEventListener('change', () => {
    for (const one of group.closest('tbody').querySelectorAll('[name=id]')) one.checked = all.checked;
  });
  label.append(all, ' ', ...group.childNodes);
  group.append(label);
}

// Source and ids can be copied with one click.
for (const block of document.querySelectorAll('.copy, [data-copy]')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(block.dataset.copy || block.querySelector('pre').textContent);
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  });
  block.append(button);
}

// The response to a command is where the reader goes on.
const result = document.querySelector('[data-focus]');
if (result) {
  result.focus({ preventScroll: true });
  result.scrollIntoView({ block: 'start' });
}
