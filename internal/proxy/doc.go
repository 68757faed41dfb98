// Package proxy holds what the data plane's drivers share: the rules of proxying, each
// stated once, and the part of an exchange that does not depend on a protocol.
//
//	              ┌─ proxy/h1: the HTTP/1.1 engine ──────────┐
//	client ─► edge┤                                          ├─► upstream
//	              └─ proxy/nethttp: net/http, for HTTP/2 ────┘
//	                 clients, and upstreams over TLS or HTTP/2
//
// A driver reads a request, has it decided by package admit, and exchanges it with the
// upstream. How bytes are read and written is the driver's business; what passes, what is
// replaced, what is refused, what is logged and what is recorded is not.
//
// # Exchange
//
// A driver keeps an [Exchange] for each request:
//
//	Decide ─► Begin ─┬─► Respond ─► Emit                        refused, or failed
//	                 ├─► CheckForward ─► MarkSent ─► MarkResponse ─► Emit
//	                 │                     └─► EmitStarted      it lasts
//	                 ├─► Detach ─► Detached.Emit                it became a tunnel
//	                 ├─► EmitUnanswered                         nobody waits for a response
//	                 └─► HandOver                               another driver goes on
//
// # Rules
//
// By section of the contract, with the place of each rule:
//
//	4.2     order of the checks                            admit.Admitter.Decide
//	4.2     which key an Authorization value holds, and
//	        that it does not reach the upstream            IsKey
//	4.2     api_key is cut from the query                  admit.Verdict.AppendTarget
//	4.2     path of upstream_url before the target         upstream.Prefix
//	4.2     fields that do not pass, in requests,
//	        responses and trailers                         the table in fields.go: RequestDrop,
//	                                                       ResponseDrop, MayTrail
//	4.2     fields that Connection names                   Unnameable has those that it cannot
//	4.2     X-Request-Id, X-Forwarded-*, Via, X-Keygate-*,
//	        upstream_headers                               Hop.Each; IsSet drops the caller's
//	4.2     a request that passed through before           NamesInstance, CheckForward
//	4.2, 8  limits of a response's head                    http1.MaxResponseHead, MaxResponseFields
//	4.2, 8  statuses that a response may have              http1.ResponseParser, ValidStatus
//	4.2, 8  502, 503, 504, 413 and what they say           fault.go, Exchange.Respond
//	4.3     rate limit fields, CORS, Allow, Retry-After    admit.Verdict.EachField
//	4.4     what is sent a second time                     Retryable
//	4.4     protocols to which a request may upgrade       MayUpgrade, Offered
//	4.4     which connections a request may use            OriginOf
//	4.4     max_body_bytes                                 CheckForward, and each driver as it counts
//	4.5     limits of a request's head                     http1.MaxHead, MaxFields, MaxTarget
//	4.5     timeouts of heads, idle and stalled clients    HeadTimeout, IdleTimeout, StallTimeout
//	7       access records: when, by whom, 499 and 503     record.go
//	7       the log line of a failure                      Exchange.Respond, LogBrokenOff, Panicked
//
// # Drivers
//
// An engine of its own for another version of HTTP consults the same table by http1.Name,
// takes the gateway's fields from Hop.Each, and can drive the upstream half of proxy/h1.
package proxy
