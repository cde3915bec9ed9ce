/** Is compiled only: the generated types reject what no message has. */

import type { Message } from "../src/consumer.js";
import type { DaybookMessages } from "./messages.js";

export function wrong(message: Message<DaybookMessages>): unknown {
  // @ts-expect-error no message has this name
  if (message["detail-type"] === "OrderShiped") return;
  if (message["detail-type"] !== "OrderShipped") return;
  const total: number = message.detail.data.total;
  // @ts-expect-error it is a number
  const text: string = message.detail.data.total;
  // @ts-expect-error only messages of courses have it
  return [total, text, message.detail.data.seats];
}
