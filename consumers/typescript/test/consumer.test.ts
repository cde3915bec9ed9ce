/**
 * The cases of `vectors.json`, random orders of messages, the example, and the items of earlier releases. They need the
 * address of a DynamoDB in AWS_ENDPOINT_URL_DYNAMODB, and the name of a new table in TABLE_NAME; `.ci/consumers` sets both.
 */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { before, test } from "node:test";
import { DynamoDB } from "@aws-sdk/client-dynamodb";
import { DynamoDBDocument, paginateScan } from "@aws-sdk/lib-dynamodb";
import { consumer, type Message, type Rows } from "../src/consumer.js";
import { handler as orderMails } from "./order-mails.js";

const TABLE = process.env.TABLE_NAME!;
const ROOT = process.env.DAYBOOK ?? "../..";
const read = (path: string): any => JSON.parse(readFileSync(`${ROOT}/${path}`, "utf8"));
const vectors = read("consumers/vectors.json");
const context = { getRemainingTimeInMillis: () => 30_000 };
const db = new DynamoDB({});
const documents = DynamoDBDocument.from(db);

// The lines of the log would hide the results.
const write = process.stdout.write.bind(process.stdout) as (...given: any[]) => boolean;
process.stdout.write = (chunk: any, ...rest: any[]) => String(chunk).startsWith('{"timestamp"') || write(chunk, ...rest);

before(async () => {
  await db.createTable({
    TableName: TABLE,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: ["pk", "sk"].map((AttributeName) => ({ AttributeName, AttributeType: "S" })),
    KeySchema: [
      { AttributeName: "pk", KeyType: "HASH" },
      { AttributeName: "sk", KeyType: "RANGE" },
    ],
  });
});

/** The consumer of the cases: it lists the applied messages of each aggregate, and counts those of all. */
class Journal {
  isRepaired = false;
  readonly handler;

  constructor(readonly name: string, client = db) {
    this.handler = consumer({
      name,
      tableName: TABLE,
      maxAttempts: 3,
      client,
      handle: async (message, rows) => {
        const type = message["detail-type"];
        if (type === "Poison" && !this.isRepaired) throw new Error("it is poison");
        const { aggregateType, aggregateId, epoch, messageSeq } = message.detail.metadata;
        const aggregate = `${aggregateType}/${aggregateId}`;
        const list = (await rows.get<number[][]>(aggregate, "#LIST")) ?? [];
        rows.put(aggregate, "#LIST", [...list, [epoch, messageSeq]]);
        rows.put("total", "#TOTAL", ((await rows.get<number>("total", "#TOTAL")) ?? 0) + 1);
        if (type === "LargeRow") rows.put(aggregate, "large", "x".repeat(500_000));
        for (let row = 0; type === "ManyRows" && row <= 100; row += 1) rows.put(aggregate, `row-${row}`, row);
      },
    });
  }

  /** Delivers a batch. Returns the ids of the deliveries that must be repeated. */
  async deliver(messages: any[]): Promise<string[]> {
    const { batchItemFailures } = await this.handler({ Records: records(messages) }, context);
    return batchItemFailures.map(({ itemIdentifier }: any) => itemIdentifier).sort();
  }

  async items(): Promise<any[]> {
    const items: any[] = [];
    for await (const page of paginateScan({ client: documents }, { TableName: TABLE, ConsistentRead: true })) {
      items.push(...(page.Items ?? []));
    }
    return items.filter(({ pk }) => pk.split("#")[1] === this.name);
  }

  /** The aggregates in the form of the cases. */
  async aggregates(): Promise<any> {
    const [aggregates, incomplete]: [any, string[]] = [{}, []];
    let total = 0;
    for (const { pk, sk, ...item } of await this.items()) {
      const [kind, , ...rest] = pk.split("#");
      const aggregate = (aggregates[rest.join("/")] ??= { applied: [], position: undefined, attempts: 0, stored: [] });
      if (kind === "INCOMPLETE") incomplete.push(sk);
      else if (sk === "#LIST") aggregate.applied = JSON.parse(item.row);
      else if (sk === "#TOTAL") total = JSON.parse(item.row);
      else if (sk === "#POSITION") Object.assign(aggregate, { position: [item.epoch, item.messageSeq], ...item });
      else if (sk.startsWith("WAITING#")) aggregate.stored.push(sk.split("#").slice(1).map(Number));
    }
    delete aggregates.total;
    delete aggregates[""];
    for (const [name, one] of Object.entries<any>(aggregates)) {
      aggregates[name] = { applied: one.applied, position: one.position, attempts: one.attempts, stored: one.stored };
      assert.equal(one.waiting, one.stored.length, name);
      assert.equal(incomplete.includes(name), one.waiting > 0, name);
    }
    assert.equal(total, Object.values<any>(aggregates).reduce((sum, { applied }) => sum + applied.length, 0));
    return aggregates;
  }
}

const expanded = ({ seqs, ...message }: any): any[] =>
  seqs ? Array.from({ length: seqs[1] - seqs[0] + 1 }, (_, at) => ({ ...message, seq: seqs[0] + at })) : [{ ...message }];

function records(messages: any[]): any[] {
  return messages.flatMap(expanded).map((given, at) => {
    if ("record" in given) return given.record;
    return { messageId: `${at}`, body: given.body ?? JSON.stringify(event(given)) };
  });
}

function event({ of = "note/1", seq, epoch = 1, previousEpoch, type = "Noted", id, metadata = {}, bytes = 0 }: any) {
  const [aggregateType, aggregateId] = of.split("/");
  const messageId = id ?? `${aggregateType}-${aggregateId}-${epoch}-${seq}`;
  const numbers = { seqNum: seq, messageSeq: seq, epoch, previousEpoch, eventVersion: 1 };
  const texts = { messageId, aggregateType, aggregateId, eventId: `event-${messageId}`, occurredAt: "2030-01-01T00:00:00.000Z" };
  const all = Object.entries({ ...numbers, ...texts, ...metadata }).filter(([, value]) => value !== null);
  return { "detail-type": type, detail: { metadata: Object.fromEntries(all), data: { text: "x".repeat(bytes) } } };
}

/** The aggregates of a case, with the members that are left out. */
const complete = (aggregates: any): any =>
  Object.fromEntries(
    Object.entries<any>(aggregates).map(([name, of]) => [name, { applied: [], attempts: 0, stored: [], ...of }]),
  );

vectors.cases.forEach(({ name, steps, aggregates }: any, number: number) => {
  test(name, async () => {
    const journal = new Journal(`case-${number}`);
    for (const step of steps) {
      if (step.repaired) journal.isRepaired = true;
      if (step.deliver) assert.deepEqual(await journal.deliver(step.deliver), [...(step.failed ?? [])].sort());
      if (!step.request) continue;
      const response = await journal.handler(step.request, context);
      if (step.response) assert.deepEqual(response, step.response);
      if (!step.waiting) continue;
      const waiting = response.aggregates.map(({ aggregate, waiting }: any) => [aggregate, waiting]);
      assert.deepEqual(Object.fromEntries(waiting), step.waiting);
      const stopped = response.aggregates.filter(({ attempts }: any) => attempts >= 3);
      assert.deepEqual(stopped.map(({ aggregate }: any) => aggregate), step.stopped);
    }
    assert.deepEqual(await journal.aggregates(), complete(aggregates));
  });
});

/** A generator of numbers below a limit, the same for each seed. */
function random(seed: number): (limit: number) => number {
  let state = seed + 1;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

test("messages in random orders, with two instances at a time, give the same rows", async () => {
  const { seeds, copies, messages, aggregates } = vectors.shuffled;
  for (let seed = 0; seed < seeds; seed += 1) {
    const [next, journal] = [random(seed), new Journal(`seed-${seed}`)];
    const queue: any[] = Array.from({ length: copies }, () => messages.flatMap(expanded)).flat();
    for (let at = queue.length - 1; at > 0; at -= 1) {
      const other = next(at + 1);
      [queue[at], queue[other]] = [queue[other], queue[at]];
    }
    const instance = async () => {
      while (queue.length > 0) {
        const batch = queue.splice(0, 1 + next(10));
        const failed = await journal.deliver(batch);
        queue.push(...failed.map((id) => batch[Number(id)]));
      }
    };
    await Promise.all([instance(), instance()]);
    assert.deepEqual(await journal.aggregates(), complete(aggregates), `seed ${seed}`);
  }
});

test("messages are applied once although the responses of transactions are lost", async () => {
  let transactions = 0;
  const network = createServer((incoming, outgoing) => {
    const { method, headers } = incoming;
    const call = request(process.env.AWS_ENDPOINT_URL_DYNAMODB!, { method, headers }, (response) => {
      const isTransaction = String(headers["x-amz-target"]).endsWith(".TransactWriteItems");
      if (isTransaction && (transactions += 1) % 2 === 1) return response.resume() && incoming.socket.destroy();
      response.pipe(outgoing.writeHead(response.statusCode!, response.headers));
    });
    incoming.pipe(call);
  }).listen(0);
  const endpoint = `http://127.0.0.1:${(network.address() as AddressInfo).port}`;
  const journal = new Journal("lost-responses", new DynamoDB({ endpoint, maxAttempts: 1 }));
  let batch: any[] = [{ seq: 5 }, { seq: 1 }, { seq: 3 }, { of: "note/2", seq: 1 }, { seq: 2 }, { seq: 1 }];
  while (batch.length > 0) batch = (await journal.deliver(batch)).map((id) => batch[Number(id)]);
  network.close().closeAllConnections();
  const expected = { "note/1": { applied: [[1, 1], [1, 2], [1, 3]], position: [1, 3], stored: [[1, 5]] } };
  const other = { "note/2": { applied: [[1, 1]], position: [1, 1] } };
  assert.deepEqual(await journal.aggregates(), complete({ ...expected, ...other }));
});

test("the example writes the mails of shuffled messages", async () => {
  const shuffled = read("app/order-mails/events/1-shuffled-batch.json");
  const missing = { messageId: "missing", body: JSON.stringify(read("app/order-mails/events/3-missing-message.json")) };
  for (const batch of [shuffled, { Records: [missing] }]) {
    assert.deepEqual(await orderMails(batch, context), { batchItemFailures: [] });
  }
  const rows = (await new Journal("order-mails").items()).filter(({ pk }) => pk === "ROW#order-mails#customer/alice");
  const texts = ["Thank you for order 7, your number 1.", "Order 7 is on its way, its tracking number is T-1."];
  assert.deepEqual(rows.map(({ row }) => JSON.parse(row).text ?? JSON.parse(row)), [{ orders: 1 }, ...texts]);
});

test("items of each release are continued, and written in the same form", async () => {
  for (const release of readdirSync(`${ROOT}/tests/golden-rows`)) {
    const items: any[] = read(`tests/golden-rows/${release}/consumer.json`);
    for (const Item of items) await db.putItem({ TableName: TABLE, Item });
    const journal = new Journal("journal");
    assert.deepEqual(await journal.deliver([{ seq: 1 }, { seq: 2 }]), []);
    const applied = [[1, 1], [1, 2], [1, 3]];
    assert.deepEqual((await journal.aggregates())["note/1"], { applied, position: [1, 3], attempts: 0, stored: [] });
    await journal.deliver([{ of: "note/2", seq: 1 }, { of: "note/2", seq: 3 }]);
    const form = ({ pk, ...item }: any) => [pk.split("#")[0], ...Object.keys(item).sort()].join();
    const written = new Set((await journal.items()).map(form));
    const known = items.map((item) => form(Object.fromEntries(Object.entries<any>(item).map(([name, { S, N }]) => [name, S ?? N]))));
    assert.deepEqual(known.filter((one) => !written.has(one)), []);
  }
});

test("a payload that is neither a batch nor a request, and an unknown request, are errors", async () => {
  const { handler } = new Journal("errors");
  for (const payload of [null, 7, "text", [], {}, { Records: 7 }, { request: "other" }, { request: "skip", aggregate: "7", through: 1 }]) {
    await assert.rejects(handler(payload, context), JSON.stringify(payload));
  }
});

test("a request to skip has whole numbers, or texts of them", async () => {
  const journal = new Journal("skip");
  const skip = (given: object) => journal.handler({ request: "skip", aggregate: "note/1", ...given }, context);
  await journal.deliver([{ seq: 3 }, { seq: 4, epoch: 2 }]);
  for (const through of [undefined, null, "", "2nd", 1.5, "1.5", 0, -1, 2 ** 53, []]) {
    await assert.rejects(skip({ through, epoch: 2 }), `${through}`);
  }
  for (const epoch of ["", "1st", 1.5, "1.5", 0, -1, 2 ** 32]) await assert.rejects(skip({ through: 2, epoch }), `${epoch}`);
  const stored = [[1, 3], [2, 4]];
  assert.deepEqual((await journal.aggregates())["note/1"], { applied: [], position: [0, 0], attempts: 0, stored });
  assert.deepEqual(await skip({ through: "2", epoch: "1" }), { applied: 1, failed: 0 });
  assert.deepEqual(await skip({ through: "3", epoch: "2" }), { applied: 1, failed: 0 });
  assert.deepEqual((await journal.aggregates())["note/1"], { applied: stored, position: [2, 4], attempts: 0, stored: [] });
});

test("an AWS error of the function counts as an attempt, and so does a row whose key is invalid", async () => {
  const journal = new Journal("aws-errors");
  const handle = async ({ detail }: Message, rows: Rows) => {
    if (detail.metadata.aggregateId === "1") await db.getItem({ TableName: "none", Key: { pk: { S: "any" } } });
    await rows.get("any", "");
  };
  const handler = consumer({ name: journal.name, tableName: TABLE, maxAttempts: 2, client: db, handle });
  const deliver = async () => (await handler({ Records: records([{ seq: 1 }, { of: "note/2", seq: 1 }]) }, context)).batchItemFailures;
  assert.deepEqual([(await deliver()).length, (await deliver()).length], [2, 0]);
  const stopped = { position: [0, 0], attempts: 2, stored: [[1, 1]] };
  assert.deepEqual(await journal.aggregates(), complete({ "note/1": stopped, "note/2": stopped }));
});

test("messages are delivered again when the time is up or the table is not available", async () => {
  const soon = { getRemainingTimeInMillis: () => 500 };
  assert.equal((await new Journal("late").handler({ Records: records([{ seq: 1 }]) }, soon)).batchItemFailures.length, 1);
  const handle = () => {};
  const unavailable = consumer({ name: "unavailable", tableName: "none", handle, client: db });
  const { batchItemFailures } = await unavailable({ Records: records([{ seq: 1 }]) }, context);
  assert.deepEqual(batchItemFailures, [{ itemIdentifier: "0" }]);
});
