// Package proxy holds what the data plane's engines share: the rules of proxying, each
// stated once, and the part of an exchange that does not depend on a protocol.
//
//	              ┌─ proxy/h1: HTTP/1.1 clients ─┐   ┌─ send.H1Try: HTTP/1.1 ─┐
//	client ─► edge┤                              ├─► ┤                        ├─► upstream
//	              └─ proxy/h2: HTTP/2 clients ───┘   └─ send.H2Try: HTTP/2 ───┘
//
// An engine reads a request, asks package admit for a verdict, and exchanges an admitted
// request with the upstream. How bytes are read and written is up to the engine. What is
// forwarded, replaced, refused, logged and recorded is the same for all engines, and is
// defined here.
//
// # Exchange
//
// An engine keeps an [Exchange] for each request:
//
//	Decide ─► Begin ─┬─► Respond ─► Emit                        refused, or failed
//	                 ├─► CheckForward ─► MarkSent ─► MarkResponse ─► Emit
//	                 │                     └─► EmitStarted      still running after StartedAfter
//	                 ├─► Detach ─► Detached.Emit                upgraded to a tunnel
//	                 └─► EmitNoResponse                         client closed, or shutdown
//
// # Rules
//
// The rules by section of the contract, and what implements each:
//
//	4.2     order of the checks                            admit.Admitter.Decide
//	3.3     whether an admitted request may still go
//	        upstream, or go on (cut_streams)               Exchange.Confirm, admit.Review
//	4.2     which key an Authorization value holds, and
//	        that it does not reach the upstream            IsKey
//	4.2     api_key is removed from the query              admit.Verdict.AppendTarget
//	4.2     path of upstream_url before the target         upstream.Path
//	4.2     fields that are not forwarded, in requests,
//	        responses and trailers                         the table in fields.go: RequestDrop,
//	                                                       ResponseDrop, MayTrail
//	4.2     fields that Connection names                   dropped, except those in Unnameable
//	4.2     X-Request-Id, X-Forwarded-*, Via, X-Keygate-*,
//	        upstream_headers                               Hop.Each; IsWithheld for upstream_headers and key_headers
//	4.2     a request that forms a loop                    NamesInstance, CheckForward
//	4.2, 8  limits of a response's head                    http1.MaxResponseHead, MaxResponseFields
//	4.2, 8  statuses that a response may have              http1.ResponseParser, ValidStatus
//	4.2, 8  502, 503, 504, 413 and their messages          fault.go, Exchange.Respond
//	4.2     the gateway's errors for gRPC calls            IsGRPC, GRPCStatus, GRPCMessage
//	4.3     rate limit fields, CORS, Allow, Retry-After    admit.Verdict.EachField
//	4.2     how long a gRPC call may take                  callTimeout; Exchange.HeadTimeout, CallTimeout
//	4.4     which requests are retried                     Retryable, send.Attempt
//	4.4     protocols to which a request may upgrade       MayUpgrade, Offered
//	4.4     which connections a request may use            OriginOf
//	4.4     max_body_bytes                                 CheckForward, and each engine as it counts
//	4.5     limits of a request's head                     http1.MaxHead, MaxFields, MaxTarget
//	4.5     timeouts of heads, idle and stalled clients    HeadTimeout, IdleTimeout, StallTimeout
//	7       access records: when, by whom, 499 and 503     record.go
//	7       the reason of a 502 or 504                     upstream.ReasonOf, fault.go
//	7       the log line of a failure                      Exchange.Respond, LogBrokenOff, Panicked
//
// # Engines
//
// The engines use the same table by http1.Name, take the gateway's fields from Hop.Each, and
// share the upstream half, which is package send.
package proxy
