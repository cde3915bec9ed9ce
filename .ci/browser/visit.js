// Visits the console of a stack that has just been started, and checks what a person sees and does. API_URL, DYNAMODB_URL and BUS_URL are the stack, DAYBOOK the binary, CHROMIUM the browser, SCREENSHOTS the folder of the pictures.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import puppeteer from 'puppeteer-core';

const { API_URL, DYNAMODB_URL, BUS_URL, DAYBOOK, CHROMIUM, SCREENSHOTS } = process.env;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SCRIPT = '<img src=x onerror="document.title=1"><script>document.title=2</script>';

// Chromium's own sandbox does not run as root in a container.
const browser = await puppeteer.launch({
  executablePath: CHROMIUM,
  args: ['--no-sandbox', '--disable-dev-shm-usage', '--force-color-profile=srgb', '--hide-scrollbars'],
});
const page = await browser.newPage();
await page.setViewport({ width: 1280, height: 860 });

// No request leaves the machine, and no script fails.
const problems = [];
page.on('request', (request) => {
  if (!request.url().startsWith(`${base}/`)) problems.push(`a request to ${request.url()}`);
});
page.on('pageerror', (error) => problems.push(`an error of a script: ${error.message}`));
page.on('console', (message) => {
  // A refusal of the API is shown with a status of its own; the icon of the browser may be missing.
  if (message.type() === 'error' && !message.text().includes('favicon')) problems.push(`console: ${message.text()}`);
});

// Where the visited console is.
let base = API_URL;

async function open(path) {
  await page.goto(`${base}/_console${path}`, { waitUntil: 'load' });
}

async function text() {
  return page.$eval('main', (main) => main.innerText);
}

async function shows(wanted) {
  const begun = Date.now();
  while (!(await text()).includes(wanted)) {
    assert.ok(Date.now() - begun < 15000, `${page.url()} does not show ${JSON.stringify(wanted)}:\n${await text()}`);
    await new Promise((resolve) => setTimeout(resolve, 250));
    if (page.url().includes('/aggregates/') || page.url().includes('/dead-letters')) await page.reload();
  }
}

// Clicks, and waits for the page that comes next.
async function follow(selector) {
  await Promise.all([page.waitForNavigation({ waitUntil: 'load' }), page.click(selector)]);
}

async function press(key) {
  await Promise.all([page.waitForNavigation({ waitUntil: 'load' }), page.keyboard.press(key)]);
}

async function post(path, body, headers = {}) {
  const response = await fetch(`${API_URL}${path}`, {
    method: 'POST', headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(body),
  });
  return response.json();
}

// Checks the accessibility of the page in both themes and on a narrow screen, and takes pictures.
async function look(name) {
  for (const [theme, width] of [['light', 1280], ['dark', 1280], ['light', 390]]) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: theme }]);
    await page.setViewport({ width, height: width === 390 ? 844 : 860 });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
    for (const { id, nodes } of violations) {
      problems.push(`axe on ${name}, ${theme}, ${width}: ${id}: ${nodes.map(({ html }) => html).join(' | ')}`);
    }
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (overflow > 0) problems.push(`${name} is ${overflow} pixels wider than a screen of ${width}`);
    const suffix = width === 390 ? 'narrow' : theme;
    await page.screenshot({ path: `${SCREENSHOTS}/${name}-${suffix}.png` });
  }
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  await page.setViewport({ width: 1280, height: 860 });
}

// The figures of three alarms, as CloudWatch returns them, and the mapping of the relay, as Lambda does.
const alarm = (name, state, threshold, description) => ({
  AlarmName: `daybook-prod-${name}`, AlarmDescription: description, StateValue: state, StateReason: 'Threshold Crossed',
  Namespace: 'AWS/Lambda', MetricName: name, Dimensions: [], Statistic: 'Maximum', Period: 60, Threshold: threshold,
  ComparisonOperator: 'GreaterThanThreshold',
});
const ALARMS = [
  alarm('api-slow', 'OK', 2000, 'One request in a hundred takes longer than two seconds.'),
  alarm('dead-letter-messages', 'ALARM', 0, 'The dead-letter queue has messages. docs/runbook.md#dead-letter-messages'),
  alarm('messages-late', 'OK', 60000, 'Messages reach the event bus more than a minute late.'),
  alarm('records-dropped', 'INSUFFICIENT_DATA', 0, 'Lambda has dropped records.'),
];
const services = createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const target = request.headers['x-amz-target'] ?? '';
  const query = JSON.parse(body || '{}');
  const now = Math.floor(Date.now() / 60000) * 60;
  const times = Array.from({ length: 180 }, (_, minute) => now - (180 - minute) * 60);
  if (query.ScanBy === 'TimestampDescending') times.reverse();
  const figures = {
    'api-slow': (at) => 180 + 90 * Math.sin(at / 2000),
    'dead-letter-messages': (at) => (at > now - 2400 ? 1 : 0),
    'messages-late': (at) => 900 + 600 * Math.sin(at / 900),
    IteratorAge: () => 1200,
  }[query.MetricDataQueries?.[0].MetricStat.Metric.MetricName];
  const result = { Timestamps: figures ? times : [], Values: figures ? times.map(figures) : [] };
  let answer = { EventSourceMappings: [{ UUID: '5c2e4a71-0d0e-4f6c-9d55-0a3c8f6f1f10', State: 'Enabled', LastProcessingResult: 'OK' }] };
  if (target.endsWith('DescribeAlarms')) answer = { MetricAlarms: ALARMS };
  if (target.endsWith('GetMetricData')) answer = { MetricDataResults: [result] };
  response.end(JSON.stringify(answer));
});

// Starts `daybook console` for the stack, as if it were deployed. Returns the process.
async function serveDeployed(...options) {
  const aws = `http://127.0.0.1:${services.address().port}`;
  const console = spawn(DAYBOOK, ['console', '--port', '0', ...options], {
    env: {
      AWS_ENDPOINT_URL_DYNAMODB: DYNAMODB_URL, AWS_ENDPOINT_URL_EVENTBRIDGE: BUS_URL, AWS_ENDPOINT_URL_SQS: BUS_URL,
      AWS_ENDPOINT_URL_LAMBDA: aws, AWS_ENDPOINT_URL_CLOUDWATCH: aws, STREAM_RELAY_NAME: 'relay', STREAM_RELAY_LOGS: 'relay',
      TABLE_NAME: 'daybook-dev', VIEWS_TABLE_NAME: 'daybook-dev-views', EVENT_BUS_NAME: 'daybook',
      EVENT_SOURCE: 'com.example.daybook', DLQ_URL: `${BUS_URL}/000000000000/daybook-dlq`,
      CHANGES_QUEUE_URL: `${BUS_URL}/000000000000/daybook-changes`, STACK: 'daybook-prod',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const address = new Promise((resolve, reject) => {
    let printed = '';
    console.stdout.on('data', (chunk) => {
      printed += chunk;
      const line = printed.match(/^Console {2}(.*)\/_console$/m);
      if (line) resolve(line[1]);
    });
    console.on('exit', () => reject(new Error(`daybook console has ended: ${printed}`)));
  });
  base = await address;
  return console;
}

async function visitDeployed() {
  await new Promise((resolve) => services.listen(0, '127.0.0.1', resolve));
  await fetch(`${API_URL}/_dev/faults`, {
    method: 'PUT', headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ entries: [{ containing: 'undeliverable', code: 'MalformedDetail' }] }),
  });
  await post('/todo', { id: 'undeliverable', title: 'undeliverable', message: 'm' });
  let serving = await serveDeployed();
  await open('');
  await shows('read-only');
  await look('deployed-aggregates');
  await open('/search?q=1001');
  await shows('in the outbox');
  await look('deployed-aggregate');
  await open('/messages?type=order');
  await shows('OrderShipped');
  await look('deployed-messages');
  await open('/dead-letters');
  await shows('messages in the queue\n1');
  await look('deployed-dead-letters');
  await open('/stream');
  await shows('orders-by-day');
  await shows('Enabled');
  await look('deployed-stream');
  await open('/health');
  await shows('4 alarms, 1 raised');
  await look('health');
  serving.kill('SIGINT');
  serving = await serveDeployed('--allow-writes');
  await open('/dead-letters');
  await shows('undeliverable');
  await fetch(`${API_URL}/_dev/faults`, { method: 'PUT', headers: { 'content-type': 'application/json' }, body: '{}' });
  await page.click('tbody input[type=checkbox]');
  await follow('[value=redrive]');
  await shows('1 message was sent again');
  await look('deployed-sent-again');
  serving.kill('SIGINT');
  services.close();
}

// A first visit: the example is one click away.
await open('');
await shows('Nothing has happened yet');
await look('first-visit');
await follow('.start button');
assert.ok(page.url().endsWith('/aggregates/account/123'), page.url());
await shows('on the bus after');
await look('aggregate');

// Versions, by keyboard, by slider and by click.
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
await page.keyboard.press('Escape');
await open('/aggregates/account/123');
await page.keyboard.press('j');
await page.keyboard.press('j');
await page.keyboard.press('k');
const chosen = await page.$eval('.chosen', (row) => row.innerText);
assert.ok(chosen.includes('TransactionAccepted') || chosen.includes('OwnerUpdated'), chosen);
await press('Enter');
assert.ok(/version=[34]$/.test(page.url()), page.url());
const title = await page.$eval('main time', (time) => time.title);
assert.match(title, /\(UTC\)$/);

// The search.
await page.keyboard.press('/');
await page.keyboard.type('123');
await press('Enter');
assert.ok(page.url().endsWith('/aggregates/account/123'), page.url());

// A command, a refusal, and their tests.
await follow('.heading .actions a');
await shows('Record');
await open('/command/account?id=123&command=RecordTransaction');
await page.$eval('[name="data.desc"]', (field) => { field.value = ''; });
await page.type('[name="data.desc"]', SCRIPT);
await page.$eval('[name="data.amount"]', (field) => { field.value = '-5000'; });
await look('command');
await follow('form.command .primary');
await shows('422 Unprocessable');
await shows('then_rejected');
await look('command-refused');

// Messages that the bus rejects, and why an order was not delivered.
await open('/faults');
await page.type('#rejected', 'OrderShipped');
await follow('[value=apply]');
await shows('The faults are set');
await look('faults');
const items = [{ productId: 'coffee', quantity: 2 }];
const of = { 'x-correlation-id': 'checkout-7', 'x-daybook-caller': 'alice' };
await post('/order', { id: '1001', customerId: 'alice', items, total: 4500 }, of);
for (const [command, data] of [['ProcessPayment', { amount: 4500 }], ['ShipOrder', { trackingNumber: 'T-1' }]]) {
  await post('/order/1001/commands', { command, data }, of);
}
await open('/search?q=1001');
await shows('in the dead-letter queue: MalformedDetail');
await look('order');
await follow('.fate.bad');
await shows('MalformedDetail');
await look('dead-letters');
await open('/correlation?id=checkout-7');
await shows('PaymentProcessed');
await look('correlation');
await open('/faults');
await follow('[value=reset]');
await shows('No part of the stack fails any more');
await open('/dead-letters');
await page.click('tbody input[type=checkbox]');
await follow('[value=redrive]');
await shows('1 message was sent again');
await open('/search?q=1001');
await shows('on the bus after');
assert.equal(await page.$('.fate.bad'), null);

// The bus is live.
await open('/bus');
const before = await page.$$eval('tbody tr', (rows) => rows.length);
await post('/todo', { id: 'live', title: SCRIPT, message: SCRIPT });
await page.waitForSelector('tr.new', { timeout: 15000 });
assert.equal(await page.$$eval('tbody tr', (rows) => rows.length), before + 1);
assert.match(await page.$eval('.live [role=status]', (status) => status.innerText), /^1 new$/);
await look('bus');
await page.click('[data-pause]');
await post('/todo', { id: 'paused', title: 't', message: 'm' });
await page.waitForFunction(() => document.querySelector('.live [role=status]').innerText.startsWith('2 new, 1 of'));
await page.type('[name=containing]', 'live');
await press('Enter');
await shows('1 match');

await open('/stream');
await shows('stream-relay');
await shows('orders-by-day');
await look('stream');
await open('');
await look('aggregates');
await open('/aggregates/todo/live/events/1');
await shows('EVENT#000000000001');
await look('raw');
assert.ok(!['1', '2'].includes(await page.title()), 'a script of the data ran');

// Without the script, everything can be read, and a version can be chosen.
await page.setJavaScriptEnabled(false);
await open('/aggregates/account/123?version=2');
assert.ok(await page.$('.versions button.noscript'));
await follow('.versions a[rel=next]');
assert.ok(page.url().endsWith('version=3'), page.url());

await page.setJavaScriptEnabled(true);
await visitDeployed();
assert.deepEqual(problems, []);
await browser.close();
console.log('The console works in the browser.');
