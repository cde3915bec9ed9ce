/** An example of an application: its parameters, an output as SSM parameter, and a rule on the bus. */

import { App, Stack, aws_events, aws_events_targets, aws_sqs, aws_ssm } from "aws-cdk-lib";
import { Daybook } from "./daybook.js";

const stack = new Stack(new App(), "shop");
const parameters = { AlarmEmail: "none", Reactor: "deadlines" };
const daybook = new Daybook(stack, "Daybook", { template: "packaged.yaml", parameters });
new aws_ssm.StringParameter(stack, "ApiUrl", { parameterName: "/shop/api-url", stringValue: daybook.output("ApiUrl") });
new aws_events.Rule(stack, "Orders", {
  eventBus: aws_events.EventBus.fromEventBusName(stack, "Bus", daybook.output("EventBusName")),
  eventPattern: { source: ["com.example.daybook"], detail: { metadata: { aggregateType: ["order"] } } },
  targets: [new aws_events_targets.SqsQueue(new aws_sqs.Queue(stack, "Billing"))],
});
