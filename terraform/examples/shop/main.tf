# A gateway for a shop: two targets, a public and a limited route, a plan, and a key for a customer.
#
#   export KEYGATE_URL=http://127.0.0.1:8081 KEYGATE_API_KEY=kga_...
#   export TF_VAR_signing_secret=$(openssl rand -base64 32)
#   tofu apply

terraform {
  required_version = ">= 1.11" # for what is write-only
  required_providers {
    keygate = {
      source = "keygate/keygate"
    }
  }
}

provider "keygate" {} # reads KEYGATE_URL and KEYGATE_API_KEY

variable "signing_secret" {
  description = "Secret by which the receiver of the webhook knows Keygate: 16 to 128 bytes."
  type        = string
  ephemeral   = true
  sensitive   = true
}

resource "keygate_gateway" "shop" {
  name         = "shop"
  hostname     = "shop.example.com"
  upstream_url = "http://127.0.0.1:3000"
  timeout      = "30s"
  cors         = { origins = ["https://www.example.com"] }
  issuers      = [keygate_issuer.login.name]
}

resource "keygate_upstream" "orders" {
  gateway_id = keygate_gateway.shop.gateway_id
  name       = "orders"
  targets = [
    { url = "http://127.0.0.1:3001" },
    { url = "http://127.0.0.1:3002", weight = 2 },
  ]
  ejection = { failures = 3 }
}

resource "keygate_route" "orders" {
  gateway_id = keygate_gateway.shop.gateway_id
  path       = "/orders/{id}"
  methods    = ["GET", "POST"]
  auth       = "any"
  upstream   = keygate_upstream.orders.name
  rate_limit = { sustained = "600/min", burst = "50/s" }
}

resource "keygate_route" "health" {
  gateway_id = keygate_gateway.shop.gateway_id
  path       = "/health"
  methods    = ["GET"]
  auth       = "none"
}

resource "keygate_plan" "basic" {
  name   = "basic"
  title  = "Basic"
  limits = [{ name = "monthly", quota = "100000/month", warn_at = [80] }]
}

resource "keygate_owner" "acme" {
  external_id = "acme"
  name        = "Acme"
  plan_id     = keygate_plan.basic.plan_id
}

resource "keygate_key" "acme" {
  name        = "acme"
  scope       = "read"
  gateway_id  = keygate_gateway.shop.gateway_id
  owner       = keygate_owner.acme.external_id
  rate_limit  = "100/min"
  secret_file = "${path.root}/acme.key"
}

resource "keygate_issuer" "login" {
  name      = "login"
  issuer    = "https://login.example.com"
  audiences = ["https://shop.example.com"]
  jwks_url  = "https://login.example.com/keys"
  required  = { tenant = ["a", "b"] }
}

resource "keygate_webhook" "events" {
  url             = "https://hooks.example.com/keygate"
  events          = ["key.revoked", "quota.threshold"]
  signing_secret  = var.signing_secret
  secrets_version = "1" # another version sends another secret
}

output "gateway_id" {
  value = keygate_gateway.shop.gateway_id
}
