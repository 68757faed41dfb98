// Package trace tells an OpenTelemetry collector of the requests of the data
// plane, if the environment asks for it (OTEL_*).
//
// The request path does no more than to read the caller's traceparent and to
// write its own (Begin, Append). The span is made later of the request's outcome,
// whose identifier gives the span's:
//
//	caller ── traceparent ─► Begin ─► record ─► Append ── traceparent ─► upstream
//	                                    │
//	                                    ▼ Take
//	                                  queue ─► batch ─► POST /v1/traces
package trace
