// The example in docs/console.md, "Find why a message of an order was not delivered", walked as it is written: its commands run
// in a shell, and each of its five clicks is on what the document names.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { API_URL, followText, look, open, page, picture, shows } from './visitor.js';

const document = readFileSync('docs/console.md', 'utf8');
const story = document.split('\n## ').find((section) => section.startsWith('Find why a message of an order was not delivered'));

/** The commands of the document, for the visited stack. */
function run(commands) {
  assert.ok(commands.includes('localhost:3000'), commands);
  const here = commands.replaceAll('localhost:3000', new URL(API_URL).host);
  execFileSync('bash', ['-euc', here.replaceAll('curl ', 'curl --silent --show-error --fail ')]);
}

export async function walkStory() {
  const numbered = story.split(/^(?=\d\. )/m).slice(1);
  const steps = numbered.map((step) => step.split(/\n\n(?! {3})/)[0].replaceAll(/\s+/g, ' '));
  assert.equal(steps.length, 5);
  const expects = (step, ...texts) => texts.forEach((wanted) => assert.ok(steps[step - 1].includes(wanted), steps[step - 1]));
  run(story.match(/```sh\n([^]*?)```/)[1]);

  await open('');
  expects(1, '**Click the order** `order/1001`', 'three events', '`OrderShipped` is in the dead-letter queue');
  await followText('order/1001');
  await shows('in the dead-letter queue: MalformedDetail');
  assert.equal((await page.$$('.events > li')).length, 3);
  assert.equal((await page.$$('.fate')).length, 3);
  assert.equal((await page.$$('.fate.good')).length, 2);
  await look('order');
  await picture('console-order');

  expects(2, '**Click** *in the dead-letter queue: MalformedDetail*', 'why', 'how often', 'since when');
  await followText('in the dead-letter queue: MalformedDetail');
  await shows('MalformedDetail');
  await look('dead-letter-messages');
  await picture('console-dead-letters');

  expects(3, '**Remove the cause.**');
  run(steps[2].match(/`(curl [^`]*)`/)[1]);

  expects(4, '**Select the message, and click** *Send the selected again*');
  await page.click('tbody input[type=checkbox]');
  await followText('Send the selected again');
  await shows('1 message was sent again');
  await picture('console-sent-again');

  expects(5, '**Click** *Bus*', '`OrderShipped` is the first message');
  await followText('Bus');
  assert.equal(await page.$eval('tbody tr strong', (first) => first.innerText), 'OrderShipped');
  await picture('console-bus');

  // The message is on the bus for the timeline, too.
  await open('/aggregates/order/1001');
  await shows('on the bus after');
  assert.equal((await page.$$('.fate.good')).length, 3);
}
