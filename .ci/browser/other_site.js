// What another site can do: open a page of the console with a link, and nothing else.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { browser } from './visitor.js';

/** Visits another site that has parts of the console and a form for it, as an image, a frame, and so on. */
export async function visitOtherSite(consoleUrl) {
  const target = `${consoleUrl}/_console/dead-letters`;
  const markup = `<!DOCTYPE html><title>other</title><img src="${target}?image"><iframe src="${target}?frame"></iframe>
    <link rel="stylesheet" href="${target}?style"><script src="${target}?script"></script>
    <script>fetch('${target}?fetch', { mode: 'no-cors' }).catch(() => {})</script><a href="${target}?link">link</a>
    <form method="post" action="${consoleUrl}/_console/faults"><button name="action" value="reset">reset</button></form>`;
  const site = createServer((_, response) => response.setHeader('content-type', 'text/html').end(markup));
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve));
  const tab = await browser.newPage();
  // The browser hides most responses from the other site, and from `response` events, too. So the requests and the statuses are
  // read where they can arrive in any order, by the id of the request.
  const [urls, codes] = [new Map(), new Map()];
  const session = await tab.createCDPSession();
  await session.send('Network.enable');
  session.on('Network.requestWillBeSent', ({ requestId, request }) => urls.set(requestId, request.url));
  session.on('Network.responseReceivedExtraInfo', ({ requestId, statusCode }) => codes.set(requestId, statusCode));
  // The statuses of the requests to the console, by the end of their addresses.
  const statuses = () => {
    const found = [...codes].filter(([id]) => urls.get(id)?.startsWith(consoleUrl));
    return Object.fromEntries(found.map(([id, status]) => [urls.get(id).replace(/^.*[?/]/, ''), status]));
  };
  // The port does not matter for the site of an address, so this is the same site, and localhost another one.
  for (const host of ['127.0.0.1', 'localhost']) {
    codes.clear();
    await tab.goto(`http://${host}:${site.address().port}/`, { waitUntil: 'networkidle0' });
    assert.deepEqual(statuses(), { fetch: 403, frame: 403, image: 403, script: 403, style: 403 });
    await Promise.all([tab.waitForNavigation(), tab.click('button')]);
    assert.equal(statuses().faults, 403);
    await tab.goto(`http://${host}:${site.address().port}/`, { waitUntil: 'networkidle0' });
    await Promise.all([tab.waitForNavigation(), tab.click('a')]);
    assert.equal(statuses().link, 200);
  }
  await tab.close();
  site.close();
}
