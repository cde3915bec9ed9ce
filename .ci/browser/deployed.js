// `daybook console` over the tables and queues of the visited stack, as if it were deployed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { visitOtherSite } from './other_site.js';
import {
  API_URL, BUS_URL, DAYBOOK, DYNAMODB_URL, follow, followText, look, open, page, post, setFaults, shows, text, visitAt,
} from './visitor.js';

// The figures of four alarms, as CloudWatch returns them, and the mapping of the relay, as Lambda does.
const alarm = (name, state, threshold, description) => ({
  AlarmName: `daybook-prod-${name}`, AlarmDescription: description, StateValue: state, StateReason: 'Threshold Crossed',
  Namespace: 'AWS/Lambda', MetricName: name, Dimensions: [], Statistic: 'Maximum', Period: 60, Threshold: threshold,
  ComparisonOperator: 'GreaterThanThreshold',
});
const ofApi = { Namespace: 'AWS/ApiGateway', MetricName: 'api-slow', Dimensions: [{ Name: 'ApiId', Value: 'a1b2c3' }] };
const SLOW = [{ Id: 'slow', MetricStat: { Metric: ofApi, Period: 900, Stat: 'Maximum' } }];
const ALARMS = [
  { ...alarm('api-slow', 'OK', 2000, 'One request in a hundred takes longer than two seconds.'), Metrics: SLOW },
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
    Count: (at) => Math.round(40 + 25 * Math.sin(at / 700)),
    Latency: (at) => 14 + 4 * Math.sin(at / 400),
  };
  const results = (query.MetricDataQueries ?? []).map(({ Id, MetricStat: { Metric } }) => {
    const figure = figures[Metric.MetricName];
    return { Id, Timestamps: figure ? times : [], Values: figure ? times.map(figure) : [] };
  });
  const mapping = { UUID: '5c2e4a71-0d0e-4f6c-9d55-0a3c8f6f1f10', State: 'Enabled', LastProcessingResult: 'OK' };
  let answer = { EventSourceMappings: [mapping] };
  if (target.endsWith('DescribeAlarms')) answer = { MetricAlarms: ALARMS };
  if (target.endsWith('GetMetricData')) answer = { MetricDataResults: results };
  response.end(JSON.stringify(answer));
});

// Starts `daybook console` with these options and settings. Returns the process, and the address that it prints.
async function serve(options, settings = {}) {
  const aws = `http://127.0.0.1:${services.address().port}`;
  const serving = spawn(DAYBOOK, ['console', '--port', '0', ...options], {
    env: {
      AWS_ENDPOINT_URL_DYNAMODB: DYNAMODB_URL, AWS_ENDPOINT_URL_EVENTBRIDGE: BUS_URL, AWS_ENDPOINT_URL_SQS: BUS_URL,
      AWS_ENDPOINT_URL_LAMBDA: aws, AWS_ENDPOINT_URL_CLOUDWATCH: aws, STREAM_RELAY_NAME: 'relay',
      TABLE_NAME: 'daybook-dev', VIEWS_TABLE_NAME: 'daybook-dev-views', EVENT_BUS_NAME: 'daybook',
      EVENT_SOURCE: 'com.example.daybook', DLQ_URL: `${BUS_URL}/000000000000/daybook-dlq`,
      CHANGES_QUEUE_URL: `${BUS_URL}/000000000000/daybook-changes`, ...settings,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const address = await new Promise((resolve, reject) => {
    let printed = '';
    serving.stdout.on('data', (chunk) => {
      printed += chunk;
      const line = printed.match(/^Console {2}(.*)$/m);
      if (line) resolve(line[1]);
    });
    serving.on('exit', () => reject(new Error(`daybook console has ended: ${printed}`)));
  });
  visitAt(address.replace(/\/_console.*$/, ''));
  return { serving, address };
}

// Ends the console with Ctrl-C, and waits for its end.
async function end({ serving }) {
  const ended = new Promise((resolve) => serving.on('exit', resolve));
  serving.kill('SIGINT');
  assert.equal(await ended, 0);
}

async function readOnly() {
  const console = await serve([], { STACK: 'daybook-prod' });
  await open('');
  await shows('read-only');
  await look('deployed-aggregates');
  await followText('order');
  await shows('order/1001');
  await look('deployed-type');
  await followText('order/1001');
  await shows('in the outbox');
  await look('deployed-aggregate');
  await followText('Raw rows');
  await shows('#METADATA');
  await look('deployed-rows');
  await page.goBack();
  await followText('Copy as a test');
  await shows('at version 3');
  await look('deployed-test');
  await open('/aggregates/fulfilment/1001/process');
  await shows('by dispatch request-payment');
  await look('deployed-process');
  await open('/model');
  await shows('does not know the rules of the bus');
  await look('deployed-model');
  await open('/events?type=order');
  await shows('OrderShipped');
  await look('deployed-events');
  await open('/dead-letters');
  await shows('messages in the queue\n1');
  await look('deployed-dead-letter-messages');
  await open('/stream');
  await shows('orders-by-day');
  await shows('Enabled');
  await look('deployed-stream');
  await open('/health');
  await shows('4 alarms, 1 raised');
  await shows('Requests in the last hour');
  assert.match(await text(), /Per minute: latest [1-9]/);
  await look('health');
  // The pages that only the local stack has.
  for (const path of ['/bus', '/correlation', '/faults', '/command/order']) {
    assert.equal((await open(path)).status(), 404, path);
  }
  await look('deployed-not-found');
  await end(console);
}

async function withoutSettings() {
  const console = await serve([], { STREAM_RELAY_NAME: '', CHANGES_QUEUE_URL: `${BUS_URL}/000000000000/none` });
  await open('/stream');
  await shows('STREAM_RELAY_NAME is missing');
  await shows('The specified queue does not exist.');
  await look('deployed-stream-without-relay');
  await open('/health');
  await shows('the name of the stack is not known');
  await look('health-without-stack');
  await end(console);
}

async function withWrites() {
  const console = await serve(['--allow-writes']);
  await open('/dead-letters');
  await shows('undeliverable');
  await look('deployed-dead-letters-with-writes');
  const list = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '"Nothing"' };
  const received = async () => (await (await fetch(`${API_URL}/_dev/console/dead-letters`, list)).json()).messages[0].receives;
  const before = await received();
  await visitOtherSite(console.address.replace('/_console', ''));
  // Two links were followed: each shows the list, which receives the messages.
  assert.equal(await received(), before + 2);
  await setFaults({});
  await page.click('tbody input[type=checkbox]');
  await followText('Send the selected again');
  await shows('1 message was sent again', { reload: false });
  await look('deployed-sent-again');
  await end(console);
}

async function onNetwork() {
  const { serving, address } = await serve(['--host', '0.0.0.0']);
  const [, token] = address.split('?token=');
  assert.equal((await open('')).status(), 401);
  assert.equal((await open(`?token=${token}`)).status(), 200);
  assert.ok(!page.url().includes(token), page.url());
  await follow('header.top nav a:nth-child(3)');
  await shows('Events');
  await end({ serving });
}

export async function visitDeployed() {
  await new Promise((resolve) => services.listen(0, '127.0.0.1', resolve));
  await setFaults({ entries: [{ containing: 'undeliverable', code: 'MalformedDetail' }] });
  await post('/todo', { id: 'undeliverable', title: 'undeliverable', message: 'm' });
  await readOnly();
  await withoutSettings();
  await withWrites();
  await onNetwork();
  services.close();
}
