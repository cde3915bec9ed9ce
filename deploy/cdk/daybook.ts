/** A Daybook stack, as `sam package` wrote its template, nested in a stack of a CDK application. Copy this file. */

import { createHash } from "node:crypto";
import { CfnStack } from "aws-cdk-lib";
import { Asset } from "aws-cdk-lib/aws-s3-assets";
import type { Construct } from "constructs";

export type DaybookProps = {
  /** The path of the packaged template. */
  template: string;
  /** Those of template.yaml that shall differ from their defaults. */
  parameters: Record<string, string>;
};

export class Daybook extends CfnStack {
  constructor(scope: Construct, id: string, { template, parameters }: DaybookProps) {
    const { httpUrl, assetHash } = new Asset(scope, `${id}Template`, { path: template });
    // Changed code, and a changed parameter, publish new versions of the functions.
    const Release = createHash("sha256").update(assetHash + JSON.stringify(parameters)).digest("hex");
    super(scope, id, { templateUrl: httpUrl, parameters: { Release, ...parameters } });
  }

  /** An output of template.yaml, such as `EventBusName`. */
  output(name: string): string {
    return this.getAtt(`Outputs.${name}`).toString();
  }
}
