/** Runs the client against the local stack, behind a proxy that loses requests and responses on the way. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, beforeEach, test } from "node:test";
import createClient from "openapi-fetch";
import type { paths } from "./api.js";
import { change, retrying } from "./daybook.js";
import { rename } from "./example.js";

const stack = process.env.API_URL!;
const { examples } = JSON.parse(readFileSync(process.env.DOCUMENT!, "utf8")).components;

/** What happens to a request: the response is lost, cut or late, or the gateway responds itself. */
type Fault = "lost" | "cut" | "late" | { status: number; body: object; headers?: Record<string, string> };
let faults: Fault[] = [];
/** What the proxy got and returned. */
let seen: { method: string; key?: string; type?: string; replayed: boolean; at: number }[] = [];
const problems = (): (string | undefined)[] => seen.map(({ type }) => type);

async function proxied(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const [method, headers] = [request.method!, request.headers as Record<string, string>];
  const entry: (typeof seen)[number] = { method, key: headers["idempotency-key"], replayed: false, at: Date.now() };
  const problem = request.url!.startsWith("/problems/") ? problemNamed(request.url!.split("/")[2]!) : undefined;
  const fault = problem ?? faults.shift();
  if (!problem) seen.push(entry);
  if (typeof fault === "object") {
    response.writeHead(fault.status, { "Content-Type": "application/json", ...fault.headers }).end(JSON.stringify(fault.body));
    return;
  }
  for (const name of ["host", "connection", "content-length", "transfer-encoding"]) delete headers[name];
  const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
  const answer = await fetch(stack + request.url, { method, headers, body });
  const text = await answer.text();
  entry.type = answer.ok ? undefined : JSON.parse(text).type?.split(":").at(-1);
  entry.replayed = answer.headers.has("Idempotency-Replayed");
  if (fault === "lost") return void request.socket.destroy();
  if (fault === "late") await new Promise((resolve) => setTimeout(resolve, 1_500));
  response.writeHead(answer.status, { ...Object.fromEntries(answer.headers), "content-length": Buffer.byteLength(text) });
  if (fault !== "cut") return void response.end(text);
  response.write(text.slice(0, 20), () => request.socket.destroy());
}

/** The example of a problem type in the OpenAPI document. */
function problemNamed(name: string): Fault {
  const body = examples[name].value;
  return { status: body.status, body, headers: { "Content-Type": "application/problem+json" } };
}

const server = createServer((request, response) => void proxied(request, response));
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const client = createClient<paths>({ baseUrl, fetch: retrying({ timeoutMs: 1_000, firstPauseMs: 20 }) });

const headers = { "Content-Type": "application/json" };
const inject = (all: object) => fetch(`${stack}/_dev/faults`, { method: "PUT", body: JSON.stringify(all), headers });
/** Injects faults of the local stack until its API has responded with a problem. */
async function injectUntil(type: string, all: object): Promise<void> {
  const response = await inject(all);
  assert(response.ok, await response.text());
  const timer = setInterval(() => problems().includes(type) && (clearInterval(timer), inject({})), 10).unref();
}

async function account(): Promise<{ id: string }> {
  const { data } = await client.POST("/account", { body: {} });
  seen = [];
  return { id: data!.id };
}
const command = { command: "RecordTransaction", data: { desc: "A", amount: 5 } } as const;
const pay = (path: { id: string }, header: { "Idempotency-Key"?: string } = {}) =>
  client.POST("/account/{id}/commands", { params: { path, header }, body: command });
const balance = async (path: { id: string }) =>
  (await client.GET("/account/{id}", { params: { path } })).data?.state.balance;

beforeEach(() => ((faults = []), (seen = [])));
after(() => (server.close(), server.closeAllConnections(), inject({})));

for (const fault of ["lost", "cut", "late"] as const) {
  test(`a write whose response is ${fault} is repeated with its key, and happens once`, async () => {
    const path = await account();
    faults = [fault, fault];
    const { data, response } = await pay(path);
    assert.equal(data?.version, 2);
    assert.equal(response.headers.get("Idempotency-Replayed"), "true");
    assert.equal(seen.length, 3);
    assert(seen[0]!.key && seen.every(({ key }) => key === seen[0]!.key));
    assert.equal(await balance(path), 5);
  });
}

test("each write has a key of its own, or that of the caller", async () => {
  const path = await account();
  await Promise.all([pay(path), pay(path), pay(path, { "Idempotency-Key": "mine" })]);
  assert.equal(new Set(seen.map(({ key }) => key)).size, 3);
  assert(seen.some(({ key }) => key === "mine"));
  assert.equal(await balance(path), 15);
});

test("a write without a key is not repeated if it may have happened", async () => {
  const path = await account();
  faults = ["lost"];
  await assert.rejects(pay(path, { "Idempotency-Key": "" }));
  assert.deepEqual(seen.map(({ key }) => key), [undefined]);
  assert.equal(await balance(path), 5);
});

test("responses of the gateway are repeated", async () => {
  const path = await account();
  faults = [429, 503, 500].map((status) => ({ status, body: { message: "Too Many Requests" } }));
  assert.equal((await pay(path)).data?.version, 2);
  assert.equal(seen.length, 4);
  assert.equal(await balance(path), 5);
});

test("a pause is at least Retry-After; if that is too long, or no attempt is left, the caller gets the response", async () => {
  const after = (seconds: string): Fault => ({ status: 429, body: {}, headers: { "Retry-After": seconds } });
  faults = [after("1")];
  assert.equal((await client.GET("/todo")).response.status, 200);
  assert(seen[1]!.at - seen[0]!.at >= 1_000);
  faults = [after("60")];
  assert.equal((await client.GET("/todo")).response.status, 429);
  seen = [];
  faults = Array.from({ length: 9 }, () => after("0"));
  assert.equal((await client.GET("/todo")).response.status, 429);
  assert.equal(seen.length, 5);
});

test("a caller who aborts ends a pause", async () => {
  faults = [{ status: 429, body: {}, headers: { "Retry-After": "9" } }];
  await assert.rejects(client.GET("/todo", { signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
  assert.equal(seen.length, 1);
});

test("of all problem types, those of the service that can pass are repeated", async () => {
  const counts = new Map<string, number>();
  const counting = (key: string) => retrying({ attempts: 2, firstPauseMs: 1, fetch: (request, init) => {
    counts.set(key, (counts.get(key) ?? 0) + 1);
    return fetch(request, init);
  } });
  const names = Object.keys(examples).filter((name) => examples[name].value.type?.startsWith("urn:daybook:problem:"));
  assert(names.length >= 30);
  const post = (name: string, suffix: string, headers: Record<string, string>) =>
    counting(name + suffix)(`${baseUrl}/problems/${name}`, { method: "POST", body: "{}", headers });
  await Promise.all(names.map((name) => post(name, "", {})));
  await Promise.all(names.map((name) => post(name, " without a key", { "Idempotency-Key": "" })));
  const repeated = [...counts].filter(([, count]) => count > 1).map(([key]) => key).sort();
  const nothingWritten = ["Behind", "Contended", "NewerRelease", "Unavailable"];
  const both = nothingWritten.flatMap((name) => [name, `${name} without a key`]);
  assert.deepEqual(repeated, [...both, "OutcomeUnknown"].sort());
  assert([...counts.values()].every((count) => count <= 2));
});

test("a view that is behind, and one that is unavailable, are read again", async () => {
  const patient = createClient<paths>({ baseUrl, fetch: retrying() }); // `seen` waits for 2 seconds
  const read = (query: { seen?: string }) =>
    patient.GET("/views/account-balances/{key}", { params: { path: { key: "total" }, query } });
  const path = await account();
  await injectUntil("behind", { paused: ["stream-relay"] });
  const { data } = await pay(path);
  assert.equal((await read({ seen: `account/${path.id}@${data!.version}` })).response.status, 200);
  assert(problems().includes("behind"));
  [faults, seen] = [[problemNamed("Unavailable")], []];
  assert.equal((await read({})).response.status, 200);
  assert.equal(seen.length, 2);
});

test("concurrent changes are decided again after a conflict, and none is lost or happens twice", async () => {
  const { data } = await client.POST("/todo", { body: { title: "TODO", message: "" } });
  const path = { id: data!.id };
  faults = ["lost", "lost", "lost", "lost", "lost", "lost", "lost"];
  const results = await Promise.all([..."abcdefgh"].map((letter) =>
    change(
      () => client.GET("/todo/{id}", { params: { path } }),
      ({ state }, etag) => {
        const body = { title: "TODO", message: state.message + letter };
        return client.POST("/todo/{id}", { params: { path, header: { "If-Match": etag } }, body });
      },
      { attempts: 50, firstPauseMs: 5, maxPauseMs: 50 },
    )));
  assert(results.every(({ response }) => response.status === 200));
  assert(problems().includes("version-conflict"));
  const message = (await client.GET("/todo/{id}", { params: { path } })).data!.state.message;
  assert.equal([...message].sort().join(""), "abcdefgh");
  assert.deepEqual((await rename(path, "Today")).data?.state, { id: path.id, title: "Today", message });
});

test("a change ends with the problem of the read, without a write, or with the last conflict", async () => {
  const read = (id: string) => () => client.GET("/todo/{id}", { params: { path: { id } } });
  const missing = await change(read("missing"), () => assert.fail("nothing was read"));
  assert.equal(missing.error.type, "urn:daybook:problem:not-found");
  const { data } = await client.POST("/todo", { body: { title: "TODO", message: "" } });
  const path = { id: data!.id };
  assert.equal(await change(read(path.id), () => undefined), undefined);
  seen = [];
  const conflict = await change(read(path.id), ({ state }) =>
    client.POST("/todo/{id}", { params: { path, header: { "If-Match": '"7"' } }, body: { title: state.title, message: "B" } }),
    { attempts: 3, firstPauseMs: 1 });
  assert(conflict.error && "actual" in conflict.error && conflict.error.actual === 1);
  assert.equal(seen.filter(({ method }) => method === "GET").length, 3);
  assert.equal(new Set(seen.map(({ key }) => key)).size, 4, "each decision is another write");
});
