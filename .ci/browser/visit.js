// Visits the console of a stack that has just been started, and checks what a person sees and does.
import assert from 'node:assert/strict';
import { visitDeployed } from './deployed.js';
import { visitOtherSite } from './other_site.js';
import { watchAtHighRate } from './rate.js';
import { walkStory } from './story.js';
import {
  API_URL, BUS_URL, DYNAMODB_URL, SCRIPT, browser, follow, followText, look, open, page, picture, post, press, problems,
  setFaults, shows, text, visitAt,
} from './visitor.js';

// A first visit: commands are one click away, and the page shows by itself that the message has reached the bus.
async function firstVisit() {
  await open('');
  await shows('Nothing has happened yet');
  await look('first-visit');
  for (const [path, empty] of [
    ['/bus', 'No message has reached the bus yet'], ['/dead-letters', 'There are none.'],
    ['/correlation', 'Enter the correlation id'],
    ['/stream', 'There are none'], ['/search?q=', 'Enter the id'], ['?type=order', 'Create one with a command'],
    ['/aggregates/order/none', 'There is no such aggregate'],
  ]) {
    await open(path);
    await shows(empty);
    await look(`empty${path.replaceAll(/[^a-z]+/g, '-')}`);
  }
  await open('');
  await follow('.start button');
  assert.ok(page.url().endsWith('/aggregates/account/sample'), page.url());
  await shows('on the bus after', { reload: false });
  // The account of the README.
  await post('/account', { id: '123' });
  const record = (desc, amount) => ({ command: 'RecordTransaction', data: { desc, amount } });
  const update = { command: 'UpdateOwner', data: { ownerFirst: 'John', ownerLast: 'Brown' } };
  await post('/account/123/commands', [update, record('A', 200), record('B', -300)]);
  await open('/aggregates/account/123');
  await shows('on the bus after');
  await look('aggregate');
  await picture('console-account');
}

async function versionsAndKeys() {
  await press('ArrowLeft');
  assert.ok(page.url().endsWith('version=3'), page.url());
  await press('ArrowLeft');
  await shows('Version 2');
  await press('ArrowRight');
  await shows('Version 3');
  await page.focus('#version');
  await press('Home');
  await shows('Version 1');
  assert.equal(await page.$('.versions a[rel=prev]'), null);
  await open('/aggregates/account/123');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  const chosen = await page.$eval('.chosen', (row) => row.innerText);
  assert.ok(chosen.includes('TransactionAccepted') || chosen.includes('OwnerUpdated'), chosen);
  await press('Enter');
  assert.ok(/version=[34]$/.test(page.url()), page.url());
  const permissions = ['clipboard-read', 'clipboard-write', 'clipboard-sanitized-write'];
  await browser.defaultBrowserContext().overridePermissions(API_URL, permissions);
  await page.click('h1 [data-copy] button');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), '123');
  const title = await page.$eval('main time', (time) => time.title);
  assert.match(title, /\(UTC\)$/);
  await page.keyboard.press('/');
  await page.keyboard.type('other');
  await page.keyboard.press('Escape');
  assert.notEqual(await page.evaluate(() => document.activeElement.id), 'search');
  await open('/aggregates/account/123');
  // The first stop of the Tab key leads past the navigation.
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.keyboard.press('/');
  await page.keyboard.type('123');
  await press('Enter');
  assert.ok(page.url().endsWith('/aggregates/account/123'), page.url());
}

async function searches() {
  await post('/todo', { id: '123', title: 't', message: 'm' });
  await open('/search?q=123');
  await shows('Several types have an aggregate with this id');
  await look('search-several');
  await open(`/search?q=${encodeURIComponent(SCRIPT)}`);
  await shows('No aggregate has the id');
  await look('search-none');
}

// A command, its rejection, their tests, and the raw rows.
async function commands() {
  await open('/aggregates/account/123');
  await followText('Send a command');
  await shows('Record');
  await open('/command/account?id=123&command=RecordTransaction');
  await page.$eval('[name="data.desc"]', (field) => { field.value = ''; });
  await page.type('[name="data.desc"]', SCRIPT);
  await page.$eval('[name="data.amount"]', (field) => { field.value = '-5000'; });
  await look('command');
  await follow('form.command .primary');
  await shows('422 Unprocessable');
  await shows('then_rejected');
  assert.ok(await page.evaluate(() => document.activeElement.matches('.result')));
  await look('command-rejected');
  // A form whose lists and objects are examples already.
  await open('/command/order');
  await look('command-with-list');
  await follow('form.command .primary');
  await shows('201 Created');
  await look('command-accepted');
  await open('/aggregates/account/123');
  await followText('Copy as a test');
  await shows('Test of the state at version');
  await page.click('.copy button');
  await page.waitForFunction(() => document.querySelector('.copy button').innerText === 'Copied');
  await look('copied-test');
  await page.goBack();
  await followText('Raw rows');
  await shows('#METADATA');
  await look('rows');
}

// What people wrote: in ids, data, headers and errors, also of other senders.
async function injections() {
  await setFaults({ entries: [{ containing: 'rejected-markup', code: SCRIPT }] });
  const headers = { 'x-correlation-id': '<b>c</b>', 'x-causation-id': '<i>', 'x-daybook-caller': '<b>ann</b>' };
  await post('/todo', { id: 'markup', title: SCRIPT, message: `rejected-markup ${SCRIPT}` }, headers);
  const entry = {
    EventBusName: 'daybook', Source: SCRIPT, DetailType: SCRIPT.slice(0, 100), Resources: [`todo/${SCRIPT}`],
    Detail: JSON.stringify({ metadata: { seqNum: 1, correlationId: SCRIPT }, data: SCRIPT }),
  };
  await fetch(BUS_URL, {
    method: 'POST', headers: { 'x-amz-target': 'AWSEvents.PutEvents' }, body: JSON.stringify({ Entries: [entry] }),
  });
  await open('/aggregates/todo/markup');
  await shows('in the dead-letter queue: <img');
  await look('markup-aggregate');
  await open('/dead-letters');
  await shows('<img');
  await look('markup-dead-letters');
  for (const [path, name] of [['/bus', 'bus'], ['/correlation', 'correlation'], ['/bus', 'filtered-bus']]) {
    const query = { correlation: { id: '<b>c</b>' }, 'filtered-bus': { containing: '<script>' } }[name] ?? {};
    await open(`${path}?${new URLSearchParams(query)}`);
    await shows('<');
    await look(`markup-${name}`);
  }
  // An event that the code cannot read has its error, and the pages of the versions before it.
  const changed = await fetch(DYNAMODB_URL, {
    method: 'POST',
    headers: {
      'x-amz-target': 'DynamoDB_20120810.UpdateItem', 'content-type': 'application/x-amz-json-1.0',
      'x-amz-date': '20260101T000000Z',
      authorization: 'AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0',
    },
    body: JSON.stringify({
      TableName: 'daybook-dev', Key: { pk: { S: 'AGGREGATE#todo#markup' }, sk: { S: 'EVENT#000000000001' } },
      UpdateExpression: 'SET eventType = :t', ExpressionAttributeValues: { ':t': { S: SCRIPT } },
    }),
  });
  assert.ok(changed.ok, await changed.text());
  await open('/aggregates/todo/markup');
  await shows('The state of this version cannot be computed');
  await look('unreadable-event');
  await setFaults({});
  await open('/dead-letters');
  await page.click('tbody input[type=checkbox]');
  await followText('Delete the selected');
  await shows('1 message was deleted', { reload: false });
  await shows('There are none.');
}

// The switches, by mouse.
async function faults() {
  await open('/faults');
  await page.click('[name=on][value=relay]');
  await page.type('#rejected', 'OrderRefunded');
  await follow('[value=apply]');
  await shows('The faults are set');
  assert.equal(await page.$eval('header.top nav a:last-child', (link) => link.innerText), 'Faults on');
  await look('faults');
  await post('/todo', { id: 'waiting', title: 't', message: 'm' });
  await open('/aggregates/todo/waiting');
  await shows('not on the bus yet');
  await look('waiting');
  await open('/stream');
  await shows('paused');
  await open('/faults');
  await follow('[value=reset]');
  await shows('No part of the stack fails any more');
  await follow('[value=idle]');
  await shows('The stack is idle');
  await page.$eval('details', (details) => { details.open = true; });
  await page.$eval('#json', (field) => { field.value = '{'; });
  await follow('[value=json]');
  await shows('This is not JSON');
  await look('faults-wrong');
}

// The clock of the stack: the form, and the times on the pages, which the script shows relative to that clock.
async function clock() {
  const line = "The clock of the stack is 14d ahead of the machine's";
  visitAt(API_URL);
  await post('/todo', { id: 'before', title: 't', message: 'm' });
  await open('/faults');
  assert.ok(!(await text()).includes('ahead of the machine'));
  await page.type('#forward-by', 'soon');
  await press('Enter');
  await shows('"soon" is not a duration');
  await look('clock-wrong');
  await page.type('#forward-by', '14d');
  await follow('[value=clock]');
  await shows('The clock was moved forward by 14d');
  await shows(line);
  await look('clock');
  await post('/todo', { id: 'after', title: 't', message: 'm' });
  // The deadlines that have become due fire.
  await open('/aggregates/reservation/held');
  await shows('ReservationExpired');
  const shown = async (path) => {
    await open(path);
    await shows(line);
    return page.$$eval('main time:not(.exact)', (times) => times.map((time) => time.innerText));
  };
  assert.deepEqual([...new Set(await shown('/aggregates/todo/before'))], ['14 days ago']);
  for (const age of await shown('/aggregates/todo/after')) assert.match(age, /^(just now|\d+ s ago)$/);
  const [latest, ...others] = await shown('/bus');
  assert.match(latest, /^(just now|\d+ s ago)$/);
  assert.ok(others.includes('14 days ago'), others.join());
  for (const path of ['', '/dead-letters', '/correlation', '/stream', '/command/todo', '/search?q=', '/nothing']) await shown(path);
  await page.setJavaScriptEnabled(false);
  assert.deepEqual([...new Set(await shown('/aggregates/todo/before'))], ['14 days ago']);
  await page.setJavaScriptEnabled(true);
  await open('/faults');
  await follow('[value=reset]');
  await shows(line);
}

// The tree of what one request caused.
async function correlation() {
  await post('/todo', { id: 'root', title: 't', message: 'm' }, { 'x-correlation-id': 'tree-1', 'x-daybook-caller': 'alice' });
  await open('/correlation?id=tree-1');
  while (!(await text()).includes('todo/root')) await page.reload();
  const bus = await (await fetch(`${API_URL}/_dev/bus`)).json();
  const { messageId } = bus.find(({ resources }) => resources[0] === 'todo/root').detail.metadata;
  await post('/todo', { id: 'leaf', title: 't', message: 'm' }, { 'x-correlation-id': 'tree-1', 'x-causation-id': messageId });
  while (!(await text()).includes('todo/leaf')) await page.reload();
  assert.equal((await page.$$('.tree ul ul .node')).length, 1);
  await look('correlation');
}

async function liveBus() {
  await open('/bus');
  const before = await page.$$eval('tbody tr', (rows) => rows.length);
  await post('/todo', { id: 'live', title: SCRIPT, message: SCRIPT });
  await page.waitForSelector('tr.new', { timeout: 15000 });
  assert.equal(await page.$$eval('tbody tr', (rows) => rows.length), before + 1);
  assert.match(await page.$eval('[data-status]', (status) => status.innerText), /^1 new$/);
  await look('bus');
  await page.emulateMediaFeatures([{ name: 'prefers-reduced-motion', value: 'reduce' }]);
  assert.equal(await page.$eval('tr.new', (row) => getComputedStyle(row).animationName), 'none');
  await page.emulateMediaFeatures([]);
  await page.click('[data-pause]');
  await post('/todo', { id: 'paused', title: 't', message: 'm' });
  const paused = '2 new, 1 of them shown: the list is paused';
  await page.waitForFunction((wanted) => document.querySelector('[data-status]').innerText === wanted, {}, paused);
  await page.click('[data-pause]');
  await post('/todo', { id: 'continued', title: 't', message: 'm' });
  const continued = '3 new, 2 of them shown: 1 arrived while the list was paused';
  await page.waitForFunction((wanted) => document.querySelector('[data-status]').innerText === wanted, {}, continued);
  await page.type('[name=containing]', '"live"');
  await press('Enter');
  await shows('1 match');
  await open('/bus?type=none');
  await shows('No message matches');
  await look('bus-without-match');
}

async function events() {
  await open('/events');
  await shows('TodoCreated');
  // The page has read the index once before the event is appended.
  await new Promise((resolve) => setTimeout(resolve, 2000));
  await post('/todo', { id: 'tail', title: SCRIPT, message: SCRIPT });
  await page.waitForSelector('tr.new', { timeout: 15000 });
  await look('events');
}

async function otherPages() {
  await post('/reservation', { id: 'held', concert: SCRIPT.slice(0, 100), seats: 2 });
  await open('/aggregates/reservation/held');
  const states = await page.$$eval('.deadlines tbody tr', (rows) => rows.map((row) => row.innerText.split('\t')));
  assert.equal(states.length, 1);
  assert.match(states[0].join(), /^hold,in (9|10) min,Expire,pending$/);
  await look('deadline');
  // The process of the order in the documents, beside its sources.
  await open('/aggregates/fulfilment/1001');
  await followText('Beside its sources');
  await shows('by dispatch request-payment');
  await post('/payment/1001/commands', { command: 'ReceivePayment' });
  await shows('input payment/1001 2');
  await shows('by dispatch request-shipment');
  await look('process');
  await open('/stream');
  await shows('stream-relay');
  await shows('orders-by-day');
  await shows('reservation/held');
  await look('stream');
  await followText('orders-by-day version 1');
  await look('view');
  await follow('tbody a');
  await shows('The row is what the');
  await look('view-row');
  await open('/model');
  await shows('queue carrier');
  await look('model');
  // A link to another type of the page.
  await page.click('#type-order a[href="#type-fulfilment"]');
  assert.ok(await page.$('#type-fulfilment:target'));
  await open('');
  await look('aggregates');
  await followText('todo');
  await shows('todo/live');
  await look('type');
  // An aggregate with many events: its pages, a version by its number, and one that is not near a snapshot: the last one, which
  // is taken after the event 2400, replaces the earlier ones.
  await post('/account', { id: 'long' });
  const payment = { command: 'RecordTransaction', data: { desc: 'payment', amount: 1 } };
  for (let part = 0; part < 25; part += 1) await post('/account/long/commands', Array(98).fill(payment));
  await open('/aggregates/account/long');
  await shows('2451 of 2451', { reload: false });
  await shows('snapshot of version 24');
  await followText('Older events');
  await shows('2421');
  await page.$eval('#go', (field) => { field.value = ''; });
  await page.type('#go', '2100');
  await followText('Go');
  assert.ok(page.url().endsWith('version=2100'), page.url());
  await shows('Fold 2100 events', { reload: false });
  await look('version-without-snapshot');
  await followText('Fold 2100 events');
  await shows('"balance": 2099', { reload: false });
  await look('long-aggregate');
  // A large value.
  await post('/todo', { id: 'large', title: 'large', message: 'm'.repeat(200000) });
  await open('/aggregates/todo/large');
  await look('large-value');
  assert.ok((await page.evaluate(() => document.body.innerText)).length > 200000);
  assert.equal((await open('/nothing')).status(), 404);
  await look('not-found');
}

// Without the script, everything can be read, and a version can be chosen.
async function withoutScript() {
  await page.setJavaScriptEnabled(false);
  await open('/aggregates/account/123?version=2');
  assert.ok(await page.$('.versions button.noscript'));
  await follow('.versions a[rel=next]');
  assert.ok(page.url().endsWith('version=3'), page.url());
  await open('/bus');
  assert.ok(await page.$('tbody tr'));
  await page.setJavaScriptEnabled(true);
}

for (const part of [
  firstVisit, versionsAndKeys, searches, commands, injections, walkStory, faults, correlation, liveBus, watchAtHighRate, events, otherPages,
  () => visitOtherSite(API_URL), withoutScript, visitDeployed, clock,
]) {
  const begun = Date.now();
  await part();
  console.log(`${part.name || 'visitOtherSite'}: ${((Date.now() - begun) / 1000).toFixed(1)} s`);
}
assert.deepEqual(problems, []);
await browser.close();
console.log('The console works in the browser.');
