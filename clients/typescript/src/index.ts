export { type Answer, Call, type EventOf, type MethodName, type Options, type Params } from "./call.js";
export { Client, type Kbproc, type Settings, start } from "./client.js";
export {
  BadRequest,
  Cancelled,
  Closed,
  Conflict,
  type ErrorType,
  Failed,
  KbprocError,
  LimitReached,
  NeedsPerson,
  NotAllowed,
  NotFound,
  Overloaded,
  Partially,
  ServerEnded,
  Timeout,
} from "./errors.js";
export * from "./generated.js";
