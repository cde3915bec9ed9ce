// The bus at 1,000 messages per second.
import assert from 'node:assert/strict';
import { BUS_URL, open, page } from './visitor.js';

const RATE = 1000;
const SECONDS = 5;

/** Sends ten messages in one call. */
async function put(number) {
  const entry = (n) => ({ EventBusName: 'daybook', Source: 'rate', DetailType: 'Measured', Detail: JSON.stringify({ number, n }) });
  const response = await fetch(BUS_URL, {
    method: 'POST',
    headers: { 'x-amz-target': 'AWSEvents.PutEvents', 'content-type': 'application/x-amz-json-1.1' },
    body: JSON.stringify({ Entries: Array.from({ length: 10 }, (_, n) => entry(n)) }),
  });
  const { FailedEntryCount } = await response.json();
  assert.equal(FailedEntryCount, 0);
}

export async function watchAtHighRate() {
  await open('/bus');
  // The longest time for which the page does not respond.
  await page.evaluate(() => {
    let last = performance.now();
    window.longest = 0;
    setInterval(() => {
      window.longest = Math.max(window.longest, performance.now() - last);
      last = performance.now();
    }, 20);
  });
  const begun = Date.now();
  const calls = [];
  for (let number = 0; number < (RATE * SECONDS) / 10; number += 1) {
    calls.push(put(number));
    const due = begun + (number + 1) * (10000 / RATE);
    if (due > Date.now()) await new Promise((resolve) => setTimeout(resolve, due - Date.now()));
  }
  await Promise.all(calls);
  const rate = Math.round((RATE * SECONDS * 1000) / (Date.now() - begun));
  await page.waitForFunction((total) => {
    return document.querySelector('[data-status]').innerText.replaceAll(',', '').startsWith(`${total} new`);
  }, { timeout: 15000 }, RATE * SECONDS);
  const status = await page.$eval('[data-status]', (status) => status.innerText);
  assert.match(status, /^5,000 new, \d+ of them shown: a sample, because many arrive at once$/);
  const rows = await page.$$eval('tbody tr', (rows) => rows.length);
  assert.ok(rows <= 300, `${rows} rows`);
  const longest = Math.round(await page.evaluate(() => window.longest));
  assert.ok(longest < 1000, `the page did not respond for ${longest} ms`);
  // A screen reader hears the numbers, and not each half second.
  const isSpoken = () => document.querySelector('.live [role=status]').innerText.includes('5,000 new');
  await page.waitForFunction(isSpoken, { timeout: 6000 });
  console.log(`At ${rate} messages per second, the page says "${status}", and was busy for at most ${longest} ms.`);
}
