/** A consumer as a Lambda function behind an SQS queue with `ReportBatchItemFailures`, and the requests of its operator. */

import { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { type BusEvent, isPlace, type Message, messageOf, textOf } from "./message.js";
import { type Handle, log, receive } from "./receive.js";
import { type Item, type Position, type Rows, Table } from "./table.js";

export type { BusEvent, Message, Metadata } from "./message.js";
export type { Rows } from "./table.js";

export interface Consumer<E extends BusEvent> {
  /** A part of the keys of all rows: never change it. */
  name: string;
  tableName: string;
  /**
   * Applies a message to rows, which are written in one transaction with the position of its aggregate. It may be called
   * several times for a message. If it throws an error `maxAttempts` times (by default 5), the aggregate stops.
   */
  handle(message: Message<E>, rows: Rows): void | Promise<void>;
  maxAttempts?: number;
  client?: DynamoDBClient;
}

/** The handler of a Lambda function behind an SQS queue. */
export function consumer<E extends BusEvent = BusEvent>(given: Consumer<E>) {
  const options = { maxAttempts: 5, ...given, handle: given.handle as Handle };
  const table = new Table(given.client ?? new DynamoDBClient({}), given.tableName, given.name);

  /** Applies or stores the messages of a batch. Returns the partial batch response. */
  async function receiveAll(records: any[], cutoff: number): Promise<object> {
    const unsettled = new Set<string>();
    const byAggregate = new Map<string, [id: string, message: Message][]>();
    for (const record of records) {
      // Without an id, nothing can be repeated but the whole batch, which an empty id does.
      const id: string = typeof record?.messageId === "string" ? record.messageId : "";
      try {
        const message = messageOf(JSON.parse(record.body));
        const { aggregateType, aggregateId } = message.detail.metadata;
        const aggregate = `${aggregateType}/${aggregateId}`;
        byAggregate.set(aggregate, [...(byAggregate.get(aggregate) ?? []), [id, message]]);
      } catch (error) {
        log("ERROR", "a message cannot be read", { id, error: `${error}` });
        unsettled.add(id);
      }
    }
    const receiveOf = async ([aggregate, deliveries]: [string, [id: string, message: Message][]]) => {
      const messages = deliveries.map(([, message]) => message);
      const result = await receive(table, aggregate, messages, { ...options, cutoff }).catch((error) => {
        log("ERROR", "the messages of an aggregate are neither applied nor stored", { aggregate, error: `${error}` });
      });
      const isUnsettled = ({ detail }: Message) => result?.retry.has(detail.metadata.messageId) ?? true;
      for (const [id, message] of deliveries) if (isUnsettled(message)) unsettled.add(id);
    };
    await Promise.all([...byAggregate].map(receiveOf));
    return { batchItemFailures: [...unsettled].map((itemIdentifier) => ({ itemIdentifier })) };
  }

  /** Lists the aggregates whose messages wait, and records the metrics of the alarms. */
  async function report(): Promise<object> {
    const [incomplete, aggregates] = [await table.query(`INCOMPLETE#${given.name}`), [] as Item[]];
    for (const { sk: aggregate } of incomplete.sort((one, other) => (one.since < other.since ? -1 : 1)).slice(0, 100)) {
      const [position, first] = await table.query(table.positionKey(aggregate).pk, "#POSITION", 2);
      if (!position || !first) continue; // they do not wait any more
      const { epoch, messageSeq, waiting, attempts, error } = position;
      aggregates.push({ aggregate, since: first.storedAt, epoch, messageSeq, waiting, attempts, error });
    }
    if (aggregates.length > 0) log("WARN", "messages of aggregates wait", { aggregates });
    const gaps = aggregates.filter(({ attempts }) => attempts < options.maxAttempts);
    const oldest = Math.max(0, ...gaps.map(({ since }) => Date.now() - Date.parse(since))) / 1000;
    const values = { OldestGapSeconds: oldest, AggregatesStopped: aggregates.length - gaps.length };
    const Metrics = Object.keys(values).map((Name) => ({ Name }));
    const CloudWatchMetrics = [{ Namespace: process.env.METRICS_NAMESPACE, Dimensions: [[]], Metrics }];
    log("INFO", "metrics", { _aws: { Timestamp: Date.now(), CloudWatchMetrics }, ...values });
    return { total: incomplete.length, aggregates };
  }

  /** Executes the request of an operator. */
  async function execute({ request, aggregate, through, epoch }: any, cutoff: number): Promise<object> {
    if (request === "report") return report();
    if (!["skip", "resume"].includes(request) || !/^[^#/]+\/[^#/]+$/.test(aggregate)) throw new Error("the request is invalid");
    const change = (last: Position) => {
      const place = { epoch: Number(epoch ?? Math.max(last.epoch, 1)), messageSeq: Number(through) };
      if (request === "skip" && !isPlace(place)) throw new Error("the request is invalid");
      const isPassed = request === "skip" && textOf(place) > textOf(last);
      return { ...(isPassed && { ...place, messageId: undefined }), attempts: 0, error: undefined };
    };
    const { applied, failed } = await receive(table, aggregate, [], { ...options, cutoff }, change);
    return { applied, failed };
  }

  return async (event: any, context: { getRemainingTimeInMillis(): number }): Promise<any> => {
    const cutoff = Date.now() + context.getRemainingTimeInMillis() - 1000; // leaves time for the response
    return event?.request === undefined ? receiveAll([...event.Records], cutoff) : execute(event, cutoff);
  };
}
