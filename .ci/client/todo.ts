// Creates, reads, updates and deletes a to-do with a client whose types are generated from docs/openapi.json. The client
// does not compile if it uses something that the document does not contain.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const client = createClient<paths>({ baseUrl: process.env.API_URL });

// Create, and repeat the request as if the response had been lost: this creates one to-do and returns the same response.
const body = { title: "TODO", message: "Make coffee" };
const header = { "Idempotency-Key": crypto.randomUUID() };
const created = await client.POST("/todo", { params: { header }, body });
assert.equal(created.response.status, 201);
assert(created.data);
const again = await client.POST("/todo", { params: { header }, body });
assert.equal(again.response.headers.get("Idempotency-Replayed"), "true");
assert.deepEqual(again.data, created.data);

const path = { id: created.data.id };
const first = created.response.headers.get("ETag") ?? assert.fail("the response to a creation has no ETag");
const event = created.data.events?.[0] ?? assert.fail("the response to a creation has no event");
assert.equal(event.eventType, "TodoCreated");
if (event.eventType === "TodoCreated") {
  // The event type determines the type of the data.
  assert.equal(event.data.message, "Make coffee");
}

// Get, and get again with the ETag of the known version.
const got = await client.GET("/todo/{id}", { params: { path } });
assert.equal(got.data?.state.message, "Make coffee");
assert.equal(got.response.headers.get("ETag"), first);
const known = await client.GET("/todo/{id}", { params: { path, header: { "If-None-Match": first } }, parseAs: "text" });
assert.equal(known.response.status, 304);

// Update with the ETag of the current version.
const two = { title: "TODO", message: "Make 2 coffees" };
const updated = await client.POST("/todo/{id}", { params: { path, header: { "If-Match": first } }, body: two });
assert.equal(updated.response.status, 200);
assert.equal(updated.data?.version, 2);

// Update with the ETag of the version before: a conflict, whose response contains the current version.
const tea = { title: "TODO", message: "Make tea" };
const stale = await client.POST("/todo/{id}", { params: { path, header: { "If-Match": first } }, body: tea });
assert.equal(stale.response.status, 409);
const problem: components["responses"]["UpdateConflict"]["content"]["application/problem+json"] | undefined =
  stale.error && "expected" in stale.error ? stale.error : undefined;
assert.equal(problem?.type, "urn:daybook:problem:version-conflict");
assert.deepEqual([problem.expected, problem.actual], [1, 2]);
const current = stale.response.headers.get("ETag") ?? assert.fail("the response to this conflict has no ETag");
const merged = await client.POST("/todo/{id}", { params: { path, header: { "If-Match": current } }, body: tea });
assert.equal(merged.data?.state?.message, "Make tea");

// Send a command by its name that the rules reject, and read the events.
const command = { command: "UpdateTodo", data: { title: " ", message: "" } } as const;
const refused = await client.POST("/todo/{id}/commands", { params: { path }, body: [command] });
assert.equal(refused.response.status, 422);
assert(refused.error?.type === "urn:daybook:problem:refused" && refused.error.rejection === "TitleMissing");
const events = await client.GET("/todo/{id}/events", { params: { path, query: { after: 1, limit: 10 } } });
assert.deepEqual(events.data?.events.map((event) => event.eventType), ["TodoUpdated", "TodoUpdated"]);

// Delete, and get the deleted to-do.
const deleted = await client.DELETE("/todo/{id}", { params: { path } });
assert.equal(deleted.data?.version, 4);
const gone = await client.GET("/todo/{id}", { params: { path } });
assert.equal(gone.response.status, 410);
assert.equal(gone.error?.type, "urn:daybook:problem:deleted");

console.log("passed: create, get, update, conflict, merge, rejection, delete, get after delete");
