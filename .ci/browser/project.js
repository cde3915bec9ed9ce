// Visits the page Model of a generated project, which runs at API_URL.
import assert from 'node:assert/strict';
import { browser, look, open, page, problems, shows } from './visitor.js';

await open('/model');
for (const part of ['Create', 'InvoiceCreated', 'invoice-events', 'invoice-mails', 'process of']) await shows(part);
await look('project-model');
// Each link leads to a page, and each one within the page to its part.
const links = await page.$$eval('main a', (all) => all.map((link) => link.href));
assert.ok(links.length > 0);
for (const link of new Set(links)) {
  const response = await page.goto(link);
  assert.ok(response === null || response.ok(), link);
  if (link.includes('#')) assert.ok(await page.$(':target'), link);
}
assert.deepEqual(problems, []);
await browser.close();
