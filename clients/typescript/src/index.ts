export {
  type Body,
  type Call,
  type Config,
  type DryRun,
  etagOf,
  type Operation,
  type Options,
  Pages,
  type Query,
  type Result,
  type StreamEvent,
  type Update,
} from './client.js';
export { KeygateError, type Problem, SignatureError, UnreachableError } from './errors.js';
export { Keygate } from './resources.gen.js';
export type { components, operations, paths } from './schema.gen.js';
export { verifyWebhook, type WebhookEvent } from './webhook.js';
