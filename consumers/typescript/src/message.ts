/** A message of the bus, and the order of an aggregate's messages. */

/** The numbers that order an aggregate's messages. */
export type Place = { epoch: number; messageSeq: number };

export type Metadata = Place & {
  messageId: string;
  aggregateType: string;
  aggregateId: string;
  previousEpoch?: number | null;
};

/** What the types that are generated from `messages.schema.json` have in common. */
export type BusEvent = { "detail-type": string; detail: { metadata: Metadata; data: unknown } };

/** The part of an event that is the same at each delivery. `detail-type` determines the type of `detail.data`. */
export type Message<E extends BusEvent = BusEvent> = E extends BusEvent ? Pick<E, "detail-type" | "detail"> : never;

/** Messages of an aggregate by their places. */
export type Messages = Map<string, Message>;

/** A place as text, in the order of messages. It is the sort key of a stored message. */
export const textOf = ({ epoch, messageSeq }: Place): string =>
  `WAITING#${String(epoch).padStart(10, "0")}#${String(messageSeq).padStart(20, "0")}`;

const isText = (value: unknown) => typeof value === "string";
const isName = (value: unknown) => typeof value === "string" && /^[^#/]+$/.test(value);
const isNumber = (value: any, least = 0) => Number.isSafeInteger(value) && value >= least;
/** Whether a message can have this place. */
export const isPlace = (of: Place): boolean => isNumber(of.messageSeq, 1) && isNumber(of.epoch, 1) && of.epoch < 2 ** 32;
const isValid = (of: any): boolean =>
  [of.messageId, of.eventId, of.occurredAt].every(isText) &&
  [of.aggregateType, of.aggregateId].every(isName) &&
  [of.seqNum, of.eventVersion, of.previousEpoch ?? 0].every((value) => isNumber(value)) && isPlace(of);

/** The message of an event. Throws an error if the event is no message of Daybook. */
export function messageOf(event: any): Message {
  const { "detail-type": name, detail } = event ?? {};
  if (!isText(name) || !isValid(detail?.metadata ?? {})) throw new Error("the event is no message of Daybook");
  return { "detail-type": name, detail };
}

function isNext(last: Place, { epoch, messageSeq, previousEpoch }: Metadata): boolean {
  if (epoch === last.epoch) return messageSeq === last.messageSeq + 1;
  const isFirst = messageSeq === 1 || (previousEpoch != null && previousEpoch <= last.epoch);
  return epoch > last.epoch && isFirst && messageSeq <= last.messageSeq + 1;
}

/**
 * The message that follows `last`. The first one of a later epoch comes before others: it shows that the messages of earlier
 * epochs with its number are of lost events.
 */
export function nextMessage(last: Place, messages: Iterable<Message>): Message | undefined {
  const next = [...messages].filter(({ detail }) => isNext(last, detail.metadata));
  const order = (one: Place, other: Place) => other.epoch - one.epoch || one.messageSeq - other.messageSeq;
  return next.sort((one, other) => order(one.detail.metadata, other.detail.metadata))[0];
}
