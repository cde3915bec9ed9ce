/** An example: writes the mails that customers get about their orders. The types are generated from `messages.schema.json`. */

import { consumer, type Message, type Rows } from "../src/consumer.js";
import type { DaybookMessages } from "./messages.js";

export async function handle(message: Message<DaybookMessages>, rows: Rows): Promise<void> {
  switch (message["detail-type"]) {
    case "OrderPlaced": {
      const { id, customerId } = message.detail.data;
      const customer = (await rows.get<{ orders: number }>(`customer/${customerId}`, "customer")) ?? { orders: 0 };
      const orders = customer.orders + 1;
      rows.put(`customer/${customerId}`, "customer", { orders });
      const text = `Thank you for order ${id}, your number ${orders}.`;
      rows.put(`customer/${customerId}`, `mail/${message.detail.metadata.messageId}`, { to: customerId, text });
      break;
    }
    case "OrderShipped": {
      const { id, customerId, trackingNumber } = message.detail.data;
      const text = `Order ${id} is on its way, its tracking number is ${trackingNumber ?? "unknown"}.`;
      rows.put(`customer/${customerId}`, `mail/${message.detail.metadata.messageId}`, { to: customerId, text });
      break;
    }
  }
}

export const handler = consumer({ name: "order-mails", tableName: process.env.TABLE_NAME!, handle });
