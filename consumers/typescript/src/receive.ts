/** The messages of one aggregate: applies those whose turn has come, and stores the others. */

import { setTimeout as sleep } from "node:timers/promises";
import { type Message, nextMessage, textOf } from "./message.js";
import { type Position, Rows, type State, type Table } from "./table.js";

export type Handle = (message: Message<any>, rows: Rows) => void | Promise<void>;
export type Change = (last: Position) => Partial<Position>;
export type Options = { handle: Handle; maxAttempts: number; cutoff: number };

/** Maximum transactions in a row for which other writers are faster, and stored messages that a transaction deletes. */
const [MAX_RETRIES, MAX_REMOVED] = [12, 90];

/** Writes a line of JSON to the standard output, which Lambda passes to the log as it is. */
export function log(level: "ERROR" | "WARN" | "INFO", message: string, fields: object): void {
  process.stdout.write(`${JSON.stringify({ timestamp: new Date().toISOString(), level, message, ...fields })}\n`);
}

const placeOf = ({ detail }: Message): string => textOf(detail.metadata);

/** Changes the position, and then applies or stores the messages. `retry` has the ids of those to be delivered again. */
export async function receive(table: Table, aggregate: string, given: Message[], options: Options, change?: Change) {
  const { handle, maxAttempts, cutoff } = options;
  const messages = given.sort((one, other) => (placeOf(one) < placeOf(other) ? -1 : Number(placeOf(one) > placeOf(other))));
  const result = { applied: 0, failed: 0, retry: new Set<string>() };

  async function apply(state: State, message: Message): Promise<boolean | Error> {
    const [last, rows, { epoch, messageSeq, messageId }] = [state.position, new Rows(table), message.detail.metadata];
    try {
      await handle(structuredClone(message), rows);
    } catch (error) {
      if (!rows.failure) return fail(state, message, error);
    }
    if (rows.failure) throw rows.failure;
    const remove = [placeOf(message)].filter((place) => state.stored.has(place));
    const position = { epoch, messageSeq, messageId, attempts: 0, error: undefined };
    const written = await table.write(aggregate, state, { position, remove, rows: rows.writes() });
    if (written instanceof Error) return fail(state, message, written);
    result.applied += Number(written);
    const lost = written && epoch > last.epoch ? last.messageSeq + 1 - messageSeq : 0;
    if (lost > 0) log("ERROR", "applied messages are of events that a restore has lost", { aggregate, messageId, lost });
    return written;
  }

  async function fail(state: State, message: Message, thrown: unknown): Promise<boolean | Error> {
    // The request of an operator is not repeated as a delivery is, so its attempt is the last one.
    const attempts = messages.length > 0 ? state.position.attempts + 1 : maxAttempts;
    const error = String(thrown instanceof Error ? thrown.message : thrown).slice(0, 1000);
    const written = await table.write(aggregate, state, { position: { attempts, error } });
    if (written !== true) return written;
    result.failed += 1;
    log("ERROR", "a message cannot be applied", { metadata: message.detail.metadata, attempts, error });
    // The next delivery makes the next attempt: of this message, or of another one if it was stored.
    const delivered = messages.find((one) => placeOf(one) === placeOf(message)) ?? messages.at(-1);
    if (delivered && attempts < maxAttempts) result.retry.add(delivered.detail.metadata.messageId);
    return true;
  }

  /** Makes a transaction. Returns `false` if the state must be read again, and `undefined` if nothing is left to do. */
  async function step(state: State): Promise<boolean | Error | undefined> {
    const [last, stored, reached] = [state.position, state.stored, textOf(state.position)];
    if (change) return table.write(aggregate, state, { position: change(last) });
    const remove = [...stored.keys()].filter((place) => place <= reached).slice(0, MAX_REMOVED);
    if (remove.length > 0) return table.write(aggregate, state, { remove });
    const delivered = messages.map((message): [string, Message] => [placeOf(message), message]);
    const known = new Map([...delivered.toReversed(), ...stored]);
    for (const [place, { detail: { metadata } }] of delivered) {
      const other = place === reached ? last.messageId : known.get(place)?.detail.metadata.messageId;
      if (!other || other === metadata.messageId || result.retry.has(metadata.messageId)) continue;
      log("ERROR", "two messages have the same number", { metadata, other });
      result.retry.add(metadata.messageId);
    }
    const isStopped = result.failed > 0 || last.attempts >= maxAttempts;
    const next = isStopped ? undefined : nextMessage(last, known.values());
    if (next) return apply(state, next);
    const [, rest] = delivered.find(([place]) => place > reached && !stored.has(place)) ?? [];
    return rest && table.write(aggregate, state, { store: rest });
  }

  let state: State | undefined;
  for (let retries = 0; retries <= MAX_RETRIES; ) {
    if (Date.now() >= cutoff) throw new Error("the time of the invocation is up");
    state ??= await table.state(aggregate, messages.map(placeOf));
    const written = state ? await step(state) : false;
    if (written === undefined) return result;
    if (written instanceof Error) throw written;
    if (written) [change, retries] = [undefined, 0];
    else await sleep(Math.random() * Math.min(500, 10 * 2 ** retries++));
    if (!written || state!.position.waiting > state!.stored.size) state = undefined;
  }
  throw new Error("other writers were faster");
}
