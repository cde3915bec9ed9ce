/** The consumer's table. Its items have the format of the crate `daybook-consumer`. */

import { randomUUID } from "node:crypto";
import { type DynamoDBClient, TransactionCanceledException } from "@aws-sdk/client-dynamodb";
import { DynamoDBDocument, paginateQuery, type TransactWriteCommandInput } from "@aws-sdk/lib-dynamodb";
import { type Message, messageOf, type Messages, type Place, textOf } from "./message.js";

export type Item = Record<string, any>;
type Write = NonNullable<TransactWriteCommandInput["TransactItems"]>[number];

/** How far an aggregate's messages are applied or skipped, and the number of stored ones. */
export type Position = Place & { revision: number; waiting: number; attempts: number; messageId?: string; error?: string };
export type State = { position: Position; stored: Messages };
export type Changes = { position?: Partial<Position>; store?: Message; remove?: string[]; rows?: Write[] };

/** Maximum stored messages that are read at a time. */
const MAX_READ = 100;
/** After these reasons, a transaction may succeed once its items are read again. */
const CONTENDED = ["ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];

export class Table {
  readonly #db: DynamoDBDocument;

  constructor(client: DynamoDBClient, readonly name: string, readonly consumer: string) {
    this.#db = DynamoDBDocument.from(client, { marshallOptions: { removeUndefinedValues: true } });
  }

  positionKey(aggregate: string) {
    return { pk: `POSITION#${this.consumer}#${aggregate.replace("/", "#")}`, sk: "#POSITION" };
  }

  /** The position and the first stored messages of an aggregate. `undefined` if a transaction is visible only in part. */
  async state(aggregate: string, delivered: Iterable<string>): Promise<State | undefined> {
    const [key, none] = [this.positionKey(aggregate), { revision: 0, epoch: 0, messageSeq: 0, waiting: 0, attempts: 0 }];
    const [pk, position] = [key.pk, { ...none, ...(await this.item(key)) }];
    const items = position.waiting ? await this.query(pk, "WAITING#", MAX_READ) : [];
    if (items.length !== Math.min(position.waiting, MAX_READ)) return undefined;
    if (position.waiting > MAX_READ) {
      // The next message may be the first of a later epoch, and a delivered message may be stored already.
      items.push(...(await this.query(pk, textOf({ epoch: position.epoch + 1, messageSeq: 0 }), MAX_READ)));
      for (const place of delivered) items.push((await this.item({ pk, sk: place })) ?? {});
    }
    const messageIn = ({ messageType, detail }: Item) => messageOf({ "detail-type": messageType, detail: JSON.parse(detail) });
    const stored: Messages = new Map(items.filter(({ sk }) => sk).map((item) => [item.sk, messageIn(item)]));
    return { position, stored };
  }

  /**
   * Makes all changes or none, also in `state`. Returns `false` if another writer was faster, and an error if DynamoDB always
   * rejects them: an item or a key is too large or invalid, or there are too many.
   */
  async write(aggregate: string, state: State, { store, remove = [], rows = [], ...to }: Changes): Promise<boolean | Error> {
    const [{ pk, sk }, now, before] = [this.positionKey(aggregate), new Date().toISOString(), state.position];
    const waiting = before.waiting + (store ? 1 : 0) - remove.length;
    const position = { ...before, ...to.position, waiting, revision: before.revision + 1 };
    const writes = [
      this.writeOf("Put", { pk, sk, ...position, updatedAt: now }, isUnchanged("revision", before.revision)),
      ...remove.map((sk) => this.writeOf("Delete", { pk, sk })),
      ...rows,
    ];
    const [entry, [aggregateType, aggregateId]] = [{ pk: `INCOMPLETE#${this.consumer}`, sk: aggregate }, aggregate.split("/")];
    if (!before.waiting && waiting) writes.push(this.writeOf("Put", { ...entry, aggregateType, aggregateId, since: now }));
    if (before.waiting && !waiting) writes.push(this.writeOf("Delete", entry));
    const place = store && textOf(store.detail.metadata);
    const message = { messageType: store?.["detail-type"], detail: JSON.stringify(store?.detail), storedAt: now };
    if (place) writes.push(this.writeOf("Put", { pk, sk: place, ...message }));
    try {
      // The SDK sends one ClientRequestToken with all its attempts, so a repeated attempt changes nothing more.
      await this.#db.transactWrite({ TransactItems: writes });
    } catch (error: any) {
      const reasons = error instanceof TransactionCanceledException ? (error.CancellationReasons ?? []) : [];
      if (reasons.some(({ Code }) => CONTENDED.includes(Code ?? ""))) return false;
      if (error.name === "ValidationException" || reasons.some(({ Code }) => Code === "ValidationError")) return error;
      throw error;
    }
    state.position = position;
    if (place) state.stored.set(place, store);
    remove.forEach((place) => state.stored.delete(place));
    return true;
  }

  async item(Key: Item): Promise<Item | undefined> {
    return (await this.#db.get({ TableName: this.name, Key, ConsistentRead: true })).Item;
  }

  /** The first items of a partition, from a sort key on. */
  async query(pk: string, from = " ", limit = 10_000): Promise<Item[]> {
    const [items, ExpressionAttributeValues] = [[] as Item[], { ":pk": pk, ":from": from }];
    const condition = { KeyConditionExpression: "pk = :pk AND sk >= :from", ExpressionAttributeValues };
    const query = { TableName: this.name, ...condition, ConsistentRead: true };
    for await (const page of paginateQuery({ client: this.#db, pageSize: limit }, query)) {
      if (items.push(...(page.Items ?? [])) >= limit) break;
    }
    return items.slice(0, limit);
  }

  /** A write of a transaction: `Put` has an item, the others have its key. */
  writeOf(kind: "Put" | "Delete" | "ConditionCheck", item: Item, condition = {}): Write {
    return { [kind]: { TableName: this.name, [kind === "Put" ? "Item" : "Key"]: item, ...condition } } as any;
  }
}

/** The condition that an item was not written since it was read. */
function isUnchanged(name: string, value: unknown) {
  if (!value) return { ConditionExpression: "attribute_not_exists(pk)" };
  return { ConditionExpression: `${name} = :before`, ExpressionAttributeValues: { ":before": value } };
}

/** The rows that a message reads and changes. */
export class Rows {
  readonly #rows = new Map<string, { key: Item; row?: string | undefined; condition?: object; isChanged?: boolean }>();
  /** An error of the table, which is none of the message, unlike an invalid key. */
  failure: unknown;

  constructor(readonly table: Table) {}

  /** A row, if it exists. If it changes before the transaction, the message is handled again. */
  async get<T>(partition: string, sort: string): Promise<T | undefined> {
    const one = this.#of(partition, sort);
    if (!one.condition && !one.isChanged) {
      const item = await this.table.item(one.key).catch((error) => {
        throw error.name === "ValidationException" ? error : (this.failure = error);
      });
      Object.assign(one, { row: item?.row, condition: isUnchanged("writeId", item?.writeId) });
    }
    return one.row === undefined ? undefined : JSON.parse(one.row);
  }

  /** Writes a row. Unless `get` has read it, it replaces what is stored under its key. */
  put(partition: string, sort: string, row: unknown): void {
    Object.assign(this.#of(partition, sort), { row: JSON.stringify(row ?? null), isChanged: true });
  }

  delete(partition: string, sort: string): void {
    Object.assign(this.#of(partition, sort), { row: undefined, isChanged: true });
  }

  writes(): Write[] {
    return [...this.#rows.values()].map(({ key, row, condition, isChanged }) => {
      if (!isChanged) return this.table.writeOf("ConditionCheck", key, condition);
      if (row === undefined) return this.table.writeOf("Delete", key, condition);
      return this.table.writeOf("Put", { ...key, row, writeId: randomUUID() }, condition);
    });
  }

  #of(partition: string, sort: string) {
    const key = { pk: `ROW#${this.table.consumer}#${partition}`, sk: sort };
    const id = JSON.stringify(key);
    return this.#rows.get(id) ?? this.#rows.set(id, { key }).get(id)!;
  }
}
