"""An example: writes the mails that customers get about their orders. The types are generated from `messages.schema.json`."""

import os

from daybook_consumer import Consumer, Rows
from messages import DaybookMessages


def handle(message: DaybookMessages, rows: Rows) -> None:
    if message["detail-type"] == "OrderPlaced":
        order = message["detail"]["data"]
        customer = rows.get(f"customer/{order['customerId']}", "customer") or {"orders": 0}
        orders = customer["orders"] + 1
        rows.put(f"customer/{order['customerId']}", "customer", {"orders": orders})
        text = f"Thank you for order {order['id']}, your number {orders}."
    elif message["detail-type"] == "OrderShipped":
        order = message["detail"]["data"]
        text = f"Order {order['id']} is on its way, its tracking number is {order.get('trackingNumber') or 'unknown'}."
    else:
        return
    mail = f"mail/{message['detail']['metadata']['messageId']}"
    rows.put(f"customer/{order['customerId']}", mail, {"to": order["customerId"], "text": text})


handler = Consumer("order-mails", os.environ["TABLE_NAME"], handle)
