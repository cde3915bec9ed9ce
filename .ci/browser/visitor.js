// A visitor of the console: the browser, what a person does in it, and what is checked on each page. Importing this file starts
// the browser. API_URL is the stack, CHROMIUM the browser, and SCREENSHOTS the folder of the pictures.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';

export const { API_URL, DYNAMODB_URL, BUS_URL, DAYBOOK, CHROMIUM, SCREENSHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Markup that must never run. */
export const SCRIPT = '<img src=x onerror="document.title=1"><script>document.title=2</script>';

// Chromium's own sandbox does not run as root in a container.
export const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--force-color-profile=srgb', '--hide-scrollbars'],
});
export const page = await browser.newPage();
const WIDE = { width: 1280, height: 860 };
await page.setViewport(WIDE);

/** What is wrong, and does not end the visit. */
export const problems = [];

// Where the visited console is.
let base = API_URL;

/** Visits another console from now on. */
export function visitAt(address) {
  base = address;
}

// No request leaves the machine, and no script fails.
page.on('request', (request) => {
  if (!request.url().startsWith(`${base}/`)) problems.push(`a request to ${request.url()}`);
});
page.on('pageerror', (error) => problems.push(`an error of a script: ${error.message}`));
page.on('console', (message) => {
  // Chromium reports as errors what the visit does on purpose: it opens a page that does not exist, one without its token, and
  // one over plain HTTP at another address than loopback, where a header has no effect.
  const expected = ['favicon', 'status of 404', 'status of 401', 'Cross-Origin-Opener-Policy header has been ignored'];
  const isExpected = expected.some((part) => message.text().includes(part));
  if (message.type() === 'error' && !isExpected) problems.push(`console: ${message.text()}`);
});

export async function open(path) {
  return page.goto(`${base}/_console${path}`, { waitUntil: 'load' });
}

export async function text() {
  return page.$eval('main', (main) => main.innerText);
}

/** Waits until the page shows a text. `reload` loads the page again meanwhile. */
export async function shows(wanted, { reload = true } = {}) {
  const begun = Date.now();
  while (!(await text()).includes(wanted)) {
    assert.ok(Date.now() - begun < 15000, `${page.url()} does not show ${JSON.stringify(wanted)}:\n${await text()}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
    if (reload && /\/(aggregates|dead-letters|stream)/.test(page.url())) await page.reload();
  }
}

/** Clicks, and waits for the page that comes next. */
export async function follow(selector) {
  await Promise.all([page.waitForNavigation({ waitUntil: 'load' }), page.click(selector)]);
}

/** Clicks the link or the button with this text. */
export async function followText(wanted) {
  await follow(`::-p-xpath(//*[self::a or self::button][normalize-space(.)=${JSON.stringify(wanted)}])`);
}

export async function press(key) {
  await Promise.all([page.waitForNavigation({ waitUntil: 'load' }), page.keyboard.press(key)]);
}

/** Sends a request to the stack. */
export async function send(method, path, body, headers = {}) {
  const response = await fetch(`${API_URL}${path}`, {
    method, headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body),
  });
  const answer = await response.text();
  assert.ok(response.status < 500, `${method} ${path}: ${answer}`);
  return answer ? JSON.parse(answer) : undefined;
}

export const post = (path, body, headers) => send('POST', path, body, headers);
export const setFaults = (faults) => send('PUT', '/_dev/faults', faults);

/** Checks the page in both themes and on a wide and a narrow screen, and takes pictures. */
export async function look(name) {
  await page.setViewport({ ...WIDE, width: 1900 });
  const used = (await (await page.$('main')).boundingBox()).width;
  if (used < 1500) problems.push(`${name} uses only ${used} of 1900 pixels`);
  await page.evaluate(axe);
  for (const [theme, width] of [['light', 1280], ['dark', 1280], ['light', 390], ['dark', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
    await page.setViewport({ width, height: width === 390 ? 844 : 860 });
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    for (const { id, nodes } of violations) {
      problems.push(`axe on ${name}, ${theme}, ${width}: ${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (overflow > 0) problems.push(`${name} is ${overflow} pixels wider than a screen of ${width}`);
    const heads = await page.$$eval('.scroll table:not(.bus) thead', (all) => all.filter((head) => head.offsetHeight > 0).length);
    if (width === 390 && heads > 0) problems.push(`${name} has ${heads} tables on a narrow screen that are no lists`);
    await page.screenshot({ path: `${SCREENSHOTS}/${name}-${theme}${width === 390 ? '-narrow' : ''}.png` });
  }
  // The console itself has no image and no script in the content of a page, so each would be something that people wrote.
  const foreign = await page.$$eval('main img, main script, main iframe', (elements) => elements.map((e) => e.outerHTML));
  if (foreign.length > 0) problems.push(`${name} has markup of others: ${foreign}`);
  if (['1', '2'].includes(await page.title())) problems.push(`a script of the data ran on ${name}`);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  await page.setViewport(WIDE);
}

/** Takes a picture for the documents: the upper part of the page, with two pixels for each. */
export async function picture(name) {
  await page.setViewport({ ...WIDE, deviceScaleFactor: 2 });
  await page.mouse.move(0, 0);
  const bottom = await page.evaluate(() => {
    scrollTo(0, 0);
    const parts = [...document.querySelectorAll('main *')].map((part) => part.getBoundingClientRect().bottom);
    return Math.max(...parts);
  });
  const height = Math.min(Math.ceil(bottom) + 24, WIDE.height);
  await page.screenshot({ path: `${SCREENSHOTS}/${name}.png`, clip: { x: 0, y: 0, width: WIDE.width, height } });
  await page.setViewport(WIDE);
}
