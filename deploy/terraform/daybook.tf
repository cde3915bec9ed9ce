# A Daybook stack, as `sam package` wrote its template. Copy this file. Its outputs are in
# aws_cloudformation_stack.daybook.outputs; the data source of this name has those of a stack that was deployed otherwise.

variable "bucket" { description = "The bucket of the template, in the region of the stack." }
variable "region" { description = "The region of both." }

locals {
  template   = "packaged.yaml"
  parameters = { AlarmEmail = "none", Reactor = "deadlines" }
}

resource "aws_s3_object" "template" {
  bucket = var.bucket
  key    = "${filesha256(local.template)}.yaml" # another template has another address, so that the stack is updated
  source = local.template
}

resource "aws_cloudformation_stack" "daybook" {
  name         = "shop-staging"
  template_url = "https://${var.bucket}.s3.${var.region}.amazonaws.com/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
  policy_body  = file(".github/stack-policy.json")
  # Changed code, and a changed parameter, publish new versions of the functions.
  parameters = merge(local.parameters, { Release = sha256("${aws_s3_object.template.key}${jsonencode(local.parameters)}") })
}
